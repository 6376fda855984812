"""THE function that may discard anything; no other code of this program removes work, claims or what holds them.

``prove`` looks and gives a verdict with reasons. ``discard`` proves, keeps what could be missed (rescue refs, the trash),
proves again right before the one step that counts, and looks once more after it where that can be taken back. There is no
way around the proof: what a user may skip is the question, never this (DESIGN 2.3).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from side_agents.core import claim_proofs, observe, slot_discard, slot_proof, stop, trash
from side_agents.core.context import Context
from side_agents.core.trash import TrashEntry
from side_agents.core.verdicts import Discarded, Kind, Reason, Target, Verdict, could_not_look, refuse
from side_agents.errors import RefusedError, SideAgentsError
from side_agents.infra import fs, fs_tree, processes
from side_agents.infra.git import Git
from side_agents.infra.git_registration import Registration
from side_agents.infra.tmux import Tmux
from side_agents.models import EndedBy
from side_agents.paths import lease_path


def prove(context: Context, target: Target) -> Verdict:
    """Whether a target may be discarded now, and what speaks against it. Changes nothing; raises nothing expected."""
    return _PROOFS[target.kind](context, target)


def discard(context: Context, target: Target, *, stamp: str) -> Discarded:
    """Discard one thing that is proven not to be missed. ``stamp`` (``clock.stamp()``) is common to one run.

    Raises RefusedError with every reason and its way out, and other SideAgentsErrors for a step that failed; the thing is
    where it was then.
    """
    with trash.locked(context, f"discarding {target.kind} {target.name}"):
        verdict = prove(context, target)
        if not verdict.is_safe:
            raise verdict.refusal()
        return _ACTS[target.kind](context, target, stamp)


def _prove_slot(context: Context, target: Target) -> Verdict:
    return slot_proof.prove(context, target)


def _discard_branch(context: Context, target: Target, stamp: str) -> Discarded:
    git, ref = Git(context.paths.root), f"refs/heads/{target.name}"
    head = git.resolve(ref)
    entry = TrashEntry(
        name=trash.entry_name(stamp, target.name), stamp=stamp, kind=Kind.BRANCH, label=target.name, head=head
    )
    trash.write(context, entry)
    try:
        entry = trash.keep_commits(context, git, entry, ref)
        with slot_discard.worktrees_locked(context):
            verdict = prove(context, replace(target, token=head))
            if not verdict.is_safe:
                raise verdict.refusal()
            if head is None or not git.delete_ref_if(ref, head):
                raise RefusedError(
                    f"{target.name} was not discarded: it has just moved.", hint="Look, then clean again."
                )
    except BaseException:
        with suppress(SideAgentsError):
            trash.drop_refs(git, entry, only_if_held=True)
            trash.forget(context, entry)
        raise
    return Discarded(target, verdict.keeps, entry.name)


def _discard_lease(context: Context, target: Target, stamp: str) -> Discarded:  # noqa: ARG001 - one shape for all
    # The text of the lease is part of the proof: a lease that was taken anew is another one.
    verdict = prove(context, replace(target, token=target.token or claim_proofs.lease_text(target.path or Path())))
    if not verdict.is_safe:
        raise verdict.refusal()
    if not fs.remove_file(lease_path(target.path or Path())):
        raise RefusedError(f"The lease of {target.name} went away by itself.", hint="Nothing is left to do.")
    return Discarded(target, verdict.keeps)


def _discard_record(context: Context, target: Target, stamp: str) -> Discarded:  # noqa: ARG001 - one shape for all
    with context.registry.transaction("clear an agent's record") as state:
        record = state.agents.get(target.name)
        if (
            record is None
            or record.status not in claim_proofs.CLEARABLE
            or target.token not in (None, record.started_at)
        ):
            raise RefusedError(
                f"{target.name} was not cleared: it has just changed.", hint="`side-agents list` shows it."
            )
        stone = observe.entomb(context, record, EndedBy.CLEARED)
        state.bury(stone)
    # Whatever is cut off from here on, is found again as a window or an orphan lease.
    stop.close_window(record)
    if record.launcher is not None and processes.is_alive(record.launcher):
        processes.end_tree([record.launcher])
    note = stop.release_slot(record)
    return Discarded(target, note or stop.kept_by(stone))


def _discard_window(context: Context, target: Target, stamp: str) -> Discarded:  # noqa: ARG001 - one shape for all
    tmux = Tmux(target.socket or Path())
    pane = tmux.sweep().panes.get(target.name)
    agent_id = target.token or ""
    if pane is None or not tmux.kill_window(pane.window_id, expect_pane=pane.pane_id, expect_tag=agent_id):
        raise RefusedError(f"The window {target.name} closed by itself.", hint="Nothing is left to do.")
    return Discarded(target, f"its output stays in {context.paths.runtime(agent_id).backlog}")


def _prove_trash(context: Context, target: Target) -> Verdict:
    """Whether a trash entry can go for good: it is one, nobody uses it, nobody worked in it since."""
    entry = next((each for each in trash.entries(context) if each.name == target.name), None)
    if entry is None:
        return refuse(target, Reason("missing", f"{target.name} is not in the trash.", "side-agents clean --trash"))
    where = trash.place(context, entry.name)
    undo = f"Bring it back: side-agents clean --undo {entry.stamp}"
    reasons: list[Reason] = []
    try:
        if where.slot.exists() and not where.admin.exists():
            reasons.append(Reason("unfinished", f"The discard {entry.name} was cut off.", undo))
        elif where.slot.exists():
            fault = slot_discard.changed_meanwhile(
                where.slot, Registration(where.admin, where.slot), slot_proof.main_copy(context)
            )
            reasons += [fault] if fault is not None else []
    except (SideAgentsError, OSError) as error:
        reasons.append(could_not_look(target.name, error))
    return Verdict(target, tuple(reasons), "rescue refs of commits that nothing else holds" if not reasons else "")


def _discard_trash(context: Context, target: Target, stamp: str) -> Discarded:  # noqa: ARG001 - one shape for all
    entry = next(each for each in trash.entries(context) if each.name == target.name)
    where = trash.place(context, entry.name)
    left = trash.drop_refs(Git(context.paths.root), entry, only_if_held=True)
    # Renamed first, and the entry before its registration: a removal that is cut off is nothing to bring back.
    for folder in (where.folder, where.admin):
        if os.path.lexists(folder):
            fs.move(folder, folder.with_name(trash.DOOMED + folder.name))
    _sweep(context)
    return Discarded(target, f"rescue refs {', '.join(left)}" if left else "its commits are on branches")


def tidy(context: Context) -> None:
    """Finish what runs that were killed have left half removed, and forget what they had only announced."""
    with trash.locked(context, "tidying the trash"):
        trash.tidy(context)
        _sweep(context)


def _sweep(context: Context) -> None:
    """Remove what was renamed to be removed, and registrations in the trash whose folder is gone from it."""
    folders, admins = trash.root(context), trash.place(context, "x").admin.parent
    doomed = [*folders.glob(f"{trash.DOOMED}*"), *admins.glob("*")]
    for path in doomed:
        if path.is_dir() and not path.is_symlink() and not (path.parent == admins and (folders / path.name).exists()):
            fs_tree.remove_tree(path)
    for folder in (admins, folders):
        fs_tree.remove_empty_dir(folder)


_PROOFS: dict[Kind, Callable[[Context, Target], Verdict]] = {
    Kind.RECORD: claim_proofs.prove_record,
    Kind.WINDOW: claim_proofs.prove_window,
    Kind.LEASE: claim_proofs.prove_lease,
    Kind.SLOT: _prove_slot,
    Kind.BRANCH: claim_proofs.prove_branch,
    Kind.TRASH: _prove_trash,
}
_ACTS: dict[Kind, Callable[[Context, Target, str], Discarded]] = {
    Kind.RECORD: _discard_record,
    Kind.WINDOW: _discard_window,
    Kind.LEASE: _discard_lease,
    Kind.SLOT: slot_discard.discard_slot,
    Kind.BRANCH: _discard_branch,
    Kind.TRASH: _discard_trash,
}
