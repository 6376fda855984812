"""The floor of a wake-up: a thread that waits in the kernel for the same event, with nothing around it (Linux only)."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def first_wake(handle: int, into: list[float]) -> Iterator[None]:
    """Note how long after the body's begin a thread woke that does nothing but wait for the handle."""
    woke: list[float] = []

    def body() -> None:
        select.select([handle], [], [], 30)
        woke.append(time.perf_counter())

    thread = threading.Thread(target=body)
    thread.start()
    time.sleep(0.02)
    began = time.perf_counter()
    yield
    thread.join()
    into.append(woke[0] - began)


@contextmanager
def file_changes(path: Path) -> Iterator[int]:
    """A handle that becomes readable with the next write to a file."""
    from inotify_simple import INotify, flags  # type: ignore[import-untyped]  # there on Linux only, ships no types

    with INotify() as watch:
        watch.add_watch(path, flags.MODIFY)
        yield watch.fileno()


@contextmanager
def process_end(pid: int) -> Iterator[int]:
    """A handle that becomes readable with the end of a process."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)
