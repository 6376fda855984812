"""What the forum changes about uvicorn: how it starts and ends, and a bound for header blocks.

Loaded only by a program that serves.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from side_agents.forum import ids, limits
from side_agents.forum.failures import fail
from side_agents.forum.server.wire import error_answer

_HEAD_SECONDS = 15.0


class ForumServer(uvicorn.Server):
    """Calls ``announce`` once it answers, and ``end_waits`` before it waits for open requests; ends on SIGINT and SIGTERM."""

    def __init__(self, config: uvicorn.Config, *, announce: Callable[[], None], end_waits: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce
        self._end_waits = end_waits

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: nothing new is taken, what runs is finished."""
        self._end_waits()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise the signal once more at the end, and the command would not end as one that did its job."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Ask for the end; asked twice, nobody is waited for."""
        self.force_exit = self.should_exit
        self.should_exit = True


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection whose header block grows beyond the limit, or is not there in time.

    httptools collects headers without a bound, so a client could fill the memory before the application sees anything.
    """

    _head_bytes = 0
    _is_in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected; its first request has to follow."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The application takes over, and counts exactly."""
        self._is_in_head = False
        self._cancel_deadline()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Counts what arrives as long as the header block has not ended; at most one read goes beyond the limit."""
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > limits.HEADER_BLOCK_BYTES:
            self._refuse()

    def _expect_head(self) -> None:
        self._cancel_deadline()
        self._is_in_head = True
        self._head_bytes = 0
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self) -> None:
        words = f"The header block is larger than {limits.HEADER_BLOCK_BYTES} bytes."
        answer = error_answer(fail("payload_too_large", words), ids.ulid("rq"), closes=True)
        head = b"".join(b"%s: %s\r\n" % pair for pair in answer.head())
        self.transport.write(b"HTTP/1.1 413 Content Too Large\r\n%s\r\n%s" % (head, answer.body))
        self.transport.close()
