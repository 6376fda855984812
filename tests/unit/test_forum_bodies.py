"""Request bodies: their bounds, strict JSON, unknown fields, media types."""

from __future__ import annotations

import asyncio
import json

import pytest

from side_agents.forum import limits
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, forum, forum_factory, table_counts
from tests.support.forum_http import Web, ann, bob, opened_web, refused, web

__all__ = ["ann", "bob", "forum", "forum_factory", "web"]

THREADS = "/v1/subforums/general/threads"


def padded(size: int) -> bytes:
    """A valid subforum as JSON of exactly that many bytes, blanks included."""
    text = json.dumps({"key": "general", "title": "General"}).encode()
    return text + b" " * (size - len(text))


@pytest.mark.parametrize("honest", [True, False], ids=["with-length", "without-length"])
def test_t217_a_body_one_byte_too_long_with_a_valid_prefix_is_refused(
    web: Web, forum: Forum, ann: Person, honest: bool
) -> None:
    before = table_counts(forum.database)
    most = limits.ORDINARY_REQUEST_BYTES
    for size in (most + 1, most + 70_000):
        answer = web.post("/v1/subforums", by=ann, raw=padded(size), length=honest)
        refused(answer, 413, "payload_too_large", "body")
        assert answer.headers["connection"] == "close"
    assert table_counts(forum.database) == before
    assert web.post("/v1/subforums", by=ann, raw=padded(most), length=honest).status == 201


def test_t217_a_content_length_that_lies_low_is_counted_anyway(web: Web, ann: Person) -> None:
    text = padded(limits.ORDINARY_REQUEST_BYTES + 1)

    refused(
        web.post("/v1/subforums", by=ann, raw=text, headers={"content-length": "40"}), 413, "payload_too_large", "body"
    )


def large_thread(size: int) -> bytes:
    text = json.dumps({"title": "Large", "post": {"body": "Here."}}).encode()
    return text + b" " * (size - len(text))


def test_t217_content_has_a_bound_of_its_own(web: Web, ann: Person) -> None:
    web.subforum(ann)
    most = limits.CONTENT_REQUEST_BYTES

    refused(web.post(THREADS, by=ann, raw=large_thread(most + 1), length=False), 413, "payload_too_large", "body")
    assert web.post(THREADS, by=ann, raw=large_thread(most), length=False).status == 201


def test_t217_what_is_too_large_is_not_kept_while_the_rest_of_it_is_thrown_away(web: Web, ann: Person) -> None:
    chunk = b" " * 65536
    wire = web.wire("POST", "/v1/subforums", by=ann, chunks=[chunk] * 1000, length=False)
    answer = web.run(wire.run(web.app))

    refused(answer, 413, "payload_too_large", "body")
    # 256 KiB taken, at most 4 MiB thrown away so that the client gets to read the answer.
    assert wire.consumed < 80


def test_two_large_contents_at_a_time_and_the_third_is_told_to_come_again(web: Web, ann: Person, forum: Forum) -> None:
    web.subforum(ann)
    text = large_thread(limits.ORDINARY_REQUEST_BYTES + 1)
    half = [text[: limits.ORDINARY_REQUEST_BYTES + 1], b""]

    async def scene() -> None:
        go_on = asyncio.Event()
        held = [web.wire("POST", THREADS, by=ann, chunks=half, length=False) for _ in range(2)]
        arrived = [asyncio.Event(), asyncio.Event()]

        def hold(mark: asyncio.Event):  # type: ignore[no-untyped-def]
            async def before(index: int) -> None:
                if index == 1:
                    mark.set()
                    await go_on.wait()

            return before

        for wire, mark in zip(held, arrived, strict=True):
            wire.before_chunk = hold(mark)
        running = [asyncio.create_task(wire.run(web.app)) for wire in held]
        await asyncio.gather(*(mark.wait() for mark in arrived))

        third = await web.ask("POST", THREADS, by=ann, raw=text)
        refused(third, 503, "busy")
        assert int(third.headers["retry-after"]) >= 1
        # Small content and everything else goes on meanwhile.
        small = {"title": "Small", "post": {"body": "There."}}
        assert (await web.ask("POST", THREADS, by=ann, body=small)).status == 201
        go_on.set()
        assert [answer.status for answer in await asyncio.gather(*running)] == [201, 201]
        assert (await web.ask("POST", THREADS, by=ann, raw=text)).status == 201

    web.run(scene())


def test_the_place_of_a_large_content_is_free_again_when_its_client_goes(web: Web, ann: Person) -> None:
    web.subforum(ann)
    text = large_thread(limits.ORDINARY_REQUEST_BYTES + 1)

    async def gone() -> None:
        wire = web.wire("POST", THREADS, by=ann, chunks=[text, b""], length=False)

        async def leave(index: int) -> None:
            if index == 1:
                raise asyncio.CancelledError

        wire.before_chunk = leave
        task = asyncio.create_task(wire.run(web.app))
        await asyncio.wait([task])

    for _ in range(3):
        web.run(gone())
    assert web.post(THREADS, by=ann, raw=text).status == 201


