"""Uncommitted work: looking at it, and carrying it from one checkout to another. The source is never touched."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from side_agents.errors import RefusedError
from side_agents.infra.git import Git

_DEADLINE = 120.0
_AUTHOR = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "side-agents"), ("EMAIL", "side-agents@localhost"))
}


def snapshot(git: Git) -> str | None:
    """A commit on top of HEAD that holds everything uncommitted, untracked files too; None when there is nothing.

    No branch points to it. Index and files stay as they are. Refused in the middle of a merge, rebase and the like.
    """
    operation = git.unfinished_operation()
    if operation is not None:
        raise RefusedError(f"{git.directory} is in the middle of a {operation}; its changes cannot be carried over.")
    head = git.head_commit()
    top = Git(git.top())
    with _scratch_index(top) as env:
        top.run("add", "--all", "--", ".", env=env, deadline=_DEADLINE)
        tree = top.run("write-tree", env=env).text
    if tree == top.text("rev-parse", "--verify", f"{head}^{{tree}}"):
        return None
    message = b"Uncommitted changes carried over by side-agents\n"
    return top.run("commit-tree", tree, "-p", head, input=message, env=_AUTHOR).text


def apply_snapshot(git: Git, commit: str) -> None:
    """Bring a snapshot's changes into a clean checkout of the same commit, where they are uncommitted again.

    Deletions, modes and untracked files included. Raises RefusedError when HEAD is not the snapshot's parent or the
    checkout is not clean; nothing was changed then.
    """
    parent = git.resolve(f"{commit}^1")
    if parent is None or parent != git.head_commit():
        raise RefusedError(f"The changes were taken from another commit than the one checked out in {git.directory}.")
    if not git.is_clean():
        raise RefusedError(f"{git.directory} has changes of its own; the others were not brought in.")
    git.run("read-tree", "-m", "-u", "HEAD", commit, deadline=_DEADLINE)
    git.run("reset", "--quiet", "--mixed", "HEAD", deadline=_DEADLINE)


def diff(git: Git, base: str, *, stat: bool = False, untracked: bool = True) -> str:
    """What the files of a checkout changed since ``base``, committed or not, as git prints it, without colour."""
    form = ["--stat"] if stat else ["--patch", "--src-prefix=a/", "--dst-prefix=b/"]
    args = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", *form, "--end-of-options", base, "--")
    with _scratch_index(git, intent_to_add=untracked) as env:
        return git.run(*args, env=env, deadline=_DEADLINE).stdout.decode("utf-8", "replace")


def changed_files(git: Git, base: str) -> int:
    """How many files differ from ``base``, untracked ones included."""
    tracked = git.run("diff", "--no-ext-diff", "--name-only", "-z", "--end-of-options", base, "--", deadline=_DEADLINE)
    added = git.run("ls-files", "--others", "--exclude-standard", "-z", deadline=_DEADLINE)
    return tracked.stdout.count(b"\0") + added.stdout.count(b"\0")


@contextmanager
def _scratch_index(git: Git, *, intent_to_add: bool = False) -> Iterator[dict[str, str]]:
    # A copy keeps the stat cache: in a large checkout only the files that changed are read.
    index = git.layout().git_dir / "index"
    with tempfile.TemporaryDirectory(prefix="side-agents-") as folder:
        copy = Path(folder, "index")
        if index.exists():
            shutil.copyfile(index, copy)
        env = {"GIT_INDEX_FILE": str(copy)}
        if intent_to_add:
            git.run("add", "--intent-to-add", "--all", "--", ".", env=env, deadline=_DEADLINE)
        yield env
