"""The stream of event pages for browsers: server-sent events with the pages of the long poll as their data."""

from __future__ import annotations

from side_agents.errors import ForumError
from side_agents.forum.failures import fail
from side_agents.forum.server.asgi import Send, header_values
from side_agents.forum.server.exchange import Exchange
from side_agents.forum.server.operations import CURSOR, Call
from side_agents.forum.server.polling import Page, first_page, next_page
from side_agents.forum.server.query import checked
from side_agents.forum.server.wire import GUARDS, encode, error_view

_HEARTBEAT = b": still here\n\n"


async def stream(exchange: Exchange, call: Call) -> None:
    """``GET /v1/events/stream``: until the client goes, the server closes, or an error that is told as a message."""
    call = _continued(exchange, call)
    with exchange.waiters.place(call.me.session_id):
        # What is wrong with the request is still told by the status.
        page = await first_page(exchange, call)
        await exchange.send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream"), *GUARDS],
            }
        )
        try:
            await _follow(exchange, call, page)
        except ForumError as error:
            await _send(exchange.send, b"event: error\ndata: " + encode(error_view(error, exchange.request_id)))
            await exchange.send({"type": "http.response.body"})


async def _follow(exchange: Exchange, call: Call, page: Page) -> None:
    with exchange.waiters.bell(call.forum.database.changed, exchange.receive) as bell:
        # At once, and also when empty: the client learns where it stands.
        await _send_page(exchange.send, page)
        while True:
            bell.mute()
            page = await next_page(exchange, call, page)
            if page["events"]:
                await _send_page(exchange.send, page)
            elif not await bell.wait(exchange.settings.heartbeat_seconds):
                await exchange.send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})


def _continued(exchange: Exchange, call: Call) -> Call:
    """A browser that connects again asks with the old address and says in a header how far it has come."""
    given = header_values(exchange.scope, b"last-event-id")
    if not given:
        return call
    if len(given) > 1:
        raise fail("invalid_cursor", "There is more than one Last-Event-ID.", field="header.Last-Event-ID")
    cursor = checked(CURSOR, "Last-Event-ID", given[0].decode("latin-1"))
    return call.with_query(cursor=cursor, start=None)


async def _send_page(send: Send, page: Page) -> None:
    cursor = page["nextCursor"].encode()
    await _send(send, b"event: page\nid: " + cursor + b"\ndata: " + encode({"schemaVersion": 1, **page}))


async def _send(send: Send, message: bytes) -> None:
    await send({"type": "http.response.body", "body": message + b"\n\n", "more_body": True})
