"""Changes on their way to a reader: merged, held until they have settled, and each told once.

How far a reader has got is kept in its cursor file: all changes up to ``seq`` were told, and of single agents those up to
the numbers in ``told``. It is written after the reader was told, so a reader that is killed at that very moment is told
again, and never told nothing; the number of a notice says that it is the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from side_agents.core import notices, transitions
from side_agents.core.notices import Notice
from side_agents.core.transitions import Change
from side_agents.errors import StateError
from side_agents.infra import clock, fs, text
from side_agents.models import AgentStatus, json_text

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Told:
    """A notice that is due, and the latest of the changes in it."""

    notice: Notice
    change: Change

    @property
    def number(self) -> int:
        """Of the latest change: the notice's identity."""
        return self.change.seq


@dataclass(slots=True)
class Feed:
    """The changes that ``wanted`` accepts, for one reader at a time (see ``locked``); ``since`` is for a first reading."""

    source: Path
    cursor: Path
    wanted: Callable[[Change], bool]
    since: str = ""
    _seq: int = 0
    _told: dict[str, int] = field(default_factory=dict)
    _read: int = 0
    _buffer: dict[str, Notice] = field(default_factory=dict)
    _first: dict[str, int] = field(default_factory=dict)
    _latest: dict[str, Change] = field(default_factory=dict)

    def open(self) -> None:
        """Go on where the last reader stopped; a cursor that cannot be read counts as none."""
        try:
            data = fs.read_json(self.cursor)
        except StateError:
            data = None
        if isinstance(data, dict) and isinstance(data.get("seq"), int) and isinstance(data.get("told"), dict):
            self._seq = data["seq"]
            self._told = {name: seq for name, seq in data["told"].items() if isinstance(seq, int)}
            self.since = ""
        self._read = self._seq

    def collect(self, counter: object) -> None:
        """Take in what was noted up to the registry's ``counter``."""
        last = counter if type(counter) is int else 0
        if last < self._read:
            # The registry was restored from an older state: its numbers begin anew.
            self._read = self._seq = last
            self._told.clear()
            return
        for change in transitions.read(self.source, self._read, last):
            if self.wanted(change) and change.at >= self.since and change.seq > self._told.get(change.agent_id, 0):
                self._first.setdefault(change.agent_id, change.seq)
                self._latest[change.agent_id] = change
                self._buffer = notices.merge(self._buffer, [change.transition], _observed(change))
        self._read = last

    def skip(self, counter: object, is_old: Callable[[Change], bool]) -> None:
        """Note durably that the changes up to ``counter`` that are old count as told: for a reader that comes later."""
        for change in transitions.read(self.source, self._seq, counter if type(counter) is int else 0):
            if self.wanted(change) and is_old(change):
                self._told[change.agent_id] = change.seq
        self.collect(counter)
        self.confirm([])

    def acknowledge(self, agent_id: str, number: int, counter: object) -> None:
        """Note durably that the notice with this number has arrived, for a feed that was just opened; newer ones wait."""
        self._told[agent_id] = max(number, self._told.get(agent_id, 0))
        self.collect(counter)
        self.confirm([])

    def due(self, now: datetime, settle: timedelta = notices.SETTLE) -> list[Told]:
        """What is to be told now, by id; ``confirm`` it when that is done."""
        found, self._buffer = notices.drain(self._buffer, now, idle=True, settle=settle)
        return [Told(notice, self._latest[notice.agent_id]) for notice in found]

    def seconds_left(self, now: datetime, settle: timedelta = notices.SETTLE) -> float | None:
        """Until something is due by the passing of time; None when nothing waits."""
        times = [notice.observed_at + settle - now for notice in self._buffer.values()]
        return max(0.0, min(times).total_seconds()) if times else None

    def confirm(self, told: list[Told]) -> None:
        """Note durably that these were told."""
        for each in told:
            self._told[each.change.agent_id] = each.number
            self._first.pop(each.change.agent_id, None)
        self._seq = min(self._first.values(), default=self._read + 1) - 1
        self._told = {name: seq for name, seq in self._told.items() if seq > self._seq}
        fs.make_private_dir(self.cursor.parent)
        fs.replace(self.cursor, json_text({"seq": self._seq, "told": self._told}), durable=False)


def _observed(change: Change) -> datetime:
    try:
        return clock.parse_iso(change.at)
    except StateError:
        return _LONG_AGO


def describe(told: Told, zone: tzinfo | None = None) -> str:
    """One line for a person or a model (reference/side-agents 6.6); times are in ``zone``, by default the local one."""
    notice, change = told.notice, told.change
    route, count = _route(notice)
    window = f"tmux #{notice.window_index}, " if notice.window_index is not None else ""
    more = f", {count} coalesced" if count > 1 else ""
    when = notice.observed_at.astimezone(zone).strftime("%H:%M:%S")
    parts = [f"side-agent {change.agent_id}: {route} ({window}{when}{more})"]
    if notice.adopted:
        parts.append(f"[adopted: its parent {change.parent_agent_id} is gone]")
    elif change.orphaned:
        parts.append("[orphaned]")
    return text.printable(" ".join(parts) + _detail(change))


def _route(notice: Notice) -> tuple[str, int]:
    """The way in words and the number of its steps; what a start consists of is its own business and is one word."""
    if notice.adopted and notice.path == (notice.from_status,):
        return str(notice.to_status), notice.count
    if not notice.from_status.is_starting:
        return " -> ".join((notice.from_status, *notice.path)), notice.count
    later = [status for status in notice.path if not status.is_starting]
    return " -> ".join(("starting", *later)), notice.count - (len(notice.path) - len(later))


def _detail(change: Change) -> str:
    if change.to_status is AgentStatus.WAITING_USER:
        asks = notices.ASKS.get(change.waiting_for) if change.waiting_for else None
        said = text.one_line(change.text or "", transitions.TEXT_LIMIT)
        if asks:
            return f" {asks}: {said}" if said else f" {asks}"
        return f" said: {said}" if said else ""
    error = text.one_line(change.error or "", transitions.TEXT_LIMIT)
    return f" {error}" if error else ""


def as_json(told: Told, emitted_at: str) -> dict[str, Any]:
    """A notice for programs: the details of reference/side-agents 6.6 and additions; texts are clean and on one line."""
    notice, change = told.notice, told.change
    pairs: Mapping[str, Any] = {
        "type": "notice",
        "seq": told.number,
        "agentId": change.agent_id,
        "parentAgentId": change.parent_agent_id,
        "parentSessionId": change.parent_session_id,
        "orphaned": change.orphaned,
        "adopted": notice.adopted,
        "fromStatus": str(notice.from_status),
        "toStatus": str(notice.to_status),
        "path": [str(status) for status in notice.path],
        "coalescedCount": notice.count,
        "tmuxWindowIndex": notice.window_index,
        "firstObservedAt": clock.iso(notice.first_observed_at),
        "observedAt": clock.iso(notice.observed_at),
        "emittedAt": emitted_at,
        "waitingFor": change.waiting_for and str(change.waiting_for),
        "text": _clean(change.text),
        "error": _clean(change.error),
        "endedBy": change.ended_by and str(change.ended_by),
        "message": describe(told),
    }
    return {key: value for key, value in pairs.items() if value is not None}


def _clean(value: str | None) -> str | None:
    return text.printable(text.one_line(value, transitions.TEXT_LIMIT)) if value else None
