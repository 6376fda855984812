"""``side-agents status``: one line for a status bar, or a stream of changes. Asks neither tmux nor git."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from side_agents.cli import status_line
from side_agents.cli.here import environment, open_here
from side_agents.cli.options import json_option
from side_agents.cli.output import write_json
from side_agents.errors import UsageError

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.models import AgentRecord


@click.command(
    epilog="""\b
In ~/.tmux.conf:
  set -g status-right-length 150
  set -g status-right '#(cd "#{pane_current_path}" && side-agents status --format tmux)'
"""
)
@click.option("--format", "style", type=click.Choice(("plain", "ansi", "tmux")), help="Colours: none, terminal, tmux.")
@click.option("--follow", is_flag=True, help="Stream every change as one JSON object a line until interrupted.")
@json_option
def status(style: str | None, follow: bool, as_json: bool) -> int:
    """Print one line with all agents, `id:state@window` each; nothing when there are none.

    States: alloc, tmux, run, wait, done, fail, crash.
    """
    context = open_here()
    if follow:
        if style is not None:
            raise UsageError("--follow streams JSON; --format is for the line.")
        return _follow(context)
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import list_agents

    listed = list_agents(context, probe=False)
    follow_up(context, eager=False)
    line = status_line.pieces(listed.records, environment().get("PI_SIDE_AGENT_ID") or None, listed.lingering)
    if as_json:
        agents = [_summary(record) for record in listed.records]
        write_json({"ok": True, "line": status_line.as_plain(line), "agents": agents})
        return 0
    chosen = style or ("ansi" if sys.stdout.isatty() else "plain")
    text = {"plain": status_line.as_plain, "ansi": status_line.as_ansi, "tmux": status_line.as_tmux}[chosen](line)
    if text:
        # With --format ansi the colours are asked for, also in a pipe; without it NO_COLOR decides.
        click.echo(text, color=True if style == "ansi" else None)
    return 0


def _summary(record: AgentRecord) -> dict[str, object]:
    waiting = {"waitingFor": str(record.waiting_for)} if record.waiting_for else {}
    window = {"tmuxWindowIndex": record.tmux_window_index} if record.tmux_window_index is not None else {}
    return {"id": record.id, "status": str(record.status), **waiting, **window}


def _follow(context: Context) -> int:
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import list_agents
    from side_agents.core.status import collect_transitions
    from side_agents.core.watching import pause, watch_new
    from side_agents.infra import clock, events

    with events.Watcher([context.paths.registry]) as watcher:
        watched: set[object] = set()
        snapshot = None
        while True:
            records = list_agents(context, probe=False).records
            if watch_new(context, watcher, watched, records):
                # What happened before the watch was in place would be missed without a second look.
                continue
            first = snapshot is None
            snapshot, changes = collect_transitions(snapshot, records)
            if first:
                _emit({"type": "snapshot", "at": clock.iso(), "agents": [_summary(record) for record in records]})
            for change in changes:
                line: dict[str, object] = {"type": "transition", "at": clock.iso(), "id": change.agent_id}
                line |= {"from": str(change.from_status), "to": str(change.to_status)}
                if change.window_index is not None:
                    line["tmuxWindowIndex"] = change.window_index
                _emit(line)
            follow_up(context)
            watcher.wait(pause(context, records))


def _emit(line: dict[str, object]) -> None:
    click.echo(json.dumps(line, ensure_ascii=False))
    sys.stdout.flush()
