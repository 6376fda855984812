"""Telling waiters that something was committed, by this process or by another one.

After each commit the writer overwrites a few bytes of a small file beside the database; other processes sleep on it in
the kernel. One thread of a process watches for all of its waiters.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from side_agents.infra.events import Watcher

# A process that dies between its commit and its wake-up is noticed by the database's own counter instead.
_LOOK_SECONDS = 1.0


class Changes:
    """A number that grows with every commit, and ways to wait for it. Safe from any thread.

    The safe order is: ``generation``, query, ``wait(after=generation)``; a commit in between is not missed. It may grow
    once too often, never once too rarely.
    """

    def __init__(self, path: Path, connect: Callable[[], apsw.Connection]) -> None:
        self._path = path
        self._connect = connect
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._changed = threading.Condition()
        self._arming = threading.Lock()
        self._generation = 0
        self._closed = False
        self._listeners: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._own_mark = b""

    def generation(self) -> int:
        """The present number; from the first call on, commits of other processes count too."""
        self._arm()
        with self._changed:
            return self._generation

    def wait(self, after: int, timeout: float | None) -> bool:
        """Sleep until the number exceeds ``after`` (True), or ``timeout`` seconds are over or all is closed (False)."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._generation > after, timeout)
            return self._generation > after

    def add_listener(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after each commit, from a foreign thread; it must return at once and not raise."""
        self._arm()
        with self._changed:
            self._listeners.append(callback)

    def remove_listener(self, callback: Callable[[], None]) -> None:
        """Undo one ``add_listener``."""
        with self._changed:
            self._listeners.remove(callback)

    def committed(self) -> None:
        """For the writer, after a commit: wake everybody, here and elsewhere."""
        self._mark()
        self._bump()

    def close(self) -> None:
        """Wake all waiters with False and end the watching thread."""
        with self._arming, self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._mark()
            self._thread.join()
        os.close(self._handle)

    def _mark(self) -> None:
        self._own_mark = secrets.token_bytes(16)
        # What is committed stays committed when this fails: the others then find out by the database's own counter.
        with suppress(OSError):
            os.pwrite(self._handle, self._own_mark, 0)

    def _bump(self) -> None:
        with self._changed:
            self._generation += 1
            self._changed.notify_all()
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def _arm(self) -> None:
        if self._thread is not None:
            return
        with self._arming:
            if self._thread is not None or self._closed:
                return
            ready = threading.Event()
            thread = threading.Thread(target=self._watch, args=(ready,), name="forum-changes", daemon=True)
            thread.start()
            ready.wait()
            self._thread = thread

    def _watch(self, ready: threading.Event) -> None:
        try:
            connection = self._connect()
            try:
                with Watcher([self._path]) as watcher:
                    self._watch_until_closed(watcher, connection, ready)
            finally:
                connection.close()
        finally:
            ready.set()

    def _watch_until_closed(self, watcher: Watcher, connection: apsw.Connection, ready: threading.Event) -> None:
        version = _version(connection)
        ready.set()
        while not self._closed:
            if watcher.wait(_LOOK_SECONDS):
                # Our own mark was preceded by our own commit, whose bump covers all that came before it.
                changed = os.pread(self._handle, 16, 0) != self._own_mark
            else:
                version, before = _version(connection), version
                changed = version != before or version is None
            if changed:
                self._bump()


def _version(connection: apsw.Connection) -> int | None:
    """What changes with the commits of other connections; None when it cannot be asked now."""
    try:
        # The library has a quicker call for it, which however does not look at the file.
        return int(connection.pragma("data_version"))
    except apsw.Error:
        return None
