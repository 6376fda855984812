"""``side-agents start``: hand a task to a new agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from side_agents.cli.here import environment, open_here
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, safe_line, write_facts, write_json, write_warnings

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.core.results import StartRequest


@click.command(
    epilog="""\b
Examples:
  side-agents start "fix the flaky login test"
  side-agents start --name docs --file task.md
  git log -3 | side-agents start -
  side-agents start -- "- a task that begins with a dash"
  side-agents start --each tasks.txt
  side-agents start --matrix PY=3.11,3.12 "make the tests pass on Python {PY}"
  side-agents start --queue --each tasks.txt
  side-agents start --template review --set AREA=login "look at the retries"
"""
)
@click.argument("task", nargs=-1)
@click.option("--file", "-F", metavar="FILE", help="Read the task from a file; - is standard input.")
@click.option("--name", metavar="HINT", default="", help="What to call it; without this, words of the task are used.")
@click.option("--client", metavar="NAME", help="Coding agent to start: pi, script or one from your settings.")
@click.option("--model", metavar="MODEL", help="Model to ask the coding agent for.")
@click.option("--base", metavar="REVISION", help="Start its branch here instead of at your HEAD.")
@click.option("--with-changes", is_flag=True, help="Take your uncommitted changes along.")
@click.option("--each", metavar="FILE", help="One agent for each line of a file; - is standard input.")
@click.option("--matrix", multiple=True, metavar="KEY=A,B", help="One agent for each value of {KEY}; repeatable.")
@click.option("--template", metavar="NAME", help="Take the task from .pi/side-agents/prompts/NAME.md.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="What {{KEY}} of the template stands for.")
@click.option("--queue", "queued", is_flag=True, help="Where as many run as may run, start it when there is a place.")
@click.option("--jobs", type=click.IntRange(1, 16), default=4, show_default=True, help="How many starts at a time.")
@json_option
def start(  # noqa: PLR0917 - click passes them by name
    task: tuple[str, ...],
    file: str | None,
    name: str,
    client: str | None,
    model: str | None,
    base: str | None,
    with_changes: bool,
    each: str | None,
    matrix: tuple[str, ...],
    template: str | None,
    settings: tuple[str, ...],
    queued: bool,
    jobs: int,
    as_json: bool,
) -> int:
    """Give TASK to a new agent in its own worktree, branch and tmux window.

    It works in the background; this returns as soon as it runs. A task of a single dash is read from standard input.
    With --each and --matrix there are several agents, each with a result of its own; the exit status is the highest one.
    """
    from side_agents.cli import start_many
    from side_agents.core import identity
    from side_agents.core.results import StartRequest

    wanted = start_many.Wanted(task, file, name, each, matrix, template, settings)
    # A mistake in the words is told before one in the surroundings.
    tasks = start_many.tasks_of(wanted)
    context = open_here()
    session = identity.identify(environment()).session
    requests = [
        StartRequest(
            task=item.task,
            branch_hint=item.name,
            client=client,
            model=model,
            base=base,
            with_changes=with_changes,
            session=session,
        )
        for item in start_many.items_of(context, wanted, tasks)
    ]
    if queued:
        return start_many.queue_all(context, requests, as_json=as_json)
    if wanted.is_batch:
        return start_many.start_all(context, requests, jobs=jobs, as_json=as_json)
    return _start_one(context, requests[0], as_json)


def _start_one(context: Context, request: StartRequest, as_json: bool) -> int:
    from side_agents.core import views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.start import start as start_agent

    started = start_agent(context, request)
    follow_up(context)
    if as_json:
        write_json(views.started_view(started))
        return 0
    record = started.record
    write_warnings(record.warnings)
    heading = f"{click.style('started', fg='green')} {click.style(record.id, bold=True)}"
    click.echo(f"{heading}  {safe_line(record.task, 100)}")
    window = f"{record.tmux_window_index} ({record.tmux_window_id})" if record.tmux_window_id else None
    write_facts(
        (
            ("branch", record.branch),
            ("worktree", safe(record.worktree_path or "")),
            ("window", window),
            ("client", record.client),
        )
    )
    click.echo("next:")
    for verb, what in (("wait", "until it needs you"), ("attach", "go to its window"), ("diff", "see its work")):
        command = f"side-agents {verb} {record.id}"
        click.echo(f"  {command.ljust(24 + len(record.id))}{click.style(what, dim=True)}")
    return 0
