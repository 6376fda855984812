"""The git verbs of a landing on the side of the agent's branch: how it stands to its target, and bringing it up to date.

Everything that the user's configuration could turn into another result (autostash, fork points, moved branches, merge
options) is set for each call; identity and signing are the user's. The target's side is in ``git_target``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from side_agents.errors import DeadlineError, RefusedError, SideAgentsError
from side_agents.infra.git import Git
from side_agents.infra.git_layout import find_layout

# Above this many commits a look ahead merges once instead of replaying each commit.
_REPLAY_LIMIT = 200
_MAIN_NAMES = ("main", "master")
_NEUTRAL = (
    "rebase.autoStash=false", "rebase.autoSquash=false", "rebase.updateRefs=false", "rebase.rebaseMerges=false",
    "rebase.backend=merge", "rebase.rescheduleFailedExec=false", "rerere.autoUpdate=false", "merge.autoStash=false",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two trees; a mode of "000000" means that it is not there."""

    path: str
    old_mode: str
    new_mode: str
    new_blob: str


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge would give: a tree, and the files in conflict."""

    tree: str
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """What bringing a branch up to date would give, without doing it; None where this git cannot tell (before 2.38)."""

    conflicts: tuple[str, ...] | None
    changes: tuple[Change, ...]


class UpdateState(Enum):
    """How bringing a branch up to date ended; after CONFLICT it is in progress, after FAILED all is as before."""

    DONE = "done"
    CONFLICT = "conflict"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Update:
    """The end of an update, the files in conflict, and git's words."""

    state: UpdateState
    conflicts: tuple[str, ...] = ()
    words: str = ""


def require_own(slot: Git, common_dir: Path) -> None:
    """Raise RefusedError unless the folder is the top of a linked worktree of that repository (field report 16).

    git climbs to whatever repository lies around a folder that has lost its own.
    """
    layout = None
    with suppress(SideAgentsError):
        layout = find_layout(slot.directory)
    same = layout is not None and layout.worktree_top == Path(os.path.realpath(slot.directory))
    if layout is None or not same or not layout.is_linked or layout.common_dir != common_dir:
        raise RefusedError(
            f"{slot.directory} is not a worktree of this repository (any more). Nothing was changed.",
            hint="Commits are on the agent's branch. `side-agents doctor` says what became of the folder and what to do.",
        )


def default_branch(git: Git, main_top: Path) -> str | None:
    """The repository's main branch: what the remote calls so, else main or master, else what the main checkout is on."""
    named = git.run("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD", check=False).text
    configured = git.run("config", "--get", "init.defaultBranch", check=False).text
    candidates = [named.removeprefix("refs/remotes/origin/"), *_MAIN_NAMES, configured]
    found = next((name for name in candidates if name and git.branch_exists(name)), None)
    if found is not None:
        return found
    with suppress(SideAgentsError):
        current = Git(main_top).current_branch()
        return None if current is None or current.startswith("side-agent/") else current
    return None


def divergence(git: Git, target: str, head: str) -> tuple[int, int]:
    """How many commits ``head`` is ahead of, and behind, ``target`` (commit ids)."""
    behind, ahead = git.text("rev-list", "--left-right", "--count", f"{target}...{head}").split()
    return int(ahead), int(behind)


def merge(git: Git, ours: str, theirs: str, *, env: Mapping[str, str] | None = None) -> Merged | None:
    """Merge two commits without a checkout; None when this git cannot (before 2.38) or they share no history."""
    done = git.run(
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, env=env, check=False
    )
    if done.returncode not in (0, 1):
        return None
    tree, *files = os.fsdecode(done.stdout).split("\0")
    return Merged(tree, tuple(dict.fromkeys(name for name in files if name)))


def forecast(git: Git, target: str, head: str, *, replay: bool, keep_lookalikes: bool = False) -> Forecast:
    """Look ahead: the conflicts of a rebase (``replay``) or a merge onto ``target``, and what the target would gain.

    Objects made on the way go to a folder that is thrown away: the repository stays as it is.
    """
    with scratch_objects(git) as env:
        skip = () if keep_lookalikes else ("--cherry-pick",)
        merged = _replayed(git, target, head, skip, env) if replay else merge(git, target, head, env=env)
        if merged is None:
            return Forecast(None, changes(git, f"{target}...{head}"))
        if merged.conflicts:
            return Forecast(merged.conflicts, ())
        return Forecast((), changes(git, target, merged.tree, env=env))


def changes(git: Git, *trees: str, env: Mapping[str, str] | None = None) -> tuple[Change, ...]:
    """The paths that differ between two trees or commits, renames as a removal and an addition."""
    verb = ("diff-tree", "-r") if len(trees) == 2 else ("diff",)
    form = ("--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=none", "--no-ext-diff", "-z")
    parts = os.fsdecode(git.run(*verb, *form, *trees, "--", env=env).stdout).split("\0")
    found = []
    for entry, path in zip(parts[::2], parts[1::2], strict=False):
        old_mode, new_mode, _, new_blob, _ = entry.removeprefix(":").split(" ")
        found.append(Change(path, old_mode, new_mode, new_blob))
    return tuple(found)


def rebase(slot: Git, onto: str, *, hooks: bool, deadline: float, keep_lookalikes: bool = False) -> Update:
    """Replay the checked-out branch on a commit. A conflict is left in progress; any other failure is undone.

    Commits that ``onto`` has under another id are left out, with ``keep_lookalikes`` only those that change nothing more.
    """
    form = ("--quiet", "--no-fork-point", "--no-autosquash", "--no-autostash")
    more = ("--reapply-cherry-picks",) if keep_lookalikes else ()
    return _update(slot, ("rebase", *form, *more, onto), "rebase", hooks=hooks, deadline=deadline)


