"""What ``doctor --repair`` does: one small function for each code. Every one looks at its fault anew before it acts.

Nothing is ever taken from a worktree. What discards (leases, windows) goes through :mod:`side_agents.core.discard` with its
proofs. Each repair is one atomic step or several that can be repeated, so that a killed one leaves either state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from side_agents.core import (
    discard,
    doctor_agents,
    doctor_repository,
    doctor_slots,
    doctor_state,
    finish_record,
    leases,
    observe,
    rebuild,
)
from side_agents.core.doctor_site import Site
from side_agents.core.findings import Finding
from side_agents.core.verdicts import Kind, Target
from side_agents.errors import ConflictError, RefusedError, SideAgentsError, StateError
from side_agents.infra import clock, fs, fs_survey, git_registration, git_worktrees, processes, processes_environ
from side_agents.infra.git import Git
from side_agents.models import Lease
from side_agents.paths import EXCLUDED

_LOCK_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Repaired:
    """One repair: what was done, or why it was not."""

    finding: Finding
    said: str = ""
    error: SideAgentsError | None = None


def repair(site: Site, finding: Finding) -> Repaired:
    """Carry out one repair; what has mended itself meanwhile is left, and an expected failure is returned."""
    try:
        return Repaired(finding, _ACTS[finding.code](site, finding))
    except SideAgentsError as error:
        return Repaired(finding, error=error)


def _rebuild(site: Site, _finding: Finding) -> str:
    # Gathered before the lock is taken: git and tmux never run under it, and nobody can change a registry that is unreadable.
    found = rebuild.rebuild(Site(site.context))
    paths = site.paths
    aside = paths.registry.with_name(f"{paths.registry.name}.broken-{clock.stamp()}")
    site.context.registry.rebuild(found.state, aside)
    observe.refresh(site.context)
    parts = [f"{len(found.from_backup)} from the backup", f"{len(found.from_traces)} from what they left"]
    kept = f"; the broken one is {aside.name}" if aside.exists() else ""
    return f"the registry is there again ({', '.join(parts)}){kept}"


def _backup(site: Site, _finding: Finding) -> str:
    paths = site.paths
    with fs.locked(paths.registry_lock, purpose="renew the registry's backup"):
        site.context.registry.read()
        fs.move(
            paths.registry_backup,
            paths.registry_backup.with_name(f"{paths.registry_backup.name}.broken-{clock.stamp()}"),
        )
        fs.keep_previous(paths.registry, paths.registry_backup)
    return "the present registry has a backup"


def _sequence(site: Site, _finding: Finding) -> str:
    with site.context.registry.transaction("raise the counter of stops") as state:
        numbers = [record.stop_seq for record in state.agents.values()] + [stone.stop_seq for stone in site.history]
        state.sequence = max(state.sequence, *numbers)
    return f"it counts from {state.sequence}"


def _excludes(site: Site, _finding: Finding) -> str:
    Git(site.paths.root).ensure_excludes(EXCLUDED)
    return "info/exclude has our block"


def _prune(site: Site, finding: Finding) -> str:
    git, fresh = Git(site.paths.root), Site(site.context)
    for entry in git.worktrees():
        if entry.prunable and (why := doctor_repository.prune_obstacle(fresh, entry)) is not None:
            raise RefusedError(f"Nothing was pruned, because {entry.path.name} must stay. {why}")
    git_worktrees.prune(git)
    return f"git has forgotten {finding.subject}"


def _pointers(site: Site, finding: Finding) -> str:
    slot = _place(finding)
    lock = site.common_dir / "side-agents-worktrees.lock"
    with fs.locked(lock, purpose="mending a slot's pointers", timeout=_LOCK_WAIT):
        admin = doctor_repository.mended_admin(Site(site.context), slot)
        if admin is None:
            raise RefusedError(f"{slot.name} was left as it is: which entry is its own is no longer beyond doubt.")
        git_registration.point(admin, slot)
    return f"{slot.name} is a worktree again"


def _entry(site: Site, finding: Finding) -> str:
    slot = _place(finding)
    lock = site.common_dir / "side-agents-worktrees.lock"
    with fs.locked(lock, purpose="writing a slot's entry anew", timeout=_LOCK_WAIT):
        lost = doctor_repository.lost_entry(Site(site.context), slot)
        if lost is None:
            raise RefusedError(f"{slot.name} was left as it is: which branch it was on is no longer beyond doubt.")
        admin, branch = lost
        draft = git_registration.prepare(admin, branch, slot)
        Git(slot).run("read-tree", "HEAD", env={"GIT_DIR": str(draft)})
        fs.move(draft, admin)
    return f"{slot.name} is a worktree again, on {branch}"


def _lease_back(site: Site, finding: Finding) -> str:
    record = site.context.registry.read().agents.get(finding.subject)
    slot = _place(finding)
    if record is None or record.status.is_terminal or record.worktree_path != str(slot):
        return f"{finding.subject} no longer has {slot.name}"
    lease = Lease(
        agent_id=record.id,
        session_id=record.parent_session_id,
        parent_session_id=record.parent_session_id,
        pid=record.launcher.pid if record.launcher is not None else None,
        branch=record.branch,
        started_at=record.started_at,
        tmux_window_id=record.tmux_window_id,
        tmux_window_index=record.tmux_window_index,
    )
    if not leases.take(slot, lease):
        raise ConflictError(f"{slot.name} has a lease by now; it was left as it is.")
    if record.id not in site.context.registry.read().ids:
        # It ended meanwhile, and its own lease had been given up just before.
        leases.release(slot, record.id)
    return f"{slot.name} is leased to {record.id}"


def _lease_off(site: Site, finding: Finding) -> str:
    slot = next((slot for slot in site.slots if slot.path == finding.place), None)
    if slot is None:
        return "the slot is gone"
    done = discard.discard(site.context, doctor_slots.lease_target(slot), stamp=clock.stamp())
    return f"the lease is gone, {done.keeps}"


def _window(site: Site, finding: Finding) -> str:
    agent_id, _, pane_id = finding.subject.partition(" ")
    target = Target(Kind.WINDOW, pane_id, token=agent_id, socket=finding.place)
    done = discard.discard(site.context, target, stamp=clock.stamp())
    return f"the window is closed, {done.keeps}"


def _process(site: Site, finding: Finding) -> str:
    ref = finding.process
    view = processes_environ.look(ref.pid) if ref is not None else None
    if ref is None or view is None or view.ref != ref:
        return "it has ended by itself"
    spared = doctor_agents.spared_pids()
    # A fresh look: the agent may have been started again under the same name.
    if doctor_agents.orphan_of(Site(site.context), view) is None or ref.pid in spared:
        raise RefusedError(f"Process {ref.pid} was not ended: it is no longer what an ended agent left.")
    if any(each.pid in spared for each in processes.descendants(ref.pid)):
        raise RefusedError(f"Process {ref.pid} was not ended: this very command runs below it.")
    survivors = processes.end_tree([ref])
    if survivors:
        pids = ", ".join(str(each.pid) for each in survivors)
        raise SideAgentsError(f"Processes {pids} could not be ended.", hint=f"Look at them: ps -fp {pids}")
    return f"process {ref.pid} has ended"


def _adopt(site: Site, finding: Finding) -> str:
    fresh = Site(site.context)
    agent_id, view = finding.subject, fresh.launchers.get(finding.subject)
    if view is None or fresh.has_marker(agent_id):
        return f"{agent_id} has ended by itself"
    slot = next((slot for slot in fresh.slots if slot.lease is not None and slot.lease.agent_id == agent_id), None)
    lease = (slot.path, slot.lease) if slot is not None and slot.lease is not None else None
    record = rebuild.record_from_traces(fresh, agent_id, lease)
    with site.context.registry.transaction("put an agent back on the list") as state:
        if agent_id in state.ids:
            return f"{agent_id} is on the list"
        holding = {row.worktree_path: row.id for row in state.agents.values() if row.holds_slot}
        if record.worktree_path is not None and record.worktree_path in holding:
            taken = holding[record.worktree_path]
            raise ConflictError(f"{agent_id} was not put back: its slot is {taken}'s by the registry.")
        state.put(rebuild.numbered(state, record))
    observe.refresh(site.context, (agent_id,))
    return f"{agent_id} is on the list again"


def _refresh(site: Site, finding: Finding) -> str:
    look = observe.refresh(site.context, (finding.subject,))
    record = look.state.agents.get(finding.subject)
    return f"{finding.subject} is {record.status if record is not None else 'done'}"


def _lock_text(_site: Site, finding: Finding) -> str:
    path = _place(finding)
    with fs.locked(path, purpose="clear the name of a holder that ended", timeout=0):
        pass
    return f"{path.name} names nobody"


def _landing(site: Site, _finding: Finding) -> str:
    with fs.locked(site.paths.merge_lock, purpose="complete a landing that was cut off", timeout=0):
        if not finish_record.is_unsettled(site.paths):
            return "the landing is complete"
        left = finish_record.settle(site.paths, Git(site.paths.root))
    if left is not None:
        raise RefusedError(left.message, hint=left.hint)
    return "the landing is complete"


def _temp(_site: Site, finding: Finding) -> str:
    path = _place(finding)
    if fs_survey.is_leftover(path, older_than=doctor_state.OLD_SECONDS):
        fs.remove_file(path)
    return f"{path.name} is gone"


def _log(site: Site, finding: Finding) -> str:
    fs_survey.cut(_place(finding), site.context.config.backlog_max_bytes // 2)
    return "it is short again"


def _permissions(_site: Site, finding: Finding) -> str:
    fs_survey.close_to_others(_place(finding))
    return "the folder is yours alone"


def _place(finding: Finding) -> Path:
    if finding.place is None:
        raise StateError(f"The finding {finding.code} names no place; nothing was changed.")
    return finding.place


_ACTS: dict[str, Callable[[Site, Finding], str]] = {
    "registry-unreadable": _rebuild,
    "registry-missing": _rebuild,
    "backup-unreadable": _backup,
    "sequence-low": _sequence,
    "exclude-block": _excludes,
    "registration-stale": _prune,
    "slot-pointers": _pointers,
    "slot-entry-gone": _entry,
    "lease-missing": _lease_back,
    "lease-orphan": _lease_off,
    "window-left": _window,
    "process-left": _process,
    "agent-untracked": _adopt,
    "start-dead": _refresh,
    "window-gone": _refresh,
    "lock-text": _lock_text,
    "landing-cut-off": _landing,
    "temp-file": _temp,
    "log-large": _log,
    "permissions": _permissions,
}
CODES = frozenset(_ACTS)
# The registry first: the proofs of most others read it.
FIRST = frozenset(("registry-unreadable", "registry-missing"))
