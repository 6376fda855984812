"""``side-agents list``: all agents as a tree."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, write_json
from side_agents.errors import NotARepositoryError

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.core.results import Listed


@click.command("list")
@click.option("--all", "-a", "everything", is_flag=True, help="Also those that have ended.")
@json_option
def list_command(everything: bool, as_json: bool) -> int:
    """Show all agents of this repository as a tree."""
    from side_agents.core import views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import list_agents

    context = open_here()
    listed = list_agents(context, everything=everything)
    follow_up(context, eager=False)
    if as_json:
        from side_agents.cli.queue import waiting_view

        write_json(views.listed_view(listed) | waiting_view(context))
    else:
        write_list(listed, context)
    return 0


def overview(ctx: click.Context) -> int:
    """What ``side-agents`` alone shows on a terminal: the agents and what to type next."""
    from side_agents.core.observe import list_agents

    try:
        context = open_here()
        listed = list_agents(context)
    except NotARepositoryError:
        click.echo(ctx.get_help())
        return 0
    write_list(listed, context)
    advice = "`side-agents start TASK` starts an agent, `side-agents --help` lists all commands."
    click.echo(click.style(advice, dim=True))
    return 0


def write_list(listed: Listed, context: Context) -> None:
    """Print the table, cut to the terminal's width; at its end what waits in the queue."""
    from side_agents.cli.agent_table import render, rows_of, rows_of_finished
    from side_agents.cli.queue import waiting_rows

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    finished = rows_of_finished(listed.tombstones, listed.paused)
    lines = render([*rows_of(listed.records, listed.lingering), *waiting_rows(context), *finished], width)
    for line in lines or _nobody(context):
        click.echo(line)
    for name in listed.unreadable:
        warning = click.style("warning:", fg="yellow")
        click.echo(f"{warning} {safe(name)} was written by another version and is kept.", err=True)
    for note in listed.notes:
        click.echo(f"{click.style('note:', fg='yellow')} {safe(note)}", err=True)


def _nobody(context: Context) -> list[str]:
    if not context.registry.history():
        return ["No agents yet."]
    hint = "`side-agents list --all` shows those that have ended."
    return ["No agents are running.", click.style(hint, dim=True)]