def merge_in(slot: Git, commit: str, message: str, *, hooks: bool, deadline: float) -> Update:
    """Merge a commit into the checked-out branch, always with a merge commit; ends like ``rebase``."""
    form = ("--quiet", "--no-ff", "--commit", "--no-squash", "--no-autostash", "--no-edit")
    return _update(slot, ("merge", *form, "-m", message, commit), "merge", hooks=hooks, deadline=deadline)


def _update(slot: Git, args: Sequence[str], operation: str, *, hooks: bool, deadline: float) -> Update:
    try:
        done = slot.run(*args, hooks=hooks, config=_NEUTRAL, deadline=deadline, check=False)
        if done.returncode == 0:
            return Update(UpdateState.DONE)
        words = (done.error_text or done.text).strip()
    except DeadlineError as error:
        words = error.message
    if slot.unfinished_operation() == operation:
        conflicts = unmerged_files(slot)
        if conflicts:
            return Update(UpdateState.CONFLICT, conflicts, words)
        slot.run(operation, "--abort", check=False, deadline=deadline)
    return Update(UpdateState.FAILED, (), words)


def unmerged_files(git: Git) -> tuple[str, ...]:
    """Files with conflicts in the index."""
    listed = git.run("ls-files", "--unmerged", "-z", "--full-name", "--", ":/").stdout
    entries = os.fsdecode(listed).split("\0")
    return tuple(dict.fromkeys(entry.partition("\t")[2] for entry in entries if entry))


def messages(git: Git, target: str, head: str) -> list[str]:
    """The messages of the commits that ``head`` has and ``target`` has not, oldest first."""
    listed = git.run("log", "-z", "--reverse", "--no-merges", "--format=%B", f"{target}..{head}", "--").stdout
    return [part for part in listed.decode("utf-8", "surrogateescape").split("\0") if part.strip()]


def commit_tree(git: Git, treeish: str, parents: Sequence[str], message: str, *, author_of: str | None = None) -> str:
    """Make a commit without a checkout, signed if the user signs commits; its author can be taken from a commit.

    ``treeish`` is a tree or a commit. Raises GitError, for example when no identity is set.
    """
    signs = git.run("config", "--type=bool", "--get", "commit.gpgSign", check=False).text == "true"
    edges = [part for parent in parents for part in ("-p", parent)]
    data = message.encode("utf-8", "surrogateescape")
    env = _author(git, author_of) if author_of is not None else {}
    args = ("commit-tree", *(("-S",) if signs else ()), *edges, tree_of(git, treeish))
    return git.run(*args, input=data, env=env, deadline=120.0).text


def remote_of(git: Git, branch: str) -> str | None:
    """The remote to push to: the branch's own, else origin, else the only one."""
    own = git.run("config", "--get", f"branch.{branch}.remote", check=False).text
    remotes = git.text("remote").splitlines()
    if own in remotes:
        return own
    return "origin" if "origin" in remotes else (remotes[0] if len(remotes) == 1 else None)


def push(git: Git, remote: str, branch: str, *, deadline: float) -> None:
    """Push one branch under its own name and make it the upstream; the repository's hooks run. Raises GitError."""
    ref = f"refs/heads/{branch}"
    form = ("--quiet", "--no-follow-tags", "--recurse-submodules=check", "--set-upstream")
    git.run("push", *form, "--", remote, f"{ref}:{ref}", hooks=True, deadline=deadline)


def _replayed(git: Git, target: str, head: str, skip: Sequence[str], env: Mapping[str, str]) -> Merged | None:
    listed = git.text("rev-list", "--reverse", "--no-merges", *skip, "--right-only", f"{target}...{head}")
    commits = listed.splitlines()
    if not git.text("rev-list", "--count", f"{head}..{target}").strip("0"):
        return Merged(tree_of(git, head))
    if len(commits) > _REPLAY_LIMIT:
        return merge(git, target, head, env=env)
    tree = tree_of(git, target)
    for commit in commits:
        parent = git.run("rev-parse", "--verify", "--quiet", f"{commit}^", check=False).text
        if not parent:
            return merge(git, target, head, env=env)
        # A stand-in with the tree so far and the commit's own parent makes the merge a cherry-pick.
        stand_in = git.run("commit-tree", "-p", parent, tree, input=b"stand-in\n", env={**env, **_NOBODY}).text
        picked = merge(git, stand_in, commit, env=env)
        if picked is None or picked.conflicts:
            return picked
        tree = picked.tree
    return Merged(tree)


_NOBODY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "side-agents"), ("EMAIL", "side-agents@localhost"))
}


def _author(git: Git, commit: str) -> dict[str, str]:
    name, email, date = git.text("log", "-1", "--format=%an%x00%ae%x00%aI", commit, "--").split("\0")
    return {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}


def tree_of(git: Git, treeish: str) -> str:
    """The tree of a commit."""
    return git.text("rev-parse", "--verify", f"{treeish}^{{tree}}")


@contextmanager
def scratch_objects(git: Git) -> Iterator[dict[str, str]]:
    """An environment in which new objects go to a folder that is thrown away."""
    own = git.layout().common_dir / "objects"
    # Quoted, because git splits the variable at colons.
    quoted = '"' + str(own).replace("\\", "\\\\").replace('"', '\\"') + '"'
    with tempfile.TemporaryDirectory(prefix="side-agents-") as folder:
        yield {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted}
