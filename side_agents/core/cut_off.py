"""Slots whose start was cut off while git was making or filling them: what git left there is nobody's work."""

from __future__ import annotations

from pathlib import Path, PurePath

from side_agents.errors import RefusedError
from side_agents.infra import clock, git_cut_off, git_registration, processes_environ, processes_open
from side_agents.infra.events import Watcher
from side_agents.infra.git import Git
from side_agents.models import ProcessRef

_PATIENCE = 10.0


def unlock(pool: Git, slot: Path, branch: str) -> None:
    """Remove the locks that a git killed in a slot has left there, where it was to have a branch; a living one is let end.

    Raises RefusedError while a git is at work in the slot.
    """
    _let_git_end(slot)
    for registration in git_registration.registrations(pool.layout().common_dir):
        if registration.worktree == slot:
            git_cut_off.unlock(registration.admin, branch)


def _let_git_end(slot: Path) -> None:
    deadline = clock.monotonic() + _PATIENCE
    while gits := _gits_at(slot):
        with Watcher(processes=gits) as watcher:
            if not watcher.wait(max(0.0, deadline - clock.monotonic())):
                raise RefusedError(f"git, process {gits[0].pid}, is still at work in {slot.name}")


def _gits_at(slot: Path) -> list[ProcessRef]:
    """Living gits that were told to work on a slot, or work in it; the start that ran them may be dead."""
    inside = {user.pid for user in processes_open.users_of(slot)}
    views = (view for view in processes_environ.scan() if view.argv and PurePath(view.argv[0]).name == "git")
    return [view.ref for view in views if view.ref.pid in inside or str(slot) in view.argv]
