"""The pool of worktree slots beside the repository (reference/side-agents 5, DESIGN 5 "Start").

Choosing happens inside the registry lock and looks at files only; what needs git happens afterwards on the slot that is
then reserved, and a slot that turns out to be unusable is left alone and another one chosen.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from side_agents import names
from side_agents.core import cut_off, leases
from side_agents.errors import SideAgentsError
from side_agents.infra import fs, git_cut_off, git_layout
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, Lease
from side_agents.paths import SHARED_PREFIX


class SlotKind(Enum):
    """What lies at the path of a slot."""

    WORKTREE = "worktree"
    LOCKED_WORKTREE = "locked worktree"
    EMPTY = "empty folder"
    OTHER = "something else"


@dataclass(frozen=True, slots=True)
class Slot:
    """One folder with a slot's name, as files show it."""

    path: Path
    number: int
    kind: SlotKind
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The slot for an agent; ``is_new`` means that its worktree has to be made."""

    path: Path
    number: int
    is_new: bool
    warnings: tuple[str, ...] = ()


def scan(pool: Path, common_dir: Path) -> list[Slot]:
    """Every slot of the pool at ``pool`` (the main repository), sorted by number."""
    found = [(number, path) for path in pool.parent.iterdir() if (number := names.slot_number(pool, path)) is not None]
    return [_look(path, number, common_dir) for number, path in sorted(found)]


def _look(path: Path, number: int, common_dir: Path) -> Slot:
    if path.is_symlink() or not path.is_dir():
        return Slot(path, number, SlotKind.OTHER)
    lease = leases.read(path)
    try:
        layout = git_layout.find_layout(path)
    except SideAgentsError:
        layout = None
    if layout is not None and layout.is_linked and layout.worktree_top == path.resolve():
        kind = SlotKind.LOCKED_WORKTREE if (layout.git_dir / "locked").exists() else SlotKind.WORKTREE
        return Slot(path, number, kind if layout.common_dir == common_dir else SlotKind.OTHER, lease)
    return Slot(path, number, SlotKind.EMPTY if _is_empty(path) else SlotKind.OTHER, lease)


def _is_empty(path: Path) -> bool:
    try:
        return not any(path.iterdir())
    except OSError:
        # What we may not look into is not ours to use.
        return False


def in_order(slots: Sequence[Slot], preferred: str | Path | None) -> list[Slot]:
    """The slots with the preferred one first, if it is among them (N18)."""
    wanted = Path(preferred) if preferred else None
    return sorted(slots, key=lambda slot: slot.path != wanted)


def choose(
    pool: Path,
    slots: Sequence[Slot],
    records: Iterable[AgentRecord],
    *,
    excluded: Collection[Path] = (),
    preferred: Path | None = None,
) -> Choice:
    """The first slot that nobody has, else the next number (F-A1 to F-A9); with what was passed over and why.

    ``records`` are the other agents of the registry, live and ended.
    """
    others = list(records)
    warnings: list[str] = []
    for slot in in_order(slots, preferred):
        if slot.path in excluded:
            continue
        reason, is_notable = _obstacle(slot, others)
        if reason is None:
            return Choice(slot.path, slot.number, slot.kind is SlotKind.EMPTY, tuple(warnings))
        if is_notable:
            warnings.append(f"Slot {slot.path.name} was passed over: {reason}.")
    reserved = [names.slot_number(pool, record.worktree_path) for record in others]
    refused = [names.slot_number(pool, path) for path in excluded]
    seen = [slot.number for slot in slots] + [number for number in (*reserved, *refused) if number is not None]
    number = max(seen, default=0) + 1
    return Choice(pool.parent / names.slot_name(pool.name, number), number, True, tuple(warnings))


def obstacle(slot: Slot, records: Iterable[AgentRecord]) -> str | None:
    """Why nobody can be given this slot now, None when it is free."""
    return _obstacle(slot, list(records))[0]


def _obstacle(slot: Slot, others: Sequence[AgentRecord]) -> tuple[str | None, bool]:
    """Why a slot cannot be taken, and whether the user should hear of it; a lease held as it should be is no news."""
    known = {record.id for record in others}
    if slot.lease is not None:
        holder = slot.lease.agent_id
        return f"locked by {holder or 'a lease that names no agent'}, which is not tracked", holder not in known
    for record in others:
        if record.holds_slot and _is_at(record.worktree_path, slot.path):
            return f"claimed by {record.id}, although its lock is missing", not record.status.is_starting
        if _is_at(record.parent_worktree_path, slot.path) and not record.status.is_terminal:
            return f"the nested agent {record.id} merges into it", True
    if slot.kind is SlotKind.OTHER:
        return "it is not a worktree of this repository and not empty", True
    if slot.kind is SlotKind.LOCKED_WORKTREE:
        return "it is locked by `git worktree lock`", True
    return None, False


def _is_at(recorded: str | None, path: Path) -> bool:
    return recorded is not None and Path(recorded) == path


def link_shared(shared: Path, slot: Path) -> list[str]:
    """Link the ``side-agent-*`` entries of the main repository into a slot; returns what could not be linked.

    A file or relative link of the project itself at that name is kept: replacing it would make the tree dirty (5.4).
    Links to entries that are gone are removed.
    """
    target_dir = slot / ".pi"
    for old in target_dir.glob(f"{SHARED_PREFIX}*"):
        if _is_our_link(old) and not old.exists():
            fs.remove_file(old)
    entries = sorted(shared.glob(f"{SHARED_PREFIX}*")) if shared.is_dir() else []
    warnings: list[str] = []
    for entry in entries:
        link = target_dir / entry.name
        if os.path.lexists(link) and not _is_our_link(link):
            continue
        try:
            fs.make_private_dir(target_dir)
            if link.is_symlink() and link.readlink() != entry:
                fs.remove_file(link)
            fs.symlink(entry, link)
        except SideAgentsError as error:
            warnings.append(f"{entry.name} could not be linked into {slot.name}: {error}")
    return warnings


def _is_our_link(path: Path) -> bool:
    # Ours are absolute, because slots lie elsewhere; one that a project commits has to be relative.
    return path.is_symlink() and path.readlink().is_absolute()


def leave(slot: Path, branch: str, base: str | None) -> str:
    """Undo a start in a slot where no agent ever ran: the branch goes if it still is at its base; says what is left.

    Without ``base`` the branch is older than the start (a resume): it stays, and the slot stays on it.
    The worktree itself stays for the next start. Nothing that a person may have put there is touched, nor a slot that
    by now is another agent's or stands on another branch.
    """
    held = leases.read(slot)
    if held is not None and held.agent_id != names.id_of_branch(branch):
        return f"the slot {slot.name} is left to {held.agent_id or 'whoever holds its lease'}"
    pool = Git(_pool_of(slot))
    try:
        cut_off.unlock(pool, slot, branch)
        left = _leave_worktree(Git(slot), branch, base) if slot.is_dir() else f"the slot {slot.name} was not made"
        _drop_empty_branch(pool, branch, base)
    except SideAgentsError as error:
        return f"the slot {slot.name} is left as it is ({error.message})"
    return left


def _leave_worktree(git: Git, branch: str, base: str | None) -> str:
    slot = git.directory
    if git.layout().worktree_top != slot.resolve():
        return f"{slot} is left as it is"
    is_on_it = git.current_branch() == branch
    _mend_checkout(git, branch, base, is_on_it=is_on_it)
    if is_on_it and base is None:
        return f"the slot {slot.name} with its branch {branch} is left as it is"
    if not git.is_clean() or (is_on_it and git.resolve("HEAD") != base):
        its_branch = f" with its branch {branch}" if is_on_it else ""
        return f"the slot {slot.name}{its_branch} is left as it is, because there is work in it"
    if is_on_it:
        git.run("checkout", "--quiet", "--detach")
    return f"the slot {slot.name} is free again"


def _pool_of(slot: Path) -> Path:
    return slot.with_name(slot.name.rpartition("-agent-worktree-")[0])


def _drop_empty_branch(git: Git, branch: str, base: str | None) -> None:
    """Remove the branch of an agent that never ran, unless it has moved or somebody has checked it out."""
    if base and git.branch_exists(branch) and all(entry.branch != branch for entry in git.worktrees()):
        git.delete_ref_if(f"refs/heads/{branch}", base)


def _mend_checkout(git: Git, branch: str, base: str | None, *, is_on_it: bool) -> None:
    # Only before git writes the index, or else HEAD, a checkout can have been cut off; later changes are somebody's own.
    if is_on_it and (git.layout().git_dir / "index").exists():
        return
    target = base or git.resolve(f"refs/heads/{branch}")
    if target is not None and not git.is_clean():
        git_cut_off.mend(git, target)
