"""Who else has something open: a shared kernel lock that each user holds for life, and that a dead one has let go of."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from side_agents.errors import BusyError, StateError

_POLL_SECONDS = 0.005


class Presence:
    """One user's share of the lock; ``close`` gives it back."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def close(self) -> None:
        """Leave. May be called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def join(path: Path, *, alone: Callable[[], None], timeout: float = 30.0) -> Presence:
    """Become a user of whatever ``path`` (a lock file, made when absent) stands for.

    When there is no other user, ``alone`` runs first, and nobody can join before it is done; what it raises comes out.
    Raises BusyError when somebody else's ``alone`` takes longer than ``timeout`` seconds, StateError when the lock file
    cannot be used.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StateError(f"The lock file {path} could not be opened ({error.strerror}).") from error
    try:
        if _try_lock(handle, fcntl.LOCK_EX):
            alone()
        _wait_for_share(handle, path, time.monotonic() + timeout)
    except BaseException:
        os.close(handle)
        raise
    return Presence(handle)


def _wait_for_share(handle: int, path: Path, deadline: float) -> None:
    while not _try_lock(handle, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise BusyError(
                f"Another process is still preparing {path.with_suffix('').name}; nothing was changed.",
                hint="Try again in a moment.",
            )
        time.sleep(_POLL_SECONDS)


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
