"""Moving a target branch: without a checkout, or in the one that holds it with everything uncommitted left as it is.

Order in a checkout: look at what stands in the way; move the ref by compare-and-swap, where hooks and permissions may
still say no and nothing has changed yet; then bring index and files over in one ``read-tree``, which itself refuses
before it writes anything. What fails after the ref has moved moves it back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from side_agents.errors import CommandFailedError, SideAgentsError
from side_agents.infra import clock, fs
from side_agents.infra.git import Git, WorktreeEntry
from side_agents.infra.git_landing import Change, unmerged_files
from side_agents.infra.git_layout import find_layout

_CHECKOUT_DEADLINE = 600.0
# How long another git process in the same checkout is waited for.
_INDEX_WAIT = 10.0
_ABSENT = "000000"
_SYMLINK = "120000"
_SUBMODULE = "160000"
_ENGLISH = {"LANGUAGE": "en"}
_PATIENT = ("core.filesRefLockTimeout=3000", "core.packedRefsTimeout=3000")


class MoveState(Enum):
    """What became of a move; only after DONE has anything changed."""

    DONE = "done"
    CHANGED = "changed"
    OVERLAP = "overlap"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Move:
    """The end of a move, with the files in the way or git's words."""

    state: MoveState
    files: tuple[str, ...] = ()
    words: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """The checkout that has a branch; ``obstacle`` says why the branch must not be moved under it."""

    path: Path
    obstacle: str | None = None


def holder(git: Git, branch: str) -> Holder | None:
    """Who has the branch checked out or is in the middle of rebasing or bisecting it; None: nobody."""
    entries = git.worktrees()
    for entry in entries:
        if entry.branch is None and not entry.bare and _is_in_use(entry.path, branch):
            return Holder(entry.path, f"it is being rebased or bisected in {entry.path}")
    here = [entry for entry in entries if entry.branch == branch and not entry.bare and _matters(entry)]
    if len(here) > 1:
        return Holder(here[0].path, "it is checked out in several places: " + ", ".join(str(e.path) for e in here))
    return _held(here[0]) if here else None


def _matters(entry: WorktreeEntry) -> bool:
    # A folder that was deleted by hand has nothing to bring along; one that is locked may only be unmounted.
    return entry.path.is_dir() or entry.locked


def _held(entry: WorktreeEntry) -> Holder:
    if not entry.path.is_dir():
        return Holder(entry.path, f"its checkout {entry.path} is locked and cannot be reached")
    operation = Git(entry.path).unfinished_operation()
    return Holder(entry.path, f"a {operation} is in progress in {entry.path}" if operation else None)


def _is_in_use(path: Path, branch: str) -> bool:
    try:
        git_dir = find_layout(path).git_dir
    except SideAgentsError:
        return False
    ref = f"refs/heads/{branch}".encode("utf-8", "surrogateescape")
    names = (git_dir / "rebase-merge" / "head-name", git_dir / "rebase-apply" / "head-name")
    if any(fs.read_slice(name, 0, 8192).strip() == ref for name in names):
        return True
    bisected = fs.read_slice(git_dir / "BISECT_START", 0, 8192).strip()
    return bisected in (ref, ref.removeprefix(b"refs/heads/")) and bool(bisected)


def overlap(checkout: Git, changed: Sequence[Change]) -> tuple[str, ...]:
    """Files of a checkout that are not committed, ignored ones included, and that the changes would touch."""
    paths = {change.path for change in changed}
    above = {str(parent) for path in paths for parent in Path(path).parents} - {"."}
    found: list[str] = []
    for entry in checkout.status_entries(every_file=True):
        for name in filter(None, (entry.path.rstrip("/"), entry.original)):
            if name in paths or name in above or any(str(parent) in paths for parent in Path(name).parents):
                found.append(name)
    found += unmentioned(checkout.directory, changed)
    return tuple(dict.fromkeys((*unmerged_files(checkout), *found)))


def unmentioned(top: Path, changed: Sequence[Change]) -> Iterable[str]:
    """Where a file is to appear, something that git does not report: it is ignored, and git would overwrite it."""
    paths = {change.path for change in changed}
    for change in changed:
        if change.old_mode != _ABSENT:
            continue
        place = top / change.path
        if os.path.lexists(place) and not (place.is_dir() and not place.is_symlink() and _is_hollow(place)):
            yield change.path
        for parent in Path(change.path).parents:
            here = top / parent
            blocked = here.is_symlink() or (os.path.lexists(here) and not here.is_dir())
            if blocked and str(parent) not in paths and parent != Path():
                yield str(parent)


def _is_hollow(folder: Path) -> bool:
    return not any(files for _, _, files in os.walk(folder))


def move_ref(git: Git, branch: str, new: str, old: str, *, reason: str) -> Move:
    """Move a branch that nobody has checked out, if it still is at ``old``; the repository's hooks are asked."""
    ref = f"refs/heads/{branch}"
    try:
        done = git.run(
            "update-ref", "--no-deref", "-m", reason, ref, new, old, hooks=True, config=_PATIENT, check=False
        )
    except CommandFailedError as error:
        done_words = error.message
    else:
        if done.returncode == 0:
            return Move(MoveState.DONE)
        done_words = (done.error_text or done.text).strip()
    now = git.resolve(ref)
    if now == new:
        return Move(MoveState.DONE)
    return Move(MoveState.CHANGED if now != old else MoveState.REFUSED, (), done_words)


