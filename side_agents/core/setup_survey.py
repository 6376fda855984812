"""What ``setup`` finds out about a project before it asks anything; nothing is changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from side_agents.core import bootstrap, check_proposals, replicate
from side_agents.core.bootstrap import Folder, Step
from side_agents.core.check_proposals import Check
from side_agents.core.context import Context
from side_agents.core.include_list import Mode
from side_agents.errors import SideAgentsError
from side_agents.infra import fs, fs_tree, git_ignored, git_landing
from side_agents.infra.git import Git
from side_agents.paths import SHARED_PREFIX

_TEXT_LIMIT = 512 * 1024


@dataclass(frozen=True, slots=True)
class Candidate:
    """An ignored file, or whole folder, with its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What the lists that exist bring into every slot already."""

    path: str
    mode: Mode
    size: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. ``copies`` are ignored settings that no list has yet; ``ignored`` all that git ignores."""

    branch: str | None
    steps: tuple[Step, ...] = ()
    checks: tuple[Check, ...] = ()
    copies: tuple[Candidate, ...] = ()
    listed: tuple[Listed, ...] = ()
    ignored: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def survey(context: Context) -> Survey:
    """Look at the main checkout. A repository without one (bare) only tells its branch."""
    branch = context.config.finish_target or git_landing.default_branch(Git(context.checkout), context.paths.root)
    top = context.paths.root
    if context.layout.is_bare_layout:
        return Survey(branch, warnings=("A bare repository has no files to look at; only its branch was found out.",))
    git = Git(top)
    names = git_ignored.tracked(git, ".")
    root, below = folders_of(top, names)
    warnings: list[str] = []
    seen = git_ignored.Untracked((), ())
    try:
        seen = git_ignored.untracked(git)
    except SideAgentsError as error:
        warnings.append(f"Files that git ignores could not be listed: {error.message}")
    listed = replicate.select(top, replicate.read_lists(top), seen.ignored)
    known = {path for path, _ in listed}
    return Survey(
        branch,
        steps=(*bootstrap.propose(root), *bootstrap.propose_below(below)),
        checks=check_proposals.propose_checks(root),
        copies=tuple(Candidate(p, size_of(top / p)) for p in bootstrap.worth_copying(seen.ignored) if p not in known),
        listed=tuple(Listed(path, mode, size_of(top / path)) for path, mode in listed),
        ignored=seen.ignored,
        committed=tuple(name for name in names if name.startswith(f".pi/{SHARED_PREFIX}")),
        warnings=tuple(warnings),
    )


def folders_of(top: Path, names: Iterable[str]) -> tuple[Folder, dict[str, Folder]]:
    """The top of a checkout and the folders right below it, by the names of all tracked files."""
    found: dict[str, set[str]] = {"": set()}
    for name in names:
        head, *rest = name.split("/", 2)
        found[""].add(head)
        if rest:
            found.setdefault(head, set()).add(rest[0])
    made = {place: Folder(frozenset(inside), _texts(top / place, inside)) for place, inside in found.items()}
    return made.pop(""), made


def size_of(path: Path) -> int:
    """Bytes in a file, or on disk of a whole folder; 0 for what cannot be looked at."""
    try:
        facts = path.lstat()
    except OSError:
        return 0
    return fs_tree.size_of(path) if stat.S_ISDIR(facts.st_mode) else facts.st_size


def _texts(place: Path, names: set[str]) -> dict[str, str]:
    found = {}
    for name in names.intersection(bootstrap.READ):
        path = place / name
        if path.is_file() and not path.is_symlink():
            found[name] = os.fsdecode(fs.read_slice(path, 0, _TEXT_LIMIT))
    return found
