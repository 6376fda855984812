"""The registry anew, from what does not lie in it: its backup, leases, runtime folders, windows, branches, the history.

The backup is the registry before its last change: its rows are taken, less those that the history knows to have left, and what
runs or holds a lease without a row is put together from what it left on disk. Everything here only reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents import names
from side_agents.core import journal, launch_facts, transitions
from side_agents.core.doctor_site import Site, socket_of
from side_agents.core.registry import RegistryState
from side_agents.errors import SideAgentsError, StateError
from side_agents.infra import clock, fs, fs_survey, processes
from side_agents.infra.git import Git
from side_agents.infra.processes_environ import ProcessView
from side_agents.infra.tmux import PaneInfo
from side_agents.models import AgentRecord, AgentStatus, Lease, ProcessRef

# Added to every counter: what was handed out last may be known to nobody but the one who waits for more.
_MARGIN = 1000
_TEXT_LIMIT = 64 * 1024 * 1024
NOTE = "This entry was put together again by `side-agents doctor`."


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A registry that could be written, and where its rows come from."""

    state: RegistryState
    from_backup: tuple[str, ...]
    from_traces: tuple[str, ...]


def rebuild(site: Site) -> Rebuilt:
    """Everything that is known, as a registry. Changes nothing."""
    base = _backup(site)
    leases = {slot.lease.agent_id: (slot.path, slot.lease) for slot in site.slots if slot.lease and slot.lease.agent_id}
    buried = {(stone.id, stone.started_at) for stone in site.history}
    known = {stone.id for stone in site.history}
    rows = {
        agent_id: record
        for agent_id, record in base.agents.items()
        if (agent_id, record.started_at) not in buried and not _is_another(site, record)
    }
    traced: dict[str, AgentRecord] = {}
    for agent_id in sorted({*site.launchers, *leases, *(name for name in site.runtime_ids() if name not in known)}):
        lease = leases.get(agent_id)
        is_over = agent_id not in site.launchers and lease is not None and (agent_id, lease[1].started_at) in buried
        if agent_id in rows or agent_id in base.foreign or is_over or not names.is_valid_id(agent_id):
            continue
        traced[agent_id] = record_from_traces(site, agent_id, lease)
    state = RegistryState(agents={**rows, **traced}, foreign=base.foreign, extra=dict(base.extra), rows=base.rows)
    state.sequence = sequence_above(site, base)
    state.extra[transitions.COUNTER] = _changes_above(site, base)
    for agent_id, record in traced.items():
        state.agents[agent_id] = numbered(state, record)
    return Rebuilt(state, tuple(sorted(rows)), tuple(sorted(traced)))


def numbered(state: RegistryState, record: AgentRecord) -> AgentRecord:
    """A record that has stopped, with a number of its own, so that a wait sees it once."""
    has_stopped = record.status in (AgentStatus.WAITING_USER, AgentStatus.CRASHED, AgentStatus.FAILED)
    return replace(record, stop_seq=state.next_sequence()) if has_stopped else record


def _backup(site: Site) -> RegistryState:
    try:
        return site.context.registry.read_backup() or RegistryState()
    except StateError:
        return RegistryState()


def _is_another(site: Site, record: AgentRecord) -> bool:
    """Whether the agent of this name that runs now is a later one than the row's."""
    view = site.launchers.get(record.id)
    return view is not None and record.launcher is not None and record.launcher != view.ref


