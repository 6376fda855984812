"""One forum's file: reads from a few pooled connections, writes through one thread, and news of commits.

Several processes may have the same file open; each has its own ``Database``. Nothing outside the store knows SQLite.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from side_agents.forum.failures import fail
from side_agents.forum.store import opening
from side_agents.forum.store.changes import Changes
from side_agents.forum.store.opening import Installation
from side_agents.forum.store.writer import Writer, storage_error
from side_agents.infra.presence import Presence

T = TypeVar("T")
Connection = apsw.Connection

READERS = 4


class Database:
    """An open forum database; a context manager. Build it with ``open``."""

    def __init__(self, path: Path, present: Presence, open_file: opening.OpenFile | None) -> None:
        self.path = path
        self._present = present
        self._open_file = open_file
        connection = opening.connect(path, opening.WRITER, open_file)
        try:
            self.installation: Installation = opening.installation(connection)
            self.changed = Changes(path.with_name(f"{path.name}.wake"), self._connect_reader)
        except BaseException:
            connection.close()
            raise
        self._writer = Writer(connection, self.changed.committed)
        # Each place holds a connection, or None until somebody needs it.
        self._readers: queue.LifoQueue[apsw.Connection | None] = queue.LifoQueue()
        for _ in range(READERS):
            self._readers.put(None)
        self._closing = threading.Lock()
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        create: bool = True,
        accept_old_sqlite: bool = False,
        open_file: opening.OpenFile | None = None,
    ) -> Self:
        """Open the forum at ``path``; with ``create`` it is made when absent.

        ``open_file`` replaces how a connection is opened, for other file layers. Raises NotFoundError, StateError,
        StateFromFutureError, RefusedError or BusyError; a file that is not ours is left untouched.
        """
        opening.check_library(accept_old=accept_old_sqlite)
        present = opening.join(path, create=create)
        try:
            return cls(path, present, open_file)
        except BaseException:
            present.close()
            raise

    def read(self, function: Callable[[Connection], T]) -> T:
        """Run ``function`` on one unchanging state of the database; it cannot write."""
        connection = self._readers.get()
        try:
            if self._closed:
                raise fail("shutting_down", "The forum is being closed.")
            if connection is None:
                connection = self._connect_reader()
            return _read(connection, function)
        finally:
            self._readers.put(connection)

    def write(self, function: Callable[[Connection], T]) -> T:
        """Run ``function`` in a write transaction and return once it is durable; see ``Writer.run``."""
        return self._writer.run(function)

    def close(self) -> None:
        """Finish what runs, then close. May be called twice."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            for connection in [self._readers.get() for _ in range(READERS)]:
                if connection is not None:
                    connection.close()
            for _ in range(READERS):
                self._readers.put(None)
        self._writer.finish()
        self.changed.close()
        # The last connection to go, because closing may checkpoint.
        self._writer.close()
        self._present.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect_reader(self) -> apsw.Connection:
        return opening.connect(self.path, opening.READER, self._open_file)


def _read(connection: apsw.Connection, function: Callable[[Connection], T]) -> T:
    try:
        connection.execute("BEGIN")
        try:
            return function(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except apsw.Error as error:
        known: Any = storage_error(error)
        raise known from (None if known is error else error)
