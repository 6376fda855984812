"""Checks of the repository itself: commits, the exclude file, worktree registrations, parked branches and rescue refs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from side_agents import names
from side_agents.core import trash
from side_agents.core.doctor_site import Site
from side_agents.core.findings import Finding, Severity, some
from side_agents.errors import NoCommitsError, SideAgentsError
from side_agents.infra import git_registration
from side_agents.infra.git import Git, WorktreeEntry
from side_agents.infra.git_registration import Registration
from side_agents.infra.git_worktrees import RESCUE_REFS
from side_agents.paths import EXCLUDED


def has_commits(site: Site) -> Iterator[Finding]:
    """There is something to start from, and branches may be called side-agent/..."""
    git = Git(site.paths.root)
    try:
        git.head_commit()
    except NoCommitsError as error:
        yield Finding(
            code="no-commits",
            severity=Severity.PROBLEM,
            what=error.message,
            safe="Nothing is lost.",
            mend=error.hint or "",
        )
    top = names.BRANCH_PREFIX.rstrip("/")
    if any(ref.name == f"refs/heads/{top}" for ref in git.side_agent_refs()):
        yield Finding(
            code="branch-in-the-way",
            severity=Severity.PROBLEM,
            what="A branch is called `side-agent`, so git cannot have the branches of agents below that name.",
            safe="The branch is left as it is.",
            mend="Rename it: git branch -m side-agent NEW-NAME, then run `side-agents doctor` again.",
        )


def excludes_are_there(site: Site) -> Iterator[Finding]:
    """Our files are kept out of ``git status`` by the shared exclude file."""
    if site.is_used and not Git(site.paths.root).has_excludes(EXCLUDED):
        yield Finding(
            code="exclude-block",
            severity=Severity.WARNING,
            what="The repository's info/exclude lacks our lines: our files show in `git status` and slots count as dirty.",
            safe="The files themselves are in order.",
            mend="side-agents doctor --repair",
            repair="write our block into info/exclude; your own lines there stay",
            subject="info/exclude",
        )


def registrations_hold(site: Site) -> Iterator[Finding]:
    """Git's list of worktrees names folders that are there."""
    if not any(not os.path.lexists(each.worktree) for each in site.registrations):
        return
    gone = [entry for entry in Git(site.paths.root).worktrees() if entry.prunable]
    kept = {entry.path: why for entry in gone if (why := prune_obstacle(site, entry)) is not None}
    for entry in gone:
        why = kept.get(entry.path)
        is_slot = names.slot_number(site.paths.root, entry.path) is not None
        yield Finding(
            code="registration-stale",
            severity=Severity.WARNING if is_slot else Severity.NOTE,
            what=f"git has {entry.path.name} as a worktree, and its folder is gone." + (f" {why}" if why else ""),
            safe="Its branch and all commits are kept; a commit that only this entry knows gets a rescue ref first.",
            mend=_mend_stale(entry, why, prunes=not kept),
            repair=f"let git forget {entry.path.name} (`git worktree prune`)" if not kept and is_slot else None,
            subject=entry.path.name,
            place=entry.path,
        )


def _mend_stale(entry: WorktreeEntry, why: str | None, *, prunes: bool) -> str:
    if why is not None:
        return f"Bring its folder back, or drop it knowingly: git worktree remove --force {entry.path}"
    if prunes:
        return "side-agents doctor --repair"
    return "side-agents clean --only slot (one entry only; pruning all would also drop the one that must stay)"


def prune_obstacle(site: Site, entry: WorktreeEntry) -> str | None:
    """Why git must not be made to forget a worktree whose folder is gone; None when nothing is lost."""
    state = site.state
    if names.slot_number(site.paths.root, entry.path) is None or state is None:
        return "It is not one of ours, or that cannot be told; perhaps it lies on a disk that is not there now."
    holder = next((row.id for row in state.agents.values() if row.worktree_path == str(entry.path)), None)
    if holder is not None and not state.agents[holder].status.is_terminal:
        return f"Agent {holder} is still on the list with it."
    if trash.pending(site.context, entry.path) is not None:
        return "It belongs to a discard that was cut off: `side-agents clean --only slot` completes it."
    registration = next((each for each in site.registrations if each.worktree == entry.path), None)
    if registration is not None and any(_names(slot.path, (registration.admin,)) for slot in site.slots):
        return "A slot that was moved still belongs to it."
    if registration is None or has_staged_work(site.paths.root, registration.admin):
        return "Staged work of it may be left in git's entry."
    return None


def has_staged_work(root: Path, admin: Path) -> bool:
    """Whether the index of a worktree whose folder is gone holds anything but its HEAD, or cannot be compared with it."""
    if not (admin / "index").exists():
        return False
    done = Git(root).run("diff-index", "--cached", "--quiet", "HEAD", "--", env={"GIT_DIR": str(admin)}, check=False)
    return done.returncode != 0


def pointers_agree(site: Site) -> Iterator[Finding]:
    """A slot and git's entry for it name each other; where one side is wrong beyond doubt, it can be mended."""
    for slot in site.slots:
        if slot.path.is_symlink() or not slot.path.is_dir() or not (slot.path / ".git").is_file():
            continue
        admin = git_registration.named_by(slot.path)
        if is_of_another_repository(site, admin):
            continue
        backed = admin is not None and any(
            each == Registration(admin, slot.path, each.locked) for each in site.registrations
        )
        if backed:
            continue
        other, lost = mended_admin(site, slot.path), lost_entry(site, slot.path)
        if other is None and admin is not None and not os.path.lexists(admin):
            yield _entry_is_gone(site, slot.path, lost)
            continue
        yield Finding(
            code="slot-pointers",
            severity=Severity.PROBLEM,
            what=f"{slot.path.name} and git's entry for it do not name each other; git does not work in it.",
            safe="Its files are in order; no start takes it.",
            mend="side-agents doctor --repair" if other else f"git -C {site.paths.root} worktree repair {slot.path}",
            repair=f"make {slot.path.name} and git's entry {other.name} name each other again" if other else None,
            subject=slot.path.name,
            place=slot.path,
        )


