"""What a forced checkout would destroy in a clean worktree, because ``git status`` says nothing about it.

git takes ignored files for worthless: it writes over them what the new commit tracks. What it was told not to look at
(assume-unchanged, skip-worktree) it takes for unchanged. Everything here only looks.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from side_agents.infra import git_ignored, git_work
from side_agents.infra.git import Git

_DEADLINE = 300.0
_LIST = ".gitignore"
_SHOWN = 5


def obstacle(slot: Git, commits: Iterable[str]) -> str | None:
    """Why a clean worktree must not be taken from its HEAD to these commits, in words that follow its name; None: it may.

    Raises GitError when git does not answer.
    """
    index = git_work.look_at_index(slot)
    hidden = git_work.hidden_changes(slot, index)
    if hidden:
        return f"has changes that git was told to overlook: {_some(hidden)}"
    for commit in commits:
        differing = _differing(slot, commit)
        covered = list(dict.fromkeys(_covered(slot.directory, differing, index)))
        if covered:
            return f"has ignored files that the new branch tracks: {_some(covered)}"
        if any(PurePosixPath(path).name == _LIST for path in differing):
            bared = _no_longer_ignored(slot, commit)
            if bared:
                return f"has files that the new branch no longer ignores: {_some(bared)}"
    return None


def _differing(slot: Git, commit: str) -> list[str]:
    """The paths that are not the same in the index and in the commit."""
    form = ("--cached", "--name-only", "--no-renames", "--ignore-submodules=none", "-z")
    listed = slot.run("diff-index", *form, commit, "--", deadline=_DEADLINE)
    return [path for path in os.fsdecode(listed.stdout).split("\0") if path]


def _covered(top: Path, paths: Iterable[str], tracked: Collection[str]) -> Iterator[str]:
    """What lies, untracked, where one of the paths has to be written."""
    folders: dict[str, bool] = {"": True}
    for path in paths:
        if path in tracked:
            continue
        parts = path.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            if above not in folders:
                folders[above] = _is_folder(top / above)
                if not folders[above] and above not in tracked and os.path.lexists(top / above):
                    yield above
            if not folders[above]:
                # Nothing is below it, and what lies behind a link is not in this worktree.
                break
        else:
            yield from _untracked(top, path, tracked)


def _untracked(top: Path, path: str, tracked: Collection[str]) -> Iterator[str]:
    place = top / path
    if _is_folder(place):
        for folder, folders, files in os.walk(place):
            here = Path(folder)
            links = [name for name in folders if (here / name).is_symlink()]
            found = (str((here / name).relative_to(top)) for name in (*files, *links))
            yield from (name for name in found if name not in tracked)
    elif os.path.lexists(place) and not _is_our_link(place):
        yield path


def _is_folder(place: Path) -> bool:
    try:
        return stat.S_ISDIR(place.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_our_link(place: Path) -> bool:
    # A start makes these anew from the main checkout; one that a project commits has to be relative.
    ours = place.parent.name == ".pi" and place.name.startswith("side-agent-") and place.is_symlink()
    return ours and place.readlink().is_absolute()


def _no_longer_ignored(slot: Git, commit: str) -> list[str]:
    """Ignored files of the slot that would look like new work on the commit, whose ``.gitignore`` files are others."""
    ignored = git_ignored.untracked(slot).ignored
    if not ignored:
        return []
    with tempfile.TemporaryDirectory(prefix="side-agents-") as folder:
        top = Path(folder, "files")
        top.mkdir()
        env = {
            "GIT_DIR": str(slot.layout().git_dir),
            "GIT_WORK_TREE": str(top),
            "GIT_INDEX_FILE": str(Path(folder, "index")),
        }
        # It fails when the commit has no such file; nothing is written then, and that is what it is to be.
        slot_at_commit = Git(top)
        slot_at_commit.run(
            "checkout", "--quiet", commit, "--", f":(top,glob)**/{_LIST}",
            config=("core.sparseCheckout=false",), env=env, deadline=_DEADLINE, check=False,
        )  # fmt: skip
        for path in ignored:
            if path.rpartition("/")[2] == _LIST and not os.path.lexists(top / path):
                # One that cannot be read ignores nothing: the slot is passed over then.
                with suppress(OSError):
                    (top / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(slot.directory / path, top / path, follow_symlinks=False)
        still = git_ignored.filter_ignored(slot_at_commit, ignored, env=env)
    return [path for path in ignored if path not in still]


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