def record_from_traces(site: Site, agent_id: str, lease: tuple[Path, Lease] | None) -> AgentRecord:
    """One agent's row from its runtime folder, its lease, its process and its window."""
    runtime = site.paths.runtime(agent_id)
    view = site.launchers.get(agent_id)
    facts = launch_facts.read_launcher(runtime)
    events, offset = launch_facts.read_events(runtime)
    slot, held = lease if lease is not None else (None, Lease())
    worktree = str(slot) if slot is not None else _own_slot(site, facts.worktree)
    branch = held.branch or facts.branch or names.branch_of(agent_id)
    session = facts.coordination.get("PI_SIDE_PARENT_SESSION") or held.parent_session_id or ""
    parent = facts.coordination.get("PI_SIDE_PARENT_AGENT_ID") or None
    depth = facts.coordination.get("PI_SIDE_AGENT_DEPTH", "")
    record = AgentRecord(
        id=agent_id,
        status=AgentStatus.RUNNING if view is not None else AgentStatus.CRASHED,
        task=launch_facts.read_task(runtime, session),
        parent_session_id=session or None,
        parent_agent_id=parent,
        depth=int(depth) if re.fullmatch("[0-9]{1,2}", depth) else 1,
        parent_worktree_path=facts.coordination.get("PI_SIDE_PARENT_REPO") if parent else None,
        worktree_path=worktree,
        branch=branch,
        base_commit=_base(site, branch),
        client=facts.coordination.get("SIDE_AGENTS_CLIENT") or None,
        started_at=held.started_at or _began(events),
        updated_at=clock.iso(),
        launcher=view.ref if view is not None else _ended_launcher(events),
        warnings=(NOTE,),
    )
    if runtime.directory.is_dir():
        record = replace(
            record,
            runtime_dir=str(runtime.directory),
            log_path=str(runtime.backlog),
            prompt_path=str(runtime.kickoff),
            exit_file=str(runtime.exit_marker),
            kickoff_pending=True if fs_survey.file_size(runtime.kickoff) else None,
        )
    record = _with_window(site, record, view)
    if view is None:
        record = replace(record, finished_at=clock.iso(), error="it was not running when the registry was rebuilt")
    return replace(journal.fold(record, events), journal_offset=offset)


def _own_slot(site: Site, worktree: str) -> str | None:
    """The launcher's worktree where it is a slot of ours that is still there and that nobody else has."""
    slot = next((slot for slot in site.slots if str(slot.path) == worktree), None)
    return worktree if slot is not None and slot.lease is None else None


def _with_window(site: Site, record: AgentRecord, view: ProcessView | None) -> AgentRecord:
    if view is None:
        return record
    socket = socket_of(view.environment)
    sweep = site.sweeps.get(Path(socket)) if socket else None
    pane: PaneInfo | None = None
    if sweep is not None:
        pane = next((each for each in sweep.panes.values() if each.pane_pid == view.ref.pid), None)
    # The tag alone proves nothing, nor does a process without it.
    if sweep is None or pane is None or pane.agent_tag != record.id:
        return record
    return replace(
        record,
        tmux_socket=socket,
        tmux_server=sweep.server,
        tmux_session=pane.session_name,
        tmux_window_id=pane.window_id,
        tmux_window_index=pane.window_index,
        tmux_pane_id=pane.pane_id,
    )


def _began(events: Iterable[journal.Event]) -> str:
    return next((str(event["at"]) for event in events if isinstance(event.get("at"), str)), clock.iso())


def _ended_launcher(events: Iterable[journal.Event]) -> ProcessRef | None:
    pids = [event.get("pid") for event in events if event["type"] == "launcher"]
    pid = pids[-1] if pids else None
    return processes.ended(pid) if isinstance(pid, int) else None


def _base(site: Site, branch: str) -> str | None:
    """Where a branch began: the first entry of its reflog, if git still has one."""
    try:
        git = Git(site.paths.root)
        if not git.branch_exists(branch):
            return None
        found = git.text("log", "--walk-reflogs", "--format=%H", f"refs/heads/{branch}", "--").splitlines()
    except SideAgentsError:
        return None
    return found[-1] if found else None


def sequence_above(site: Site, base: RegistryState) -> int:
    """A count of stops above every number that can have been handed out."""
    written = [record.stop_seq for record in base.agents.values()] + [stone.stop_seq for stone in site.history]
    written += _numbers(site, r'"(?:sequence|stopSeq)"\s*:\s*([0-9]{1,15})')
    # Each stop is an event of some journal, or an end; so there cannot have been more than those.
    events = sum(len(launch_facts.read_events(site.paths.runtime(name))[0]) + 2 for name in site.runtime_ids())
    return max([base.sequence, *written, events]) + _MARGIN


def _changes_above(site: Site, base: RegistryState) -> int:
    counter = base.extra.get(transitions.COUNTER)
    numbers = [change.seq for change in transitions.read(site.paths.transitions, 0, 2**62)]
    numbers += _numbers(site, rf'"{transitions.COUNTER}"\s*:\s*([0-9]{{1,15}})')
    return max([counter if isinstance(counter, int) else 0, *numbers, 0])


def _numbers(site: Site, pattern: str) -> list[int]:
    """Numbers in the text of the registry and its backup, readable as JSON or not."""
    found: list[int] = []
    for path in (site.paths.registry, site.paths.registry_backup):
        try:
            text = os.fsdecode(fs.read_slice(path, 0, _TEXT_LIMIT))
        except StateError:
            continue
        found += map(int, re.findall(pattern, text))
    return found
