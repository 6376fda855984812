"""Questions that have to be answered before a checkout or a branch may go: what would be lost with it?

Everything here only looks, except ``preserve``, which makes a ref. A question that git does not answer raises GitError,
and the caller keeps what it asked about.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents.errors import GitError
from side_agents.infra.git import Git, StatusEntry, parse_status

_LOOK_DEADLINE = 300.0
_REFLOG_LIMIT = 500
_HASH_LIMIT = 2000
_PERMANENT = ("refs/heads", "refs/tags", "refs/remotes")
_AUTHOR = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "side-agents"), ("EMAIL", "side-agents@localhost"))
}


@dataclass(frozen=True, slots=True)
class TreeState:
    """What a checkout holds besides HEAD: ``changed`` and untracked paths, and ``ignored`` ones (folders end in ``/``)."""

    changed: tuple[StatusEntry, ...]
    ignored: tuple[str, ...]


def tree_state(git: Git, *, git_dir: Path | None = None) -> TreeState:
    """Every file that is not as HEAD has it; nothing that the user's configuration hides is left out.

    ``git_dir`` names the git directory of a checkout whose own pointer no longer holds; those of its submodules do not hold
    either then, and they are passed over.
    """
    env = {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(git.directory)} if git_dir is not None else None
    modules = "none" if git_dir is None else "all"
    done = git.run(
        "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching",
        f"--ignore-submodules={modules}",
        config=("core.untrackedCache=false",), env=env, deadline=_LOOK_DEADLINE,
    )  # fmt: skip
    entries = parse_status(done.stdout)
    ignored = tuple(entry.path for entry in entries if entry.code == "!!")
    return TreeState(tuple(entry for entry in entries if entry.code != "!!"), ignored)


def look_at_index(git: Git) -> dict[str, bool]:
    """Every tracked path, and whether git was told not to look at it (assume-unchanged, skip-worktree)."""
    listed = git.run("ls-files", "-v", "-z", deadline=_LOOK_DEADLINE)
    items = [item for item in os.fsdecode(listed.stdout).split("\0") if item]
    return {item[2:]: item[0] == "S" or item[0].islower() for item in items}


def hidden_changes(git: Git, index: Mapping[str, bool] | None = None) -> list[str]:
    """Files that differ from the index although git was told not to look; ``index`` is what ``look_at_index`` gave."""
    flagged = [path for path, is_hidden in (look_at_index(git) if index is None else index).items() if is_hidden]
    present = [path for path in flagged if os.path.lexists(git.directory / path)]
    if not present:
        return []
    plain = [path for path in present if "\n" not in path and not (git.directory / path).is_symlink()]
    if len(present) > _HASH_LIMIT or len(plain) < len(present):
        return present
    staged = git.run("ls-files", "--stage", "-z", "--", *(f":(literal){path}" for path in plain))
    recorded = dict(_staged(item) for item in os.fsdecode(staged.stdout).split("\0") if item)
    hashes = git.run("hash-object", "--stdin-paths", input=os.fsencode("\n".join(plain) + "\n")).text.split("\n")
    return [path for path, oid in zip(plain, hashes, strict=True) if recorded.get(path) != oid]


def _staged(item: str) -> tuple[str, str]:
    facts, _, path = item.partition("\t")
    return path, facts.split(" ")[1]


def holders(git: Git, commit: str) -> list[str]:
    """A branch, tag or remote branch that contains a commit, as a list of at most one full ref name."""
    found = git.text("for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)", *_PERMANENT)
    return found.splitlines()


def private_refs(git: Git) -> list[str]:
    """Refs that exist in this worktree only and go with it."""
    names = ("refs/worktree", "refs/bisect", "refs/rewritten")
    return git.text("for-each-ref", "--format=%(refname)", *names).splitlines()


def landed(git: Git, commit: str, targets: Sequence[str]) -> str | None:
    """How a commit's work has reached one of the targets, in words; None when that is not proven (field report 21)."""
    for target in targets:
        if git.is_ancestor(commit, target):
            return f"merged into {_short(target)}"
    for target in targets:
        # The cheaper test first: the other one reads every commit of the target that the branch has not.
        if _merges_to_nothing(git, commit, target) or _every_patch_is_in(git, commit, target):
            return f"all its changes are in {_short(target)}"
    return None


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")


