"""Waiting for new activity without holding a transaction, a thread or a dead client's place (reference/forum 3.5, 3.8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from side_agents.forum.failures import fail
from side_agents.forum.server.asgi import DISCONNECT, ClientGoneError, Receive

if TYPE_CHECKING:
    from side_agents.forum.server.settings import ServerSettings


class News(Protocol):
    """What tells of commits, from a thread of its own."""

    def add_listener(self, callback: Callable[[], None]) -> None:
        """Call back after each commit."""

    def remove_listener(self, callback: Callable[[], None]) -> None:
        """Undo one ``add_listener``."""


class Waiters:
    """Who waits at this moment, within the bounds of the settings. Belongs to one event loop."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._by_session: Counter[str] = Counter()
        self._bells: set[Bell] = set()
        self.is_closing = False

    def __len__(self) -> int:
        return self._by_session.total()

    @contextmanager
    def place(self, session_id: str) -> Iterator[None]:
        """A place for one waiter of a session. Raises ForumError ``too_many_waiters``."""
        if self._by_session[session_id] >= self._settings.waiters_per_session:
            raise fail("too_many_waiters", "This session waits as often as it may already. Nothing was missed.")
        if len(self) >= self._settings.waiters_per_server:
            raise fail("too_many_waiters", "As many wait here as this server takes. Nothing was missed.")
        self._by_session[session_id] += 1
        try:
            yield
        finally:
            self._by_session[session_id] -= 1
            if not self._by_session[session_id]:
                del self._by_session[session_id]

    @contextmanager
    def bell(self, news: News, receive: Receive) -> Iterator[Bell]:
        """What rings for every commit from now on, when the client goes, and when the server closes."""
        bell = Bell(self, receive)
        self._bells.add(bell)
        news.add_listener(bell.ring_from_any_thread)
        try:
            yield bell
        finally:
            news.remove_listener(bell.ring_from_any_thread)
            self._bells.discard(bell)
            bell.close()

    def close(self) -> None:
        """Let everybody who waits end with ``shutting_down``, and everybody who comes after."""
        self.is_closing = True
        for bell in self._bells:
            bell.ring()

    def refuse_if_closing(self) -> None:
        """Raises ForumError ``shutting_down`` once the server ends."""
        if self.is_closing:
            raise fail("shutting_down", "The forum is being ended. Nothing was missed: ask again once it is back.")


class Bell:
    """One waiter's alarm. The safe order is: ``mute``, look at the forum, ``wait``, look again."""

    def __init__(self, waiters: Waiters, receive: Receive) -> None:
        self._waiters = waiters
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._is_gone = False
        self._watch = self._loop.create_task(self._watch_client(receive))

    def ring(self) -> None:
        """From the event loop's thread."""
        self._rung.set()

    def ring_from_any_thread(self) -> None:
        """From the database's watching thread; a loop that has ended is not waited on by anybody."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    def mute(self) -> None:
        """Forget what has rung so far."""
        self._rung.clear()
        self.check()

    async def wait(self, seconds: float) -> bool:
        """Whether something has rung since ``mute``, within the time. Raises ClientGoneError and ForumError."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._rung.wait()
        except TimeoutError:
            self.check()
            return False
        self.check()
        return True

    def check(self) -> None:
        """Raises ClientGoneError when nobody listens any more, ForumError ``shutting_down`` when the server ends."""
        if self._is_gone:
            raise ClientGoneError
        self._waiters.refuse_if_closing()

    def close(self) -> None:
        """Stop watching the client."""
        self._watch.cancel()

    async def _watch_client(self, receive: Receive) -> None:
        while (await receive())["type"] != DISCONNECT:
            pass
        self._is_gone = True
        self._rung.set()
