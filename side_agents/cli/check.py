"""``side-agents check``: one agent in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agent_argument, json_option
from side_agents.cli.output import (
    STYLES,
    age_since,
    safe,
    safe_line,
    status_words,
    write_facts,
    write_json,
    write_warnings,
)
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Tombstone

if TYPE_CHECKING:
    from side_agents.core.results import Checked


@click.command()
@agent_argument
@click.option("--lines", type=click.IntRange(0, 1000), default=10, show_default=True, help="How many last lines.")
@json_option
def check(agent_id: str, lines: int, as_json: bool) -> int:
    """Show what agent ID is doing and the last lines that it showed."""
    from side_agents.core import views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import check as check_agent

    context = open_here()
    checked = check_agent(context, agent_id, lines=lines)
    follow_up(context, eager=False)
    if as_json:
        write_json(views.checked_view(checked))
    else:
        write_agent(checked)
    return 0


def write_agent(checked: Checked) -> None:
    """Print one agent: a heading, its facts, its last lines."""
    if checked.record is not None:
        _write_record(checked.record, lingers=checked.lingers)
    elif checked.tombstone is not None:
        _write_tombstone(checked.tombstone)
    if checked.backlog:
        click.echo(f"  {click.style('last lines', dim=True)}")
        for line in checked.backlog:
            click.echo(f"  {click.style('│', dim=True)} {safe(line)}")


def _write_record(record: AgentRecord, *, lingers: bool) -> None:
    words = status_words(record.status, record.waiting_for, record.exit_code)
    suffix = ", suspended" if record.suspended else ""
    click.echo(f"{click.style(record.id, bold=True)}  {click.style(words + suffix, **STYLES[record.status])}")
    has_window = record.tmux_window_id is not None and (lingers or not record.status.is_terminal)
    last = record.last_turn_outcome
    said = f": {safe_line(record.last_turn_text, 160)}" if record.last_turn_text else ""
    write_facts(
        (
            ("asks", safe_line(record.waiting_text or "")),
            ("error", safe_line(record.error or "", 500)),
            ("task", safe_line(record.task)),
            ("parent", record.parent_agent_id),
            ("branch", record.branch),
            ("worktree", safe(record.worktree_path or "")),
            ("window", f"{record.tmux_window_index} ({record.tmux_window_id})" if has_window else None),
            ("client", " ".join(filter(None, (record.client, safe_line(record.model or ""))))),
            ("started", f"{age_since(record.started_at)} ago" if record.started_at else None),
            ("turns", str(record.turn)),
            ("last turn", f"{last}{said}" if last else None),
            ("landed", _landed(record)),
            ("forum", safe_line(record.forum.name) if record.forum else None),
        )
    )
    write_warnings(record.warnings)
    if record.status in (AgentStatus.FAILED, AgentStatus.CRASHED):
        click.echo(f"  its work is kept; clear the record with: side-agents stop {record.id}")


def _write_tombstone(stone: Tombstone) -> None:
    cleared = f"done (was {stone.status}, cleared)"
    how = {EndedBy.EXIT: "done", EndedBy.STOPPED: "done (stopped)", EndedBy.CLEARED: cleared}
    words = click.style(how[stone.ended_by], **STYLES[AgentStatus.DONE])
    click.echo(f"{click.style(stone.id, bold=True)}  {words}")
    write_facts(
        (
            ("error", safe_line(stone.error or "", 500)),
            ("task", safe_line(stone.task)),
            ("branch", f"{stone.branch} at {stone.branch_head[:12]}" if stone.branch_head else stone.branch),
            ("landed", _landed(stone)),
            ("forum", safe_line(stone.forum.name) if stone.forum else None),
            ("client", stone.client),
            ("ended", f"{age_since(stone.finished_at)} ago" if stone.finished_at else None),
            ("turns", str(stone.turn)),
        )
    )


def _landed(agent: AgentRecord | Tombstone) -> str | None:
    return f"{agent.landed_commit[:12]} on {safe_line(agent.landed_target or '?')}" if agent.landed_commit else None
