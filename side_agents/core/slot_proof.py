"""The proof that nothing is lost when a slot goes: every doubt is a reason against it (reference/field-reports B1).

First comes what the folder is, from files alone; where that does not fit, no git runs in it. Then who uses it, then what is
in it. The branch of a slot is no part of it: it stays, with all its commits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from side_agents import names
from side_agents.core import leases, regenerable
from side_agents.core.context import Context
from side_agents.core.verdicts import Kind, Reason, Target, Verdict, could_not_look, refuse, some
from side_agents.errors import SideAgentsError
from side_agents.infra import fs_tree, git_registration, git_work, processes, processes_open
from side_agents.infra.git import Git
from side_agents.infra.git_registration import Registration
from side_agents.models import Lease
from side_agents.paths import SHARED_PREFIX, is_lease

# Marks the lease that a discard takes, so that one that was killed is known for what it is.
DISCARD_PURPOSE = "discard"
_LEAVE = "Leave it, or look at it yourself and remove it by hand."


def prove(context: Context, target: Target, *, own_lease: bool = False) -> Verdict:
    """Whether the slot at ``target.path`` can go; ``own_lease`` says that the caller holds its lease."""
    path = target.path
    if path is None:
        return refuse(target, Reason("not-ours", "It names no folder.", _LEAVE))
    try:
        identity = list(_identity_faults(context, path))
        if identity:
            return refuse(target, *identity)
        registration = registration_of(context, path)
        if registration is None:
            return refuse(target, Reason("not-registered", f"git does not know {path.name}.", _LEAVE))
        reasons = [*_claims(context, path, own_lease=own_lease), *_git_locks(registration)]
        if os.path.lexists(path):
            reasons += _users(path)
        reasons += _work(context, path, registration)
    except (SideAgentsError, OSError) as error:
        return refuse(target, could_not_look(path.name, error))
    return Verdict(target, tuple(reasons), "" if reasons else _keeps(context, path, registration))


def registration_of(context: Context, path: Path) -> Registration | None:
    """The only registration of this repository that names the folder."""
    found = [each for each in git_registration.registrations(context.layout.common_dir) if each.worktree == path]
    return found[0] if len(found) == 1 else None


def _identity_faults(context: Context, path: Path) -> Iterator[Reason]:
    root, common_dir = context.paths.root, context.layout.common_dir
    if names.slot_number(root, path) is None:
        yield Reason("not-ours", f"{path} is not a slot of {root.name}: its name or place is another.", _LEAVE)
        return
    if any(git_registration.is_git_directory(folder) for folder in path.parents):
        yield Reason("inside-git-dir", f"{path} lies inside a git directory.", _LEAVE)
        return
    if path.is_symlink():
        yield Reason("symlink", f"{path.name} is a symbolic link.", f"Remove the link itself if you want: rm {path}")
        return
    if path in (root, common_dir) or path in common_dir.parents or path in root.parents:
        yield Reason("main-checkout", f"{path} holds the main checkout or its repository.", _LEAVE)
        return
    if not os.path.lexists(path):
        if registration_of(context, path) is None:
            yield Reason("missing", f"{path.name} does not exist and git does not know it.", "There is nothing to do.")
        return
    yield from _folder_faults(common_dir, path)


def _folder_faults(common_dir: Path, path: Path) -> Iterator[Reason]:
    if not path.is_dir():
        yield Reason("not-a-folder", f"{path.name} is not a folder.", _LEAVE)
    elif fs_tree.device_of(path) != fs_tree.device_of(path.parent):
        yield Reason("mount-point", f"{path.name} is a file system of its own.", "Unmount it first.")
    elif git_registration.is_git_directory(path):
        yield Reason("git-directory", f"{path.name} is itself a git directory.", _LEAVE)
    elif (path / ".git").is_dir() and not (path / ".git").is_symlink():
        yield Reason("own-repository", f"{path.name} is a repository of its own, not a linked worktree.", _LEAVE)
    else:
        fault = _pointer_fault(common_dir, path)
        if fault:
            advice = f"If the repository or the slot was moved: git -C {path} worktree repair"
            yield Reason("pointers", f"{path.name} is not proven to be a worktree of this repository: {fault}.", advice)


def _pointer_fault(common_dir: Path, path: Path) -> str | None:
    admin = git_registration.named_by(path)
    if admin is None:
        return "its .git is not a file that names a git directory"
    if admin.parent != common_dir / "worktrees":
        return f"its .git file names {admin}, which belongs to another repository"
    entries = [each for each in git_registration.registrations(common_dir) if path in (each.worktree, each.admin)]
    if not any(each.admin == admin for each in entries):
        return f"its .git file names {admin.name}, which does not name it back"
    if len(entries) > 1:
        return "git has it registered more than once"
    if git_registration.common_of(admin) != common_dir:
        return f"{admin.name} belongs to another repository"
    return None


def _claims(context: Context, path: Path, *, own_lease: bool) -> Iterator[Reason]:
    lease = leases.read(path)
    if lease is not None and not (own_lease and is_ours(lease)) and not is_left_over(lease):
        who = f"agent {lease.agent_id}" if lease.agent_id else "somebody who left no name"
        advice = "Clear that agent first (`side-agents stop ID`), or reclaim an orphan lease: side-agents clean"
        yield Reason("leased", f"{path.name} is leased to {who}.", advice)
    state = context.registry.read()
    rows: dict[str, tuple[Any, Any]] = {
        name: (record.worktree_path, record.parent_worktree_path) for name, record in state.agents.items()
    }
    for name, row in state.foreign.items():
        rows[name] = (row.get("worktreePath"), row.get("parentWorktreePath")) if isinstance(row, dict) else (None, None)
    for name, (own, parent) in sorted(rows.items()):
        if _is_at(own, path):
            yield Reason(
                "in-registry", f"{path.name} belongs to agent {name}.", f"Clear it first: side-agents stop {name}"
            )
        elif _is_at(parent, path):
            advice = f"Let it finish, or clear it: side-agents stop {name}"
            yield Reason("parent-of", f"Agent {name} merges into {path.name}.", advice)


def _is_at(recorded: Any, path: Path) -> bool:
    return isinstance(recorded, str) and Path(os.path.realpath(recorded)) == path


def is_ours(lease: Lease) -> bool:
    """Whether this very process took the lease in order to discard the slot."""
    return lease.extra.get("purpose") == DISCARD_PURPOSE and lease.pid == os.getpid()


def is_left_over(lease: Lease) -> bool:
    """Whether it is the lease of a discard whose process has ended."""
    marked = lease.extra.get("purpose") == DISCARD_PURPOSE and lease.agent_id is None
    return marked and lease.pid is not None and processes.identify(lease.pid) is None


def _git_locks(registration: Registration) -> Iterator[Reason]:
    worktree = registration.worktree
    if registration.locked is not None:
        why = f" ({registration.locked})" if registration.locked else ""
        advice = f"Unlock it if that is over: git worktree unlock {worktree}"
        yield Reason("locked", f"{worktree.name} is locked by `git worktree lock`{why}.", advice)
    busy = git_registration.busy_files(registration.admin)
    if busy:
        advice = f"Wait for that git; if none runs any more, remove the file from {registration.admin}."
        yield Reason("git-busy", f"A git works in {worktree.name}, or was cut off ({some(busy)}).", advice)


def _users(path: Path) -> Iterator[Reason]:
    found = processes_open.users_of(path)
    if any(user.pid == os.getpid() for user in found):
        yield Reason("in-use", f"You are in {path.name} yourself.", "Go to another folder first.")
        return
    for user in found[:5]:
        what = f"Process {user.pid} ({user.command[:60] or 'no name'}) {user.doing}"
        yield Reason("in-use", f"{what}: {path.name}.", f"Let it leave, or end it: kill {user.pid}")


def _work(context: Context, path: Path, registration: Registration) -> Iterator[Reason]:
    if not os.path.lexists(path):
        yield from _missing_work(context, registration)
        return
    git = Git(path)
    if Path(os.path.realpath(git.text("rev-parse", "--show-toplevel"))) != path:
        yield Reason("elsewhere", f"git takes {path.name} for another place's checkout (core.worktree).", _LEAVE)
        return
    operation = git.unfinished_operation()
    if operation is not None:
        advice = f"Finish or abort it: git -C {path} {operation} --abort"
        yield Reason("unfinished", f"{path.name} is in the middle of a {operation}.", advice)
    yield from _tree_faults(git, path, main_copy(context), path.name)
    yield from _nested_faults(context, path, registration)
    yield from _head_faults(context, git, path.name)


def _missing_work(context: Context, registration: Registration) -> Iterator[Reason]:
    """For a folder that was deleted by hand: what its registration alone still holds."""
    git = Git(context.paths.root)
    env = {"GIT_DIR": str(registration.admin)}
    name = registration.worktree.name
    head = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", env=env, check=False).text
    if not head:
        yield Reason("unborn", f"{name} has no commit that could be proven to be safe.", _LEAVE)
        return
    if git.run("diff-index", "--cached", "--quiet", "HEAD", "--", env=env, check=False).returncode != 0:
        advice = f"Bring the files back: git worktree repair, or git worktree add --force {registration.worktree}"
        yield Reason("staged", f"The folder of {name} is gone, but staged work of it is left.", advice)
    if git.run("symbolic-ref", "--quiet", "HEAD", env=env, check=False).returncode != 0:
        yield from _detached_faults(context, git, head, name)


def _tree_faults(git: Git, path: Path, main: Path | None, name: str) -> Iterator[Reason]:
    state = git_work.tree_state(git)
    changed = [entry.path for entry in state.changed if not is_own_file(path, entry.path)]
    if changed:
        advice = f"Commit or remove them: git -C {path} status"
        yield Reason("dirty", f"{name} has uncommitted or untracked files: {some(changed)}.", advice)
    hidden = git_work.hidden_changes(git)
    if hidden:
        advice = f"Let git see them: git -C {path} update-index --no-assume-unchanged --no-skip-worktree FILE"
        yield Reason("hidden", f"{name} has changes that git was told to overlook: {some(hidden)}.", advice)
    kept = regenerable.precious(path, main, state.ignored)
    if kept:
        advice = f"Move them away or delete them, if they are not needed: git -C {path} status --ignored"
        yield Reason("precious", f"{name} has ignored files that exist nowhere else: {some(kept)}.", advice)


def is_own_file(path: Path, name: str) -> bool:
    """Our lease and our links, where a repository's exclude file does not hide them."""
    file = path / name
    link = file.parent == path / ".pi" and file.name.startswith(SHARED_PREFIX) and file.is_symlink()
    return is_lease(name) or (link and file.readlink().is_absolute())


