"""Reading a branch's commit straight from the repository's files, for hot paths that must not start a process."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def read_branch_head(common_dir: Path, branch: str) -> str | None:
    """The commit id of a local branch; None when there is none or the repository keeps its refs in another format."""
    ref = f"refs/heads/{branch}"
    loose = _first_line(common_dir / ref)
    if loose is not None:
        return loose if _COMMIT.fullmatch(loose) else None
    for line in _lines(common_dir / "packed-refs"):
        commit, _, name = line.partition(" ")
        if name == ref and _COMMIT.fullmatch(commit):
            return commit
    return None


def read_current_branch(git_dir: Path) -> str | None:
    """The branch that a checkout is on; None when its HEAD is detached or cannot be read."""
    head = _first_line(git_dir / "HEAD") or ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def _first_line(path: Path) -> str | None:
    lines = _lines(path)
    return lines[0] if lines else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
