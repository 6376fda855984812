"""One request on its way: what operations that wait or stream need besides the call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from side_agents.forum import failpoints
from side_agents.forum.server.asgi import Receive, Scope, Send
from side_agents.forum.server.wire import Answer, send_answer

if TYPE_CHECKING:
    from side_agents.forum.server.settings import ServerSettings
    from side_agents.forum.server.waits import Waiters
    from side_agents.forum.server.workers import Workers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Exchange:
    """The two ends of a request, and what the server has only one of."""

    scope: Scope
    receive: Receive
    send: Send
    request_id: str
    settings: ServerSettings
    workers: Workers
    waiters: Waiters

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work`` in a worker thread."""
        return await self.workers.run(work)

    @staticmethod
    def now() -> float:
        """Seconds on the clock that deadlines are counted with."""
        return time.monotonic()

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer."""
        failpoints.reach("S14")
        await send_answer(self.send, answer)
