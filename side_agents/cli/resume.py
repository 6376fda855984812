"""``side-agents resume``: go on with the conversation and the branch of an agent that quit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here, working_directory
from side_agents.cli.options import json_option
from side_agents.cli.output import age_since, pad, safe, safe_line, write_facts, write_json, write_warnings
from side_agents.errors import UsageError
from side_agents.names import normalise_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from side_agents.core.context import Context
    from side_agents.core.results import Started
    from side_agents.core.resume import Resumable


@click.command(
    epilog="""\b
Examples:
  side-agents resume                 choose from a list
  side-agents resume fix-login
  side-agents resume --last
  side-agents resume --list --json
"""
)
@click.argument("agent_id", metavar="[ID]", required=False)
@click.option("--last", is_flag=True, help="The conversation that was used last.")
@click.option("--session", metavar="FILE", help="Exactly the conversation in this file.")
@click.option("--list", "listing", is_flag=True, help="Only show what can be resumed.")
@click.option("--fork", is_flag=True, help="Go on in a copy and leave the conversation as it is.")
@click.option("--model", metavar="MODEL", help="Another model than the conversation's own.")
@click.option("--again", is_flag=True, help="Also after it failed the same way twice.")
@json_option
def resume(  # noqa: PLR0917 - click passes them by name
    agent_id: str | None,
    last: bool,
    session: str | None,
    listing: bool,
    fork: bool,
    model: str | None,
    again: bool,
    as_json: bool,
) -> int:
    """Reopen the conversation of an agent that quit, with its branch, in a window of its own.

    It waits there for you or for `side-agents send`. Where its branch still stands in an idle worktree, that one is used and
    nothing in it is touched.
    """
    if sum((agent_id is not None, last, session is not None, listing)) > 1:
        raise UsageError("Give one of ID, --last, --session and --list. Nothing was started.")
    from side_agents.core.resume import resume as resume_agent

    context = open_here()
    if listing:
        return _write_list(context, as_json)
    target: str | Path | None = None
    if agent_id is not None:
        target = normalise_id(agent_id)
    elif session is not None:
        target = working_directory() / session
    elif not last:
        target = _choose(context, as_json)
        if target is None:
            return 0
    started = resume_agent(context, target, fork=fork, model=model, again=again)
    _write_started(started, as_json)
    return 0


def _choose(context: Context, as_json: bool) -> Path | None:
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "There is no terminal to choose on. Nothing was started.",
            hint="Name it: side-agents resume ID, or --last; `side-agents resume --list` shows what there is.",
        )
    from side_agents.cli.picker_screen import choose
    from side_agents.core.resume import list_resumable

    found = list_resumable(context)
    if not found:
        click.echo("Nothing to resume: no agent of this repository has quit and left a conversation.")
        return None
    number = choose(rows_of(found), "Resume which agent?")
    if number is None:
        click.echo("Nothing was started.")
    return None if number is None else found[number].session.file


def rows_of(found: Sequence[Resumable]) -> list[str]:
    """One aligned line for each conversation: age, id, branch note, title."""
    from side_agents.core.resume_row import modified_at, row_of

    return [f"{pad(age_since(modified_at(each)), 4)} {row_of(each).text}" for each in found]


def _write_list(context: Context, as_json: bool) -> int:
    from side_agents.core.resume import list_resumable

    found = list_resumable(context)
    if as_json:
        from side_agents.core.resume_row import view_of

        write_json({"ok": True, "sessions": [view_of(each) for each in found]})
        return 0
    for row in rows_of(found) or ["Nothing to resume."]:
        click.echo(row)
    return 0


def _write_started(started: Started, as_json: bool) -> None:
    from side_agents.core import views

    record = started.record
    if as_json:
        write_json({**views.started_view(started), "session": record.resumed_from, "forked": _is_fork(started)})
        return
    write_warnings(record.warnings)
    click.echo(
        f"{click.style('resumed', fg='green')} {click.style(record.id, bold=True)}  {safe_line(record.task, 100)}"
    )
    write_facts(
        (
            ("branch", record.branch),
            ("worktree", safe(record.worktree_path or "")),
            ("window", f"{record.tmux_window_index} ({record.tmux_window_id})" if record.tmux_window_id else None),
            (
                "session",
                f"a copy of {safe(record.resumed_from or '')}"
                if _is_fork(started)
                else safe(record.resumed_from or ""),
            ),
        )
    )
    command = f"side-agents attach {record.id}"
    click.echo(f"next:\n  {command}  {click.style('go to its window', dim=True)}")


def _is_fork(started: Started) -> bool:
    return started.record.child_session_file != started.record.resumed_from
