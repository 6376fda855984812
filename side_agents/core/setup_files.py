"""Files that are put into a project and belong to its user from then on.

What was installed is kept below ``setup-base/``, so that later it can be told whether the user has changed a file, the
shipped one has changed, or both. A file is replaced only with consent, and goes to ``setup-backup/`` first.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from side_agents.errors import SideAgentsError
from side_agents.infra import fs
from side_agents.paths import StatePaths

_LIMIT = 4 * 1024 * 1024


class State(StrEnum):
    """How an installed file stands to the one that is to be installed."""

    NEW = "new"
    SAME = "same"
    OUTDATED = "outdated"
    YOURS = "yours"
    CHANGED = "changed"
    BLOCKED = "blocked"


class Action(StrEnum):
    """What became of a file."""

    MADE = "made"
    UPDATED = "updated"
    SAME = "same"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to install: ``name`` below the state root, its text, its mode."""

    name: str
    text: str
    mode: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file as it is and as it is to be. ``old`` and ``base`` are None where there is none; ``note`` is for the user."""

    wanted: Wanted
    path: Path
    state: State
    old: bytes | None = None
    base: bytes | None = None
    note: str | None = None

    @property
    def new(self) -> bytes:
        """The bytes to install."""
        return self.wanted.text.encode("utf-8", "surrogateescape")

    @property
    def diff(self) -> str:
        """From the installed file to the new one, as a unified diff; empty where both are the same."""
        return unified(self.old or b"", self.new, f"installed/{self.wanted.name}", f"new/{self.wanted.name}")

    @property
    def shipped_diff(self) -> str:
        """What has changed in the shipped file since it was installed; empty where that is not known."""
        name = self.wanted.name
        return unified(self.base, self.new, f"installed-then/{name}", f"new/{name}") if self.base is not None else ""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one file; ``backup`` is where its old content is."""

    name: str
    action: Action
    backup: str | None = None
    note: str | None = None


def unified(old: bytes, new: bytes, old_name: str, new_name: str) -> str:
    """A unified diff of two texts; bytes that are no UTF-8 are shown as escapes."""
    before, after = (each.decode("utf-8", "backslashreplace").splitlines(keepends=True) for each in (old, new))
    lines = difflib.unified_diff(before, after, old_name, new_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def look(paths: StatePaths, wanted: Wanted) -> FilePlan:
    """Compare one file with what is there. Raises StateError for what cannot be read."""
    path = paths.root / wanted.name
    obstacle = _obstacle(paths.root, path)
    if obstacle is not None:
        return FilePlan(wanted, path, State.BLOCKED, note=obstacle)
    base = _content(_base_path(paths, wanted.name))
    old = _content(path)
    plan = FilePlan(wanted, path, State.NEW, old, base)
    if old is None:
        return plan
    note = None
    if old == plan.new:
        state = State.SAME
    elif base is None:
        state, note = State.CHANGED, "it is not from this command, or older than it"
    elif old == base:
        state = State.OUTDATED
    else:
        state = State.YOURS if base == plan.new else State.CHANGED
        note = "you have changed it"
    if wanted.mode & 0o100 and not os.access(path, os.X_OK):
        note = (f"{note}; " if note else "") + "it is not executable, so it is not run"
    return FilePlan(wanted, path, state, old, base, note)


def is_covered(plan: FilePlan, *, overwrite: bool) -> bool:
    """Whether a general yes covers this file; one that the user has changed needs ``overwrite`` too."""
    return plan.state in (State.NEW, State.OUTDATED) or (overwrite and plan.state in (State.CHANGED, State.YOURS))


def install(paths: StatePaths, plan: FilePlan, *, consent: bool, stamp: str) -> Done:
    """Write one file if there is consent; whatever fails is a reason to skip it, and leaves it as it was."""
    name = plan.wanted.name
    if plan.state is State.SAME:
        _keep_base(paths, plan)
        return Done(name, Action.SAME, note=plan.note)
    if plan.state is State.BLOCKED or not consent:
        return Done(name, Action.SKIPPED, note=plan.note or ("it exists and is kept" if plan.old is not None else None))
    try:
        backup = _write(paths, plan, stamp)
    except SideAgentsError as error:
        return Done(name, Action.SKIPPED, note=error.message)
    _keep_base(paths, plan)
    return Done(name, Action.UPDATED if plan.old is not None else Action.MADE, backup)


def _write(paths: StatePaths, plan: FilePlan, stamp: str) -> str | None:
    obstacle = _obstacle(paths.root, plan.path)
    if obstacle is not None or _content(plan.path) != plan.old:
        raise SideAgentsError(obstacle or "it was changed by somebody just now and is kept")
    for folder in reversed(plan.path.relative_to(paths.root).parents[:-1]):
        fs.make_private_dir(paths.root / folder)
    if plan.old is None:
        if not fs.create_exclusive(plan.path, plan.new, mode=plan.wanted.mode):
            raise SideAgentsError("it was made by somebody just now and is kept")
        return None
    backup = paths.meta / "setup-backup" / stamp / plan.wanted.name
    fs.make_private_dir(backup.parent)
    fs.replace(backup, plan.old)
    fs.replace(plan.path, plan.new, mode=plan.wanted.mode)
    return backup.relative_to(paths.root).as_posix()


def _keep_base(paths: StatePaths, plan: FilePlan) -> None:
    base = _base_path(paths, plan.wanted.name)
    if _content(base) != plan.new:
        fs.make_private_dir(base.parent)
        fs.replace(base, plan.new)


def _base_path(paths: StatePaths, name: str) -> Path:
    return paths.meta / "setup-base" / name


def _content(path: Path) -> bytes | None:
    return fs.read_slice(path, 0, _LIMIT) if path.exists() else None


def _obstacle(root: Path, path: Path) -> str | None:
    """Why nothing may be written under this name: it, or a folder on the way, is a link or not what it should be."""
    here = root
    for part in path.relative_to(root).parts:
        here /= part
        shown = here.relative_to(root)
        if here.is_symlink():
            return f"{shown} is a symbolic link (to {os.readlink(here)}); nothing is written through it"  # noqa: PTH115
        if os.path.lexists(here) and here != path and not here.is_dir():
            return f"{shown} is not a folder"
    if os.path.lexists(path) and not path.is_file():
        return f"{path.relative_to(root)} is not a file"
    return None
