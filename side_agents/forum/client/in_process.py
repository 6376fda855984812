"""A forum without a server: the same API as over HTTP, called in this process on the project's own file (DESIGN 7).

Other processes may do the same on the same file at the same time. Nothing is opened before the first request.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from side_agents.forum import limits
from side_agents.forum.client import settings
from side_agents.forum.client.transport import Request, Response, bad_answer, cancelled, no_answer

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_HOST = "localhost"
_GOING_SECONDS = 2.0


class App(Protocol):
    """An ASGI application that can be closed."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


class InProcessTransport:
    """Calls an application on an event loop in a thread of its own. May be used from several threads."""

    origin = settings.LOCAL

    def __init__(self, open_app: Callable[[ExitStack], App]) -> None:
        self._open_app = open_app
        self._opening = threading.Lock()
        self._stack = ExitStack()
        self._running: tuple[App, asyncio.AbstractEventLoop] | None = None

    def send(self, request: Request) -> Response:
        """Carry out one request. Raises ForumError, and what opening the forum raises."""
        app, loop = self._open()
        call = _Call(app, request)
        future = asyncio.run_coroutine_threadsafe(call.run(), loop)
        request.cancellation.on_fire(lambda: _hang_up(loop, call))
        try:
            return future.result(request.timeout)
        except FutureTimeoutError:
            _hang_up(loop, call)
            raise no_answer(self.origin, f"not within {request.timeout:g} s") from None
        except BaseException:
            # Interrupted while waiting: the application must not go on for nobody.
            _hang_up(loop, call)
            raise

    def close(self) -> None:
        """End what runs and close the forum."""
        with self._opening:
            self._running = None
            self._stack.close()

    def _open(self) -> tuple[App, asyncio.AbstractEventLoop]:
        with self._opening:
            if self._running is None:
                with ExitStack() as stack:
                    app = self._open_app(stack)
                    stack.callback(app.close)
                    loop = _start_loop(stack)
                    self._stack = stack.pop_all()
                self._running = app, loop
            return self._running


def local_transport(database: Path) -> InProcessTransport:
    """The transport to the forum in a file, which is made by the first request when it does not exist."""

    def open_app(stack: ExitStack) -> App:
        from side_agents.forum.server.app import LocalApp
        from side_agents.forum.service.forum import Forum
        from side_agents.forum.store.database import Database

        opened = stack.enter_context(Database.open(database))
        return LocalApp(Forum(opened, origin=settings.DEFAULT_SERVER))

    return InProcessTransport(open_app)


def load() -> None:
    """Load what the first requests of a start will need: it takes longer than they do, and needs no lock."""
    from side_agents import schemas
    from side_agents.forum import requests
    from side_agents.forum.server import app
    from side_agents.forum.service import forum
    from side_agents.forum.store import database

    del app, forum, database
    schemas.prepare(requests.RegisterRequest)
    schemas.prepare(requests.ChildRequest)


def _start_loop(stack: ExitStack) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="forum", daemon=True)
    thread.start()

    def stop() -> None:
        asyncio.run_coroutine_threadsafe(_let_all_end(), loop).result(_GOING_SECONDS * 2)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    stack.callback(stop)
    return loop


def _hang_up(loop: asyncio.AbstractEventLoop, call: _Call) -> None:
    # A closed loop has ended the call already.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call.hang_up)


async def _let_all_end() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=_GOING_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


class _Call:
    """One request on the event loop."""

    def __init__(self, app: App, request: Request) -> None:
        self._app = app
        self._request = request
        self._was_read = False
        self._gone = asyncio.Event()
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._is_complete = False

    def hang_up(self) -> None:
        """Tell the application that nobody listens any more; on the event loop only."""
        self._gone.set()

    async def run(self) -> Response:
        origin = InProcessTransport.origin
        if self._request.cancellation.is_set:
            raise cancelled(origin)
        work = asyncio.ensure_future(self._app(_scope(self._request), self._receive, self._send))
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=_GOING_SECONDS)
            if not work.done():
                work.cancel()
        finally:
            gone.cancel()
        if self._is_complete and self._status is not None:
            return Response(self._status, self._headers, bytes(self._body))
        if self._gone.is_set():
            raise cancelled(origin)
        if len(self._body) > limits.CLIENT_RESPONSE_BYTES:
            raise bad_answer(origin, f"more than {limits.CLIENT_RESPONSE_BYTES} bytes")
        raise no_answer(origin, "it broke off") from (
            work.exception() if work.done() and not work.cancelled() else None
        )

    async def _receive(self) -> Message:
        if not self._was_read:
            self._was_read = True
            self._request.sent()
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body" and not self._is_complete:
            self._body += message.get("body", b"")
            if len(self._body) > limits.CLIENT_RESPONSE_BYTES:
                raise ConnectionError("the answer is larger than the client takes")
            self._is_complete = not message.get("more_body", False)


def _scope(request: Request) -> Message:
    path, _, query = request.target.partition("?")
    body = request.body
    headers = {"host": _HOST, **request.headers, **({} if body is None else {"content-length": str(len(body))})}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": (_HOST, 80),
    }
