"""``side-agents queue``: starts that wait for a free place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import json_option
from side_agents.cli.output import age_since, safe, safe_line, write_json, write_warnings
from side_agents.errors import SideAgentsError

if TYPE_CHECKING:
    from side_agents.cli.agent_table import Row
    from side_agents.core.context import Context
    from side_agents.core.queue import Entry
    from side_agents.core.queue_runner import Ran

_WORDS = {"waiting": "queued", "claimed": "being started", "failed": "could not be started"}
_SOON = 0.5


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def queue(ctx: click.Context, as_json: bool) -> int | None:
    """Show the starts that wait for a free place, in their order. Without a word more, it shows them.

    `start --queue` puts them there; whatever command looks at agents starts them as soon as max_agents and
    max_agents_per_parent allow.
    """
    if ctx.invoked_subcommand is not None:
        return None
    context = open_here()
    if as_json:
        write_json({"ok": True, "queued": [], **waiting_view(context)})
        return 0
    entries = _entries(context)
    for entry in entries:
        asked = f" by {entry.agent_id}" if entry.agent_id else ""
        age = age_since(entry.queued_at)
        click.echo(f"{click.style(entry.id, bold=True)}  {_WORDS[entry.state]}, {age}{asked}  {_title(entry)}")
        if entry.error:
            click.echo(click.style(f"    {safe_line(entry.error)}", fg="red"))
    if not entries:
        click.echo("Nothing waits.")
    return 0


@queue.command()
@click.argument("entry_id", metavar="[ID]", required=False)
@click.option("--follow", is_flag=True, help="Stay, and start what waits as places become free, until nothing waits.")
@json_option
def run(entry_id: str | None, follow: bool, as_json: bool) -> int:
    """Start what there is a place for; with ID that one, also if it could not be started before."""
    from side_agents.core import parallel, queue_runner

    context = open_here()
    if entry_id is not None:
        done = [queue_runner.run_one(context, entry_id)]
    else:
        from side_agents.core.observe import list_agents

        list_agents(context)
        done = queue_runner.drain(context)
        if follow:
            done += _follow(context)
    status = parallel.worst_status([ran.outcome for ran in done])
    if as_json:
        write_json({"ok": status == 0, "agents": [ran_view(ran) for ran in done], **waiting_view(context)})
        return status
    for ran in done:
        write_ran(ran)
    if not done:
        click.echo("Nothing waits." if not _entries(context) else "There is no place for what waits.")
    return status


@queue.command()
@click.argument("entry_ids", metavar="ID...", nargs=-1, required=True)
@json_option
def drop(entry_ids: tuple[str, ...], as_json: bool) -> int:
    """Take starts out of the queue before they begin; their tasks are printed."""
    from side_agents.core import queue as waiting

    context = open_here()
    dropped = [waiting.drop(context, name) for name in entry_ids]
    if as_json:
        write_json({"ok": True, "dropped": [entry_view(entry) for entry in dropped]})
        return 0
    for entry in dropped:
        click.echo(f"{click.style('dropped', fg='yellow')} {entry.id}\n{safe(entry.request.task)}")
    return 0


def _follow(context: Context) -> list[Ran]:
    """Sleep in the kernel until places become free."""
    from side_agents.core import queue_runner
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import list_agents
    from side_agents.core.watching import pause, watch_new
    from side_agents.infra import events

    found: list[Ran] = []
    with events.Watcher([context.paths.registry, context.paths.queue]) as watcher:
        watched: set[object] = set()
        while True:
            records = list_agents(context, probe=False).records
            new = queue_runner.drain(context)
            found += new
            follow_up(context)
            if not any(entry.state != "failed" for entry in _entries(context)):
                return found
            if watch_new(context, watcher, watched, records) or new:
                continue
            longest = pause(context, records)
            # What a dead starter left is looked at again when its window surely is not on its way.
            watcher.wait(min(longest, _SOON) if queue_runner.may_start(context) else longest)


def _entries(context: Context) -> list[Entry]:
    if not context.paths.queue.is_dir():
        return []
    from side_agents.core import queue as waiting

    return waiting.entries(context.paths.queue)


def _title(entry: Entry) -> str:
    first, _, rest = entry.request.task.strip().partition("\n")
    return safe_line(f"{first} …" if rest.strip() else first, 100)


def entry_view(entry: Entry) -> dict[str, Any]:
    """One entry as JSON; what a later start needs besides is nobody's business."""
    from side_agents.infra import text

    pairs = {
        "queueId": entry.id,
        "state": entry.state,
        "task": text.preview(entry.request.task, 200),
        "parentAgentId": entry.agent_id,
        "queuedAt": entry.queued_at,
        "error": entry.error,
    }
    return {key: value for key, value in pairs.items() if value is not None}


def waiting_view(context: Context) -> dict[str, Any]:
    """All entries, for ``list --json``; nothing where nothing waits."""
    entries = [entry_view(entry) for entry in _entries(context)]
    return {"queued": entries} if entries else {}


def waiting_rows(context: Context) -> list[Row]:
    """All entries as rows of the table of agents."""
    from side_agents.cli.agent_table import Row
    from side_agents.models import AgentStatus

    return [
        Row(
            (entry.id, _WORDS[entry.state], "-", "-", "-", age_since(entry.queued_at) or "-", _title(entry)),
            AgentStatus.FAILED if entry.error else AgentStatus.ALLOCATING_WORKTREE,
            safe_line(entry.error or ""),
        )
        for entry in _entries(context)
    ]


def ran_view(ran: Ran) -> dict[str, Any]:
    """What became of an entry, as JSON."""
    from side_agents.core import views

    if isinstance(ran.outcome, SideAgentsError):
        return entry_view(ran.entry) | views.failure_view(ran.outcome)
    return views.started_view(ran.outcome) | {"queueId": ran.entry.id}


def write_ran(ran: Ran) -> None:
    """What became of an entry, for a person."""
    if isinstance(ran.outcome, SideAgentsError):
        click.echo(f"error: {ran.entry.id}: {safe(ran.outcome.message)}", err=True)
        if ran.outcome.hint:
            click.echo(f"hint: {safe(ran.outcome.hint)}", err=True)
        return
    record = ran.outcome.record
    write_warnings(record.warnings)
    click.echo(f"{click.style('started', fg='green')} {click.style(record.id, bold=True)}  {_title(ran.entry)}")
