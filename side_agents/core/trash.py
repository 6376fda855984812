"""The trash of a repository: what was discarded, where it is now, and how it was.

Folders go to ``.<repo>-agent-trash/<stamp>-<name>/slot`` beside the slots, which is the same file system, so that a move is
one rename. A worktree's administrative folder goes to ``side-agents-trash/<stamp>-<name>`` in the repository, at the same
depth as before, where its index and reflogs still work. ``entry.json`` is written first; from then on the facts on disk
say how far a discard or an undo got, so that either can be killed anywhere and be repeated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from side_agents.core.context import Context
from side_agents.core.verdicts import Kind
from side_agents.errors import GitError, NotFoundError, StateError
from side_agents.infra import fs, fs_tree, git_work
from side_agents.infra.git import Git
from side_agents.infra.git_registration import Registration
from side_agents.infra.git_worktrees import RESCUE_REFS
from side_agents.models import Stored, json_text

ENTRY_FILE = "entry.json"
DOOMED = ".deleting-"
_LOCK_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashEntry(Stored):
    """One discard. ``stamp`` is that of the whole run; ``label`` the slot's folder name or the branch.

    ``head`` is the commit of the slot or branch, ``refs`` are its rescue refs as ``"<ref> <commit>"``. ``restored_path`` and
    ``restored_admin`` are set by an undo before it moves anything.
    """

    name: str
    stamp: str
    kind: str
    label: str
    path: str | None = None
    admin: str | None = None
    branch: str | None = None
    head: str | None = None
    refs: tuple[str, ...] = ()
    restored_path: str | None = None
    restored_admin: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parts of one entry lie, whether they are there or not."""

    folder: Path
    admin: Path

    @property
    def slot(self) -> Path:
        """The folder that was a slot."""
        return self.folder / "slot"

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been moved here."""
        return not os.path.lexists(self.slot) and not os.path.lexists(self.admin)


def root(context: Context) -> Path:
    """The trash folder beside the slots."""
    top = context.paths.root
    return top.parent / f".{top.name}-agent-trash"


def place(context: Context, name: str) -> Place:
    """The places of an entry."""
    return Place(root(context) / name, context.layout.common_dir / "side-agents-trash" / name)


def entry_name(stamp: str, label: str) -> str:
    """The name of an entry, which is also part of its rescue refs."""
    return f"{stamp}-" + re.sub(r"[^A-Za-z0-9._-]+|\.\.+|\.lock$|\.$", "-", label)


def entries(context: Context) -> list[TrashEntry]:
    """All entries that can be read, newest run first."""
    folder = root(context)
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = (_read(path) for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    known = [entry for entry in found if entry is not None]
    return sorted(sorted(known, key=lambda entry: entry.name), key=lambda entry: entry.stamp, reverse=True)


def of_run(context: Context, stamp: str | None) -> list[TrashEntry]:
    """The entries of the last run, or of the one whose stamp begins so. Raises NotFoundError."""
    known = entries(context)
    matching = [entry for entry in known if stamp is None or entry.stamp.startswith(stamp) or entry.name == stamp]
    stamps = list(dict.fromkeys(entry.stamp for entry in matching))
    if not stamps:
        what = f"no discard {stamp}" if stamp else "nothing"
        raise NotFoundError(f"There is {what} in the trash.", hint="`side-agents clean --trash` shows what there is.")
    if stamp is not None and len(stamps) > 1:
        shown = ", ".join(stamps[:5])
        raise NotFoundError(f"{stamp} fits more than one discard: {shown}.", hint="Give more of the stamp.")
    return [entry for entry in matching if entry.stamp == stamps[0]]


def _read(folder: Path) -> TrashEntry | None:
    try:
        data = fs.read_json(folder / ENTRY_FILE)
        entry = TrashEntry.from_json(data) if isinstance(data, dict) else None
    except (StateError, ValueError, TypeError):
        return None
    if entry is None or entry.name != folder.name or entry.kind not in (Kind.SLOT, Kind.BRANCH):
        return None
    return replace(entry, refs=tuple(map(str, entry.refs)))


def write(context: Context, entry: TrashEntry) -> None:
    """Record an entry, new or changed."""
    where = place(context, entry.name)
    fs.make_private_dir(where.folder)
    fs.replace(where.folder / ENTRY_FILE, json_text(entry.to_json(), indent=2) + "\n")


def keep_commits(context: Context, git: Git, entry: TrashEntry, ref: str) -> TrashEntry:
    """Give a rescue ref to the entry's commit and to those that only the reflog of ``ref`` knows. Raises GitError."""
    if entry.head is None:
        raise GitError(f"{entry.label} has no commit to keep, so nothing was discarded.")
    wanted = {"head": entry.head}
    lost = [commit for commit in git_work.only_in_reflog(git, ref) if commit != entry.head]
    if lost:
        wanted["reflog"] = git_work.keep_commits(git, lost)
    kept = replace(entry, refs=tuple(f"{RESCUE_REFS}{entry.name}/{part} {commit}" for part, commit in wanted.items()))
    # Recorded before they are made: what a killed run leaves must be found again.
    write(context, kept)
    for name, commit in rescue_refs(kept.refs):
        git_work.preserve(git, name, commit)
    return kept


