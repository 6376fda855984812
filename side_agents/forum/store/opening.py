"""What has to be true before a database file is used, and how it comes into being (reference/forum.md 3.2, 3.3).

A file is judged by its first hundred bytes before SQLite opens it, so that a refused one is left untouched. A new one is
built under another name and renamed: it is whole or absent, whenever the process dies.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from side_agents.errors import NotFoundError, RefusedError, StateError, StateFromFutureError
from side_agents.forum import failpoints, ids
from side_agents.forum.store import schema
from side_agents.infra import fs, presence

OpenFile = Callable[[Path], apsw.Connection]

BUSY_MS = 10_000
_JOURNAL_BYTES = 64 * 1024 * 1024
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_FIRST_SOUND, _SOUND_BACKPORT = (3, 51, 3), (3, 50, 7)
_FIRST_AFFECTED = (3, 7, 0)

_COMMON = {
    "busy_timeout": BUSY_MS,
    "foreign_keys": 1,
    "synchronous": 2,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "journal_size_limit": _JOURNAL_BYTES,
    # Only writers move the log into the database, when it suits them: a reader that did could meet the restart of the
    # log by a writer (3.2), and a commit would wait for it.
    "wal_autocheckpoint": 0,
}
WRITER = {**_COMMON, "query_only": 0}
READER = {**_COMMON, "query_only": 1}


@dataclass(frozen=True, slots=True)
class Installation:
    """What tells one forum from another: an id for life, an epoch that a restore changes, the key of its cursors."""

    id: str
    epoch: int
    cursor_key: bytes


def library_version() -> str:
    """The version of SQLite that is really loaded."""
    return apsw.sqlite_lib_version()


def is_affected(version: str) -> bool:
    """Whether this SQLite may lose data when one connection checkpoints while another restarts the log."""
    number = tuple(int(part) for part in version.split(".")[:3])
    backported = number[:2] == _SOUND_BACKPORT[:2] and number >= _SOUND_BACKPORT
    return _FIRST_AFFECTED <= number < _FIRST_SOUND and not backported


def check_library(*, accept_old: bool) -> None:
    """Refuse an SQLite with the race in its log reset. Raises RefusedError."""
    version = library_version()
    if is_affected(version) and not accept_old:
        raise RefusedError(
            f"SQLite {version} has a fault that can corrupt a database in use by several processes; it was not opened.",
            hint="Install apsw 3.51.3 or newer, or say --accept-old-sqlite.",
        )


def join(path: Path, *, create: bool) -> presence.Presence:
    """Make sure that ``path`` is a sound database of ours, and become one of its users.

    Who comes first creates it, or examines it when the last user did not leave in order. Raises NotFoundError, StateError,
    StateFromFutureError, RefusedError; an existing file is as it was then.
    """
    is_new = check_file(path)
    if is_new and not create:
        raise NotFoundError(f"There is no forum at {path}.", hint="It is made when the first agent uses it.")
    if create:
        fs.make_private_dir(path.parent)
    _check_folder(path.parent)
    present = presence.join(path.with_name(f"{path.name}.users"), alone=lambda: _come_first(path))
    try:
        if check_file(path):
            raise StateError(f"{path} vanished while other processes use it; nothing was changed.")
    except BaseException:
        present.close()
        raise
    return present


def check_file(path: Path) -> bool:
    """Whether there is no database yet (no file, or an empty one); an existing one must be ours, of this version."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    if not stat.S_ISREG(status.st_mode):
        raise StateError(f"{path} is not a regular file; it was left as it is.")
    if status.st_mode & 0o077:
        raise RefusedError(
            f"{path} can be read or changed by other users; it was not opened.", hint=f"Run: chmod 600 {path}"
        )
    if status.st_size:
        _check_header(path, _header(path))
    return status.st_size == 0


def is_volatile(path: Path) -> bool:
    """Whether a file there would live in memory only (tmpfs), so that no commit outlasts the machine."""
    folder = next(parent for parent in path.absolute().parents if parent.is_dir()).resolve()
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    best, kind = -1, ""
    for line in mounts:
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode("latin-1", "surrogateescape").decode("unicode_escape")
        if folder.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind in ("tmpfs", "ramfs")


def connect(path: Path, pragmas: dict[str, int], open_file: OpenFile | None = None) -> apsw.Connection:
    """A connection whose settings have been read back. Raises StateError."""
    try:
        connection = (open_file or _open_file)(path)
    except apsw.Error as error:
        raise StateError(f"{path} could not be opened ({error}); it was left as it is.") from error
    try:
        _configure(connection, path, pragmas)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        connection.close()
        raise _damaged(path, str(error)) from error
    except apsw.Error as error:
        connection.close()
        raise StateError(f"{path} could not be used ({error}); it was left as it is.") from error
    except BaseException:
        connection.close()
        raise
    return connection


