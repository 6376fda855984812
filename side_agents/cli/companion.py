"""``side-agents companion``: the process beside a session, for extensions of coding agents."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import environment, working_directory

if TYPE_CHECKING:
    from side_agents.core.context import Context


@click.command()
@click.option("--settle", type=click.FloatRange(0), default=5.0, metavar="SECONDS", help="Quiet time before a notice.")
@click.option("--json", "_as_json", is_flag=True, hidden=True, help="Nothing changes: this command always speaks JSON.")
def companion(settle: float, _as_json: bool) -> int:
    """Serve the extension of one session: JSON lines on standard input and output, until the input ends.

    Started by the Pi extension. Tool calls, status line and notices of that session go through it; it ends with the session.
    """
    from side_agents.companion.session import Surroundings, serve
    from side_agents.infra import processes

    incoming, outgoing = _take_streams()
    _leave_terminal()
    here = working_directory()
    surroundings = Surroundings(
        incoming=incoming,
        outgoing=outgoing,
        parent=processes.identify(os.getppid()),
        settle=timedelta(seconds=settle),
        open_context=lambda session: _open(here, session),
        explain=_explain,
    )
    return serve(surroundings)


def _take_streams() -> tuple[int, int]:
    """Descriptors of our own for the two pipes; what is printed by mistake goes to standard error, and nobody else reads."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


def _leave_terminal() -> None:
    """Ctrl+C and Ctrl+Z are for the session; it decides when we end."""
    with suppress(PermissionError):
        # We lead a process group already.
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _open(here: Any, session: str | None) -> Context:
    from side_agents.core.context import open_context

    inherited = {
        name: value for name, value in environment().items() if name not in ("SIDE_AGENTS_SESSION", "PI_SESSION_FILE")
    }
    return open_context(here, inherited | ({"SIDE_AGENTS_SESSION": session} if session else {}))


def _explain(error: Exception) -> dict[str, Any]:
    from side_agents.cli.failures import describe

    return describe(error, ["companion"]).as_json()
