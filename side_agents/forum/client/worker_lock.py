"""One process at a time for each worker file, and the truth about who it is (reference/forum 5.8).

The lock file exists while somebody has the worker open, and the kernel knows whether that somebody lives. Departing from
the reference in two things: who finds a living owner waits for it up to a limit, because our owners are tool calls that
last moments, and an agent may make two at once; and who finds a dead one of this machine takes its place (DESIGN 4), or an
agent that was killed could not go on as itself. A crash leaves nothing half done that the file does not tell of. Of an
owner on another machine the kernel here knows nothing, so that lock stays for a person to remove.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents.errors import BusyError, NotFoundError, StateError
from side_agents.infra import clock, fs_private, processes
from side_agents.models import ProcessRef

LOCK_NAME = "worker.lock"


@dataclass(frozen=True, slots=True)
class WorkerLock:
    """A lock that we hold; ``release`` it exactly once."""

    path: Path
    handle: int

    def release(self) -> None:
        """Let the next one in."""
        fs_private.release_held(self.path, self.handle)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a lock file; ``alive`` is the kernel's word for it, not the text's."""

    pid: int
    host: str
    started: str
    boot_id: str
    purpose: str
    since: str
    alive: bool

    def words(self) -> str:
        """For messages."""
        if not self.pid:
            return "a process that left no name"
        return f"process {self.pid} on {self.host} ({self.purpose}) since {self.since}"


def lock_path(state: Path) -> Path:
    """The lock that belongs to a worker file."""
    return state.with_name(LOCK_NAME)


def acquire(state: Path, *, purpose: str, patience: float) -> WorkerLock:
    """Hold the lock of a worker file, waiting at most ``patience`` seconds for a living owner.

    Raises BusyError, which names the owner and says whether it lives: at once when that cannot change.
    """
    path = lock_path(state)
    deadline = clock.monotonic() + patience
    while True:
        handle = _create(path, purpose)
        if handle is None and patience > 0:
            handle = _wait_for(path, purpose, deadline)
        if handle is not None:
            return WorkerLock(path, handle)
        owner = owner_of(state)
        if owner is not None and not _can_be_taken_over(path, owner):
            raise _busy(state, owner)


def owner_of(state: Path) -> Owner | None:
    """Who has, or had, a worker file open; None when nobody does."""
    facts = fs_private.lock_facts(lock_path(state))
    if facts is None:
        return None
    said = _parsed(facts.text)
    pid = said.get("pid")
    return Owner(
        pid=pid if type(pid) is int and pid > 0 else 0,
        host=str(said.get("host", "")),
        started=str(said.get("startedAt", "")),
        boot_id=str(said.get("bootId", "")),
        purpose=str(said.get("purpose", "")),
        since=str(said.get("since", "")),
        alive=facts.held,
    )


def _can_be_taken_over(path: Path, owner: Owner) -> bool:
    """Whether the owner is dead and was of this machine; its lock is gone then."""
    if owner.alive or owner.host != os.uname().nodename:
        return False
    fs_private.remove_dead_lock(path)
    return True


def unlock(state: Path) -> Owner:
    """Remove a lock that outlived its owner elsewhere, for a person who asked for it; returns whose it was.

    Raises NotFoundError when there is none, and BusyError while the owner lives.
    """
    owner = owner_of(state)
    if owner is None:
        raise NotFoundError(f"{state} is not locked. Nothing was changed.")
    if owner.alive:
        raise _busy(state, owner)
    if not fs_private.remove_dead_lock(lock_path(state)):
        raise _busy(state, owner_of(state) or owner)
    return owner


def _wait_for(path: Path, purpose: str, deadline: float) -> int | None:
    from side_agents.infra.events import Watcher

    while True:
        owner = owner_of(path)
        if owner is not None and not owner.alive:
            return None
        watched = [ProcessRef(owner.pid, owner.started)] if owner and owner.host == os.uname().nodename else []
        with Watcher([path], watched) as watcher:
            handle = _create(path, purpose)
            if handle is not None:
                return handle
            left = deadline - clock.monotonic()
            if left <= 0:
                return None
            watcher.wait(left)


def _create(path: Path, purpose: str) -> int | None:
    me = processes.current()
    text = {
        "pid": me.pid,
        "startedAt": me.started,
        "host": os.uname().nodename,
        "bootId": processes.boot_id(),
        "purpose": purpose,
        "since": clock.iso(),
    }
    try:
        return fs_private.create_held(path, json.dumps(text).encode())
    except OSError as error:
        raise StateError(f"The lock {path} could not be made ({error.strerror}). Nothing was changed.") from error


def _busy(state: Path, owner: Owner) -> BusyError:
    if owner.alive:
        return BusyError(
            f"The forum state {state} is in use by {owner.words()}, which still runs. Nothing was changed.",
            hint="Try again when it has ended; one agent makes one forum call at a time.",
        )
    return BusyError(
        f"The forum state {state} was left locked by {owner.words()}. Its lock is free here, which says nothing of another "
        "machine. Nothing was changed.",
        hint=f"Look at it and unlock it: side-agents forum worker unlock {state}",
    )


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
