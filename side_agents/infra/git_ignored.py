"""What git does not track in a checkout: which of it is ignored, and how to have more ignored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents.infra import fs
from side_agents.infra.git import Git

_DEADLINE = 120.0


@dataclass(frozen=True, slots=True)
class Untracked:
    """Paths from the top of a checkout; a folder's ends in ``/`` and stands for all that is in it.

    ``ignored`` has a folder only where a pattern ignores the folder itself. ``loose`` is what git would offer to add.
    """

    ignored: tuple[str, ...]
    loose: tuple[str, ...]


def untracked(git: Git) -> Untracked:
    """Everything that git does not track in this checkout. Raises GitError, also for a bare repository."""
    done = git.run(
        "status", "--porcelain=v1", "-z", "--ignored=matching", "--untracked-files=all", "--no-renames",
        "--ignore-submodules=all", deadline=_DEADLINE,
    )  # fmt: skip
    entries = [item for item in os.fsdecode(done.stdout).split("\0") if item]
    ignored = tuple(item[3:] for item in entries if item.startswith("!!"))
    return Untracked(ignored, tuple(item[3:] for item in entries if item.startswith("??")))


def filter_ignored(git: Git, paths: Sequence[str], *, env: Mapping[str, str] | None = None) -> frozenset[str]:
    """Those of the paths that git would ignore here, whether they exist or not; tracked ones never are.

    A folder's path has to end in ``/``. Raises GitError, for a path through a symbolic link for instance.
    """
    if not paths:
        return frozenset()
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    done = git.run("check-ignore", "-z", "--stdin", input=asked, env=env, deadline=_DEADLINE, check=False)
    if done.returncode > 1:
        from side_agents.infra.git_call import failure

        raise failure(done)
    return frozenset(item for item in os.fsdecode(done.stdout).split("\0") if item)


def tracked(git: Git, pathspec: str) -> tuple[str, ...]:
    """Tracked paths that a pathspec of git names."""
    done = git.run("ls-files", "-z", "--", pathspec)
    return tuple(item for item in os.fsdecode(done.stdout).split("\0") if item)


def add_excludes(git: Git, patterns: Sequence[str]) -> None:
    """Add lines to the exclude file that all worktrees share, those that it lacks; what is there stays."""
    path = Path(os.path.realpath(git.exclude_file()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with fs.locked(git.layout().common_dir / "side-agents-exclude.lock", purpose="the shared exclude file"):
        present = os.fsdecode(path.read_bytes()) if path.exists() else ""
        missing = [pattern for pattern in dict.fromkeys(patterns) if pattern not in present.split("\n")]
        if missing:
            gap = "\n" if present and not present.endswith("\n") else ""
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            fs.replace(path, os.fsencode(present + gap + "\n".join(missing) + "\n"), mode=mode)
