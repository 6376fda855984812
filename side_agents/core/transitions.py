"""What happened to agents, as lines of ``transitions.jsonl``: the source of every notice.

No status can change outside of a registry transaction, so the transaction itself notes what it changed, and who has to
hear of it. Each change has the next number of the registry's counter. Lines are appended before the registry is replaced
and count once its counter has reached them; of several with one number the last counts. A writer that is killed in between
therefore neither loses nor doubles a change. The file is bounded: old lines go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from side_agents.core.status import Transition
from side_agents.errors import StateError
from side_agents.infra import clock, fs
from side_agents.models import AgentRecord, AgentStatus, EndedBy, ProcessRef, Tombstone, WaitingFor, json_text

# Key of the registry's own counter of changes.
COUNTER = "transitions"
LIMIT_BYTES = 256 * 1024
TEXT_LIMIT = 200
_LEVELS = 16


@dataclass(frozen=True, slots=True)
class ParentPane:
    """The pane that an agent was started from."""

    socket: str
    server: ProcessRef
    pane_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one agent, and what is needed to tell the right session of it.

    ``orphaned``: its parent has left, so main hears of it; ``parent_session_id`` then is the session that started the
    oldest of its ancestors, None when nothing is known of it. ``adopted`` marks the moment at which it became an orphan.
    ``text`` is what it asks for or said last: data, bounded.
    """

    agent_id: str
    from_status: AgentStatus
    to_status: AgentStatus
    seq: int = 0
    at: str = ""
    window_index: int | None = None
    parent_agent_id: str | None = None
    parent_session_id: str | None = None
    orphaned: bool = False
    adopted: bool = False
    waiting_for: WaitingFor | None = None
    text: str | None = None
    error: str | None = None
    ended_by: EndedBy | None = None
    pane: ParentPane | None = None

    @property
    def transition(self) -> Transition:
        """The part that notices are merged from."""
        return Transition(self.agent_id, self.from_status, self.to_status, self.window_index, self.adopted)


def between(
    before: Mapping[str, AgentRecord],
    after: Mapping[str, AgentRecord],
    buried: Iterable[Tombstone],
    find_tombstone: Callable[[str], Tombstone | None],
    *,
    unreadable: Iterable[str] = (),
) -> list[Change]:
    """What a transaction changed, without numbers, by id; adoptions last (reference/side-agents 6.5, N23).

    An agent that left is ``done``, unless it had ended before; one that is first seen ended comes from
    ``allocating_worktree``. A round that began and ended between two looks is two changes. ``find_tombstone`` is asked for
    the parents of orphans only.
    """
    stones = {stone.id: stone for stone in buried}
    family = _Family(after, stones, find_tombstone, frozenset(unreadable))
    changes = [change for agent_id in sorted(after) for change in _steps(before.get(agent_id), after[agent_id], family)]
    left = before.keys() - after.keys()
    changes += [_left(before[agent_id], stones[agent_id], family) for agent_id in sorted(left & stones.keys())
                if not before[agent_id].status.is_terminal]  # fmt: skip
    fresh = after.keys() - before.keys()
    if left or fresh:
        for agent_id in sorted(after):
            record = after[agent_id]
            if family.is_orphan(record) and (record.parent_agent_id in left or agent_id in fresh):
                changes.append(replace(_change(record, record.status, record.status, family), adopted=True))
    return changes


def main_sessions(
    agents: Mapping[str, AgentRecord], find_tombstone: Callable[[str], Tombstone | None], unreadable: Iterable[str] = ()
) -> dict[str, str | None]:
    """Of each orphan among the agents the session of main that it descends from, None where nothing is known of that."""
    family = _Family(agents, {}, find_tombstone, frozenset(unreadable))
    return {agent.id: family.main_session(agent) for agent in agents.values() if family.is_orphan(agent)}


class _Family:
    """Who is whose parent, among the living and the gone."""

    def __init__(
        self,
        after: Mapping[str, AgentRecord],
        stones: Mapping[str, Tombstone],
        find: Callable[[str], Tombstone | None],
        unreadable: frozenset[str],
    ) -> None:
        self._after, self._stones, self._find, self._unreadable = after, stones, find, unreadable

    def is_orphan(self, agent: AgentRecord) -> bool:
        parent = agent.parent_agent_id
        return parent is not None and parent not in self._after and parent not in self._unreadable

    def main_session(self, agent: AgentRecord) -> str | None:
        """The session of main that the agent descends from, None where the line is broken."""
        current: AgentRecord | Tombstone | None = agent
        for _ in range(_LEVELS):
            if current is None or current.parent_agent_id is None:
                break
            parent = current.parent_agent_id
            current = self._after.get(parent) or self._stones.get(parent) or self._find(parent)
        is_main = current is not None and current.parent_agent_id is None
        return current.parent_session_id if current is not None and is_main else None


def _steps(old: AgentRecord | None, new: AgentRecord, family: _Family) -> list[Change]:
    if old is new:
        return []
    if old is None or old.started_at != new.started_at:
        start = AgentStatus.ALLOCATING_WORKTREE
        return [_change(new, start, new.status, family)] if new.status.is_terminal else []
    if old.status is not new.status:
        return [_change(new, old.status, new.status, family)]
    if new.stops <= old.stops or new.status.is_terminal:
        return []
    waits = new.status is AgentStatus.WAITING_USER
    other = AgentStatus.RUNNING if waits else AgentStatus.WAITING_USER
    return [_change(new, new.status, other, family), _change(new, other, new.status, family)]


