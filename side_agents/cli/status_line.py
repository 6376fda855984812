"""The status line of reference/side-agents 6.7. No click here: status bars ask for it every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from side_agents.cli.here import environment, open_here
from side_agents.models import AgentRecord, AgentStatus


class Role(StrEnum):
    """What a piece of the line means; the format decides how that looks."""

    WARNING = "warning"
    MUTED = "muted"
    ACCENT = "accent"
    ERROR = "error"
    DIM = "dim"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one role."""

    text: str
    role: Role


_ROLES = {
    AgentStatus.ALLOCATING_WORKTREE: Role.WARNING,
    AgentStatus.SPAWNING_TMUX: Role.WARNING,
    AgentStatus.RUNNING: Role.MUTED,
    AgentStatus.DONE: Role.MUTED,
    AgentStatus.WAITING_USER: Role.ACCENT,
    AgentStatus.FAILED: Role.ERROR,
    AgentStatus.CRASHED: Role.ERROR,
}
_TMUX = {Role.WARNING: "yellow", Role.MUTED: "default", Role.ACCENT: "cyan", Role.ERROR: "red", Role.DIM: "brightblack"}
_ANSI = {Role.WARNING: "33", Role.MUTED: "2", Role.ACCENT: "36", Role.ERROR: "31", Role.DIM: "2"}


def read_here(style: str) -> str:
    """The line of the repository that the user is in, as ``plain`` or ``tmux`` text; empty without agents."""
    from side_agents.core.observe import list_agents

    listed = list_agents(open_here(), probe=False)
    line = pieces(listed.records, environment().get("PI_SIDE_AGENT_ID") or None)
    return as_tmux(line) if style == "tmux" else as_plain(line)


def pieces(records: Sequence[AgentRecord], own_id: str | None = None) -> list[Piece]:
    """The line for main (``own_id`` None): everybody, orphans marked; for an agent: parent, children, siblings."""
    if own_id is None:
        known = {record.id for record in records}
        return [_entry(record, orphan=record.parent_agent_id not in (None, *known)) for record in records]
    me = next((record for record in records if record.id == own_id), None)
    parent_id = me.parent_agent_id if me else None
    children = [_entry(record) for record in records if record.parent_agent_id == own_id]
    siblings = [_entry(r) for r in records if me and r.parent_agent_id == parent_id and r.id != own_id]
    line: list[Piece] = []
    for group in (_parent(records, parent_id), children, siblings):
        if line and group:
            line.append(Piece("|", Role.DIM))
        line += group
    return line


def _parent(records: Sequence[AgentRecord], parent_id: str | None) -> list[Piece]:
    if parent_id is None:
        return []
    parent = next((record for record in records if record.id == parent_id), None)
    if parent is None:
        return [Piece(f"parent:{parent_id}:gone", Role.ERROR)]
    entry = _entry(parent)
    return [Piece(f"parent:{entry.text}", entry.role)]


def _entry(record: AgentRecord, *, orphan: bool = False) -> Piece:
    window = f"@{record.tmux_window_index}" if record.tmux_window_index is not None else ""
    mark = "[orphan]" if orphan else ""
    return Piece(f"{record.id}:{record.status.short}{window}{mark}", _ROLES[record.status])


def as_plain(line: Sequence[Piece]) -> str:
    """The line without any colour."""
    return " ".join(piece.text for piece in line)


def as_ansi(line: Sequence[Piece]) -> str:
    """The line for a terminal."""
    return " ".join(f"\x1b[{_ANSI[piece.role]}m{piece.text}\x1b[0m" for piece in line)


def as_tmux(line: Sequence[Piece]) -> str:
    """The line for ``status-right``; what tmux would expand is doubled."""
    styled = " ".join(f"#[fg={_TMUX[piece.role]}]{piece.text.replace('#', '##')}" for piece in line)
    return f"{styled}#[default]" if styled else ""
