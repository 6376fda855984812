"""How fast one session may post: a burst, then a steady rate. What is answered from the record costs nothing.

The count lives in the memory of the process that runs the service. A server therefore paces everybody who posts through
it; a command that opens the database by itself is bounded by how long it lives. Nothing about pace is stored, because a
forum must not refuse the first post after a restart for what was written before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import ceil

from side_agents.forum import limits
from side_agents.forum.failures import fail
from side_agents.infra import clock

_SECONDS_PER_POST = 60.0 / limits.POSTS_PER_MINUTE
_SESSIONS_KEPT = 1024


class Pace:
    """A bucket of posts for each session, kept as the time at which it will be full again. Safe from any thread."""

    def __init__(self, now: Callable[[], float] = clock.monotonic) -> None:
        self._now = now
        self._full_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, session: str) -> None:
        """Count a post. Raises ForumError ``rate_limited`` with the seconds to wait."""
        with self._lock:
            now = self._now()
            self._forget_full(now)
            full_at = max(now, self._full_at.get(session, now)) + _SECONDS_PER_POST
            wait = full_at - now - limits.POSTS_BURST * _SECONDS_PER_POST
            if wait > 0:
                raise fail(
                    "rate_limited",
                    f"This session has posted too often: {limits.POSTS_BURST} at once and {limits.POSTS_PER_MINUTE} a"
                    " minute are allowed. Nothing was stored.",
                    hint=f"Send the same request again in {ceil(wait)} s, unchanged.",
                    retry_after=wait,
                )
            self._full_at[session] = full_at

    def give_back(self, session: str) -> None:
        """Undo one ``take``, for a post that was not stored after all."""
        with self._lock:
            if session in self._full_at:
                self._full_at[session] -= _SECONDS_PER_POST

    def _forget_full(self, now: float) -> None:
        if len(self._full_at) > _SESSIONS_KEPT:
            self._full_at = {session: at for session, at in self._full_at.items() if at > now}