def _nested_faults(context: Context, path: Path, registration: Registration) -> Iterator[Reason]:
    modules = registration.admin / "modules"
    for dot_git in fs_tree.find_named(path, ".git"):
        inner = dot_git.parent
        if inner == path:
            continue
        git_dir = git_registration.named_by(inner)
        name = inner.relative_to(path).as_posix()
        if git_dir is None or modules not in git_dir.parents:
            advice = f"Move it out of the slot, or delete it: {inner}"
            yield Reason("nested-repository", f"{path.name} holds another repository: {name}.", advice)
            continue
        operation = Git(inner).unfinished_operation()
        if operation is not None:
            advice = f"Finish or abort it: git -C {inner} {operation} --abort"
            yield Reason("unfinished", f"Submodule {name} is in the middle of a {operation}.", advice)
        yield from _tree_faults(Git(inner), inner, main_copy(context, name), f"Submodule {name}")
    heads = fs_tree.find_named(modules, "HEAD") if modules.is_dir() else []
    for git_dir in [head.parent for head in heads if (head.parent / "objects").is_dir()]:
        name = git_dir.relative_to(modules).as_posix()
        copy = context.layout.common_dir / "modules" / name
        lost = git_work.unpushed(Git(git_dir), Git(copy) if copy.is_dir() else None)
        if lost:
            advice = f"Push them from {path}, then clean again."
            yield Reason("unpushed", f"Submodule {name} has commits that are nowhere else: {some(lost)}.", advice)


