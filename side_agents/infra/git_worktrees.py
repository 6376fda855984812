"""Making a worktree and giving it to another branch, without ever losing a commit.

Adding one has two parts. The entry itself takes 10 ms even in a huge repository, but parallel adds trip over each
other's half-written entries, so it runs under a lock of the whole repository; the files come after it, outside the
lock (``populate``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from side_agents.errors import ConflictError, GitError, NotARepositoryError, RefusedError
from side_agents.infra import fs, git_obstacles
from side_agents.infra.git import Git, WorktreeEntry
from side_agents.infra.git_layout import find_layout, is_true, read_config

RESCUE_REFS = "refs/side-agents/rescue/"
CHECKOUT_DEADLINE = 600.0
_LOCK_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Submodule:
    """An entry of .gitmodules whose commit the checkout records."""

    name: str
    path: str
    commit: str


def add(git: Git, path: Path, branch: str, base: str | None) -> None:
    """Make a linked worktree at ``path`` on a new branch from ``base``, without its files; ``populate`` brings them.

    Without ``base`` the branch has to exist and is used as it is; GitError when it is checked out elsewhere.

    ``git`` is the checkout whose sparse patterns are inherited. An entry left by a folder that was deleted by hand is
    replaced (X9), a commit that only it knew gets a rescue ref. Raises ConflictError when the branch or the folder
    exists, GitError for the rest; a half-made branch is gone then.
    """
    start = _commit(git, base) if base is not None else None
    common_dir = git.layout().common_dir
    with fs.locked(common_dir / "side-agents-worktrees.lock", purpose="adding a worktree", timeout=_LOCK_WAIT):
        if start is not None and git.branch_exists(branch):
            raise ConflictError(f"The branch {branch} exists already and was left as it is.")
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
            raise ConflictError(f"{path} exists already and is not an empty folder; it was left as it is.")
        stale = _has_entry(common_dir, path)
        if stale:
            for entry in git.worktrees():
                if _same(entry.path, path):
                    _rescue(git, entry)
        # --force lets git replace the entry of a missing folder; it never overrides `git worktree lock`.
        force = ["--force"] if stale else []
        if start is None:
            # By the short name: git takes a full one for a commit and detaches HEAD.
            git.run("worktree", "add", *force, "--no-checkout", "--", str(path), branch)
            return
        try:
            git.run("worktree", "add", *force, "--no-track", "--no-checkout", "-b", branch, "--", str(path), start)
        except GitError:
            # git makes the branch before it finds out that it cannot make the worktree.
            git.delete_ref_if(f"refs/heads/{branch}", start)
            raise


def populate(slot: Git, *, source: Path | None = None) -> None:
    """Write the files of HEAD into a worktree that was just added, by the sparse patterns of ``source``."""
    _require_linked(slot)
    if source is not None:
        _inherit_sparse(slot, source)
    slot.run("reset", "--quiet", "--hard", "HEAD", deadline=CHECKOUT_DEADLINE)


def reuse(
    slot: Git, branch: str, base: str | None, *, source: Path | None = None, changes: str | None = None
) -> str | None:
    """Put an idle worktree on a new branch from ``base``; its old branch stays (X10), ignored files stay too.

    Without ``base`` the branch has to exist and is checked out as it is; GitError when it is checked out elsewhere.
    ``changes`` is a snapshot that the caller will bring in afterwards. Raises RefusedError when the worktree is not clean,
    holds what git does not report and would overwrite, is in the middle of an operation or is the main checkout, and
    ConflictError when the branch exists; nothing was changed then. A detached HEAD that no branch or tag contains is kept
    by a rescue ref, whose name is returned.
    """
    _require_linked(slot)
    operation = slot.unfinished_operation()
    if operation is not None:
        raise RefusedError(f"{slot.directory} is in the middle of a {operation}; it was not reused.")
    start = _commit(slot, base) if base is not None else None
    if not slot.is_clean():
        raise RefusedError(f"{slot.directory} has uncommitted or untracked files; it was not reused.")
    target = start or slot.resolve(f"refs/heads/{branch}")
    obstacle = git_obstacles.obstacle(slot, [commit for commit in (target, changes) if commit is not None])
    if obstacle is not None:
        raise RefusedError(f"{slot.directory} {obstacle}; it was not reused.")
    kept = None
    if slot.current_branch() is None:
        kept = _rescue(slot, WorktreeEntry(slot.directory, head=slot.resolve("HEAD"), detached=True))
    if source is not None:
        _inherit_sparse(slot, source)
    if start is None:
        slot.run("checkout", "--quiet", "--no-guess", branch, "--", deadline=CHECKOUT_DEADLINE)
        return kept
    try:
        # A forced checkout does what detaching and a hard reset do, in one step. A reset alone would move the old branch.
        slot.run("checkout", "--quiet", "--force", "--no-track", "-b", branch, start, "--", deadline=CHECKOUT_DEADLINE)
    except GitError as error:
        if slot.branch_exists(branch):
            raise ConflictError(f"The branch {branch} exists already and was left as it is.") from error
        raise
    return kept


def prune(git: Git) -> None:
    """Let git forget worktrees whose folders are gone; commits that only they knew get rescue refs first."""
    common_dir = git.layout().common_dir
    with fs.locked(common_dir / "side-agents-worktrees.lock", purpose="pruning worktrees", timeout=_LOCK_WAIT):
        for entry in git.worktrees():
            if entry.prunable:
                _rescue(git, entry)
        git.run("worktree", "prune")


def init_submodules(slot: Git, source: Path) -> list[str]:
    """Fill the submodules that are filled in ``source``, from there: no network. Returns the paths left empty.

    Submodules of submodules are included. The submodule's own remote stays the one that ``source`` has.
    """
    empty: list[str] = []
    for module in _submodules(slot):
        origin = _source_git_dir(source / module.path)
        if origin is None:
            empty.append(module.path)
            continue
        inner = Git(slot.directory / module.path)
        fresh = not (inner.directory / ".git").exists()
        if not fresh:
            _fetch_commit(inner, origin, module.commit)
        # file: transport is off for submodules by default; the only URL here is a git directory of this repository.
        settings = ("protocol.file.allow=always", f"submodule.{module.name}.url={origin}")
        slot.run(
            "submodule", "--quiet", "update", "--init", *(() if fresh else ("--no-fetch",)), "--", module.path,
            config=settings, deadline=CHECKOUT_DEADLINE,
        )  # fmt: skip
        url = Git(source / module.path).run("config", "--get", "remote.origin.url", check=False).text
        if fresh and url:
            inner.run("remote", "set-url", "origin", "--", url)
        empty += [f"{module.path}/{path}" for path in init_submodules(inner, source / module.path)]
    return empty


def _require_linked(slot: Git) -> None:
    layout = slot.layout()
    if not layout.is_linked or layout.worktree_top is None or not _same(layout.worktree_top, slot.directory):
        raise RefusedError(f"{slot.directory} is not the top of a linked worktree; it was left alone.")


def _commit(git: Git, revision: str) -> str:
    # Callers mostly have the full id already; git itself refuses one that does not exist.
    commit = revision if re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", revision) else git.resolve(revision)
    if commit is None:
        raise GitError(f"{revision!r} is not a commit of this repository, so nothing was changed.")
    return commit


def _has_entry(common_dir: Path, path: Path) -> bool:
    # `git worktree list` would take 2 to 15 ms, as it inspects every worktree.
    wanted = os.fsencode(os.path.realpath(path)) + b"/.git"
    names = (common_dir / "worktrees").glob("*/gitdir")
    return any(os.path.realpath(fs.read_slice(name, 0, 8192).rstrip(b"\n")) == wanted for name in names)


def _rescue(git: Git, entry: WorktreeEntry) -> str | None:
    """The rescue ref that alone keeps the commit of a detached HEAD, made if need be; None when another ref keeps it."""
    if not entry.detached or entry.head is None or git.resolve(entry.head) is None:
        return None
    # Sorted by name: a branch or remote branch comes before a rescue ref.
    holder = git.text("for-each-ref", "--count=1", f"--contains={entry.head}", "--format=%(refname)")
    if not holder:
        holder = f"{RESCUE_REFS}{entry.head}"
        git.run("update-ref", holder, entry.head)
    return holder if holder.startswith(RESCUE_REFS) else None


def _inherit_sparse(slot: Git, source: Path) -> None:
    origin, own = find_layout(source), slot.layout()
    settings = read_config(origin.common_dir / "config")
    if is_true(settings.get("extensions.worktreeconfig")):
        settings |= read_config(origin.git_dir / "config.worktree")
    patterns = origin.git_dir / "info" / "sparse-checkout"
    if is_true(settings.get("core.sparsecheckout")) and patterns.exists():
        (own.git_dir / "info").mkdir(exist_ok=True)
        shutil.copyfile(patterns, own.git_dir / "info" / "sparse-checkout")
        slot.run("config", "extensions.worktreeConfig", "true")
        slot.run("config", "--worktree", "core.sparseCheckout", "true")
        cone = "true" if is_true(settings.get("core.sparsecheckoutcone")) else "false"
        slot.run("config", "--worktree", "core.sparseCheckoutCone", cone)
    elif is_true(read_config(own.git_dir / "config.worktree").get("core.sparsecheckout")):
        slot.run("sparse-checkout", "disable", deadline=CHECKOUT_DEADLINE)


def _submodules(slot: Git) -> Iterator[Submodule]:
    if not (slot.directory / ".gitmodules").exists():
        return
    listed = slot.run(
        "config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$", check=False
    )
    for item in os.fsdecode(listed.stdout).split("\0"):
        key, _, path = item.partition("\n")
        recorded = slot.text("ls-files", "--stage", "--", path).split() if path else []
        if recorded[:1] == ["160000"]:
            yield Submodule(key.removeprefix("submodule.").removesuffix(".path"), path, recorded[1])


def _source_git_dir(path: Path) -> Path | None:
    with suppress(NotARepositoryError):
        layout = find_layout(path)
        if layout.worktree_top is not None and _same(layout.worktree_top, path):
            return layout.common_dir
    return None


def _fetch_commit(inner: Git, origin: Path, commit: str) -> None:
    if inner.resolve(commit) is None:
        inner.run("fetch", "--quiet", "--no-tags", "--", str(origin), commit, deadline=CHECKOUT_DEADLINE)


def _same(first: Path, second: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)
