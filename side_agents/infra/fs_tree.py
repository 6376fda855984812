"""Whole folders: looking through them without following links, and removing one for good."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from side_agents.errors import StateError

_CHUNK = 1 << 16


def walk(folder: Path) -> Iterator[tuple[Path, os.DirEntry[str]]]:
    """Every entry below a folder as (its folder, entry); links are entries, not ways. Raises StateError.

    Unlike ``os.walk`` a folder that cannot be read is an error: what was not seen must not count as absent.
    """
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    yield here, entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(here / entry.name)
        except OSError as error:
            raise StateError(f"{here} cannot be looked through ({error.strerror}).") from error


def files_below(path: Path) -> Iterator[Path]:
    """The path itself unless it is a folder, else everything below it that is none. Raises StateError."""
    if path.is_symlink() or not path.is_dir():
        yield path
        return
    for here, entry in walk(path):
        if not entry.is_dir(follow_symlinks=False):
            yield here / entry.name


def find_named(folder: Path, name: str) -> list[Path]:
    """Everything of this name below a folder. Raises StateError for a folder that cannot be read."""
    return [here / name for here, entry in walk(folder) if entry.name == name]


def has_same_content(first: Path, second: Path) -> bool:
    """Whether two ordinary files hold the same bytes; False for anything else and for what cannot be read."""
    try:
        if not all(stat.S_ISREG(path.lstat().st_mode) for path in (first, second)):
            return False
        if first.stat().st_size != second.stat().st_size:
            return False
        with first.open("rb") as one, second.open("rb") as other:
            while chunk := one.read(_CHUNK):
                if chunk != other.read(_CHUNK):
                    return False
    except OSError:
        return False
    return True


def device_of(path: Path) -> int:
    """The file system that a path lies on, links not followed. Raises StateError."""
    try:
        return path.lstat().st_dev
    except OSError as error:
        raise StateError(f"{path} cannot be looked at ({error.strerror}).") from error


def size_of(folder: Path) -> int:
    """Bytes on disk of everything below a folder; what cannot be read counts nothing."""
    total = 0
    with suppress(StateError):
        for _, entry in walk(folder):
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything below it for good; links are removed, never followed. Raises StateError."""

    def retry(function: Callable[..., Any], path: str, _error: Any) -> None:
        # Go's module cache and its like are read-only; the owner may change that.
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
        with suppress(OSError):
            os.chmod(path, 0o700, follow_symlinks=False)  # noqa: PTH101
        function(path)

    try:
        if folder.is_symlink() or not folder.is_dir():
            raise NotADirectoryError(0, "it is not a folder")
        shutil.rmtree(folder, onerror=retry)
    except (OSError, NotImplementedError) as error:
        raise StateError(f"{folder} could not be removed completely ({error}).") from error


def remove_empty_dir(folder: Path) -> bool:
    """Remove a folder that is empty; False when it is not, or not there."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
