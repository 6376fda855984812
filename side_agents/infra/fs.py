"""Files that are either whole or absent, and locks that a dead process cannot keep.

Every write goes to a temporary file beside the target (``.<name>.<pid>-<random>.tmp``), is synced, and takes the name
in one step; a crash at any point leaves the old content. Locks are kernel locks: the holder written into the file is
for error messages only, the file itself is never removed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from side_agents.errors import BusyError, ConflictError, StateError
from side_agents.infra import clock, processes
from side_agents.models import ProcessRef

# filelock polls; at its default of 50 ms a hand-over takes 25 ms, at 5 ms it takes 4.
_LOCK_POLL = 0.005
_COMMAND_LIMIT = 200
_TORN_LOOKS = 5


def replace(path: Path, data: bytes | str, *, mode: int = 0o600, durable: bool = True) -> None:
    """Give a file new content, all or nothing, durable when this returns. A symlink is replaced, not followed.

    ``durable`` False spares the two syncs, for files that mean nothing once the machine has gone down.
    Raises StateError (disk full, no permission, ...); the old content is intact then and no temporary file is left.
    """
    try:
        temp = _write_temp(path, data, mode, durable=durable)
        try:
            temp.replace(path)
        except BaseException:
            _discard(temp)
            raise
    except OSError as error:
        raise StateError(
            f"{path} could not be written ({error.strerror}); its old content is intact.", hint=_write_hint(error)
        ) from error
    if durable:
        _sync_directory(path.parent)


def keep_previous(path: Path, backup: Path) -> None:
    """Give the present content of a file a second name, before the file is replaced; nothing to do when there is none.

    A hard link, so it costs no copy and is as durable as the file itself; where the file system has none, a copy.
    Raises StateError; both are as they were.
    """
    temp = backup.with_name(f".{backup.name}.{os.getpid()}-{os.urandom(6).hex()}.tmp")
    try:
        try:
            os.link(path, temp)
        except FileNotFoundError:
            return
        except OSError:
            replace(backup, path.read_bytes())
            return
        temp.replace(backup)
    except OSError as error:
        raise StateError(f"{path} could not be kept as {backup} ({error.strerror}); both are as they were.") from error
    finally:
        # Renaming over another name of the same file does nothing and leaves both.
        _discard(temp)


def create_exclusive(path: Path, data: bytes | str, *, mode: int = 0o600) -> bool:
    """Create a file with its whole content; False when something of any kind already has the name.

    Of any number of processes that try, exactly one gets True. Raises StateError like ``replace``.
    """
    try:
        temp = _write_temp(path, data, mode)
        try:
            os.link(temp, path)
        except FileExistsError:
            return False
        finally:
            _discard(temp)
    except OSError as error:
        raise StateError(
            f"{path} could not be created ({error.strerror}); nothing was changed.", hint=_write_hint(error)
        ) from error
    _sync_directory(path.parent)
    return True


def append_line(path: Path, line: str, *, mode: int = 0o600) -> None:
    """Append one line in one write, so that concurrent writers never mix; it gets its own line even after a torn one.

    Readers must pass over empty lines. Raises StateError; the lines before are intact then.
    """
    data = line.removesuffix("\n").encode("utf-8", "surrogateescape") + b"\n"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, mode)
        try:
            data = b"\n" + data if _ends_in_a_torn_line(handle) else data
            if os.write(handle, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
    except OSError as error:
        raise StateError(
            f"A line could not be added to {path} ({error.strerror}); the lines before it are intact.",
            hint=_write_hint(error),
        ) from error


def read_json(path: Path) -> object | None:
    """The value in a JSON file, None when there is no file. Raises StateError when it cannot be read or parsed."""
    try:
        with _open_regular(path) as file:
            value: object = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StateError(f"{path} could not be read ({error.strerror}); it was left as it is.") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is not valid JSON ({error}); it was left as it is.") from error
    return value


def size(path: Path | str) -> int:
    """Length of a file in bytes, 0 when there is none or it cannot be looked at."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a text is spared its way through Path, this is asked a thousand times
    except OSError:
        return 0


def read_slice(path: Path, offset: int, limit: int) -> bytes:
    """At most ``limit`` bytes from ``offset`` on; empty when there is no file or nothing there. Raises StateError."""
    return _read(path, offset, limit)


def read_tail(path: Path, limit: int) -> bytes:
    """The last ``limit`` bytes, fewer when the file is shorter, none when it is absent. Raises StateError."""
    return _read(path, None, limit)


def make_private_dir(path: Path) -> None:
    """Make sure that a directory exists; it and the parents made on the way are 0700. Raises StateError."""
    try:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    except OSError as error:
        raise StateError(f"The folder {path} could not be made ({error.strerror}).", hint=_write_hint(error)) from error


def move(src: Path, dst: Path) -> None:
    """Rename within one file system. Raises StateError; both are as they were then."""
    try:
        src.rename(dst)
    except OSError as error:
        raise StateError(f"{src} could not be moved to {dst} ({error.strerror}); both are as they were.") from error


