"""What follows from a look at agents: what waits is started, and what happened is told. Called by every face that looked."""

from __future__ import annotations

from pathlib import Path

from side_agents.core import notice_state
from side_agents.core.context import Context
from side_agents.errors import SideAgentsError


def follow_up(context: Context, *, eager: bool = True) -> None:
    """Start what has a place by now, and pass notices on.

    Never fails: whoever looked has an answer, and the next look tries again. ``eager`` False is for commands that only look:
    they load nothing unless something is due.
    """
    try:
        if _something_waits(context.paths.queue):
            from side_agents.core import queue_runner

            queue_runner.drain(context)
        if notice_state.is_due(context.paths, eager=eager):
            from side_agents.core import notice_sinks

            notice_sinks.pump(context)
    except (SideAgentsError, OSError):
        return


def _something_waits(folder: Path) -> bool:
    # By names alone: a queue that was used once must not make every status line load what starts agents.
    try:
        return any(path.suffix == ".json" and not path.name.endswith(".failed.json") for path in folder.iterdir())
    except OSError:
        return False
