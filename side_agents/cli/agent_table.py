"""Agents as aligned rows, for ``list`` and the demo."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import click

from side_agents.cli.output import STYLES, age_since, fit, pad, safe_line, status_words
from side_agents.clients.script_text import text_width
from side_agents.core.windows import shown_index
from side_agents.models import AgentRecord, AgentStatus, Tombstone

_HEAD = ("AGENT", "STATUS", "TURN", "WIN", "WORKTREE", "AGE", "TASK")
# Left out in this order when the task would get too narrow to say anything.
_DISPENSABLE = ("WORKTREE", "WIN", "AGE", "TURN")
_LEAST_TASK = 24
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Row:
    """One agent's cells in the order of the heading, the status that colours it, and a line to go below."""

    cells: tuple[str, ...]
    status: AgentStatus
    note: str = ""


def rows_of(records: Sequence[AgentRecord], lingering: Collection[str] = ()) -> list[Row]:
    """Rows of live agents, indented below the agent that started them; records come in tree order.

    Of agents that failed or crashed only those that are ``lingering`` have a window to show.
    """
    known = {record.id for record in records}
    levels: dict[str, int] = {}
    rows: list[Row] = []
    for record in records:
        parent = record.parent_agent_id
        level = levels.get(parent, -1) + 1 if parent else 0
        levels[record.id] = level
        orphan = " [orphan]" if parent and parent not in known else ""
        label = ("  " * (level - 1) + "└ " if level else "") + record.id + orphan
        rows.append(_row(record, label, shown_index(record, lingering)))
    return rows


def _row(record: AgentRecord, label: str, window: int | None) -> Row:
    words = status_words(record.status, record.waiting_for, record.exit_code)
    cells = (
        label,
        words + (", suspended" if record.suspended else ""),
        str(record.turn) if record.turn else "-",
        f"#{window}" if window is not None else "-",
        safe_line(PurePath(record.worktree_path).name) if record.worktree_path else "-",
        age_since(record.started_at) or "-",
        _title(record.task),
    )
    note = ""
    if record.error:
        note = safe_line(record.error)
    elif record.waiting_text and record.status is AgentStatus.WAITING_USER:
        note = safe_line(record.waiting_text)
    return Row(cells, record.status, note)


def _title(task: str) -> str:
    first, _, rest = task.strip().partition("\n")
    return safe_line(f"{first} …" if rest.strip() else first)


def rows_of_finished(stones: Sequence[Tombstone], paused: Collection[str] = ()) -> list[Row]:
    """Rows of agents that have left the registry; those that are ``paused`` have work left and can be resumed."""
    return [
        Row(
            (
                stone.id,
                _end_words(stone, paused),
                str(stone.turn) if stone.turn else "-",
                "-",
                "-",
                age_since(stone.finished_at) or "-",
                _title(stone.task),
            ),
            AgentStatus.DONE,
        )
        for stone in stones
    ]


def _end_words(stone: Tombstone, paused: Collection[str]) -> str:
    if stone.id in paused:
        return "paused"
    return f"done ({stone.ended_by})" if stone.ended_by != "exit" else "done"


def render(rows: Sequence[Row], width: int | None) -> list[str]:
    """Styled lines of at most ``width`` columns (None: as wide as it takes), heading first; no rows, no lines."""
    if not rows:
        return []
    kept = _columns(rows, width)
    widths = [max(text_width(cells[i]) for cells in (_HEAD, *(row.cells for row in rows))) for i in kept]
    lines = [click.style(_line(_HEAD, kept, widths, width), dim=True)]
    for row in rows:
        lines.append(_styled(row, kept, widths, width))
        if row.note:
            note = fit(f"    {row.note}", width) if width else f"    {row.note}"
            lines.append(click.style(note, fg="red" if row.status.is_terminal else "cyan"))
    return lines


def _columns(rows: Sequence[Row], width: int | None) -> list[int]:
    kept = list(range(len(_HEAD)))
    for name in _DISPENSABLE if width else ():
        fixed = sum(max(text_width(row.cells[i]) for row in rows) + len(_GAP) for i in kept[:-1])
        if width is None or width - fixed >= _LEAST_TASK:
            break
        kept.remove(_HEAD.index(name))
    return kept


def _line(cells: Sequence[str], kept: Sequence[int], widths: Sequence[int], width: int | None) -> str:
    line = _GAP.join(pad(cells[i], columns) for i, columns in zip(kept, widths, strict=True)).rstrip()
    return fit(line, width) if width else line


def _styled(row: Row, kept: Sequence[int], widths: Sequence[int], width: int | None) -> str:
    # Cut first, coloured afterwards, so that no escape sequence is counted or torn.
    plain = _line(row.cells, kept, widths, width)
    start = widths[0] + len(_GAP)
    end = start + widths[1]
    agent, status, rest = plain[:start], plain[start:end], plain[end:]
    return click.style(agent, bold=True) + click.style(status, **STYLES[row.status]) + rest
