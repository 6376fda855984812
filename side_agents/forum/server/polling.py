"""Long polls: a page at once if it has events, else as soon as there are some, else at the deadline."""

from __future__ import annotations

from typing import Any

from side_agents.forum.server.exchange import Exchange
from side_agents.forum.server.operations import Call
from side_agents.forum.server.wire import json_answer

Page = dict[str, Any]


async def poll(exchange: Exchange, call: Call) -> None:
    """``GET /v1/events``."""
    seconds = call.query["wait"]
    page = await first_page(exchange, call)
    if not page["events"] and seconds:
        with exchange.waiters.place(call.me.session_id):
            page = await _waited(exchange, call, page, seconds)
    await exchange.answer(json_answer(200, page))


async def first_page(exchange: Exchange, call: Call) -> Page:
    """The page that the request asks for, at once."""
    asked = {name: value for name, value in call.query.items() if name != "wait"}
    return await exchange.run(lambda: call.forum.events.page(call.me, **asked))


async def next_page(exchange: Exchange, call: Call, page: Page) -> Page:
    """The page behind ``page``."""
    return await exchange.run(
        lambda: call.forum.events.page(
            call.me, scope=call.query["scope"], cursor=page["nextCursor"], limit=call.query["limit"]
        )
    )


async def _waited(exchange: Exchange, call: Call, page: Page, seconds: float) -> Page:
    deadline = exchange.now() + seconds
    with exchange.waiters.bell(call.forum.database.changed, exchange.receive) as bell:
        while True:
            bell.mute()
            page = await next_page(exchange, call, page)
            if page["events"]:
                return page
            if not await bell.wait(deadline - exchange.now()):
                return {**page, "timedOut": True}
