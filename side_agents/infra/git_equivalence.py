"""Whether a target has a branch's work under other commit ids. In doubt it has not: that costs a question, never work."""

from __future__ import annotations

from side_agents.infra.git import Git
from side_agents.infra.git_landing import merge, scratch_objects, tree_of

# A squash is looked for among this many of the target's newest commits.
_SQUASH_WINDOW = 200
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-renames")


def count_foreign(git: Git, base: str, target: str) -> int:
    """How many commits of ``base`` the target lacks, also under another id; 0 when ``base`` is not known any more."""
    if git.resolve(base) is None:
        return 0
    return int(
        git.text("rev-list", "--count", "--no-merges", "--cherry-pick", "--right-only", f"{target}...{base}") or 0
    )


def is_contained(git: Git, target: str, head: str) -> bool:
    """Whether the target has the work of ``head`` under other commits: rebased, picked or squashed (field report 21)."""
    lines = git.text("cherry", target, head).splitlines()
    if lines and all(line.startswith("-") for line in lines):
        return not has_lookalikes(git, target, head)
    fork = git.run("merge-base", target, head, check=False).text
    if not fork or tree_of(git, fork) == tree_of(git, head):
        return False
    with scratch_objects(git) as env:
        merged = merge(git, target, head, env=env)
    if merged is None:
        return False
    if not merged.conflicts:
        return merged.tree == tree_of(git, target)
    return _was_squashed(git, fork, target, head)


def has_lookalikes(git: Git, target: str, head: str) -> bool:
    """Whether git takes commits of ``head`` for some of the target's although they differ, in blanks.

    Its patch ids pass over white space, so that a plain rebase would drop a commit that only indents otherwise.
    """
    listed = ("rev-list", "--cherry-mark", "--no-merges", f"{target}...{head}")
    left, right = (
        [line[1:] for line in git.text(*listed, side).splitlines() if line.startswith("=")]
        for side in ("--left-only", "--right-only")
    )
    known = {_patch(git, commit) for commit in left}
    return any(_patch(git, commit) not in known for commit in right)


def _patch(git: Git, commit: str) -> bytes:
    """A commit's changes without what depends on where they were made: blob ids and line numbers."""
    shown = git.run("diff-tree", "-p", "--root", "--no-commit-id", *_PLAIN, commit).stdout
    return b"\n".join(line for line in shown.split(b"\n") if not line.startswith((b"index ", b"@@ ")))


def _was_squashed(git: Git, fork: str, target: str, head: str) -> bool:
    whole = git.run("diff-tree", "-p", "--no-ext-diff", "--no-textconv", fork, head).stdout
    wanted = git.run("patch-id", "--stable", input=whole).text.split()[:1]
    recent = ("log", "-p", "--no-merges", "--no-ext-diff", "--no-textconv", f"-n{_SQUASH_WINDOW}", f"{fork}..{target}")
    listed = git.run("patch-id", "--stable", input=git.run(*recent, "--").stdout).text
    return bool(wanted) and wanted[0] in (line.split()[0] for line in listed.splitlines())
