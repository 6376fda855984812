"""``side-agents start``: hand a task to a new agent."""

from __future__ import annotations

import click

from side_agents.cli.here import environment, open_here
from side_agents.cli.options import json_option, read_text
from side_agents.cli.output import safe, safe_line, write_facts, write_json, write_warnings


@click.command(
    epilog="""\b
Examples:
  side-agents start "fix the flaky login test"
  side-agents start --name docs --file task.md
  git log -3 | side-agents start -
  side-agents start -- "- a task that begins with a dash"
"""
)
@click.argument("task", nargs=-1)
@click.option("--file", "-F", metavar="FILE", help="Read the task from a file; - is standard input.")
@click.option("--name", metavar="HINT", default="", help="What to call it; without this, words of the task are used.")
@click.option("--client", metavar="NAME", help="Coding agent to start: pi, script or one from your settings.")
@click.option("--model", metavar="MODEL", help="Model to ask the coding agent for.")
@click.option("--base", metavar="REVISION", help="Start its branch here instead of at your HEAD.")
@click.option("--with-changes", is_flag=True, help="Take your uncommitted changes along.")
@json_option
def start(  # noqa: PLR0917 - click passes them by name
    task: tuple[str, ...],
    file: str | None,
    name: str,
    client: str | None,
    model: str | None,
    base: str | None,
    with_changes: bool,
    as_json: bool,
) -> int:
    """Give TASK to a new agent in its own worktree, branch and tmux window.

    It works in the background; this returns as soon as it runs. A task of a single dash is read from standard input.
    """
    text = read_text(task, file, what="task")
    from side_agents.core import identity, views
    from side_agents.core.results import StartRequest
    from side_agents.core.start import start as start_agent

    session = identity.identify(environment()).session
    request = StartRequest(
        task=text, branch_hint=name, client=client, model=model, base=base, with_changes=with_changes, session=session
    )
    started = start_agent(open_here(), request)
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
