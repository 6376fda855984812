"""Waiting for events over the API, their stream, and whose place is freed when."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from side_agents.forum import limits
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, forum, forum_factory
from tests.support.forum_http import Answer, Web, ann, bob, opened_web, tail, until, watched, web

__all__ = ["ann", "bob", "forum", "forum_factory", "web"]


def events(answer: Answer) -> list[str]:
    return [event["postId"] for event in answer.json["events"]]


def test_t132_a_wait_ends_when_a_relevant_post_comes(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)
    cursor = tail(web, watcher)

    async def scene() -> None:
        waiting = asyncio.create_task(web.ask("GET", f"/v1/events?cursor={cursor}&wait=60", by=watcher))
        await until(lambda: len(web.app.waiters) == 1)
        posted = await web.ask("POST", f"/v1/threads/{thread}/posts", by=writer, body={"body": "Now."})
        answer = await asyncio.wait_for(waiting, 10)
        assert events(answer) == [posted.json["postId"]]
        assert (answer.json["timedOut"], answer.json["hasMore"]) == (False, False)

    web.run(scene())


def test_t133_t009_a_wait_for_nothing_times_out_with_an_advanced_cursor(web: Web, forum: Forum) -> None:
    watcher, writer, _ = watched(web, forum)
    cursor = tail(web, watcher)
    # Of a thread that the watcher has nothing to do with.
    other = web.thread(writer, title="Another")["sequence"]

    begun = time.monotonic()
    answer = web.get(f"/v1/events?cursor={cursor}&wait=1", by=watcher)
    assert 1.0 <= time.monotonic() - begun < 20
    assert (answer.json["timedOut"], answer.json["events"], answer.json["scannedThrough"]) == (True, [], other)
    assert answer.json["nextCursor"] != cursor


def test_t134_waiting_for_no_time_returns_at_once(web: Web, forum: Forum) -> None:
    watcher, _, _ = watched(web, forum)
    for query in ("start=tail", "start=tail&wait=0"):
        answer = web.get(f"/v1/events?{query}", by=watcher)
        assert (answer.status, answer.json["timedOut"], answer.json["events"]) == (200, False, [])


@pytest.mark.parametrize("wait", ["61", "-1", '"30"', "1.5", "", "x"])
def test_t135_a_wait_out_of_bounds_is_refused(web: Web, ann: Person, wait: str) -> None:
    answer = web.get(f"/v1/events?start=tail&wait={wait}", by=ann)

    assert (answer.status, answer.json["field"]) == (422, "query.wait")


def test_one_of_cursor_and_start_is_needed(web: Web, ann: Person) -> None:
    cursor = tail(web, ann)
    for query in ("", f"start=tail&cursor={cursor}", "start=middle", "wait=1"):
        assert web.get(f"/v1/events?{query}", by=ann).status == 422, query


@pytest.mark.parametrize("scope", ["involved,watching", "involved,", "", "INVOLVED", "involved involved"])
def test_t215_an_unknown_scope_is_refused(web: Web, ann: Person, scope: str) -> None:
    answer = web.get(f"/v1/events?start=tail&scope={scope}", by=ann)

    assert (answer.status, answer.code) == (422, "invalid_scope")
    answer = web.post("/v1/events/ack", {"scope": scope, "throughSequence": "0"}, by=ann)
    assert (answer.status, answer.code) == (422, "invalid_scope")


def test_t213_t214_an_acknowledgement_never_goes_back_nor_beyond_the_tail(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)
    last = int(web.reply(writer, thread)["sequence"])

    def ack(sequence: int, scope: str = "involved,watched-threads") -> Answer:
        return web.post("/v1/events/ack", {"scope": scope, "throughSequence": str(sequence)}, by=watcher)

    assert ack(last).json["throughSequence"] == str(last)
    assert ack(last - 1, "watched-threads,involved").json["throughSequence"] == str(last)
    assert web.get("/v1/events/ack?scope=involved,watched-threads", by=watcher).json["throughSequence"] == str(last)
    assert web.get("/v1/events/ack?scope=involved", by=watcher).json["throughSequence"] == "0"
    assert ack(last + 1).code == "future_sequence"


def test_t146_invariant_35_a_client_that_goes_frees_its_place_at_once(web: Web, forum: Forum, ann: Person) -> None:
    async def scene() -> None:
        wires = [web.wire("GET", "/v1/events?start=tail&wait=60", by=ann) for _ in range(limits.WAITERS_PER_SESSION)]
        running = [asyncio.create_task(wire.run(web.app)) for wire in wires]
        await until(lambda: len(web.app.waiters) == len(wires))

        full = await web.ask("GET", "/v1/events?start=tail&wait=60", by=ann)
        assert (full.status, full.code, full.headers["retry-after"]) == (429, "too_many_waiters", "1")
        # Somebody else and somebody who does not wait are not held up.
        assert (await web.ask("GET", "/v1/events?start=tail", by=ann)).status == 200

        begun = time.monotonic()
        wires[0].hang_up()
        assert (await asyncio.wait_for(running[0], 5)).status == 0
        assert time.monotonic() - begun < 20
        assert len(web.app.waiters) == len(wires) - 1
        for wire in wires:
            wire.hang_up()
        await asyncio.gather(*running)
        assert len(web.app.waiters) == 0

    web.run(scene())


def test_the_server_has_a_bound_for_waiters_too(forum: Forum, ann: Person, bob: Person) -> None:
    with opened_web(forum, ServerSettings(waiters_per_server=1)) as web:

        async def scene() -> None:
            wire = web.wire("GET", "/v1/events?start=tail&wait=60", by=ann)
            running = asyncio.create_task(wire.run(web.app))
            await until(lambda: len(web.app.waiters) == 1)
            assert (await web.ask("GET", "/v1/events?start=tail&wait=60", by=bob)).code == "too_many_waiters"
            wire.hang_up()
            await running

        web.run(scene())


def test_invariant_36_no_transaction_is_open_while_somebody_waits(web: Web, forum: Forum) -> None:
    watcher, writer, _ = watched(web, forum)

    async def scene() -> Any:
        wire = web.wire("GET", "/v1/events?start=tail&wait=60", by=watcher)
        running = asyncio.create_task(wire.run(web.app))
        await until(lambda: len(web.app.waiters) == 1)
        await web.ask("POST", "/v1/subforums", by=writer, body={"key": "another", "title": "T"})
        busy, log, checkpointed = forum.database.write(lambda _: None) or await asyncio.to_thread(checkpoint, forum)
        wire.hang_up()
        await running
        return busy, log, checkpointed

    assert web.run(scene()) == (0, 0, 0)


def checkpoint(forum: Forum) -> tuple[int, int, int]:
    """Shorten the log to nothing, which an open reader would prevent."""
    import apsw

    connection = apsw.Connection(str(forum.database.path))
    try:
        found = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        return int(found[0]), int(found[1]), int(found[2])
    finally:
        connection.close()


def test_waits_end_when_the_server_does(web: Web, ann: Person) -> None:
    async def scene() -> None:
        waiting = asyncio.create_task(web.ask("GET", "/v1/events?start=tail&wait=60", by=ann))
        await until(lambda: len(web.app.waiters) == 1)
        web.app.waiters.close()
        answer = await asyncio.wait_for(waiting, 5)
        assert (answer.status, answer.code, answer.json["retryable"]) == (503, "shutting_down", True)
        late = await web.ask("GET", "/v1/me", by=ann)
        assert (late.status, late.code) == (503, "shutting_down")

    web.run(scene())


def frames(wire: Any) -> list[tuple[str, Any]]:
    """The messages of a stream so far: name and data."""
    text = b"".join(message.get("body", b"") for message in wire.messages[1:]).decode()
    found = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_the_stream_tells_of_events_as_they_come_and_goes_on_where_it_broke(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)

    async def post() -> str:
        answer = await web.ask("POST", f"/v1/threads/{thread}/posts", by=writer, body={"body": "Now."})
        return str(answer.json["postId"])

    async def scene() -> None:
        wire = web.wire("GET", "/v1/events/stream?start=tail", by=watcher)
        running = asyncio.create_task(wire.run(web.app))
        await until(lambda: len(frames(wire)) == 1)
        head = {name.decode(): value.decode() for name, value in wire.messages[0]["headers"]}
        assert (head["content-type"], head["cache-control"]) == ("text/event-stream", "no-store")
        first = await post()
        await until(lambda: len(frames(wire)) == 2)
        name, page = frames(wire)[1]
        assert (name, [event["postId"] for event in page["events"]]) == ("page", [first])
        wire.hang_up()
        await asyncio.wait_for(running, 5)
        assert len(web.app.waiters) == 0

        second = await post()
        again = web.wire(
            "GET", "/v1/events/stream?start=tail", by=watcher, headers={"last-event-id": page["nextCursor"]}
        )
        running = asyncio.create_task(again.run(web.app))
        await until(lambda: bool(frames(again)))
        assert [event["postId"] for event in frames(again)[0][1]["events"]] == [second]
        web.app.waiters.close()
        await asyncio.wait_for(running, 5)
        name, error = frames(again)[-1]
        assert (name, error["code"]) == ("error", "shutting_down")

    web.run(scene())


def test_the_stream_says_by_its_status_what_was_wrong_with_the_request(web: Web, ann: Person) -> None:
    assert web.get("/v1/events/stream", by=ann).status == 422
    assert web.get("/v1/events/stream?start=tail&wait=5", by=ann).code == "unknown_field"
    answer = web.get("/v1/events/stream?start=tail", by=ann, headers={"last-event-id": "5"})
    assert (answer.status, answer.code) == (422, "invalid_cursor")


def test_the_stream_shows_that_it_lives(forum: Forum, ann: Person) -> None:
    with opened_web(forum, ServerSettings(heartbeat_seconds=0.02)) as web:

        async def scene() -> None:
            wire = web.wire("GET", "/v1/events/stream?start=tail", by=ann)
            running = asyncio.create_task(wire.run(web.app))
            await until(lambda: sum(message.get("body") == b": still here\n\n" for message in wire.messages) >= 2)
            wire.hang_up()
            await running

        web.run(scene())