def main_copy(context: Context, name: str = "") -> Path | None:
    """The main checkout, or a folder of it; None in a bare layout, which has none."""
    return None if context.layout.is_bare_layout else context.paths.root / name


def _head_faults(context: Context, git: Git, name: str) -> Iterator[Reason]:
    private = git_work.private_refs(git)
    if private:
        advice = f"Make branches of what you need: git -C {git.directory} branch NAME REF"
        yield Reason("private-refs", f"{name} has refs of its own that would go with it: {some(private)}.", advice)
    head = git.resolve("HEAD")
    branch = git.current_branch()
    if head is None:
        yield Reason("unborn", f"{name} has no commit that could be proven to be safe.", _LEAVE)
    elif branch is None:
        yield from _detached_faults(context, git, head, name)
    elif not git.branch_exists(branch):
        yield Reason("odd-head", f"HEAD of {name} names {branch}, which is no branch.", _LEAVE)
    else:
        yield from stash_faults(git, branch)


def _detached_faults(context: Context, git: Git, head: str, name: str) -> Iterator[Reason]:
    if git_work.holders(git, head) or git_work.landed(git, head, targets_of(context, git)) is not None:
        return
    advice = f"Give it a branch: git branch NAME {head[:12]}"
    yield Reason("detached", f"HEAD of {name} is detached at {head[:12]}, which no branch contains.", advice)


def stash_faults(git: Git, branch: str) -> Iterator[Reason]:
    """A stash survives its worktree and its branch, but unfinished work without either is hard to put back."""
    count = git_work.stashes_of(git, branch)
    if count:
        entries = f"{count} stash entr{'ies were' if count > 1 else 'y was'}"
        yield Reason("stash", f"{entries} made on {branch}.", "Apply or drop them: git stash list")


def targets_of(context: Context, git: Git) -> list[str]:
    """Where finished work is expected: the main checkout's branch, the configured target, upstream, remote default."""
    main = git.worktrees()[0]
    found = [f"refs/heads/{main.branch}"] if main.branch else []
    found += [main.head] if main.detached and main.head else []
    found += [f"refs/heads/{context.config.finish_target}"] if context.config.finish_target else []
    upstreams = [
        git.text("for-each-ref", "--format=%(upstream)", "--", ref) for ref in found if ref.startswith("refs/")
    ]
    candidates = dict.fromkeys([*found, *upstreams, "refs/remotes/origin/HEAD"])
    return [ref for ref in candidates if ref and git.resolve(ref) is not None]


def _keeps(context: Context, path: Path, registration: Registration) -> str:
    git = Git(path) if os.path.lexists(path) else Git(context.paths.root)
    env = {"GIT_DIR": str(registration.admin)}
    branch = git.run("symbolic-ref", "--quiet", "--short", "HEAD", env=env, check=False).text
    return f"branch {branch} stays" if branch else "its commits are on other branches"


def slot_target(path: Path) -> Target:
    """The target for a slot."""
    return Target(Kind.SLOT, path.name, path)
