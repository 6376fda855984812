"""Files that hold secrets: opened only when nobody else can reach them, replaced with every step of the way reported.

Stricter than ``fs``: what cannot be proved to be safe on disk is an error here, also a directory that cannot be synced,
because the caller has to know whether its next write may build on this one (reference/forum 5.7, 5.8).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from side_agents.errors import StateError

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_LOCK_TEXT_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class LockFacts:
    """What is known of a lock file without touching it: its text, and whether a living process holds it."""

    text: bytes
    held: bool


def make_folder(path: Path) -> None:
    """Make a folder, and missing parents, that only we can enter. Raises StateError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise StateError(f"The folder {path} could not be made ({error.strerror}).") from error


def check_folder(path: Path) -> None:
    """Raise StateError unless this is a directory of ours that nobody else can enter; FileNotFoundError without one."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError(f"{path} cannot be looked at ({error.strerror}).") from error
    fault = _fault(facts, stat.S_ISDIR, "a directory", _FOLDER_MODE)
    if fault:
        raise StateError(f"{path} {fault}. Nothing in it was opened.", hint=f"chmod 700 {path}, if it is yours.")


def read(path: Path, *, limit: int) -> bytes:
    """The content of a private file, at most ``limit`` bytes, asked for before anything is read.

    Raises FileNotFoundError when there is none, and StateError, which says why, for a link, another kind of file,
    another owner, a mode that lets others in, or a larger file. The file is left as it is.
    """
    try:
        # Without O_NONBLOCK opening a FIFO would wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "is a symbolic link" if error.errno in {errno.ELOOP, errno.EMLINK} else f"fails: {error.strerror}"
        raise StateError(f"{path} was not opened: it {reason}. It was left as it is.") from error
    try:
        facts = os.fstat(handle)
        fault = _fault(facts, stat.S_ISREG, "a regular file", _FILE_MODE)
        if facts.st_size > limit and not fault:
            fault = f"has {facts.st_size} bytes, more than the {limit} allowed"
        if fault:
            raise StateError(f"{path} was not read: it {fault}. It was left as it is.")
        return _read_all(handle, limit, path)
    finally:
        os.close(handle)


def replace(path: Path, data: bytes, *, reached: Callable[[str], None]) -> None:
    """Give a file new content, all or nothing; it is on disk when this returns. Raises OSError from any step.

    ``reached`` is called with F1 to F6 between the steps (reference/forum 6.1). After an error nobody knows which of the
    two contents a crash of the machine would leave.
    """
    temp = _temporary(path)
    try:
        _write_synced(temp, data, reached)
        temp.replace(path)
    except BaseException:
        with suppress(OSError):
            temp.unlink()
        raise
    reached("F5")
    _sync_folder(path.parent)
    reached("F6")


def remove_strays(path: Path) -> int:
    """Remove what crashed writers of ``path`` left beside it; returns how many. Only for who holds the file's lock."""
    removed = 0
    with suppress(OSError):
        for stray in path.parent.glob(f".{path.name}.*.tmp"):
            stray.unlink()
            removed += 1
    return removed


def create_held(path: Path, text: bytes) -> int | None:
    """Create a lock file that is held from the moment it can be seen; None when something has the name already.

    Returns a descriptor for :func:`release_held`. The kernel frees the lock when we die; the file then stays.
    """
    temp = _temporary(path)
    handle = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(handle, text)
        os.link(temp, path)
    except FileExistsError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    finally:
        temp.unlink()
    return handle


def release_held(path: Path, handle: int) -> None:
    """Take the lock file away, then free the lock."""
    with suppress(OSError):
        path.unlink()
    os.close(handle)


def lock_facts(path: Path) -> LockFacts | None:
    """What a lock file says and whether it is held; None when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"The lock {path} cannot be looked at ({error.strerror}).") from error
    try:
        text = os.read(handle, _LOCK_TEXT_LIMIT)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return LockFacts(text, held=True)
        # Released between our two looks: that is no stale lock, there is none.
        return LockFacts(text, held=False) if os.fstat(handle).st_nlink else None
    except IsADirectoryError as error:
        raise StateError(f"The lock {path} is a directory.") from error
    finally:
        os.close(handle)


def remove_dead_lock(path: Path) -> bool:
    """Remove a lock file whose holder has died, by the kernel's word; False when somebody holds it or another took its place.

    Of several who try at once one succeeds, and a lock that was made meanwhile is never touched. Raises StateError.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StateError(f"The lock {path} cannot be looked at ({error.strerror}).") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # While we hold it nobody else can remove it, so what has the name now keeps it until we do.
        if not os.path.samestat(os.fstat(handle), path.lstat()):
            return False
        path.unlink()
        return True
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(handle)


def try_lock(path: Path, *, shared: bool) -> int | None:
    """Hold a kernel lock on a file that stays for ever; None when somebody holds it in a way that excludes ours.

    Close the descriptor to free it. Raises StateError when the file cannot be used.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        raise StateError(f"The lock {path} cannot be used ({error.strerror}).") from error
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def unlock(handle: int) -> None:
    """Free a lock of :func:`try_lock`."""
    os.close(handle)


def _fault(facts: os.stat_result, is_kind: Callable[[int], bool], kind: str, mode: int) -> str | None:
    if stat.S_ISLNK(facts.st_mode):
        return "is a symbolic link"
    if not is_kind(facts.st_mode):
        return f"is not {kind}"
    if facts.st_uid != os.geteuid():
        return f"belongs to user {facts.st_uid}, not to us"
    if stat.S_IMODE(facts.st_mode) & ~mode:
        return f"can be reached by others (mode {stat.S_IMODE(facts.st_mode):04o}, wanted {mode:04o})"
    return None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(6).hex()}.tmp")


def _read_all(handle: int, limit: int, path: Path) -> bytes:
    parts: list[bytes] = []
    left = limit + 1
    while left > 0 and (part := os.read(handle, left)):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise StateError(f"{path} grew over the {limit} bytes allowed while it was read. It was left as it is.")
    return b"".join(parts)


def _write_synced(temp: Path, data: bytes, reached: Callable[[str], None]) -> None:
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    try:
        os.fchmod(handle, _FILE_MODE)
        reached("F1")
        half = len(data) // 2
        _write_all(handle, data[:half])
        reached("F2")
        _write_all(handle, data[half:])
        reached("F3")
        os.fsync(handle)
        reached("F4")
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
