"""The two ends of a file of lines: what a look at thousands of long files can afford."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ends:
    """The whole lines in the first and the last bytes; of a file that fits into both, everything is in ``head``.

    ``cut`` is the beginning of the line behind ``head``, as far as it was read. ``modified`` is seconds since the epoch.
    """

    head: bytes
    cut: bytes
    tail: bytes
    modified: float


def read_ends(path: Path, limit: int) -> Ends | None:
    """Read at most ``limit`` bytes of each end; None when there is no regular file or it may not be read.

    Two system calls and no file object, and at most three buffers at a time: with a fourth the C library gives memory back
    and asks for it again with each file, which took longer than everything else.
    """
    try:
        # A pipe that nobody writes to would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size <= 2 * limit:
            return Ends(os.pread(handle, 2 * limit, 0), b"", b"", status.st_mtime)
        return Ends(*_head(handle, limit), _tail(handle, status.st_size - limit, limit), status.st_mtime)
    except OSError:
        return None
    finally:
        os.close(handle)


def _head(handle: int, limit: int) -> tuple[bytes, bytes]:
    data = os.pread(handle, limit, 0)
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _tail(handle: int, offset: int, limit: int) -> bytes:
    data = os.pread(handle, limit, offset)
    return data[data.find(b"\n") + 1 :]