def drop_refs(git: Git, entry: TrashEntry, *, only_if_held: bool) -> list[str]:
    """Delete an entry's rescue refs; ``only_if_held`` spares those whose commit nothing else keeps, which are returned."""
    left = []
    for name, commit in rescue_refs(entry.refs):
        if git.resolve(name) is None:
            continue
        if (only_if_held and not git_work.holders(git, commit)) or not git.delete_ref_if(name, commit):
            left.append(name)
    return left


def rescue_refs(refs: Iterable[str]) -> list[tuple[str, str]]:
    """The rescue refs of an entry as pairs of name and commit; whatever is none is passed over."""
    found = [(name, commit) for name, _, commit in (ref.partition(" ") for ref in refs)]
    return [(name, commit) for name, commit in found if name.startswith(RESCUE_REFS)]


def forget(context: Context, entry: TrashEntry) -> None:
    """Remove an entry from which everything has been taken out."""
    where = place(context, entry.name)
    if not where.is_empty:
        raise StateError(f"The trash entry {entry.name} is not empty and was kept.")
    fs.remove_file(where.folder / ENTRY_FILE)
    fs_tree.remove_empty_dir(where.folder)
    fs_tree.remove_empty_dir(root(context))


def move_admin(context: Context, entry: TrashEntry, registration: Registration) -> None:
    """Take a worktree's registration out of git's list."""
    where = place(context, entry.name)
    fs.make_private_dir(where.admin.parent)
    fs.move(registration.admin, where.admin)


def pending(context: Context, path: Path) -> TrashEntry | None:
    """The entry of a discard of this slot that was cut off between its two moves."""
    for entry in entries(context):
        where = place(context, entry.name)
        if entry.path == str(path) and where.slot.is_dir() and not where.admin.exists() and not os.path.lexists(path):
            return entry
    return None


def tidy(context: Context) -> None:
    """Forget slot entries that were written by a run which was killed before it moved anything."""
    for entry in entries(context):
        if entry.kind == Kind.SLOT and place(context, entry.name).is_empty:
            drop_refs(Git(context.paths.root), entry, only_if_held=True)
            forget(context, entry)
    folder = root(context)
    for path in folder.glob("[0-9]*T[0-9]*Z-*") if folder.is_dir() and not folder.is_symlink() else ():
        fs_tree.remove_empty_dir(path)


def locked(context: Context, purpose: str) -> AbstractContextManager[None]:
    """One discard or undo at a time in a repository."""
    return fs.locked(context.layout.common_dir / "side-agents-discard.lock", purpose=purpose, timeout=_LOCK_WAIT)
