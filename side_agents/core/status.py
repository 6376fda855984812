"""From observed facts to a status. Pure: no clock, no files, no processes (DESIGN 5 "Status", reference/side-agents 6).

Order of evidence: exit marker, death of the launcher, the journal, the pane. What did not answer is *unknown* and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from side_agents.core import journal
from side_agents.infra.tmux_sweep import Presence
from side_agents.models import AgentRecord, AgentStatus, ExitMarker, WaitingFor

VANISHED = "tmux window disappeared before an exit marker was recorded"
OWNER_DIED = "the process that was starting it ended before it was done"
START_STUCK = "its start did not get any further"
CLIENT_PHASE = "client"
OUTLIVED = "its window is gone but its process is still running"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen of one agent. Process and pane facts are those of this very look.

    ``owner`` is the process that starts it; ``owner_expired`` says that a start state is older than the limit.
    ``quiet`` is set only for clients that report no events: True when their screen has been still for long enough.
    """

    marker: ExitMarker | None = None
    launcher: Presence = Presence.UNKNOWN
    owner: Presence = Presence.UNKNOWN
    owner_expired: bool = False
    pane: Presence = Presence.UNKNOWN
    events: tuple[journal.Event, ...] = ()
    journal_offset: int = 0
    quiet: bool | None = None
    now: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """One agent's change between two looks (reference/side-agents 6.5); ``adopted``: its parent left just now."""

    agent_id: str
    from_status: AgentStatus
    to_status: AgentStatus
    window_index: int | None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """What the next look compares with."""

    status: AgentStatus
    window_index: int | None


def judge(record: AgentRecord, facts: Facts) -> AgentRecord:
    """The record as the facts show it; the same object when nothing changed.

    ``stop_seq`` is not set here, because it comes from the registry's counter: see :func:`is_new_stop`.
    """
    judged = _judge(record, facts)
    if judged == record:
        return record
    return replace(judged, updated_at=facts.now)


def _judge(record: AgentRecord, facts: Facts) -> AgentRecord:
    if facts.marker is None and _lacks_launcher(record):
        # Nothing is taken from the journal before the launcher is known: an agent that only its events made running
        # would have no process whose end could be seen, and could not be adopted any more.
        return record if record.status.is_terminal else _judge_start(record, facts)
    record = replace(journal.fold(record, facts.events), journal_offset=facts.journal_offset)
    if facts.marker is not None:
        return _ended(record, facts.marker, facts.now)
    if record.status.is_terminal:
        return record
    if facts.launcher is Presence.ABSENT:
        return _crashed(record, VANISHED, facts.now)
    if facts.pane is Presence.ABSENT:
        return _crashed(record, OUTLIVED if facts.launcher is Presence.PRESENT else VANISHED, facts.now)
    return _judge_screen(record, facts)


def _lacks_launcher(record: AgentRecord) -> bool:
    return record.launcher is None and (record.status.is_starting or record.status.is_terminal)


def _judge_start(record: AgentRecord, facts: Facts) -> AgentRecord:
    if facts.owner is Presence.ABSENT:
        return _crashed(record, OWNER_DIED, facts.now)
    return _crashed(record, START_STUCK, facts.now) if facts.owner_expired else record


def _judge_screen(record: AgentRecord, facts: Facts) -> AgentRecord:
    if facts.quiet is None or record.status.is_starting:
        return record
    if not facts.quiet:
        return replace(record, status=AgentStatus.RUNNING, waiting_for=None, waiting_text=None, kickoff_pending=None)
    if record.status is AgentStatus.WAITING_USER:
        return record
    return replace(
        record,
        status=AgentStatus.WAITING_USER,
        waiting_for=WaitingFor.PROMPT,
        kickoff_pending=None,
        turn=record.turn + 1,
        stops=record.stops + 1,
    )


def _crashed(record: AgentRecord, why: str, now: str) -> AgentRecord:
    return replace(
        record,
        status=AgentStatus.CRASHED,
        finished_at=record.finished_at or now,
        error=record.error or why,
        waiting_for=None,
        waiting_text=None,
        turn_open=None,
        suspended=None,
    )


def _ended(record: AgentRecord, marker: ExitMarker, now: str) -> AgentRecord:
    if record.status.is_terminal and record.exit_code == marker.exit_code:
        return record
    finished = marker.finished_at or record.finished_at or now
    ended = replace(
        record,
        exit_code=marker.exit_code,
        finished_at=finished,
        waiting_for=None,
        waiting_text=None,
        turn_open=None,
        suspended=None,
    )
    if marker.signal:
        return replace(ended, status=AgentStatus.CRASHED, error=marker.error or f"ended by signal {marker.signal}")
    if marker.exit_code == 0 and marker.phase == CLIENT_PHASE:
        return replace(ended, status=AgentStatus.DONE, error=None)
    what = "the start script" if marker.phase == "start-script" else f"the {marker.phase}"
    error = marker.error or f"{what} exited with code {marker.exit_code}"
    return replace(ended, status=AgentStatus.FAILED, error=error)


def is_new_stop(before: AgentRecord, after: AgentRecord) -> bool:
    """Whether ``after`` is a stop that a waiter has not been told of yet."""
    if after.status.is_terminal:
        return before.status is not after.status or after.stop_seq == 0
    return after.status is AgentStatus.WAITING_USER and after.stops > before.stops


def collect_transitions(
    previous: Mapping[str, SnapshotEntry] | None, records: Iterable[AgentRecord]
) -> tuple[dict[str, SnapshotEntry], list[Transition]]:
    """The next snapshot and what changed since the previous one, sorted by id (U13-U16).

    The first look has no transitions. An agent that is gone and had not ended is reported ``done``; one that was first
    seen already failed or crashed is reported too, from ``allocating_worktree``.
    """
    snapshot = {record.id: _entry(record, (previous or {}).get(record.id)) for record in records}
    if previous is None:
        return snapshot, []
    changes = [_transition(agent_id, previous.get(agent_id), entry) for agent_id, entry in snapshot.items()]
    gone = [
        Transition(agent_id, entry.status, AgentStatus.DONE, entry.window_index)
        for agent_id, entry in previous.items()
        if agent_id not in snapshot and not entry.status.is_terminal
    ]
    found = [change for change in changes if change is not None] + gone
    return snapshot, sorted(found, key=lambda change: change.agent_id)


def _entry(record: AgentRecord, before: SnapshotEntry | None) -> SnapshotEntry:
    known = before.window_index if before is not None else None
    return SnapshotEntry(record.status, record.tmux_window_index if record.tmux_window_index is not None else known)


def _transition(agent_id: str, before: SnapshotEntry | None, after: SnapshotEntry) -> Transition | None:
    if before is None:
        if not after.status.is_terminal:
            return None
        return Transition(agent_id, AgentStatus.ALLOCATING_WORKTREE, after.status, after.window_index)
    if before.status is after.status:
        return None
    return Transition(agent_id, before.status, after.status, after.window_index)
