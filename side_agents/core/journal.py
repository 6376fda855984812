"""The journal of one agent: events that launcher and client append, and what they add up to.

Reading starts at an offset that is kept in the registry, so that each line is parsed once whatever the length of the
conversation. A last line without its newline is still being written and is left for the next time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from side_agents.infra import fs
from side_agents.models import AgentRecord, AgentStatus, TurnOutcome, WaitingFor

# One read takes at most this much; the rest follows at the next look.
READ_LIMIT = 4 * 1024 * 1024
TEXT_LIMIT = 500
_PATH_LIMIT = 4096
_PID_LIMIT = 2**31

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JournalTail:
    """Complete events from an offset on, and the offset behind the last of them."""

    events: tuple[Event, ...]
    offset: int


def read(path: Path, offset: int) -> JournalTail:
    """Events from ``offset`` (bytes) on; a line that is no object is passed over, a missing file has none.

    A line above the limit cannot be an event of ours and is stepped over. An offset that is not behind a newline lies
    inside such a line, whose rest is passed over as well.
    """
    start = max(0, offset - 1)
    data = fs.read_slice(path, start, READ_LIMIT + 1)
    length = data.rfind(b"\n") + 1
    if start + length <= offset:
        return JournalTail((), start + len(data) if len(data) > READ_LIMIT else offset)
    # What comes before the first newline is a line only at the start of the file.
    lines = data[:length].split(b"\n")[1 if offset else 0 :]
    events = tuple(event for line in lines if (event := _event(line)) is not None)
    return JournalTail(events, start + length)


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("type"), str) else None


def size(path: Path) -> int:
    """Length of the journal in bytes, 0 when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def fold(record: AgentRecord, events: Iterable[Event]) -> AgentRecord:
    """The record after the events; ``stops`` grows by each turn that ended and each question that was put.

    A terminal record takes facts (session, pid) but keeps its status (reference/side-agents 6.1).
    """
    for event in events:
        step = _STEPS.get(event["type"])
        if step is not None:
            record = step(record, event)
    return record


def _running(record: AgentRecord, **changes: Any) -> AgentRecord:
    status = record.status if record.status.is_terminal else AgentStatus.RUNNING
    return replace(record, status=status, waiting_for=None, waiting_text=None, **changes)


def _waiting(record: AgentRecord, reason: WaitingFor, text: str | None, **changes: Any) -> AgentRecord:
    if record.status.is_terminal:
        return replace(record, **changes)
    return replace(
        record,
        status=AgentStatus.WAITING_USER,
        waiting_for=reason,
        waiting_text=text,
        stops=record.stops + 1,
        **changes,
    )


def _text(event: Event, key: str = "text") -> str | None:
    value = event.get(key)
    return value[:TEXT_LIMIT] if isinstance(value, str) and value else None


def _path(event: Event, key: str) -> str | None:
    # Half a path is worse than none.
    value = event.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= _PATH_LIMIT else None


def _session(record: AgentRecord, event: Event) -> AgentRecord:
    linked = replace(
        record,
        child_session_id=_text(event, "sessionId") or record.child_session_id,
        child_session_file=_path(event, "sessionFile") or record.child_session_file,
    )
    return _running(linked) if linked.status.is_starting else linked


def _client(record: AgentRecord, event: Event) -> AgentRecord:
    pid = event.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < _PID_LIMIT:
        return record
    return replace(record, client_pid=pid)


def _ready(record: AgentRecord, _event: Event) -> AgentRecord:
    # With a first prompt on its way, readiness is not yet a stop: the turn follows.
    if record.kickoff_pending or record.turn_open or record.status == AgentStatus.WAITING_USER:
        return record
    return _waiting(record, WaitingFor.PROMPT, None)


def _turn_start(record: AgentRecord, _event: Event) -> AgentRecord:
    return _running(record, turn_open=True, kickoff_pending=None)


def _turn_end(record: AgentRecord, event: Event) -> AgentRecord:
    outcome: TurnOutcome | None
    try:
        outcome = TurnOutcome(event.get("outcome", TurnOutcome.COMPLETED))
    except ValueError:
        # A word of a newer client: the turn has ended, and that it ended well is not for us to say.
        outcome = None
    return _waiting(
        record,
        WaitingFor.PROMPT,
        None,
        turn=record.turn + 1,
        turn_open=None,
        kickoff_pending=None,
        last_turn_outcome=outcome,
        last_turn_text=_text(event),
        last_turn_ended_at=_text(event, "at"),
    )


def _asked(record: AgentRecord, event: Event) -> AgentRecord:
    try:
        reason = WaitingFor(event.get("for", WaitingFor.QUESTION))
    except ValueError:
        reason = WaitingFor.QUESTION
    return _waiting(record, reason, _text(event))


def _resumed(record: AgentRecord, _event: Event) -> AgentRecord:
    if record.turn_open or record.kickoff_pending or record.status.is_starting:
        return _running(record)
    if record.waiting_for in (None, WaitingFor.PROMPT):
        return record
    # The question stood outside of a turn (trust, at start): with the answer the agent is free to take a message.
    return _waiting(record, WaitingFor.PROMPT, None)


def _suspended(record: AgentRecord, _event: Event) -> AgentRecord:
    return replace(record, suspended=True)


def _continued(record: AgentRecord, _event: Event) -> AgentRecord:
    return replace(record, suspended=None)


def _landed(record: AgentRecord, event: Event) -> AgentRecord:
    commit = _text(event, "commit")
    return record if commit is None else replace(record, landed_commit=commit, landed_target=_text(event, "target"))


_STEPS: dict[str, Callable[[AgentRecord, Event], AgentRecord]] = {
    "session": _session,
    "client": _client,
    "ready": _ready,
    "turn_start": _turn_start,
    "turn_end": _turn_end,
    "waiting": _asked,
    "resumed": _resumed,
    "suspended": _suspended,
    "continued": _continued,
    "landed": _landed,
}