def move_durably(src: Path, dst: Path) -> None:
    """Sync a finished file, give it a name in the same folder, and sync that. Raises StateError like ``move``."""
    try:
        handle = os.open(src, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise StateError(f"{src} could not be written ({error.strerror}).", hint=_write_hint(error)) from error
    move(src, dst)
    _sync_directory(dst.parent)


def remove_file(path: Path) -> bool:
    """Remove a file or link; False when there was none. Raises StateError."""
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StateError(f"{path} could not be removed ({error.strerror}).") from error
    return True


def symlink(target: Path, link: Path) -> None:
    """Make ``link`` point to ``target``; nothing to do when it already does.

    Raises ConflictError when something else has the name, which is kept, and StateError for other failures.
    """
    try:
        link.symlink_to(target)
    except FileExistsError as error:
        if not link.is_symlink() or link.readlink() != target:
            raise ConflictError(f"{link} already exists and is not a link to {target}; it was kept.") from error
    except OSError as error:
        raise StateError(f"The link {link} could not be made ({error.strerror}).") from error


def load_locks() -> None:
    """Load what ``locked`` needs now (50 ms once in a process), so that a later lock is taken without delay."""
    import filelock  # noqa: F401 - for its effect


@contextmanager
def locked(path: Path, *, purpose: str, timeout: float = 10.0) -> Iterator[None]:
    """Hold a lock while the body runs. The folder must exist; the lock file stays for ever.

    A holder that died, however, has freed the lock already; a live one keeps it as long as it likes. Raises BusyError,
    which names the holder, after ``timeout`` seconds (0: one try), StateError when the lock file cannot be used. Do not
    start programs in the body that should outlive it by fork without exec: a forked copy shares the lock.
    """
    import filelock  # 40 ms, and reading needs no lock

    lock = filelock.FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=timeout, poll_interval=_LOCK_POLL)
    except filelock.Timeout as error:
        raise _busy(path, purpose, timeout) from error
    except OSError as error:
        raise StateError(f"The lock {path} cannot be used ({error.strerror}); nothing was changed.") from error
    try:
        # Best effort: the lock is held with or without a name in it.
        with suppress(OSError):
            _write_holder(path, purpose)
        yield
    finally:
        with suppress(OSError):
            os.truncate(path, 0)
        lock.release()


def lock_holder(path: Path) -> dict[str, object] | None:
    """Who wrote itself into a lock file (pid, startedAt, host, command, purpose, since); None when nobody did.

    After a crash it is the dead holder; ``startedAt`` is the opaque start of a ProcessRef.
    """
    with suppress(StateError):
        holder = read_json(path)
        if isinstance(holder, dict):
            return holder
    return None


def _write_temp(path: Path, data: bytes | str, mode: int, *, durable: bool = True) -> Path:
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    temp = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(6).hex()}.tmp")
    # O_EXCL refuses whatever somebody may have planted under the name, a symlink included.
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(handle, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
            os.fchmod(handle, mode)
            view = memoryview(raw)
            while view:
                view = view[file.write(view) :]
            if durable:
                os.fsync(handle)
    except BaseException:
        _discard(temp)
        raise
    return temp


def _discard(temp: Path) -> None:
    with suppress(OSError):
        temp.unlink()


def _sync_directory(folder: Path) -> None:
    # Some file systems cannot sync a directory; the rename itself has happened, so there is nothing to undo or report.
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _ends_in_a_torn_line(handle: int) -> bool:
    # A writer in the middle of its write looks the same for some microseconds, a dead one for ever. Taking the first
    # for the second costs an empty line.
    for _ in range(_TORN_LOOKS):
        size = os.fstat(handle).st_size
        if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
            return False
        time.sleep(0.001)
    return True


def _read(path: Path, offset: int | None, limit: int) -> bytes:
    try:
        with _open_regular(path) as file:
            start = max(0, os.fstat(file.fileno()).st_size - limit) if offset is None else offset
            file.seek(start)
            return file.read(limit)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise StateError(f"{path} could not be read ({error.strerror}).") from error


def _open_regular(path: Path) -> FileIO:
    """A file to read from; a pipe in its place, which a plain open would wait for, is a StateError."""
    # Unbuffered, and a short read is no concern: these are files.
    file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115 - Path.open takes no opener
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise StateError(f"{path} is no regular file; it was left as it is.")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _write_hint(error: OSError) -> str | None:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "Free some space on that disk and try again."
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "Check who owns the folder and whether it may be written."
    return None


def _write_holder(path: Path, purpose: str) -> None:
    me = processes.identify(os.getpid())
    holder = {
        "pid": os.getpid(),
        "startedAt": me.started if me else "",
        "host": os.uname().nodename,
        "command": processes.command_line(os.getpid())[:_COMMAND_LIMIT],
        "purpose": purpose,
        "since": clock.iso(),
    }
    # Written in place: a rename would put another file under the name than the one that is locked.
    handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        os.write(handle, json.dumps(holder).encode())
    finally:
        os.close(handle)


def _busy(path: Path, purpose: str, timeout: float) -> BusyError:
    message = f"The lock {path} was not free within {timeout:g} s ({purpose}); nothing was changed."
    holder = lock_holder(path)
    if holder is None:
        return BusyError(f"{message} Its holder has not left a name.", hint="Try again in a moment.")
    pid, command = holder.get("pid"), holder.get("command")
    who = f"process {pid} ({command}) for {holder.get('purpose')} since {holder.get('since')}"
    host = holder.get("host")
    if host != os.uname().nodename:
        return BusyError(f"{message} It is held by {who} on {host}.", hint=f"Look at process {pid} on {host}.")
    if isinstance(pid, int) and processes.is_alive(ProcessRef(pid, str(holder.get("startedAt")))):
        return BusyError(
            f"{message} It is held by {who}, which still runs.", hint=f"Wait for it, or end it: kill {pid}"
        )
    return BusyError(
        f"{message} It was taken by {who}, which has ended; something that it started still holds it.",
        hint="Find it with: fuser -v " + str(path),
    )
