"""A checkout that was cut off: git, or the machine, ended while the files of one commit took the place of another's.

Every path then is as the old commit has it, or as the new one has it, or begun, or absent. Where this is proven for the
whole worktree, nothing in it is anybody's work. Where there is no index, which git writes last, there had been no files
before. Whoever asks has made sure that no git is at work in the worktree.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from side_agents.infra import fs, git_work
from side_agents.infra.git import Git

_DEADLINE = 600.0
# A file that git had begun is compared in memory; a longer one is left to a person.
_LONGEST = 256 * 1024 * 1024
# What a checkout locks in its own worktree.
_LOCKS = ("index.lock", "HEAD.lock")
# What git itself locks a worktree with until it is made.
_BEING_MADE = b"initializing"


@dataclass(frozen=True, slots=True)
class _View:
    """A worktree beside a commit: the commit's paths, which of them are ``gone`` or ``changed``, and what is there besides."""

    paths: frozenset[str]
    gone: frozenset[str]
    changed: frozenset[str]
    others: frozenset[str]
    ignored: frozenset[str]


def unlock(admin: Path, branch: str) -> None:
    """Remove what a git that is dead by now left in a worktree's administrative folder to keep others away.

    One that was making the worktree may not have come to putting it on its ``branch``.
    """
    for name in _LOCKS:
        fs.remove_file(admin / name)
    if fs.read_slice(admin / "locked", 0, 64).strip() != _BEING_MADE:
        return
    if set(fs.read_slice(admin / "HEAD", 0, 128).strip()) == set(b"0"):
        fs.replace(admin / "HEAD", os.fsencode(f"ref: refs/heads/{branch}\n"), mode=0o644)
    fs.remove_file(admin / "locked")


def mend(slot: Git, target: str) -> bool:
    """Put a worktree right in which a checkout of ``target`` was cut off: as it was before, or filled if it had no files.

    False when anything in it may be somebody's work; all is as it was then. HEAD stays where it is. Raises GitError.
    """
    has_index, head = (slot.layout().git_dir / "index").exists(), slot.resolve("HEAD")
    if head is None or slot.unfinished_operation() is not None or not (has_index or head == target):
        return False
    if has_index and not any(_is_staged_as(slot, commit) for commit in (head, target)):
        return False
    if next(_unexplained(slot, head if has_index else None, target), None) is not None:
        return False
    branch = slot.current_branch()
    if head != target:
        # Only once it is complete, git knows which of the new files it has to remove again.
        slot.run("checkout", "--quiet", "--force", "--detach", target, "--", deadline=_DEADLINE)
        slot.run("checkout", "--quiet", *([branch] if branch else ["--detach", head]), "--", deadline=_DEADLINE)
    else:
        slot.run("reset", "--quiet", "--hard", "HEAD", deadline=_DEADLINE)
    return True


def _is_staged_as(slot: Git, commit: str) -> bool:
    done = slot.run("diff-index", "--cached", "--quiet", commit, "--", check=False, deadline=_DEADLINE)
    return done.returncode == 0


def _unexplained(slot: Git, old: str | None, target: str) -> Iterator[str]:
    """Paths that a checkout of ``target`` in the place of ``old`` would not have left like this."""
    before, after = _look(slot, old), _look(slot, target)
    touched = (
        after.paths if old is None else _split(slot, "diff-tree", "-r", "--name-only", "--no-renames", old, target)
    )
    passed_over = {path for path, is_hidden in git_work.look_at_index(slot).items() if is_hidden}
    yield from before.gone - touched - passed_over
    for path in before.changed | before.others:
        if path not in touched:
            if path not in before.ignored:
                yield path
        elif path not in after.paths - after.changed - after.gone and not _is_begun(slot, target, path):
            yield path


def _is_begun(slot: Git, target: str, path: str) -> bool:
    """Whether a file is the beginning of what the commit has there, and no more."""
    try:
        facts = (slot.directory / path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LONGEST:
        return False
    whole = slot.run("cat-file", "--filters", f"{target}:{path}", check=False, deadline=_DEADLINE)
    begun = fs.read_slice(slot.directory / path, 0, facts.st_size)
    return whole.returncode == 0 and len(begun) < len(whole.stdout) and whole.stdout.startswith(begun)


def _look(slot: Git, commit: str | None) -> _View:
    with tempfile.TemporaryDirectory(prefix="side-agents-") as folder:
        # An index of its own knows of no file that git may overlook, and every one is read.
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        slot.run("read-tree", *([commit] if commit else ["--empty"]), env=env, deadline=_DEADLINE)
        slot.run("update-index", "-q", "--refresh", env=env, check=False, deadline=_DEADLINE)
        compare = ("diff-files", "--name-only", "--no-renames", "--ignore-submodules=none")
        others = _split(slot, "ls-files", "--others", env=env)
        changed, gone = (_split(slot, *compare, f"--diff-filter={kind}", env=env) for kind in ("d", "D"))
        loose = _split(slot, "ls-files", "--others", "--exclude-standard", env=env)
        return _View(_split(slot, "ls-files", env=env), gone, changed, others, others - loose)


def _split(slot: Git, verb: str, *args: str, env: dict[str, str] | None = None) -> frozenset[str]:
    done = slot.run(verb, "-z", *args, env=env, deadline=_DEADLINE)
    return frozenset(item for item in os.fsdecode(done.stdout).split("\0") if item)