def test_a_body_that_does_not_arrive_in_time_is_given_up(forum: Forum, ann: Person) -> None:
    with opened_web(forum, ServerSettings(body_seconds=0.05)) as web:
        wire = web.wire("POST", "/v1/subforums", by=ann, chunks=[b"{", b"}"])

        async def never(index: int) -> None:
            if index == 1:
                await asyncio.Event().wait()

        wire.before_chunk = never
        refused(web.run(wire.run(web.app)), 503, "busy")


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"nonsense", b"[]", b'"text"', b"null", b"{}{}", b"\xff\xfe{\x00}\x00", b'{"key":"\xff"}', b"\xef\xbb\xbf{}",
        b'{"key":"general","title":"T","metadata":{"n":NaN}}', b'{"key":"general","title":"T","metadata":{"n":1e999}}',
        b'{"key":"general","title":"T","metadata":{"n":-Infinity}}', b'{"key":"general","key":"other","title":"T"}',
        b'{"key":"general","title":"T","metadata":{"a":{"b":1,"b":1}}}', b"[" * 100_000, b'{"a":' * 50_000,
        b'{"n":' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_strict_json_is_refused(web: Web, ann: Person, forum: Forum, text: bytes) -> None:
    before = table_counts(forum.database)

    refused(web.post("/v1/subforums", by=ann, raw=text), 400, "malformed_json")
    assert table_counts(forum.database) == before


@pytest.mark.parametrize(
    "text", [r'{"key":"general","title":"\ud800"}', r'{"key":"general","title":"T","metadata":{"a":["\uDFFF"]}}']
)
def test_halves_of_characters_are_refused(web: Web, ann: Person, text: str) -> None:
    refused(web.post("/v1/subforums", by=ann, raw=text.encode()), 422, "invalid_argument", "body")
    whole = text.replace(r"\ud800", r"\ud83d\ude00").replace(r"\uDFFF", r"\uD83D\uDE00")
    assert web.post("/v1/subforums", by=ann, raw=whole.encode()).status == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"key": "general", "title": "T", "colour": "red"}, "body.colour"),
        ({"key": "general", "title": "T", "TITLE": "T"}, "body.TITLE"),
        ({"key": "general", "title": "T", "x" * 100: 1}, "body." + "x" * 64),
    ],
)
def test_unknown_fields_are_refused(web: Web, ann: Person, body: dict[str, object], field: str) -> None:
    refused(web.post("/v1/subforums", body, by=ann), 422, "unknown_field", field)


def test_t128_an_author_in_the_body_is_refused_as_an_unknown_field(web: Web, ann: Person, bob: Person) -> None:
    web.subforum(ann)
    for name, value in (
        ("author", {"id": bob.id}),
        ("authorId", bob.id),
        ("sessionId", bob.session),
        ("createdAt", "2020"),
    ):
        body = {"title": "T", "post": {"body": "Mine."}, name: value}
        refused(web.post(THREADS, body, by=ann), 422, "unknown_field", f"body.{name}")
        body = {"title": "T", "post": {"body": "Mine.", name: value}}
        refused(web.post(THREADS, body, by=ann), 422, "unknown_field", f"body.post.{name}")
    forged = {"provenance": {"authorId": bob.id}}
    refused(web.post(THREADS, {"title": "T", "post": {"body": "x", **forged}}, by=ann), 422, "unknown_field")


@pytest.mark.parametrize("version", [0, 2, "1", True, 1.0, None])
def test_another_schema_version_is_refused(web: Web, ann: Person, version: object) -> None:
    body = {"schemaVersion": version, "key": "general", "title": "T"}

    refused(web.post("/v1/subforums", body, by=ann), 422, "invalid_argument", "body.schemaVersion")
    assert web.post("/v1/subforums", {**body, "schemaVersion": 1}, by=ann).status == 201


def test_values_are_not_bent_into_shape(web: Web, ann: Person) -> None:
    for body, field in (
        ({"key": 5, "title": "T"}, "body.key"),
        ({"key": "general", "title": ["T"]}, "body.title"),
        ({"key": "general"}, "body.title"),
        ({"key": "general", "title": "T", "metadata": "{}"}, "body.metadata"),
    ):
        refused(web.post("/v1/subforums", body, by=ann), 422, "invalid_argument", field)


def test_operations_without_a_body_take_none(web: Web, ann: Person) -> None:
    web.subforum(ann)
    watch = "/v1/subforums/general/watch"

    refused(web("PUT", watch, by=ann, body={"watching": True}), 422, "unknown_field", "body.watching")
    refused(web("GET", "/v1/me", by=ann, raw=b"x"), 400, "malformed_json")
    assert web("PUT", watch, by=ann, body={"schemaVersion": 1}).status == 200
    assert web("DELETE", watch, by=ann, body={}).status == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=latin-1", "application/jsonx"],
)
def test_other_media_types_are_refused(web: Web, ann: Person, kind: str) -> None:
    answer = web.post("/v1/subforums", {"key": "a", "title": "T"}, by=ann, headers={"content-type": kind})

    refused(answer, 415, "unsupported_media_type")


def test_json_may_name_its_charset_and_must_not_be_compressed(web: Web, ann: Person) -> None:
    body = {"key": "general", "title": "T"}

    refused(
        web.post("/v1/subforums", body, by=ann, headers={"content-encoding": "gzip"}), 415, "unsupported_media_type"
    )
    named = {"content-type": 'Application/JSON; charset="UTF-8"'}
    assert web.post("/v1/subforums", body, by=ann, headers=named).status == 201