def _entry_is_gone(site: Site, slot: Path, lost: tuple[Path, str] | None) -> Finding:
    by_hand = (
        f"Copy what you need out of {slot}, then move it away; `git -C {site.paths.root} worktree add` makes a new one."
    )
    return Finding(
        code="slot-entry-gone",
        severity=Severity.PROBLEM,
        what=f"Git's entry for {slot.name} is gone, so git does not work in it"
        + ("." if lost else ", and which branch it was on is not beyond doubt."),
        safe="Its files and all commits are in order; what was staged, or a rebase in progress, went with the entry.",
        mend="side-agents doctor --repair" if lost else by_hand,
        repair=f"write the entry anew, on {lost[1]}; no file in {slot.name} is touched" if lost else None,
        subject=slot.name,
        place=slot,
    )


def lost_entry(site: Site, slot: Path) -> tuple[Path, str] | None:
    """Where a slot's vanished entry was, and the branch of the agent it belongs to; None when there is any doubt."""
    admin = git_registration.named_by(slot)
    if admin is None or admin.parent != site.common_dir / "worktrees" or os.path.lexists(admin) or site.state is None:
        return None
    taken = [each for each in site.registrations if each.worktree == slot]
    others = [each.path for each in site.slots if each.path != slot and _names(each.path, (admin,))]
    branches = {each.branch for each in site.state.agents.values() if each.worktree_path == str(slot)}
    branch = branches.pop() if len(branches) == 1 else None
    git = Git(site.paths.root)
    if taken or others or branch is None or not git.branch_exists(branch):
        return None
    # What a worktree has of its own in git's configuration, such as a sparse checkout, went with the entry.
    own_settings = git.run("config", "--bool", "extensions.worktreeConfig", check=False).text == "true"
    held = any(entry.branch == branch for entry in git.worktrees())
    return None if own_settings or held else (admin, branch)


def is_of_another_repository(site: Site, admin: Path | None) -> bool:
    """Whether the entry that a folder names is there, and some other repository's."""
    return admin is not None and admin.exists() and admin.parent != site.common_dir / "worktrees"


def mended_admin(site: Site, slot: Path) -> Path | None:
    """The one entry that belongs to a slot whose pointers are broken, None when there is any doubt."""
    entries = git_registration.registrations(site.common_dir)
    named = git_registration.named_by(slot)
    own = [each.admin for each in entries if each.worktree == slot]
    if own or named is None:
        # Another entry that the slot's own file names would be robbed of it.
        return own[0] if len(own) == 1 and (named is None or not named.exists()) else None
    lost = [each for each in entries if not os.path.lexists(each.worktree)]
    # The slot was moved, or with its repository, so that both sides name old places.
    found = [each.admin for each in lost if each.admin == named] or [
        each.admin
        for each in lost
        if each.admin.name == named.name and each.worktree.name == slot.name and not named.exists()
    ]
    others = [other.path for other in site.slots if other.path != slot and _names(other.path, (named, *found))]
    return found[0] if len(found) == 1 and not others else None


def _names(slot: Path, admins: tuple[Path, ...]) -> bool:
    return slot.is_dir() and git_registration.named_by(slot) in admins


def branches_are_known(site: Site) -> Iterator[Finding]:
    """Branches of agents that left and whose commits are not in HEAD: parked work, no fault."""
    if site.state is None:
        return
    git = Git(site.paths.root)
    if not git.side_agent_refs():
        return
    args = ("--no-merged=HEAD", "--format=%(refname)", "refs/heads/side-agent")
    listed = git.run("for-each-ref", *args, check=False).text.splitlines()
    rows = {record.branch for record in site.state.agents.values()} | {names.branch_of(name) for name in site.state.ids}
    parked = [ref.removeprefix("refs/heads/") for ref in listed if ref.removeprefix("refs/heads/") not in rows]
    if parked:
        yield Finding(
            code="parked-branches",
            severity=Severity.NOTE,
            what=f"{len(parked)} branch{'es' if len(parked) > 1 else ''} of agents that left hold commits that are not in "
            f"the main checkout's HEAD: {some(parked)}.",
            safe="They are kept, and no start takes their names.",
            mend="Land: `side-agents finish ID`; go on: `side-agents resume ID`; or keep them, nothing has to be done.",
        )


def rescue_refs_are_known(site: Site) -> Iterator[Finding]:
    """Refs that keep commits which nothing else might hold."""
    try:
        listed = Git(site.paths.root).text("for-each-ref", "--format=%(refname)", RESCUE_REFS.rstrip("/")).splitlines()
    except SideAgentsError:
        return
    if listed:
        yield Finding(
            code="rescue-refs",
            severity=Severity.NOTE,
            what=f"{len(listed)} rescue ref{'s keep' if len(listed) > 1 else ' keeps'} commits: {some(listed, 3)}.",
            safe="What they hold cannot be lost; those of the trash go when it is emptied.",
            mend="Look: `side-agents clean --trash`. Bring one back: git branch NAME REF",
        )
