"""Waiting for agents: asleep in the kernel until a file or a process says that something happened (DESIGN 5 "Wait").

The cursor is the number that the registry gives each stop. ``after`` a cursor only newer stops count, and among several
the oldest comes first, so that no agent starves and no stop is told twice (reference/side-agents 3.4 gaps a-f).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents import names
from side_agents.core import observe
from side_agents.core.context import Context
from side_agents.core.observe import Look
from side_agents.core.results import Checked, Waited
from side_agents.errors import UsageError, WaitTimeoutError
from side_agents.infra import clock, fs
from side_agents.infra.events import Watcher
from side_agents.models import AgentRecord, AgentStatus, ProcessRef, Tombstone, WaitingFor

DEFAULT_STATES = frozenset((AgentStatus.WAITING_USER, AgentStatus.FAILED, AgentStatus.CRASHED, AgentStatus.DONE))

# An abort asked for by a caller that cannot wake us is noticed within this time.
_ABORT_SECONDS = 0.25
# A kernel that loses an event must not make us sleep for ever; one look costs a few milliseconds.
_LONGEST_SLEEP = 60.0


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
    abort: Callable[[], bool] | None = None,
) -> Waited:
    """The first of the agents that is in a wanted state, with a stop newer than ``after`` where that is given.

    Raises UsageError for no ids, UnknownAgentError at once for an id never seen, WaitTimeoutError after ``timeout``
    seconds or when ``abort`` says so.
    """
    wanted = _wanted(ids)
    with _Sleeper(context, wanted, timeout, abort) as sleeper:
        while True:
            found = _stops(context, sleeper.look(), wanted)
            ready = [stop for stop in found if stop.status in states and (after is None or stop.sequence > after)]
            if ready:
                return _result(context, min(ready, key=lambda stop: stop.sequence))
            sleeper.sleep(found)


def wait_all(
    context: Context,
    ids: Sequence[str],
    *,
    states: frozenset[AgentStatus] = DEFAULT_STATES,
    timeout: float | None = None,
    abort: Callable[[], bool] | None = None,
) -> list[Waited]:
    """All of the agents, in the order given, once every one of them is in a wanted state at the same time."""
    wanted = _wanted(ids)
    with _Sleeper(context, wanted, timeout, abort) as sleeper:
        while True:
            found = _stops(context, sleeper.look(), wanted)
            if all(stop.status in states for stop in found):
                return [_result(context, stop) for stop in found]
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


def _result(context: Context, stop: _Stop) -> Waited:
    shown = observe.last_lines(context, stop.agent_id, stop.record)
    return Waited(Checked(stop.record, stop.tombstone, tuple(shown)), _reason(stop), stop.sequence)


def _reason(stop: _Stop) -> str:
    record = stop.record
    if record is None or record.status is not AgentStatus.WAITING_USER:
        error = record.error if record is not None else stop.tombstone and stop.tombstone.error
        return f"{stop.status}: {error}" if error else str(stop.status)
    if record.waiting_for in (WaitingFor.PERMISSION, WaitingFor.QUESTION, WaitingFor.TRUST):
        return f"{record.waiting_for}: {record.waiting_text}" if record.waiting_text else str(record.waiting_for)
    outcome = f" {record.last_turn_outcome}" if record.last_turn_outcome else ""
    return f"turn {record.turn}{outcome}" if record.turn else "ready"


class _Sleeper:
    """Looks, and sleeps between two looks on everything that could change the answer."""

    def __init__(
        self, context: Context, wanted: tuple[str, ...], timeout: float | None, abort: Callable[[], bool] | None
    ) -> None:
        self._context = context
        self._wanted = wanted
        self._deadline = None if timeout is None else clock.monotonic() + timeout
        self._abort = abort
        self._probe = True
        self._processes: set[ProcessRef] = set()
        paths = [context.paths.registry, *(p for name in wanted for p in self._files(name))]
        self._watcher = Watcher(paths)

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
        """Return when something happened; raises WaitTimeoutError when the time is up or the caller gave up."""
        # Loading the lock library takes longer than all else on the way out, so it is done before there is news.
        fs.load_locks()
        records = [stop.record for stop in stops if stop.record is not None]
        self._watch_processes(records)
        delays = [delay for record in records if (delay := observe.quiet_delay(self._context, record)) is not None]
        wake_at = clock.monotonic() + min([_LONGEST_SLEEP, *delays])
        while True:
            self._give_up_if_due()
            left = wake_at - clock.monotonic()
            if left <= 0:
                self._probe = not delays
                return
            if self._watcher.wait(self._slice(left)):
                return

    def _slice(self, left: float) -> float:
        if self._abort is not None:
            left = min(left, _ABORT_SECONDS)
        if self._deadline is not None:
            left = min(left, max(0.0, self._deadline - clock.monotonic()))
        return left

    def _give_up_if_due(self) -> None:
        names_text = ", ".join(self._wanted)
        if self._abort is not None and self._abort():
            raise WaitTimeoutError(f"Waiting for {names_text} was aborted. The agents go on.")
        if self._deadline is not None and clock.monotonic() >= self._deadline:
            raise WaitTimeoutError(
                f"None of {names_text} stopped in the given time. They go on.",
                hint="`side-agents check ID` shows what one is doing.",
            )

    def _watch_processes(self, records: Iterable[AgentRecord]) -> None:
        for record in records:
            refs = (record.launcher, record.owner if record.status.is_starting else None, record.tmux_server)
            for ref in refs:
                if ref is not None and ref not in self._processes and not record.status.is_terminal:
                    self._processes.add(ref)
                    self._watcher.add_process(ref)
