"""How far notices have been passed on: cheap to ask, because a status line asks after every look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from side_agents.errors import StateError
from side_agents.infra import clock, fs
from side_agents.paths import StatePaths


def file(paths: StatePaths) -> Path:
    """What the last pump left: ``seen`` (the registry's mark), ``dueAt`` (when to look again), ``problems``."""
    return paths.meta / "notices.json"


def read(paths: StatePaths) -> Mapping[str, Any]:
    """The state, empty when there is none that can be read."""
    try:
        data = fs.read_json(file(paths))
    except StateError:
        return {}
    return data if isinstance(data, dict) else {}


def mark(paths: StatePaths) -> list[int] | None:
    """What tells two states of the registry apart; None when there is no registry.

    Not that of the file of changes: its lines count only once the registry has been replaced.
    """
    try:
        status = paths.registry.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def is_due(paths: StatePaths, *, eager: bool) -> bool:
    """Whether there may be something to tell; without ``eager`` only where a writing command has begun to."""
    if not paths.transitions.exists():
        return False
    state = read(paths)
    if not state:
        return eager
    due_at = state.get("dueAt")
    return state.get("seen") != mark(paths) or (isinstance(due_at, str) and clock.iso() >= due_at)
