"""Reading refs straight from the repository's files, where a git process (3 ms and more) would be most of the cost.

Only the common "files" format is read. A repository that keeps its refs otherwise (reftable), or a ``packed-refs`` that is
too long to be worth reading here, gives Unreadable, and the caller asks git.
"""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_PACKED_LIMIT = 1024 * 1024


class UnreadableError(Exception):
    """These refs cannot be read from files: ask git."""


def is_commit_id(text: str) -> bool:
    """Whether the text is a full commit id, so that nothing has to be looked up."""
    return _COMMIT.fullmatch(text) is not None


def read_branch_head(common_dir: Path, branch: str) -> str | None:
    """The commit id of a local branch; None when there is none, or when it cannot be told from files."""
    try:
        return read_ref(common_dir, f"refs/heads/{branch}")
    except UnreadableError:
        return None


def read_ref(common_dir: Path, ref: str) -> str | None:
    """The commit id of a full ref name, None when there is none. Raises UnreadableError."""
    _require_files(common_dir)
    # Loose before packed: packing writes the packed entry first and removes the loose one afterwards.
    loose = _content(common_dir / ref)
    if loose is not None:
        if not _COMMIT.fullmatch(loose.strip()):
            raise UnreadableError(ref)
        return loose.strip()
    return _packed(common_dir).get(ref)


def list_refs(common_dir: Path, prefix: str) -> dict[str, str]:
    """Commit ids by full ref name, of ``prefix`` itself and all refs below it. Raises UnreadableError."""
    _require_files(common_dir)
    top = common_dir / prefix
    files = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    loose: dict[str, str] = {}
    for path in files:
        content = (_content(path) or "").strip()
        if path.name.endswith(".lock"):
            continue
        if not _COMMIT.fullmatch(content):
            raise UnreadableError(str(path))
        loose[path.relative_to(common_dir).as_posix()] = content
    packed = {
        ref: commit for ref, commit in _packed(common_dir).items() if ref == prefix or ref.startswith(prefix + "/")
    }
    return dict(sorted((packed | loose).items()))


def read_head(git_dir: Path, common_dir: Path) -> str | None:
    """The commit id of a checkout's HEAD, None before the first commit. Raises UnreadableError."""
    head = (_content(git_dir / "HEAD") or "").strip()
    if _COMMIT.fullmatch(head):
        return head
    if not head.startswith("ref: refs/heads/") or head == "ref: refs/heads/.invalid":
        raise UnreadableError("HEAD")
    return read_ref(common_dir, head.removeprefix("ref: "))


def _require_files(common_dir: Path) -> None:
    if (common_dir / "reftable").exists():
        raise UnreadableError("reftable")


def _packed(common_dir: Path) -> dict[str, str]:
    path = common_dir / "packed-refs"
    try:
        if path.stat().st_size > _PACKED_LIMIT:
            raise UnreadableError("packed-refs is long")
    except FileNotFoundError:
        return {}
    lines = (_content(path) or "").splitlines()
    pairs = (line.split(" ", 1) for line in lines if line[:1] not in ("#", "^") and " " in line)
    return {ref: commit for commit, ref in pairs if _COMMIT.fullmatch(commit)}


def _content(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UnreadableError(str(path)) from error
