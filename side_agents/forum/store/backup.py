"""Whole copies of a database, and what putting one back needs; service.operator says in which order and when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from side_agents.errors import BusyError, StateError
from side_agents.forum.store import opening
from side_agents.forum.store.database import Connection
from side_agents.forum.store.opening import Installation
from side_agents.infra import fs

_SIDE_FILES = ("-wal", "-shm", "-journal")
_OTHERS_MS = 500


def copy(source: Connection, target: Path) -> None:
    """Copy everything that ``source`` sees at this moment into the new file ``target``, which only its owner can read.

    Others may go on writing. Raises StateError, and then leaves no file.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        connection = apsw.Connection(str(target))
        try:
            with connection.backup("main", source, "main") as progress:
                # In one step, so that what is copied is one state.
                progress.step(-1)
        finally:
            connection.close()
    except apsw.Error as error:
        discard(target)
        raise StateError(f"The copy could not be written to {target} ({error}); nothing was changed.") from error


@contextmanager
def reading(path: Path) -> Iterator[Connection]:
    """A database file that nobody uses, opened so that not a byte in its folder changes. Raises StateError."""
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
    except apsw.Error as error:
        raise StateError(f"{path} could not be opened ({error}); it was left as it is.") from error
    try:
        yield connection
    finally:
        connection.close()


def faults(path: Path) -> list[str]:
    """What SQLite finds wrong in a file that nobody uses; empty when it is sound."""
    with reading(path) as connection:
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)")]
        except apsw.Error as error:
            return [str(error)]
    return [] if found == ["ok"] else found


def begin_epoch(path: Path, epoch: int) -> int:
    """Give a copy that nobody uses its epoch, and say what its newest sequence is."""
    connection = opening.connect(path, opening.WRITER)
    try:
        connection.execute("UPDATE installation SET epoch = ?", (epoch,))
        newest: int = connection.execute("SELECT coalesce(max(seq), 0) FROM activity").get
    finally:
        connection.close()
    return newest


def settle(path: Path) -> Installation | None:
    """Bring the log of a database that nobody uses into its file, and say whose it was; None when it is too damaged.

    Raises BusyError when somebody has it open, with whatever program.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(_OTHERS_MS)
        # With this lock mode SQLite takes the file for itself, which fails while any connection to it exists.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        found = opening.installation(connection)
        connection.execute("COMMIT")
    except apsw.BusyError as error:
        raise BusyError(
            f"Another program has {path} open; nothing was changed.", hint="End it and try again."
        ) from error
    except (apsw.Error, StateError):
        return None
    finally:
        # Being the last to close, it removes the log.
        with suppress(apsw.Error):
            connection.close()
    return found


def set_aside(path: Path, aside: Path) -> None:
    """Give the file a second name, under which it stays when something else takes the first; its log, if one is left,
    goes with it."""
    os.link(path, aside)
    for suffix in _SIDE_FILES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def discard(path: Path) -> None:
    """Remove a copy that did not become complete."""
    for suffix in ("", *_SIDE_FILES):
        fs.remove_file(path.with_name(path.name + suffix))
