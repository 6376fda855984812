"""The API as an ASGI application: finds the operation, authenticates, reads the body, runs it, answers.

It uses nothing but asyncio, because a tool call inside one process goes through it too and should not load a framework.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from side_agents.errors import ForumError
from side_agents.forum.failures import fail
from side_agents.forum.server import auth, bodies, query
from side_agents.forum.server.asgi import Receive, Scope, Send, header_values
from side_agents.forum.server.border import REQUEST_ID
from side_agents.forum.server.exchange import Exchange
from side_agents.forum.server.operations import Call, Download, Operation
from side_agents.forum.server.routes import OPERATIONS
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.server.waits import Waiters
from side_agents.forum.server.wire import Answer, error_answer, json_answer, send_answer
from side_agents.forum.server.workers import Workers
from side_agents.forum.service.principal import Command, CommandResult, Principal

if TYPE_CHECKING:
    from side_agents.forum.service.forum import Forum


def find(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    """The operation for a request and the values in its path. Raises ForumError ``not_found`` or ``method_not_allowed``."""
    allowed = []
    for operation in OPERATIONS:
        match = operation.pattern.fullmatch(path)
        if match is None:
            continue
        if operation.method == method:
            return operation, match.groupdict()
        allowed.append(operation.method)
    if allowed:
        raise MethodError(allowed)
    raise fail("not_found", "There is nothing under this address.")


class MethodError(ForumError):
    """An address that takes other methods than the one that came."""

    def __init__(self, allowed: list[str]) -> None:
        like = fail("method_not_allowed", f"This address takes {', '.join(allowed)}.")
        super().__init__(like.message, forum_code=like.forum_code, status=like.status)
        self.allowed = ", ".join(allowed)


class Api:
    """Serves one forum. ``close`` ends its threads; until then it may be used from one event loop at a time."""

    def __init__(self, forum: Forum, settings: ServerSettings) -> None:
        self._forum = forum
        self._settings = settings
        self._workers = Workers()
        self._large = bodies.LargeBodies(settings.large_content_in_flight)
        self.waiters = Waiters(settings)

    def close(self) -> None:
        """End the threads once what they do is done."""
        self.waiters.close()
        self._workers.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, scope[REQUEST_ID], self._settings, self._workers, self.waiters)
        try:
            operation, path = find(scope["method"], scope["path"])
        except MethodError as error:
            refusal = error_answer(error, exchange.request_id)
            await send_answer(send, _with_header(refusal, b"allow", error.allowed.encode()))
            return
        await self._serve(exchange, operation, path)

    async def _serve(self, exchange: Exchange, operation: Operation, path: dict[str, str]) -> None:
        principal = await self._authenticated(exchange, operation)
        self.waiters.refuse_if_closing()
        key = auth.idempotency_key(exchange.scope) if operation.is_keyed else None
        values = query.parse(exchange.scope["query_string"], operation.query)
        with self._large.place() as place:
            raw = await self._body(exchange, operation, place)

            def call() -> Call:
                return Call(
                    forum=self._forum,
                    settings=self._settings,
                    waiters=self.waiters,
                    path=path,
                    query=values,
                    body=_typed(operation, raw),
                    principal=principal,
                    command=None if key is None else Command(key, hashlib.sha256(raw).digest()),
                )

            await _respond(exchange, operation, call)

    async def _authenticated(self, exchange: Exchange, operation: Operation) -> Principal | None:
        if operation.is_public:
            return None
        credential = auth.credential(exchange.scope)
        return await exchange.run(lambda: self._forum.identities.authenticate(credential))

    async def _body(self, exchange: Exchange, operation: Operation, place: bodies.Place) -> bytes:
        if operation.body is not None:
            bodies.check_media_type(exchange.scope)
        elif not _has_body(exchange.scope):
            return b""
        return await bodies.read(
            exchange.scope,
            exchange.receive,
            place,
            is_content=operation.is_content,
            seconds=self._settings.body_seconds,
        )


async def _respond(exchange: Exchange, operation: Operation, call: Callable[[], Call]) -> None:
    run = operation.run
    if run is not None:
        # A large body is parsed in the thread too: the event loop has others to serve.
        await exchange.answer(await exchange.run(lambda: _answer(run(call()))))
    elif operation.converse is not None:
        await operation.converse(exchange, call())


def _typed(operation: Operation, raw: bytes) -> Any:
    if operation.body is not None:
        return bodies.typed(operation.body, raw)
    bodies.require_empty(raw)
    return None


def _has_body(scope: Scope) -> bool:
    length = header_values(scope, b"content-length")
    return length not in ([], [b"0"]) or bool(header_values(scope, b"transfer-encoding"))


def _answer(outcome: Mapping[str, Any] | CommandResult | Download) -> Answer:
    if isinstance(outcome, CommandResult):
        replayed = ((b"idempotency-replayed", b"true"),) if outcome.replayed else ()
        return Answer(outcome.status, outcome.body, replayed)
    if isinstance(outcome, Download):
        # Always to disk, never shown: the media type that the author claimed is not repeated.
        name = quote(outcome.name, safe="")
        disposition = f"attachment; filename*=UTF-8''{name}".encode()
        return Answer(
            200, outcome.data, ((b"content-disposition", disposition),), media_type=b"application/octet-stream"
        )
    return json_answer(200, outcome)


def _with_header(answer: Answer, name: bytes, value: bytes) -> Answer:
    return Answer(answer.status, answer.body, (*answer.headers, (name, value)), closes=answer.closes)
