"""A checkout that lags behind its branch: the ref was moved by a process that died before it brought index and files over.

To git it looks as if somebody had undone what landed, and the next commit there would really undo it. A path lags when
its index entry is still the old commit's although HEAD has the new one's; what else differs there is somebody's own work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from side_agents.infra import git_target
from side_agents.infra.git import Git
from side_agents.infra.git_landing import Change, changes

_DEADLINE = 600.0


@dataclass(frozen=True, slots=True)
class Lag:
    """What is still as before: ``free`` can be brought over, ``blocked`` has something of somebody's in its place.

    ``words`` are git's own where it refused.
    """

    free: tuple[Change, ...] = ()
    blocked: tuple[str, ...] = ()
    words: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing lags any more."""
        return not self.free and not self.blocked


def find(checkout: Git, old: str, new: str) -> Lag:
    """What lags in a checkout whose branch was moved from ``old`` to ``new``, on whichever branch it is by now."""
    head = checkout.resolve("HEAD")
    if head is None or checkout.resolve(old) is None or checkout.resolve(new) is None:
        return Lag()
    checkout.run("update-index", "-q", "--refresh", check=False, deadline=_DEADLINE)
    moved_on = {change.path for change in changes(checkout, new, head)}
    behind = _names(checkout, "diff-index", "--cached", head) - moved_on
    suspects = [each for each in changes(checkout, old, new) if each.path in behind]
    staged = _names(checkout, "diff-index", "--cached", old)
    lagging = [each for each in suspects if each.path not in staged]
    edited = _names(checkout, "diff-files")
    blocked = set(git_target.unmentioned(checkout.directory, lagging))
    blocked |= {each.path for each in lagging if each.path in edited}
    # What the move had already written before it was cut off is nobody's work.
    blocked -= {each.path for each in lagging if each.path in blocked and git_target.is_as_new(checkout, each)}
    # Staged on top of the old version, most likely: to commit it would undo the landing in that file.
    blocked |= {each.path for each in suspects if each.path in staged}
    free = tuple(each for each in lagging if each.path not in blocked and not _is_below(each.path, blocked))
    return Lag(free, tuple(sorted(blocked)))


def catch_up(checkout: Git, old: str, new: str) -> Lag:
    """Bring over what can be, path by path, and nothing that somebody has changed; what still lags afterwards."""
    lag = find(checkout, old, new)
    if lag.is_over:
        return lag
    words = git_target.complete(checkout, old, new) if checkout.resolve("HEAD") == new and not lag.blocked else ""
    if words is None:
        return Lag()
    words = _restore(checkout, lag.free) if lag.free else ""
    left = find(checkout, old, new)
    return Lag(left.free, left.blocked, words)


def _restore(checkout: Git, free: Sequence[Change]) -> str:
    paths = os.fsencode("".join(f"{change.path}\0" for change in free))
    places = ("--staged", "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul")
    args = ("--literal-pathspecs", "restore", "--quiet", "--source=HEAD", *places)
    done = checkout.run(*args, input=paths, deadline=_DEADLINE, check=False)
    return "" if done.returncode == 0 else (done.error_text or done.text).strip()


def _names(checkout: Git, verb: str, *more: str) -> set[str]:
    done = checkout.run(verb, *more, "--name-only", "--no-renames", "-z", "--", deadline=_DEADLINE)
    return set(filter(None, os.fsdecode(done.stdout).split("\0")))


def _is_below(path: str, places: set[str]) -> bool:
    return any(path.startswith(f"{place}/") for place in places)
