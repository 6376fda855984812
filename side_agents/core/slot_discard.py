"""Taking a slot away, in steps that can each be the last one of a process that is killed.

Lease it, so that no start can be given it; keep its commits; prove once more; rename the folder into the trash; look at it
again there, where nobody comes in by the old name; and only then let git forget it. A part of :mod:`side_agents.core.discard`
that nothing else may call.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from side_agents.core import leases, regenerable, slot_proof, trash
from side_agents.core.context import Context
from side_agents.core.trash import TrashEntry
from side_agents.core.verdicts import Discarded, Kind, Reason, Target, could_not_look, refuse
from side_agents.errors import RefusedError, SideAgentsError
from side_agents.infra import clock, fs, git_work, processes_open
from side_agents.infra.git import Git
from side_agents.infra.git_registration import Registration
from side_agents.models import Lease

_LOCK_WAIT = 60.0


def discard_slot(context: Context, target: Target, stamp: str) -> Discarded:
    """Take a slot away; the caller is ``discard``, which holds its lock and has proven once."""
    path = target.path or Path()
    if not os.path.lexists(path):
        return _discard_registration(context, target, stamp)
    _occupy(path)
    entry: TrashEntry | None = None
    try:
        # Whoever chose this slot before our lease was there has written so by the time that we get this lock.
        with context.registry.transaction("let the starts that are under way be seen"):
            pass
        registration = _registration(context, path)
        entry = _new_slot_entry(context, Git(path), path, registration, stamp)
        entry = trash.keep_commits(context, Git(path), entry, "HEAD")
        keeps = _move_slot(context, target, registration, entry)
    except BaseException:
        _take_back(context, path, entry)
        raise
    return Discarded(target, keeps, entry.name)


def _occupy(path: Path) -> None:
    """Take the slot's lease, so that no start can be given it any more."""
    held = leases.read(path)
    if held is not None and slot_proof.is_left_over(held):
        leases.release(path)
    mark = {"purpose": slot_proof.DISCARD_PURPOSE}
    if not leases.take(path, Lease(pid=os.getpid(), started_at=clock.iso(), extra=mark)):
        raise RefusedError(
            f"{path.name} was not discarded: somebody has just taken its lease.", hint="`side-agents list` shows who."
        )


def _registration(context: Context, path: Path) -> Registration:
    found = slot_proof.registration_of(context, path)
    if found is None:
        raise RefusedError(f"{path.name} was not discarded: git no longer knows it.", hint="git worktree list")
    return found


def _new_slot_entry(
    context: Context, git: Git, path: Path, registration: Registration, stamp: str, *, env: dict[str, str] | None = None
) -> TrashEntry:
    branch = git.run("symbolic-ref", "--quiet", "--short", "HEAD", env=env, check=False).text
    head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", env=env, check=False).text
    entry = TrashEntry(
        name=trash.entry_name(stamp, path.name),
        stamp=stamp,
        kind=Kind.SLOT,
        label=path.name,
        path=str(path),
        admin=registration.admin.name,
        branch=branch or None,
        head=head or None,
    )
    trash.write(context, entry)
    return entry


def _move_slot(context: Context, target: Target, registration: Registration, entry: TrashEntry) -> str:
    path, where = registration.worktree, trash.place(context, entry.name)
    with worktrees_locked(context):
        verdict = slot_proof.prove(context, target, own_lease=True)
        if not verdict.is_safe:
            raise verdict.refusal()
        if _state_of(path, registration) != (entry.branch, entry.head):
            raise RefusedError(
                f"{path.name} was not discarded: its HEAD has just moved.", hint="Look, then clean again."
            )
        fs.move(path, where.slot)
        fault = changed_meanwhile(where.slot, registration, slot_proof.main_copy(context))
        if fault is not None:
            fs.move(where.slot, path)
            raise refuse(target, fault).refusal()
        trash.move_admin(context, entry, registration)
    leases.release(where.slot)
    return f"{verdict.keeps}, the folder is in the trash"


def _state_of(path: Path, registration: Registration) -> tuple[str | None, str | None]:
    git, env = Git(path), {"GIT_DIR": str(registration.admin)}
    branch = git.run("symbolic-ref", "--quiet", "--short", "HEAD", env=env, check=False).text
    return branch or None, git.run("rev-parse", "--verify", "--quiet", "HEAD", env=env, check=False).text or None


def changed_meanwhile(moved: Path, registration: Registration, main: Path | None) -> Reason | None:
    """What somebody did in the moment before the move; nobody can come in by the old name any more."""
    try:
        users = processes_open.users_of(moved)
        state = git_work.tree_state(Git(moved), git_dir=registration.admin)
        changed = [entry.path for entry in state.changed if not slot_proof.is_own_file(moved, entry.path)]
        changed += regenerable.precious(moved, main, state.ignored)
    except SideAgentsError as error:
        return could_not_look("The moved slot", error)
    if users:
        return Reason("in-use", f"Process {users[0].pid} came into it just now.", "Let it leave, then clean again.")
    if changed:
        return Reason("dirty", f"It was changed just now: {changed[0]}.", "Look at the change, then clean again.")
    return None


def _take_back(context: Context, path: Path, entry: TrashEntry | None) -> None:
    """After a refusal or failure: give up the lease and forget the entry, unless the folder could not be put back."""
    if os.path.lexists(path):
        held = leases.read(path)
        if held is not None and slot_proof.is_ours(held):
            leases.release(path)
    if entry is not None and trash.place(context, entry.name).is_empty:
        # The first error is the one to tell; what stays behind here is harmless.
        with suppress(SideAgentsError):
            trash.drop_refs(Git(context.paths.root), entry, only_if_held=True)
            trash.forget(context, entry)


def _discard_registration(context: Context, target: Target, stamp: str) -> Discarded:
    """For a folder that is gone: by hand, or by a discard that was killed between its two moves."""
    path = target.path or Path()
    registration = _registration(context, path)
    cut_off = trash.pending(context, path)
    if cut_off is not None:
        with worktrees_locked(context):
            # A start may have made the slot anew under the same name.
            if os.path.lexists(path) or slot_proof.registration_of(context, path) != registration:
                raise RefusedError(f"{path.name} was not discarded: it has just been made anew.", hint="Look again.")
            trash.move_admin(context, cut_off, registration)
        leases.release(trash.place(context, cut_off.name).slot)
        return Discarded(target, "an earlier discard was completed", cut_off.name)
    git = Git(registration.admin)
    entry = _new_slot_entry(context, git, path, registration, stamp, env={"GIT_DIR": str(registration.admin)})
    try:
        entry = trash.keep_commits(context, git, entry, "HEAD")
        with worktrees_locked(context):
            verdict = slot_proof.prove(context, target)
            if not verdict.is_safe:
                raise verdict.refusal()
            trash.move_admin(context, entry, registration)
    except BaseException:
        _take_back(context, path, entry)
        raise
    return Discarded(target, verdict.keeps, entry.name)


def worktrees_locked(context: Context) -> AbstractContextManager[None]:
    """Nobody adds a worktree meanwhile."""
    path = context.layout.common_dir / "side-agents-worktrees.lock"
    return fs.locked(path, purpose="discarding", timeout=_LOCK_WAIT)
