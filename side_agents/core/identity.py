"""Who is asking: main, or an agent that may start agents of its own (reference/side-agents 6.8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from side_agents.errors import DepthError


@dataclass(frozen=True, slots=True)
class Caller:
    """The asking side: ``agent_id`` None is main; ``session`` is its own conversation, where it is known."""

    agent_id: str | None = None
    depth: int = 0
    parent_agent_id: str | None = None
    session: str | None = None


def identify(environment: Mapping[str, str]) -> Caller:
    """Read the caller from the variables that a launcher exports (N19).

    An agent of a version without depth, or with junk in it, counts as depth 1: it is a child of somebody.
    """
    agent_id = environment.get("PI_SIDE_AGENT_ID") or None
    session = environment.get("SIDE_AGENTS_SESSION") or environment.get("PI_SESSION_FILE") or None
    if agent_id is None:
        return Caller(session=session)
    return Caller(
        agent_id=agent_id,
        depth=_depth(environment.get("PI_SIDE_AGENT_DEPTH", "")),
        parent_agent_id=environment.get("PI_SIDE_PARENT_AGENT_ID") or None,
        session=session,
    )


def _depth(text: str) -> int:
    # Two digits at most: Python itself refuses to convert thousands of them.
    return max(1, int(text)) if re.fullmatch("[0-9]{1,2}", text) else 1


def may_start(caller: Caller, max_depth: int) -> bool:
    """Whether one more level is allowed (N22)."""
    return caller.depth < max_depth


def require_start_allowed(caller: Caller, max_depth: int) -> None:
    """Raise DepthError, with advice, where :func:`may_start` says no."""
    if may_start(caller, max_depth):
        return
    raise DepthError(
        f"Agent {caller.agent_id or 'main'} is at depth {caller.depth} of at most {max_depth} "
        "and may not start agents. Nothing was started.",
        hint="Do this part yourself, or report it to the agent that started you and let it decide.",
    )
