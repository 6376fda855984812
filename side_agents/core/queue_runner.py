"""Starting what waits in the queue as far as there are free places; whoever looks at agents does it in passing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from side_agents.core import budget, observe, queue
from side_agents.core.context import Context
from side_agents.core.observe import Look
from side_agents.core.queue import CLAIMED, FAILED, WAITING, Entry
from side_agents.core.registry import RegistryState
from side_agents.core.results import Started
from side_agents.errors import BudgetError, NotInTmuxError, SideAgentsError, StartFailedError
from side_agents.infra import clock, processes
from side_agents.models import AgentRecord, AgentStatus

_WINDOW_GRACE = timedelta(seconds=2)
_TMUX = ("TMUX", "TMUX_PANE")


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one entry: an agent, or the reason why there is none."""

    entry: Entry
    outcome: Started | SideAgentsError


def drain(context: Context) -> list[Ran]:
    """Start all that there is a place for, in order. An entry that cannot be started is set aside with its reason."""
    done: list[Ran] = []
    passed: set[int] = set()
    if not may_start(context):
        return done
    while (entry := _claim(context, passed)) is not None:
        passed.add(entry.number)
        ran = _start(context, entry)
        if ran is not None:
            done.append(ran)
    return done


def may_start(context: Context) -> bool:
    """Whether it is worth taking the lock, by what files say: this is asked after every look."""
    found = [entry for entry in queue.entries(context.paths.queue) if entry.state != FAILED]
    rows = _rows(context) if found else []
    for entry in found:
        if entry.state == CLAIMED:
            if entry.claimer is None or not processes.is_alive(entry.claimer):
                return True
        elif budget.obstacle(rows, context.config, entry.agent_id, entry.request.session) is None:
            return True
    return False


def run_one(context: Context, name: str) -> Ran:
    """Start one entry now, also one that was set aside. Raises NotFoundError, BudgetError, RefusedError."""
    with queue.locked(context):
        _recover(context)
        entry = queue.find(context, name)
        if entry.state == CLAIMED:
            raise StartFailedError(f"{entry.id} is being started already.")
        why = budget.obstacle(_rows(context), context.config, entry.agent_id, entry.request.session)
        if why is not None:
            raise BudgetError(f"{why}. {entry.id} stays in the queue.")
        entry = _claimed(context, entry)
    ran = _start(context, entry)
    if ran is None:
        raise BudgetError(f"The last place was taken meanwhile. {entry.id} stays in the queue.")
    return ran


def _claim(context: Context, passed: Collection[int]) -> Entry | None:
    """The first entry that there is a place for, now ours."""
    with queue.locked(context):
        _recover(context)
        rows = _rows(context)
        for entry in queue.entries(context.paths.queue):
            if entry.state != WAITING or entry.number in passed:
                continue
            if budget.obstacle(rows, context.config, entry.agent_id, entry.request.session) is None:
                return _claimed(context, entry)
    return None


def _claimed(context: Context, entry: Entry) -> Entry:
    return queue.move(context.paths.queue, entry, CLAIMED, claimer=processes.current(), error=None)


def _rows(context: Context) -> list[AgentRecord]:
    return list(context.registry.read().agents.values())


def _recover(context: Context) -> None:
    """Entries whose starter died: carried out if there is an agent, else back to their place (inside the lock)."""
    cut_off = [
        entry
        for entry in queue.entries(context.paths.queue)
        if entry.state == CLAIMED and (entry.claimer is None or not processes.is_alive(entry.claimer))
    ]
    if not cut_off:
        return
    look = observe.refresh(context)
    for entry in cut_off:
        record = next((row for row in look.state.agents.values() if row.extra.get(budget.QUEUED) == entry.token), None)
        if record is None:
            if _is_in_history(context, entry):
                queue.remove(context.paths.queue, entry)
            else:
                queue.move(context.paths.queue, entry, WAITING, claimer=None)
        elif not _never_ran(record):
            queue.remove(context.paths.queue, entry)
        elif record.status.is_terminal and _has_no_window(record, look):
            _start_over(context, entry, record)