def installation(connection: apsw.Connection) -> Installation:
    """The one row that names this forum."""
    row = connection.execute("SELECT id, epoch, cursor_key FROM installation").get
    if row is None:
        raise StateError("The forum's database has lost the row that names it; it was left as it is.")
    return Installation(*row)


def _open_file(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)


def _configure(connection: apsw.Connection, path: Path, pragmas: dict[str, int]) -> None:
    for name, value in pragmas.items():
        connection.execute(f"PRAGMA {name}={value}").fetchall()
    mode = connection.pragma("journal_mode")
    if mode != "wal":
        raise StateError(
            f"{path} cannot keep a write-ahead log here (journal mode {mode}); nothing was changed.",
            hint="Network file systems often cannot; keep the forum on a local disk.",
        )
    for name, value in pragmas.items():
        effective = connection.pragma(name)
        if effective != value:
            raise StateError(
                f"SQLite did not take {name}={value} for {path} (it says {effective}); nothing was changed."
            )


def _header(path: Path) -> bytes:
    """The first bytes, fewer of a shorter file.

    Read through SQLite's own file layer: had this process the file open already, closing a handle of our own would take
    away all its locks, and who leaves last elsewhere could remove the log that we go on writing to.
    """
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
    try:
        # It follows no links.
        file = apsw.VFSFile("", os.path.realpath(path), [flags, 0])
        try:
            return bytes(file.xRead(_HEADER_BYTES, 0))
        finally:
            file.xClose()
    except apsw.Error as error:
        raise StateError(f"{path} could not be read ({error}); it was left as it is.") from error


def _check_header(path: Path, header: bytes) -> None:
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StateError(f"{path} is not a database; it was left as it is.")
    application = int.from_bytes(header[68:72], "big")
    version = int.from_bytes(header[60:64], "big")
    if application != schema.APPLICATION_ID:
        raise StateError(f"{path} is a database of another program; it was left as it is.")
    if version > schema.USER_VERSION:
        raise StateFromFutureError(
            f"{path} was written by a newer side-agents (version {version}); it was left as it is.",
            hint="Update side-agents here.",
        )
    if version != schema.USER_VERSION:
        raise StateError(f"{path} has version {version}, which this side-agents cannot read; it was left as it is.")


def _check_folder(folder: Path) -> None:
    mode = folder.stat().st_mode
    if mode & 0o077:
        raise RefusedError(
            f"The folder {folder} is open to other users; the forum in it was not opened.",
            hint=f"Run: chmod 700 {folder}, or choose a folder of its own.",
        )


def _come_first(path: Path) -> None:
    if check_file(path):
        _create(path)
    elif fs.size(path.with_name(f"{path.name}-wal")):
        # The last user to leave in order removes the log.
        _examine(path)


def _examine(path: Path) -> None:
    connection = connect(path, WRITER)
    try:
        faults = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
    except apsw.Error as error:
        faults = [str(error)]
    finally:
        connection.close()
    if faults != ["ok"]:
        raise _damaged(path, "; ".join(faults))


def _damaged(path: Path, faults: str) -> StateError:
    return StateError(
        f"{path} is damaged ({faults}); it was not opened for use.",
        hint="Put a backup back with: side-agents forum restore",
    )


def _create(path: Path) -> None:
    prefix, suffix = f".{path.name}.", ".new"
    for stray in path.parent.iterdir():
        # Nobody else is here, so whoever began these has died.
        if stray.name.startswith(prefix) and suffix in stray.name:
            fs.remove_file(stray)
    temporary = path.with_name(f"{prefix}{os.getpid()}-{secrets.token_hex(6)}{suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        _build(temporary)
        fs.move_durably(temporary, path)
    except BaseException:
        fs.remove_file(temporary)
        raise


def _build(path: Path) -> None:
    try:
        connection = _open_file(path)
        try:
            with connection:
                connection.execute(schema.SCRIPT)
                connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={schema.USER_VERSION}")
                failpoints.reach("S18")
                connection.execute(
                    "INSERT INTO installation(one, id, epoch, cursor_key, created_at) VALUES (1, ?, 1, ?, ?)",
                    (ids.ulid("in"), secrets.token_bytes(32), ids.now_ms()),
                )
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
        finally:
            connection.close()
    except apsw.Error as error:
        raise StateError(f"A database could not be made in {path.parent} ({error}); nothing was changed.") from error
