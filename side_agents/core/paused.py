"""Agents that quit with something left to land: they are paused rather than done (reference/side-agents 8.4)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from side_agents import names
from side_agents.core import leases
from side_agents.core.context import Context
from side_agents.errors import SideAgentsError
from side_agents.infra.git import AGENT_REFS, Git
from side_agents.models import EndedBy, Tombstone


def paused(context: Context, stones: Iterable[Tombstone]) -> frozenset[str]:
    """Ids of agents that exited with 0, whose branch has commits that did not land or whose slot has uncommitted work, and
    whose conversation is still there. Git is asked once for all branches and once for each slot that could have work."""
    able = [stone for stone in stones if _can_resume(stone)]
    if not able:
        return frozenset()
    git = Git(context.layout.main_top)
    listed = git.run("for-each-ref", "--no-merged=HEAD", "--format=%(refname)", AGENT_REFS, check=False).text
    unmerged = set(listed.splitlines())
    return frozenset(stone.id for stone in able if _is_unlanded(git, stone, unmerged) or _has_changes(stone))


def _can_resume(stone: Tombstone) -> bool:
    quit_well = stone.ended_by is EndedBy.EXIT and stone.exit_code == 0
    return quit_well and stone.child_session_file is not None and Path(stone.child_session_file).is_file()


def _is_unlanded(git: Git, stone: Tombstone, unmerged: set[str]) -> bool:
    ref = f"refs/heads/{stone.branch}"
    if ref not in unmerged:
        return False
    parent = f"refs/heads/{names.branch_of(stone.parent_agent_id)}" if stone.parent_agent_id else None
    if parent is None or parent not in unmerged:
        return True
    with suppress(SideAgentsError):
        # A nested agent lands in its parent's branch.
        return not git.is_ancestor(ref, parent)
    return True


def _has_changes(stone: Tombstone) -> bool:
    slot = Path(stone.worktree_path or "")
    if stone.worktree_path is None or not slot.is_dir() or leases.read(slot) is not None:
        return False
    try:
        git = Git(slot)
        return git.current_branch() == stone.branch and not git.is_clean()
    except SideAgentsError:
        return False
