"""Copies of files and whole folders under new names: as clones that share their blocks where the file system can.

Nothing is followed and nothing is overwritten: a link is copied as a link, and a name that is taken is an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from side_agents.errors import StateError
from side_agents.infra import fs, fs_tree

# linux/fs.h: _IOW(0x94, 9, int).
_FICLONE = 0x40049409
_CHUNK = 1 << 20
_PERMISSIONS = 0o777


@dataclass(slots=True)
class Copied:
    """What a copy took: ``written`` bytes of ``size`` had to be written, the others are shared with the original.

    ``passed_over``: sockets, pipes, devices and git repositories, which are not copied.
    """

    files: int = 0
    size: int = 0
    written: int = 0
    passed_over: list[Path] = field(default_factory=list)
    can_clone: bool = True


def place(source: Path, target: Path, stage: Path) -> Copied | None:
    """Copy a file, link or folder to ``target`` in one step: it is there as a whole or not at all.

    It is made inside the folder ``stage``, on the same file system. None when ``target`` exists, of whatever kind; it is
    kept. Raises StateError; nothing is left behind then.
    """
    made = stage / target.name
    copied = Copied()
    try:
        _copy(source, made, copied)
        if not os.path.lexists(made):
            return copied
        if not _take_name(made, target, source.lstat().st_mode & _PERMISSIONS):
            return None
    except OSError as error:
        raise StateError(f"{source} could not be copied to {target} ({error.strerror}).") from error
    finally:
        _discard(made)
    return copied


def clear_stage(stage: Path) -> None:
    """Remove a folder that ``place`` has worked in, with whatever an earlier process left there."""
    with suppress(StateError):
        if stage.is_dir() and not stage.is_symlink():
            fs_tree.remove_tree(stage)


def _take_name(made: Path, target: Path, permissions: int) -> bool:
    if made.is_dir() and not made.is_symlink():
        if os.path.lexists(target):
            return False
        made.rename(target)
        target.chmod(permissions)
        return True
    try:
        # A rename would replace what has the name.
        os.link(made, target, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _discard(made: Path) -> None:
    if made.is_dir() and not made.is_symlink():
        fs_tree.remove_tree(made)
    else:
        fs.remove_file(made)


def _copy(source: Path, target: Path, copied: Copied) -> None:
    folders: list[tuple[Path, int]] = []
    waiting = [(source, target)]
    while waiting:
        here, there = waiting.pop()
        mode = here.lstat().st_mode
        if stat.S_ISLNK(mode):
            there.symlink_to(os.readlink(here))  # noqa: PTH115 - Path would tidy the text up
            copied.files += 1
        elif stat.S_ISREG(mode):
            _copy_file(here, there, copied)
        elif not stat.S_ISDIR(mode) or os.path.lexists(here / ".git"):
            copied.passed_over.append(here)
        else:
            there.mkdir(mode=0o700)
            folders.append((there, mode & _PERMISSIONS))
            waiting += [(here / name, there / name) for name in os.listdir(here)]  # noqa: PTH208 - names are enough
    # Not before all is in them, and the first not before it has been moved: it may be read-only.
    for folder, permissions in reversed(folders[1:]):
        folder.chmod(permissions)


def _copy_file(source: Path, target: Path, copied: Copied) -> None:
    # O_NONBLOCK: somebody may have put a pipe under the name meanwhile.
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(reading)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file any more")
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not (facts.st_size and _clone(reading, writing, copied)):
                copied.written += _pump(reading, writing)
            os.fchmod(writing, facts.st_mode & _PERMISSIONS)
            # Builds decide by these times what is up to date.
            os.utime(writing, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            copied.size += os.fstat(writing).st_size
            copied.files += 1
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _clone(reading: int, writing: int, copied: Copied) -> bool:
    if not copied.can_clone:
        return False
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        # This file system cannot, nor will it for the next file.
        copied.can_clone = False
    return copied.can_clone


def _pump(reading: int, writing: int) -> int:
    total = 0
    while chunk := os.read(reading, _CHUNK):
        view = memoryview(chunk)
        while view:
            written = os.write(writing, view)
            total += written
            view = view[written:]
    return total
