"""Leases: the ``.pi/active.lock`` of a slot, and who may remove it (reference/side-agents 4.3)."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from side_agents.errors import StateError
from side_agents.infra import fs
from side_agents.models import Lease, json_text
from side_agents.paths import is_lease, lease_path


def read(worktree: Path) -> Lease | None:
    """The lease of a slot, None when it has none. A lease that cannot be read is held by nobody known."""
    path = lease_path(worktree)
    try:
        data = fs.read_json(path)
        if data is None:
            if not os.path.lexists(path):
                return None
            # It came into being just now; or it is the JSON word null or a link to nowhere, which have the name too.
            data = fs.read_json(path)
        return Lease.from_json(data) if isinstance(data, dict) else Lease()
    except (StateError, ValueError, TypeError):
        return Lease()


def take(worktree: Path, lease: Lease) -> bool:
    """Write a new lease; False when the slot has one already, whosever it is."""
    fs.make_private_dir(lease_path(worktree).parent)
    _remove_drafts(worktree)
    return fs.create_exclusive(lease_path(worktree), _text(lease))


def update(worktree: Path, lease: Lease) -> None:
    """Replace a lease that the same agent holds."""
    held = read(worktree)
    if held is not None and lease.agent_id is not None and held.agent_id == lease.agent_id:
        fs.replace(lease_path(worktree), _text(lease))


def name_session(worktree: Path, agent_id: str, session: str) -> bool:
    """Note the conversation of the agent that holds the lease (seed 001 5.4). True when the lease was written."""
    held = read(worktree)
    if held is None or held.agent_id != agent_id or held.session_id == session:
        return False
    fs.replace(lease_path(worktree), _text(replace(held, session_id=session)))
    return True


def release(worktree: Path | None, agent_id: str | None = None) -> bool:
    """Remove the lease if it is this agent's; another agent's is left alone (B38, F-L1). True when one was removed.

    Without an id the lease goes whosever it is (F-L3): only for callers that have proved that nobody is there.
    """
    if worktree is None:
        return False
    _remove_drafts(worktree)
    held = read(worktree)
    if held is None or agent_id not in (None, held.agent_id):
        return False
    return fs.remove_file(lease_path(worktree))


def _remove_drafts(worktree: Path) -> None:
    """Remove what processes that were killed had begun to write. No lease depends on it, and no failure of it counts."""
    # The status line reads leases and must not pay for this (DESIGN 9, rule of weight).
    from side_agents.infra import fs_survey

    for path in fs_survey.leftovers(lease_path(worktree).parent, older_than=math.inf):
        if is_lease(path.relative_to(worktree).as_posix()):
            with suppress(StateError):
                fs.remove_file(path)


def _text(lease: Lease) -> str:
    return json_text(lease.to_json(), indent=2) + "\n"