def _never_ran(record: AgentRecord) -> bool:
    ended = record.status in (AgentStatus.CRASHED, AgentStatus.FAILED)
    return record.launcher is None and record.exit_code is None and (record.status.is_starting or ended)


def _has_no_window(record: AgentRecord, look: Look) -> bool:
    """Whether surely no window of a cut-off start is there or on its way: tmux may have been asked for it just before."""
    sweep = look.sweeps.get(record.tmux_socket or "")
    if record.tmux_socket is not None and (sweep is None or sweep.server is None):
        return sweep is not None and record.tmux_server is not None and sweep.proves_end_of(record.tmux_server)
    if sweep is not None and any(pane.agent_tag == record.id for pane in sweep.panes.values()):
        return False
    try:
        return clock.now() - clock.parse_iso(record.finished_at or "") >= _WINDOW_GRACE
    except SideAgentsError:
        return True


def _is_in_history(context: Context, entry: Entry) -> bool:
    return any(stone.extra.get(budget.QUEUED) == entry.token for stone in context.registry.history())


def _start_over(context: Context, entry: Entry, record: AgentRecord) -> None:
    """No agent ever ran: give back what the dead starter had reserved, and let the entry wait again."""
    from side_agents.core.stop import stop

    try:
        with context.registry.transaction("take a cut-off start back into the queue") as state:
            row = state.agents.get(record.id)
            if row is None or not observe.is_same_start(row, record):
                return
            # Its tombstone must not look like that of an agent that was started.
            state.put(replace(row, extra={key: value for key, value in row.extra.items() if key != budget.QUEUED}))
        queue.move(context.paths.queue, entry, WAITING, claimer=None)
        stop(context, record.id)
    except SideAgentsError:
        # It is tried again at the next look, or cleared by a person like any crashed start.
        return


def _start(context: Context, entry: Entry) -> Ran | None:
    """Carry a claimed entry out; None when there was no place after all and it waits again."""
    folder = context.paths.queue
    try:
        started = _start_as_asked(context, entry)
    except BudgetError:
        with queue.locked(context):
            queue.move(folder, entry, WAITING, claimer=None)
        return None
    except SideAgentsError as error:
        with queue.locked(context):
            entry = queue.move(folder, entry, FAILED, claimer=None, error=error.message)
        return Ran(entry, error)
    except BaseException:
        # Interrupted, and what had begun was taken back.
        with queue.locked(context):
            queue.move(folder, entry, WAITING, claimer=None)
        raise
    with queue.locked(context):
        queue.remove(folder, entry)
    return Ran(entry, started)


def _start_as_asked(context: Context, entry: Entry) -> Started:
    """As the one who asked would have started it; in the tmux of whoever runs it where the asker's pane is gone."""
    from side_agents.core.context import open_context
    from side_agents.core.start import start

    _require_parent(context.registry.read(), entry)
    own = Path(entry.cwd) if Path(entry.cwd).is_dir() else context.paths.root
    request = replace(entry.request, queued=entry.token)
    try:
        return start(open_context(own, entry.environment), request)
    except NotInTmuxError:
        here = {key: context.environment[key] for key in _TMUX if key in context.environment}
        if len(here) < len(_TMUX):
            raise
        return start(open_context(own, {**entry.environment, **here}), request)


def _require_parent(state: RegistryState, entry: Entry) -> None:
    if entry.agent_id is None:
        return
    parent = state.agents.get(entry.agent_id)
    if parent is None or parent.started_at != entry.agent_started:
        raise StartFailedError(
            f"The agent {entry.agent_id}, which had asked for it, has ended. It was not started and is kept.",
            hint=f"`side-agents queue drop {entry.id}` removes it.",
        )