def _left(old: AgentRecord, stone: Tombstone, family: _Family) -> Change:
    gone = replace(old, error=stone.error, waiting_for=None, waiting_text=None)
    return replace(_change(gone, old.status, AgentStatus.DONE, family), ended_by=stone.ended_by)


def _change(record: AgentRecord, before: AgentStatus, after: AgentStatus, family: _Family) -> Change:
    orphaned = family.is_orphan(record)
    waits = after is AgentStatus.WAITING_USER
    said = (record.waiting_text or record.last_turn_text) if waits else None
    return Change(
        agent_id=record.id,
        from_status=before,
        to_status=after,
        window_index=record.tmux_window_index,
        parent_agent_id=record.parent_agent_id,
        parent_session_id=family.main_session(record) if orphaned else record.parent_session_id,
        orphaned=orphaned,
        waiting_for=record.waiting_for if waits else None,
        text=said[:TEXT_LIMIT] if said else None,
        error=record.error[:TEXT_LIMIT] if record.error and after.is_terminal else None,
        pane=_pane(record),
    )


def _pane(record: AgentRecord) -> ParentPane | None:
    if not (record.parent_pane_id and record.tmux_socket and record.tmux_server):
        return None
    return ParentPane(record.tmux_socket, record.tmux_server, record.parent_pane_id)


def append(path: Path, changes: Sequence[Change], last: int) -> int:
    """Write the changes with the numbers after ``last``; returns the new last one. Inside the registry lock only."""
    for number, change in enumerate(changes, last + 1):
        fs.append_line(path, json_text(_to_json(replace(change, seq=number, at=clock.iso()))))
    if changes and path.stat().st_size > LIMIT_BYTES:
        tail = fs.read_tail(path, LIMIT_BYTES // 2)
        fs.replace(path, tail[tail.find(b"\n") + 1 :], durable=False)
    return last + len(changes)


def read(path: Path, after: int, last: int) -> list[Change]:
    """The changes with numbers above ``after`` up to ``last``, the registry's counter, in order."""
    found: dict[int, Change] = {}
    # From the end, as far as needed: who follows the agents asks after every change for the few newest ones.
    for line in reversed(fs.read_tail(path, 2 * LIMIT_BYTES).split(b"\n")):
        change = _from_line(line)
        if change is None:
            continue
        if change.seq <= after:
            break
        if change.seq <= last:
            found.setdefault(change.seq, change)
    return [found[seq] for seq in sorted(found)]


def _to_json(change: Change) -> dict[str, Any]:
    pairs: Iterator[tuple[str, Any]] = iter((
        ("seq", change.seq),
        ("at", change.at),
        ("agentId", change.agent_id),
        ("from", str(change.from_status)),
        ("to", str(change.to_status)),
        ("tmuxWindowIndex", change.window_index),
        ("parentAgentId", change.parent_agent_id),
        ("parentSessionId", change.parent_session_id),
        ("orphaned", change.orphaned or None),
        ("adopted", change.adopted or None),
        ("waitingFor", change.waiting_for and str(change.waiting_for)),
        ("text", change.text),
        ("error", change.error),
        ("endedBy", change.ended_by and str(change.ended_by)),
        ("parentPane", change.pane and _pane_json(change.pane)),
    ))  # fmt: skip
    return {key: value for key, value in pairs if value is not None}


def _pane_json(pane: ParentPane) -> dict[str, Any]:
    server = {"pid": pane.server.pid, "started": pane.server.started}
    return {"socket": pane.socket, "server": server, "paneId": pane.pane_id}


def _from_line(line: bytes) -> Change | None:
    try:
        data = json.loads(line)
        pane = data.get("parentPane")
        return Change(
            seq=int(data["seq"]),
            at=str(data["at"]),
            agent_id=str(data["agentId"]),
            from_status=AgentStatus(data["from"]),
            to_status=AgentStatus(data["to"]),
            window_index=data.get("tmuxWindowIndex"),
            parent_agent_id=data.get("parentAgentId"),
            parent_session_id=data.get("parentSessionId"),
            orphaned=data.get("orphaned") is True,
            adopted=data.get("adopted") is True,
            waiting_for=WaitingFor(data["waitingFor"]) if data.get("waitingFor") else None,
            text=data.get("text"),
            error=data.get("error"),
            ended_by=EndedBy(data["endedBy"]) if data.get("endedBy") else None,
            pane=ParentPane(pane["socket"], ProcessRef(**pane["server"]), pane["paneId"]) if pane else None,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # A torn line, or one of another version.
        return None


def note(path: Path, changes: Sequence[Change], extra: dict[str, Any]) -> None:
    """Write the changes of a transaction and move the registry's counter in ``extra``, the registry's further keys.

    A disk that takes no line must not keep the registry from being written: the changes go untold then.
    """
    last = extra.get(COUNTER)
    try:
        extra[COUNTER] = append(path, changes, last if type(last) is int and last > 0 else 0)
    except (StateError, OSError):
        return