def fast_forward(checkout: Git, branch: str, new: str, old: str, changed: Sequence[Change], *, reason: str) -> Move:
    """Move a branch together with the checkout that holds it; uncommitted files there stay byte for byte.

    OVERLAP, CHANGED and REFUSED leave everything as it was.
    """
    stopped = _obstacles(checkout, new, old, changed)
    if stopped is not None:
        return stopped
    moved = move_ref(checkout, branch, new, old, reason=reason)
    if moved.state is not MoveState.DONE:
        return moved
    words = _read_tree(checkout, old, new)
    if words is None:
        return moved
    back = move_ref(checkout, branch, old, new, reason=f"{reason} (taken back)")
    if back.state is not MoveState.DONE:
        # Somebody has committed on top meanwhile: what git did not write shows as changed there.
        return Move(MoveState.DONE, (), words)
    restore(checkout, changed)
    files = overlap(checkout, changed)
    return Move(MoveState.OVERLAP if files else MoveState.REFUSED, files, words)


def _obstacles(checkout: Git, new: str, old: str, changed: Sequence[Change]) -> Move | None:
    busy = _await_index(checkout)
    files = () if busy else overlap(checkout, changed)
    if busy or files:
        return busy or Move(MoveState.OVERLAP, files)
    # A file that was only touched looks changed until git has compared it.
    checkout.run("update-index", "-q", "--refresh", check=False, deadline=_CHECKOUT_DEADLINE)
    words = _read_tree(checkout, old, new, "--dry-run")
    if words is None:
        return None
    named = _named(words)
    return Move(MoveState.OVERLAP if named else MoveState.REFUSED, named, words)


def complete(checkout: Git, old: str, new: str) -> str | None:
    """Bring index and files of a checkout from ``old`` to ``new``, whose ref was moved by a process that died then.

    What is at ``new`` already stays, so doing it twice is harmless. Git's words when it refuses.
    """
    _await_index(checkout)
    checkout.run("update-index", "-q", "--refresh", check=False, deadline=_CHECKOUT_DEADLINE)
    return _read_tree(checkout, old, new)


def restore(checkout: Git, changed: Sequence[Change]) -> None:
    """Take back the files of a ``read-tree`` that failed half way; a file that is not what it wrote is left alone."""
    for change in changed:
        place = checkout.directory / change.path
        is_written = _is_written(checkout, place, change)
        if change.old_mode == _ABSENT:
            if is_written:
                fs.remove_file(place)
        elif is_written or (change.new_mode == _ABSENT and not os.path.lexists(place)):
            force = ("--force",) if is_written else ()
            checkout.run("checkout-index", "--quiet", *force, "--", change.path, check=False)


def is_as_new(checkout: Git, change: Change) -> bool:
    """Whether the files of a checkout are already as the change leaves them."""
    place = checkout.directory / change.path
    if change.new_mode == _ABSENT:
        return not os.path.lexists(place)
    return _is_written(checkout, place, change)


def _is_written(checkout: Git, place: Path, change: Change) -> bool:
    if change.new_mode in (_ABSENT, _SUBMODULE) or not os.path.lexists(place):
        return False
    if change.new_mode == _SYMLINK or place.is_symlink():
        content = os.fsencode(os.readlink(place)) if place.is_symlink() else b""  # noqa: PTH115 - as bytes
        return place.is_symlink() and checkout.run("hash-object", "--stdin", input=content).text == change.new_blob
    done = checkout.run("hash-object", "--", change.path, check=False)
    return done.returncode == 0 and done.text == change.new_blob


def _read_tree(checkout: Git, old: str, new: str, *flags: str) -> str | None:
    """None when it was done, else git's words."""
    end = clock.monotonic() + _INDEX_WAIT
    while True:
        try:
            args = ("read-tree", "-m", "-u", *flags, old, new)
            done = checkout.run(*args, env=_ENGLISH, deadline=_CHECKOUT_DEADLINE, check=False)
        except CommandFailedError as error:
            return error.message
        if done.returncode == 0:
            return None
        words = (done.error_text or done.text).strip() or f"status {done.returncode}"
        if "index.lock" not in words or clock.monotonic() > end:
            return words
        clock.pause(0.02)


def _await_index(checkout: Git) -> Move | None:
    lock = checkout.layout().git_dir / "index.lock"
    end = clock.monotonic() + _INDEX_WAIT
    while lock.exists():
        if clock.monotonic() > end:
            words = f"another git process has been working in {checkout.directory} for a while ({lock} exists)"
            return Move(MoveState.REFUSED, (), words)
        clock.pause(0.02)
    return None


def _named(words: str) -> tuple[str, ...]:
    """The files that git will not overwrite: quoted in an error of their own, or indented in a list."""
    found = []
    for line in words.splitlines():
        if line.startswith("\t"):
            found.append(line.strip())
        elif "not uptodate" in line or "would be overwritten" in line or "would be removed" in line:
            found += line.split("'")[1:2]
    return tuple(dict.fromkeys(found))
