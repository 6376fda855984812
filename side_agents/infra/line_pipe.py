"""Lines over a pair of pipes, for two programs that talk to each other."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

_CHUNK = 64 * 1024


def read_lines(handle: int, limit: int, *, ending: int, answers: int) -> Iterator[bytes | None]:
    """Whole lines without their ends until the writer is gone; None stands for one longer than ``limit`` bytes.

    What follows the last line end is no line: its writer died in the middle of it. Also ends, at once, when the descriptor
    ``ending`` becomes readable, or when nobody reads any more what is written to ``answers``.
    """
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(ending, select.POLLIN)
    # Without any event asked for, only errors and the other side's end are reported.
    poller.register(answers, 0)
    pending: list[bytes] = []
    size = 0
    while not {ending, answers} & dict(poller.poll()).keys() and (chunk := os.read(handle, _CHUNK)):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            yield b"".join((*pending, part)) if size + len(part) <= limit else None
            pending, size = [], 0
        size += len(rest)
        # An endless line is counted and forgotten.
        pending = [*pending, rest] if size <= limit else []


class LineWriter:
    """Writes whole lines from any thread. Raises OSError, of which BrokenPipeError is the reader's end."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._lock = threading.Lock()

    def write(self, line: bytes) -> None:
        """Write one line, given with its end; returns when the pipe has all of it."""
        with self._lock:
            view = memoryview(line)
            while view:
                view = view[os.write(self._handle, view) :]
