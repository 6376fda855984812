"""The threads in which the forum's blocking calls run, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from side_agents.forum.failures import fail

T = TypeVar("T")

# As many commands can share one commit; a reader seldom takes a millisecond.
_THREADS = 16
_MOST_QUEUED = 1000


class Workers:
    """A small pool; threads start when they are needed first."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="forum")
        self._queued = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work`` in a thread. It is carried out to its end even if nobody waits for it any more."""
        if self._queued >= _MOST_QUEUED:
            raise fail("busy", "More requests wait than this server takes; nothing was done. Try again.")
        self._queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._queued -= 1

    def close(self) -> None:
        """Let what runs end, then end the threads."""
        self._pool.shutdown(wait=True)
