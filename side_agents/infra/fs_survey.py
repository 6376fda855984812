"""Looking over folders of ours: what they take on disk, who may enter them, and what a killed write left in them."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from side_agents.errors import StateError
from side_agents.infra import fs_tree, processes

# How ``fs`` names what it has not finished (``.registry.json.4711-1f2e3d4c5b6a.tmp``), the launcher its marker, and the
# program that keeps logs short its copy.
_TEMPORARY = re.compile(
    r"\.[^/]+\.(?P<pid>[0-9]+)-[0-9a-f]{12}\.tmp|\.exit\.json\.(?P<launcher>[0-9]+)\.tmp|backlog\.log\.tmp"
)
_OPEN_TO_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on disk below some folder; not ``complete`` when the time was up before everything was seen."""

    size: int
    complete: bool = True


def measure(folder: Path, *, seconds: float | None) -> Usage:
    """What a folder takes on disk, looked at for at most ``seconds`` (None: to the end); links are not followed."""
    deadline = None if seconds is None else time.monotonic() + seconds
    total = 0
    try:
        for _, entry in fs_tree.walk(folder):
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            if deadline is not None and time.monotonic() > deadline:
                return Usage(total, complete=False)
    except StateError:
        return Usage(total, complete=False)
    return Usage(total)


def file_size(path: Path) -> int:
    """Length of an ordinary file, 0 for anything else."""
    with suppress(OSError):
        facts = path.lstat()
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return 0


def modified_at(path: Path) -> float | None:
    """When a file was written last, in seconds since the epoch; None when it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def leftovers(folder: Path, *, older_than: float) -> Iterator[Path]:
    """Unfinished files of ours right in a folder whose writer was killed, see ``is_leftover``."""
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if is_leftover(path, older_than=older_than):
                yield path


def is_leftover(path: Path, *, older_than: float) -> bool:
    """Whether a path is an ordinary file of ours that nobody will finish: the process in its name has ended.

    Where that process lives (pids are given again) or none is named, so many seconds of age count instead.
    """
    found = _TEMPORARY.fullmatch(path.name)
    if found is None:
        return False
    pid = found["pid"] or found["launcher"]
    # Before the look at the file: one that its writer has finished meanwhile is gone by then.
    is_abandoned = pid is not None and processes.identify(int(pid)) is None
    try:
        facts = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(facts.st_mode) and (is_abandoned or time.time() - facts.st_mtime > older_than)


def access_fault(folder: Path) -> str | None:
    """What is wrong with a private folder: ``foreign`` owner, not ``writable`` for us, or ``open`` to others."""
    try:
        facts = folder.stat()
    except OSError:
        return None
    if facts.st_uid != os.geteuid():
        return "foreign"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "unwritable"
    return "open" if facts.st_mode & _OPEN_TO_OTHERS else None


def close_to_others(folder: Path) -> None:
    """Take a folder's permissions from everybody but its owner. Raises StateError."""
    try:
        folder.chmod(0o700)
    except OSError as error:
        raise StateError(f"The permissions of {folder} could not be changed ({error.strerror}).") from error


def cut(path: Path, keep: int) -> None:
    """Shorten a log in place to its last ``keep`` bytes, for whoever has it open goes on. Raises StateError."""
    try:
        with path.open("r+b", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - keep))
            tail = file.read(keep)
            file.seek(0)
            file.write(tail)
            file.truncate()
    except OSError as error:
        raise StateError(f"{path} could not be shortened ({error.strerror}).") from error
