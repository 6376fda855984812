"""Waiting for agents: asleep in the kernel until a file or a process says that something happened (DESIGN 5 "Wait").

The cursor is the number that the registry gives each stop. ``after`` a cursor only newer stops count, and among several
the oldest comes first, so that no agent starves and no stop is told twice (reference/side-agents 3.4 gaps a-f).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents import names
from side_agents.core import observe, windows
from side_agents.core.context import Context
from side_agents.core.observe import Look
from side_agents.core.results import Checked, Waited
from side_agents.errors import CancelledError, RefusedError, UsageError, WaitTimeoutError
from side_agents.infra import clock, fs, processes
from side_agents.infra.events import Wakeup, Watcher
from side_agents.models import AgentRecord, AgentStatus, ProcessRef, Tombstone, TurnOutcome, WaitingFor

DEFAULT_STATES = frozenset((AgentStatus.WAITING_USER, AgentStatus.FAILED, AgentStatus.CRASHED, AgentStatus.DONE))

# A kernel that loses an event must not make us sleep for ever; one look costs a few milliseconds.
_LONGEST_SLEEP = 60.0
# A client that is being killed first reports its turn as aborted; so long it may take to be gone, and its launcher to
# say how it ended.
_ABORTED_SECONDS = 0.3
_LEAVING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Stop:
    agent_id: str
    status: AgentStatus
    sequence: int
    record: AgentRecord | None
    tombstone: Tombstone | None


def wait_any(
    context: Context,
    ids: Sequence[str],
    *,
    after: int | None = None,
    states: frozenset[AgentStatus] = DEFAULT_STATES,
    timeout: float | None = None,
    cancellation: Wakeup | None = None,
) -> Waited:
    """The first of the agents that is in a wanted state, with a stop newer than ``after`` where that is given.

    Raises UsageError for no ids, UnknownAgentError at once for an id never seen, WaitTimeoutError after ``timeout``
    seconds, CancelledError once ``cancellation`` is fired, RefusedError when all of them have ended and nothing newer can
    come.
    """
    wanted = _wanted(ids)
    with _Sleeper(context, wanted, timeout, cancellation) as sleeper:
        while True:
            look = sleeper.look()
            found = _stops(context, look, wanted)
            ready = [stop for stop in found if stop.status in states and (after is None or stop.sequence > after)]
            if ready:
                first = min(ready, key=lambda stop: stop.sequence)
                if sleeper.is_sure(first):
                    return _result(context, look, first)
                continue
            _refuse_endless(found)
            sleeper.sleep(found)


def wait_all(
    context: Context,
    ids: Sequence[str],
    *,
    states: frozenset[AgentStatus] = DEFAULT_STATES,
    timeout: float | None = None,
    cancellation: Wakeup | None = None,
) -> list[Waited]:
    """All of the agents, in the order given, once every one of them is in a wanted state at the same time."""
    wanted = _wanted(ids)
    with _Sleeper(context, wanted, timeout, cancellation) as sleeper:
        while True:
            look = sleeper.look()
            found = _stops(context, look, wanted)
            if all(stop.status in states for stop in found):
                if all(map(sleeper.is_sure, found)):
                    return [_result(context, look, stop) for stop in found]
                continue
            for stop in found:
                if stop.status not in states:
                    _refuse_endless([stop])
            sleeper.sleep(found)


def _wanted(ids: Sequence[str]) -> tuple[str, ...]:
    wanted = names.normalise_ids(ids)
    if not wanted:
        raise UsageError("No agent ids were given to wait for.", hint="`side-agents list` shows the ids.")
    return wanted


def _stops(context: Context, look: Look, wanted: Iterable[str]) -> list[_Stop]:
    stops: list[_Stop] = []
    unknown: list[str] = []
    for agent_id in wanted:
        record = look.state.agents.get(agent_id)
        if record is not None:
            stops.append(_Stop(agent_id, record.status, record.stop_seq, record, None))
            continue
        stone = look.ended.get(agent_id) or context.registry.tombstone(agent_id)
        if stone is None:
            unknown.append(agent_id)
        else:
            stops.append(_Stop(agent_id, stone.status, stone.stop_seq, None, stone))
    if unknown:
        raise context.registry.unknown(*unknown)
    return stops


def _refuse_endless(stops: Sequence[_Stop]) -> None:
    ended = [stop.agent_id for stop in stops if stop.status.is_terminal]
    if len(ended) == len(stops):
        raise RefusedError(
            f"{', '.join(ended)} {'has' if len(ended) == 1 else 'have'} ended, so nothing newer can come. "
            "There is nothing to wait for.",
            hint="`side-agents check ID` shows how one ended.",
        )


def _result(context: Context, look: Look, stop: _Stop) -> Waited:
    shown = observe.last_lines(context, stop.agent_id, observe.visible(look, stop.record))
    lingers = stop.record is not None and windows.lingers(stop.record)
    checked = Checked(stop.record, stop.tombstone, tuple(shown), lingers)
    return Waited(checked, _reason(stop), stop.sequence)


def _reason(stop: _Stop) -> str:
    record = stop.record
    if record is None or record.status is not AgentStatus.WAITING_USER:
        error = record.error if record is not None else stop.tombstone and stop.tombstone.error
        return f"{stop.status}: {error}" if error else str(stop.status)
    if record.waiting_for in (WaitingFor.PERMISSION, WaitingFor.QUESTION, WaitingFor.TRUST):
        return f"{record.waiting_for}: {record.waiting_text}" if record.waiting_text else str(record.waiting_for)
    outcome = f" {record.last_turn_outcome}" if record.last_turn_outcome else ""
    return f"turn {record.turn}{outcome}" if record.turn else "ready"


def _is_just_aborted(record: AgentRecord) -> bool:
    if record.last_turn_outcome is not TurnOutcome.ABORTED or record.waiting_for is not WaitingFor.PROMPT:
        return False
    try:
        age = clock.now() - clock.parse_iso(record.last_turn_ended_at or "")
    except ValueError:
        return True
    return age.total_seconds() < _LEAVING_SECONDS


class _Sleeper:
    """Looks, and sleeps between two looks on everything that could change the answer."""

    def __init__(
        self, context: Context, wanted: tuple[str, ...], timeout: float | None, cancellation: Wakeup | None
    ) -> None:
        self._context = context
        self._wanted = wanted
        self._deadline = None if timeout is None else clock.monotonic() + timeout
        self._cancellation = cancellation
        self._probe = True
        self._doubts: dict[int, float] = {}
        self._processes: set[ProcessRef] = set()
        paths = [context.paths.registry, *(p for name in wanted for p in self._files(name))]
        self._watcher = Watcher(paths, wakeup=cancellation)

    def __enter__(self) -> _Sleeper:
        self._watcher.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._watcher.__exit__(*details)

    def _files(self, agent_id: str) -> tuple[Path, ...]:
        runtime = self._context.paths.runtime(agent_id)
        return (runtime.journal, runtime.exit_marker)

    def look(self) -> Look:
        """Refresh the agents. tmux is asked on the first look and after long sleeps: deaths wake us by themselves."""
        look = observe.refresh(self._context, self._wanted, probe=self._probe)
        self._probe = False
        return look

    def sleep(self, stops: Iterable[_Stop]) -> None:
        """Return when something happened; raises WaitTimeoutError when the time is up, CancelledError when told to."""
        # Loading the lock library takes longer than all else on the way out, so it is done before there is news.
        fs.load_locks()
        records = [stop.record for stop in stops if stop.record is not None]
        self._watch_processes(records)
        delays = [delay for record in records if (delay := observe.quiet_delay(self._context, record)) is not None]
        # Only its tmux server can say what became of an agent whose starter dies.
        self._probe = any(record.status.is_starting for record in records)
        wake_at = clock.monotonic() + min([_LONGEST_SLEEP, *delays])
        while True:
            self._give_up_if_due()
            left = wake_at - clock.monotonic()
            if left <= 0:
                self._probe = self._probe or not delays
                return
            if self._watcher.wait(self._slice(left)):
                return

    def is_sure(self, stop: _Stop) -> bool:
        """Whether a stop is one, and not the first sign of an agent's end; False after a moment's sleep: look again."""
        record = stop.record
        if record is None or record.status is not AgentStatus.WAITING_USER or not _is_just_aborted(record):
            return True
        self._give_up_if_cancelled()
        is_new = stop.sequence not in self._doubts
        since = self._doubts.setdefault(stop.sequence, clock.monotonic())
        is_gone = record.client_pid is not None and processes.identify(record.client_pid) is None
        if clock.monotonic() - since >= (_LEAVING_SECONDS if is_gone else _ABORTED_SECONDS):
            return True
        self._probe = is_new
        self._watch_processes([record])
        self._watcher.wait(_ABORTED_SECONDS / 4)
        return False

    def _slice(self, left: float) -> float:
        return left if self._deadline is None else min(left, max(0.0, self._deadline - clock.monotonic()))

    def _give_up_if_due(self) -> None:
        self._give_up_if_cancelled()
        if self._deadline is not None and clock.monotonic() >= self._deadline:
            raise WaitTimeoutError(
                f"None of {', '.join(self._wanted)} stopped in the given time. They go on.",
                hint="`side-agents check ID` shows what one is doing.",
            )

    def _give_up_if_cancelled(self) -> None:
        if self._cancellation is not None and self._cancellation.fired:
            raise CancelledError(f"Waiting for {', '.join(self._wanted)} was cancelled. The agents go on.")

    def _watch_processes(self, records: Iterable[AgentRecord]) -> None:
        for record in records:
            starter = record.owner if record.status.is_starting else None
            refs = (record.launcher, starter, record.tmux_server, observe.stopper(record))
            for ref in refs:
                if ref is not None and ref not in self._processes and not record.status.is_terminal:
                    self._processes.add(ref)
                    self._watcher.add_process(ref)