def _every_patch_is_in(git: Git, commit: str, target: str) -> bool:
    # `git cherry` passes merge commits over, and these may hold work of their own.
    if git.text("rev-list", "--count", "--merges", "--end-of-options", f"{target}..{commit}") != "0":
        return False
    marks = git.run("cherry", "--end-of-options", target, commit, check=False, deadline=_LOOK_DEADLINE)
    lines = marks.text.splitlines()
    return marks.returncode == 0 and bool(lines) and all(line.startswith("- ") for line in lines)


def _merges_to_nothing(git: Git, commit: str, target: str) -> bool:
    base = git.run("merge-base", "--end-of-options", target, commit, check=False).text
    trees = [_tree(git, revision) for revision in (base, commit, target)] if base else []
    # Commits that cancel each other out would merge to nothing as well, and prove nothing.
    if not trees or trees[0] == trees[1]:
        return False
    # --write-tree came with git 2.38; an older one answers with an error, which proves nothing either.
    merged = git.run("merge-tree", "--write-tree", target, commit, check=False, deadline=_LOOK_DEADLINE)
    return merged.returncode == 0 and merged.text.split("\n", 1)[0] == trees[2]


def _tree(git: Git, revision: str) -> str:
    return git.text("rev-parse", "--verify", "--end-of-options", f"{revision}^{{tree}}")


def stashes_of(git: Git, branch: str) -> int:
    """How many entries of the stash, which all worktrees share, were made on a branch."""
    if git.run("show-ref", "--verify", "--quiet", "--", "refs/stash", check=False).returncode != 0:
        return 0
    subjects = git.text("log", "-g", "--format=%gs", "refs/stash", "--").splitlines()
    starts = (f"WIP on {branch}: ", f"On {branch}: ", f"autostash on {branch}: ")
    return sum(subject.startswith(starts) for subject in subjects)


def only_in_reflog(git: Git, ref: str) -> list[str]:
    """Commits that a ref pointed to once and that no ref of the repository contains any more, newest first."""
    if git.run("reflog", "exists", ref, check=False).returncode != 0:
        return []
    seen = git.text("rev-list", "--walk-reflogs", f"--max-count={_REFLOG_LIMIT}", "--end-of-options", ref, "--").split()
    if not seen:
        return []
    known = [f"--glob={name}" for name in (*_PERMANENT, "refs/side-agents")]
    lost = set(git.text("rev-list", *dict.fromkeys(seen), "--not", *known).split())
    return [commit for commit in dict.fromkeys(seen) if commit in lost]


def unpushed(module: Git, elsewhere: Git | None) -> list[str]:
    """Tips in a submodule's own repository that neither its remotes nor the main checkout's copy of it contain."""
    tips = {*module.text("for-each-ref", "--format=%(objectname)", "refs/heads", "refs/tags", "refs/stash").split()}
    head = module.resolve("HEAD")
    tips |= {head} if head else set()
    lost = [tip for tip in sorted(tips) if module.text("rev-list", "--max-count=1", tip, "--not", "--remotes")]
    return [tip for tip in lost if elsewhere is None or elsewhere.resolve(tip) != tip or not holders(elsewhere, tip)]


def keep_commits(git: Git, commits: Sequence[str]) -> str:
    """One commit that has all of these as parents, so that one ref keeps them."""
    first = commits[0]
    parents = [part for commit in commits for part in ("-p", commit)]
    message = b"Commits that only a reflog knew, kept by side-agents\n"
    return git.run("commit-tree", _tree(git, first), *parents, input=message, env=_AUTHOR).text


def preserve(git: Git, ref: str, commit: str) -> None:
    """Make a ref that keeps a commit, and look that it does. Raises GitError: what was to be discarded must stay then."""
    git.run("update-ref", "--create-reflog", "-m", "kept by side-agents", ref, commit)
    if git.resolve(ref) != commit:
        raise GitError(f"The rescue ref {ref} could not be made, so nothing was discarded.")
