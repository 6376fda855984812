"""Which session hears of which agent (reference/side-agents 6.5, 6.7, seed 001 6.4). Pure.

A session hears of the agents that it started. An agent is known by its id, whatever conversation it is in; main sessions
are told apart by theirs, so that two of them in one repository each hear only of their own (X20), and where one of both is
not known it counts as the same. Agents whose parent has left are adopted by the main session that they descend from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from side_agents.core.identity import Caller
from side_agents.core.transitions import Change
from side_agents.models import AgentRecord

MAIN = "main"


@dataclass(frozen=True, slots=True)
class Listener:
    """A session: an agent's (``agent_id``), or one of main, with its conversation where that is known."""

    agent_id: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Who is in the status line of one session. ``parent_gone`` is the id of a parent that has left.

    ``others`` were started by other sessions of main.
    """

    parent: AgentRecord | None = None
    parent_gone: str | None = None
    children: tuple[AgentRecord, ...] = ()
    siblings: tuple[AgentRecord, ...] = ()
    others: tuple[AgentRecord, ...] = ()


def listener_of(caller: Caller, session: str | None = None) -> Listener:
    """The session of a caller; ``session`` is what it says itself."""
    return Listener(caller.agent_id, session or caller.session)


def hears(who: Listener, change: Change) -> bool:
    """Whether a session is told of a change."""
    return _is_for(who, change.parent_agent_id, change.parent_session_id, orphaned=change.orphaned)


def recipient(change: Change) -> Listener:
    """The one session that a change is for."""
    parent = None if change.orphaned else change.parent_agent_id
    return Listener(parent, change.parent_session_id if parent is None else None)


def heard(
    who: Listener, records: Iterable[AgentRecord], ancestors: Mapping[str, str | None] | None = None
) -> list[AgentRecord]:
    """Those of all agents that a session hears of now (N20); ``ancestors`` names the main sessions of orphans."""
    rows = list(records)
    present = {record.id for record in rows}
    found = []
    for record in rows:
        orphaned = record.parent_agent_id is not None and record.parent_agent_id not in present
        session = (ancestors or {}).get(record.id) if orphaned else record.parent_session_id
        if _is_for(who, record.parent_agent_id, session, orphaned=orphaned):
            found.append(record)
    return found


def _is_for(who: Listener, parent: str | None, session: str | None, *, orphaned: bool) -> bool:
    if who.agent_id is not None:
        # An agent adopts nobody.
        return parent == who.agent_id and not orphaned
    if parent is not None and not orphaned:
        return False
    return who.session is None or session is None or who.session == session


def scope(
    records: Sequence[AgentRecord], who: Listener | None = None, ancestors: Mapping[str, str | None] | None = None
) -> Scope:
    """Who is shown to a session (N21). Main has its children and its orphans, and apart from them those of other main sessions.

    An agent has its parent, if that is an agent, its children, and those with the same parent. Without ``who`` all of main
    counts as one session; ``ancestors`` as for ``heard``.
    """
    who = who or Listener()
    own_id = who.agent_id
    if own_id is None:
        mine = heard(who, records, ancestors)
        ids = {record.id for record in mine}
        others = (record for record in heard(Listener(), records) if record.id not in ids)
        return Scope(children=tuple(mine), others=tuple(others))
    me = next((record for record in records if record.id == own_id), None)
    children = tuple(record for record in records if record.parent_agent_id == own_id)
    if me is None:
        return Scope(children=children)
    parent_id = me.parent_agent_id
    parent = next((record for record in records if record.id == parent_id), None)
    siblings = tuple(record for record in records if record.parent_agent_id == parent_id and record.id != own_id)
    return Scope(parent, parent_id if parent is None else None, children, siblings)


def key(who: Listener) -> str:
    """A folder name for a session: readable, and different for different ones."""
    name = who.agent_id or who.session
    if name is None:
        return MAIN
    import hashlib  # 3 ms, and a status line needs no key

    kind = "agent-" if who.agent_id is not None else ""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", PurePath(name).stem).strip("-")[:40]
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"{kind}{readable or 'session'}-{digest}"
