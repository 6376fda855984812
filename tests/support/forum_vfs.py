"""A file layer below SQLite that shows every write and sync to a test, which may record it, refuse it, or die there.

It has no shared memory, so a database on it is held exclusively by one connection: reads go through ``Database.write``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import apsw

SECTOR = 512
_NAMES = count(1)


@dataclass(frozen=True)
class Operation:
    """One thing that SQLite does to a file: ``kind`` is open, write, truncate or sync; ``file`` is db, wal or other."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""


Hook = Callable[[Operation], None]


class ShimFile(apsw.VFSFile):
    def __init__(self, hook: Hook, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._hook = hook
        self._file = "other"
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            self._file = "db"
        elif flags[0] & apsw.SQLITE_OPEN_WAL:
            self._file = "wal"
        hook(Operation("open", self._file))

    def xWrite(self, data: bytes, offset: int) -> None:
        self._hook(Operation("write", self._file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._hook(Operation("truncate", self._file, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._hook(Operation("sync", self._file))
        super().xSync(flags)


class Shim(apsw.VFS):
    """Registered for as long as it lives; ``open_file`` goes to ``Database.open``."""

    def __init__(self, hook: Hook) -> None:
        self.name = f"forum-test-{next(_NAMES)}"
        self._hook = hook
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> ShimFile:
        return ShimFile(self._hook, name, flags)

    def open_file(self, path: Path) -> apsw.Connection:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self.name)
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        return connection


def die_at(kind: str, file: str, turn: int) -> Hook:
    """A hook that kills this process instead of the ``turn``-th operation of that kind on that file."""
    turns = count(1)

    def hook(operation: Operation) -> None:
        if (operation.kind, operation.file) == (kind, file) and next(turns) == turn:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


@dataclass
class Faults:
    """A hook that fails the operations from number ``first`` on: that one only, or it and all after it."""

    first: int
    error: type[apsw.Error]
    lasting: bool
    kinds: frozenset[str] = frozenset(("write", "truncate", "sync"))
    seen: int = 0
    fired: int = 0

    def __call__(self, operation: Operation) -> None:
        if operation.kind not in self.kinds:
            return
        self.seen += 1
        if self.seen == self.first or (self.lasting and self.seen > self.first):
            self.fired += 1
            raise self.error("injected")


@dataclass
class Recorder:
    """A hook that writes down what happens to the files, and what was promised to whom in between."""

    log: list[Operation | str] = field(default_factory=list)

    def __call__(self, operation: Operation) -> None:
        self.log.append(operation)

    def promise(self, what: str) -> None:
        """Note that somebody was told of ``what`` now."""
        self.log.append(what)

    def promised(self, moment: int) -> set[str]:
        """What had been told before the log entry ``moment``."""
        return {entry for entry in self.log[:moment] if isinstance(entry, str)}

    def after_power_loss(self, moment: int, before: bytes, random: Random) -> dict[str, bytes]:
        """The files as they may be found when the power goes before the log entry ``moment``.

        What was synced is there. Of the rest, either nothing, or any of it in any order, torn at sectors.
        """
        found = {"db": _Surviving(before), "wal": _Surviving(b"")}
        for entry in self.log[:moment]:
            if isinstance(entry, Operation) and entry.file in found:
                found[entry.file].apply(entry)
        keep_some = random.random() < 0.75
        return {name: file.image(random if keep_some else None) for name, file in found.items()}


class _Surviving:
    """One file: what is safe, and what only the cache knows."""

    def __init__(self, content: bytes) -> None:
        self._safe = bytearray(content)
        self._loose: list[Operation] = []

    def apply(self, operation: Operation) -> None:
        if operation.kind == "sync":
            for loose in self._loose:
                _put(self._safe, loose)
            self._loose = []
        elif operation.kind in ("write", "truncate"):
            self._loose.append(operation)

    def image(self, random: Random | None) -> bytes:
        content = bytearray(self._safe)
        if random is not None:
            chosen = [each for each in self._loose if random.random() < 0.5]
            random.shuffle(chosen)
            for operation in chosen:
                for part in _torn(operation, random):
                    _put(content, part)
        return bytes(content)


def _torn(operation: Operation, random: Random) -> list[Operation]:
    if operation.kind == "truncate" or random.random() < 0.5:
        return [operation]
    parts = range(0, len(operation.data), SECTOR)
    return [
        Operation("write", operation.file, operation.offset + start, operation.data[start : start + SECTOR])
        for start in parts
        if random.random() < 0.5
    ]


def _put(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        return
    end = operation.offset + len(operation.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[operation.offset : end] = operation.data
