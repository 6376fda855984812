"""Bringing discards back: the slot's folder, its registration, branch refs (see ``trash`` for where they lie).

Every step looks at the facts on disk first, so that an undo which was killed is simply run again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from side_agents import names
from side_agents.core import trash
from side_agents.core.context import Context
from side_agents.core.trash import Place, TrashEntry, place
from side_agents.core.verdicts import Kind
from side_agents.errors import GitError, SideAgentsError, StateError
from side_agents.infra import fs, git_registration
from side_agents.infra.git import Git
from side_agents.infra.git_registration import registrations

_LOCK_WAIT = 60.0


def undo(context: Context, stamp: str | None) -> list[tuple[TrashEntry, str, SideAgentsError | None]]:
    """Bring back a whole run, branches first: each entry with what is there again, or why it could not be."""
    results: list[tuple[TrashEntry, str, SideAgentsError | None]] = []
    with trash.locked(context, "bringing a discard back"):
        for entry in sorted(trash.of_run(context, stamp), key=lambda entry: (entry.kind != Kind.BRANCH, entry.name)):
            try:
                results.append((entry, restore(context, entry), None))
            except SideAgentsError as error:
                results.append((entry, "", error))
    return results


def restore(context: Context, entry: TrashEntry) -> str:
    """Bring one discard back; says what is there again, and under which name where the old one is taken.

    The caller holds the lock of discards. Raises SideAgentsError; whatever it had done by then is done right when it is
    called again.
    """
    git, was_moved = Git(context.paths.root), not place(context, entry.name).is_empty
    if entry.kind == Kind.BRANCH:
        said = _restore_branch(git, entry)
    elif not was_moved:
        # Nothing was moved yet, or everything is back since an undo that was cut off: it may be in use again.
        said = f"slot {entry.label} is there already"
    else:
        with fs.locked(
            context.layout.common_dir / "side-agents-worktrees.lock", purpose="restoring a slot", timeout=_LOCK_WAIT
        ):
            said = _restore_slot(context, git, entry)
    # The reflog of a slot that is back keeps what else only the rescue refs would.
    trash.drop_refs(git, entry, only_if_held=not was_moved)
    trash.forget(context, entry)
    return said


def _restore_branch(git: Git, entry: TrashEntry) -> str:
    ref, now = f"refs/heads/{entry.label}", git.resolve(f"refs/heads/{entry.label}")
    if now is None:
        _create_ref(git, ref, entry.head or "")
        return f"branch {entry.label} at {(entry.head or '')[:12]}"
    if now != entry.head:
        kept = ", ".join(ref for ref, _ in trash.rescue_refs(entry.refs))
        raise GitError(
            f"A branch {entry.label} exists again, at another commit; it was left alone.",
            hint=f"The old one's commits are in {kept}: git branch NAME {kept.split(', ', maxsplit=1)[0]}",
        )
    return f"branch {entry.label} is there already"


def _create_ref(git: Git, ref: str, commit: str) -> None:
    # The empty old value makes git refuse a ref that appeared meanwhile.
    git.run("update-ref", "--create-reflog", "-m", "brought back by side-agents", ref, commit, "")


def _restore_slot(context: Context, git: Git, entry: TrashEntry) -> str:
    where = place(context, entry.name)
    if entry.restored_path is None or entry.restored_admin is None:
        entry = _choose_places(context, entry, where)
        trash.write(context, entry)
    path, admin = Path(entry.restored_path or ""), Path(entry.restored_admin or "")
    if where.admin.exists():
        fs.make_private_dir(admin.parent)
        fs.move(where.admin, admin)
    branch = _settle_branch(git, entry, admin)
    if where.slot.exists():
        _repoint(where.slot, path, admin)
        fs.remove_file(where.slot / ".pi" / "active.lock")
        if os.path.lexists(path):
            raise StateError(
                f"{path} exists by now; the slot waits in {where.slot}.", hint="Move that away, then again."
            )
        fs.move(where.slot, path)
    renamed = f" (as {path.name}, its old name is taken)" if str(path) != entry.path else ""
    return f"slot {entry.label}{renamed} {branch}"


def _choose_places(context: Context, entry: TrashEntry, where: Place) -> TrashEntry:
    common, old = context.layout.common_dir, Path(entry.path or "")
    path = old if not os.path.lexists(old) or not where.slot.exists() else _free_slot(context)
    admin = common / "worktrees" / (entry.admin or path.name)
    if not where.admin.exists():
        # The discard was cut off before this step, so that the registration has to be where it was.
        if path != old or not any((each.admin, each.worktree) == (admin, old) for each in registrations(common)):
            advice = f"Its files are complete in {where.slot}; its commits are on {entry.branch or 'a rescue ref'}."
            raise StateError(f"The registration of {entry.label} has been replaced; nothing was moved.", hint=advice)
    elif admin.exists():
        taken = {each.name for each in admin.parent.iterdir()}
        admin = admin.with_name(names.distinct_id(admin.name, taken))
    if (path != old or admin.name != entry.admin) and (where.admin / "modules").exists():
        raise StateError(
            f"The place of {entry.label} is taken, and with its submodules it fits nowhere else. Nothing was moved.",
            hint=f"Move {old} away, then undo again.",
        )
    return replace(entry, restored_path=str(path), restored_admin=str(admin))


def _free_slot(context: Context) -> Path:
    pool = context.paths.root
    seen = [names.slot_number(pool, path) for path in pool.parent.iterdir()]
    known = [names.slot_number(pool, each.worktree) for each in registrations(context.layout.common_dir)]
    rows = [names.slot_number(pool, row.worktree_path) for row in context.registry.read().agents.values()]
    number = max((number for number in (*seen, *known, *rows) if number is not None), default=0) + 1
    return pool.parent / names.slot_name(pool.name, number)


def _settle_branch(git: Git, entry: TrashEntry, admin: Path) -> str:
    """Put the slot back on its branch, or detach it where that has moved on or is checked out elsewhere."""
    if entry.branch is None or entry.head is None:
        return "with a detached HEAD"
    ref = f"refs/heads/{entry.branch}"
    now = git.resolve(ref)
    if now is None:
        _create_ref(git, ref, entry.head)
        return f"on {entry.branch}"
    others = [each for each in git.worktrees() if each.branch == entry.branch and str(each.path) != entry.restored_path]
    if now == entry.head and not others:
        return f"on {entry.branch}"
    fs.replace(admin / "HEAD", f"{entry.head}\n", mode=0o644)
    return f"detached at {entry.head[:12]}, because {entry.branch} has moved on or is checked out elsewhere"


def _repoint(slot: Path, path: Path, admin: Path) -> None:
    named = git_registration.named_by(slot)
    if named != admin:
        fs.replace(slot / ".git", os.fsencode(f"gitdir: {admin}\n"), mode=0o644)
    if fs.read_slice(admin / "gitdir", 0, 8192).rstrip(b"\n") != os.fsencode(path / ".git"):
        fs.replace(admin / "gitdir", os.fsencode(f"{path / '.git'}\n"), mode=0o644)
