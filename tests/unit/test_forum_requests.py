"""Query parameters, credentials and idempotency keys as they come with a request; faults; WebSockets."""

from __future__ import annotations

import logging

import pytest

from side_agents.forum import ids
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, forum, forum_factory
from tests.support.forum_http import Web, ann, bob, refused, registration_body, web

__all__ = ["ann", "bob", "forum", "forum_factory", "web"]


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("x=1", "unknown_field", "query.x"), ("limit=5&limit=5", "invalid_argument", "query.limit"),
        ("limit", "invalid_argument", "query.limit"), ("Limit=5", "unknown_field", "query.Limit"),
        ("limit=5&", "invalid_argument", "query.(empty)"), ("limit=%ff", "invalid_argument", "query"),
        ("a" * 9000, "invalid_argument", "query"),
    ],
)  # fmt: skip
def test_unknown_and_repeated_query_parameters_are_refused(
    web: Web, ann: Person, query: str, code: str, field: str
) -> None:
    refused(web.get(f"/v1/subforums?{query}", by=ann), 422, code, field)


@pytest.mark.parametrize("value", ["0", "501", "x", "-1", "1.5", "+5", "05", "1_0", "٣", "", "%205", "5%20", "9" * 40])
def test_t172_a_limit_that_is_none_is_refused(web: Web, ann: Person, value: str) -> None:
    refused(web.get(f"/v1/events?start=tail&limit={value}", by=ann), 422, "invalid_argument", "query.limit")


@pytest.mark.parametrize(
    ("target", "most"),
    [
        ("/v1/events?start=tail&limit={}", 500), ("/v1/subforums?limit={}", 200), ("/v1/threads?limit={}", 100),
        ("/v1/threads/recent?limit={}", 50), ("/v1/sessions/{session}/contexts?limit={}", 100),
        ("/v1/agents/{agent}/children?limit={}", 100), ("/v1/events?start=tail&wait=0&limit=1&limit={}", 0),
    ],
)  # fmt: skip
def test_t172_t174_limits_hold_at_their_bounds(web: Web, ann: Person, target: str, most: int) -> None:
    def ask(value: int) -> int:
        named = target.replace("{session}", ann.session).replace("{agent}", ann.id)
        return web.get(named.format(value), by=ann).status

    if most:
        assert [ask(value) for value in (0, 1, most - 1, most, most + 1)] == [422, 200, 200, 200, 422]
    else:
        assert ask(1) == 422


def test_t172_t174_limits_in_a_body_hold_at_their_bounds(web: Web, ann: Person) -> None:
    def search(limit: object) -> int:
        return web.post("/v1/search", {"text": "word", "limit": limit}, by=ann).status

    assert [search(limit) for limit in (0, 1, 49, 50, 51, "20", 1.5)] == [422, 200, 200, 200, 422, 422, 422]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Basic dXNlcjpwYXNz",
        "Bearer",
        "Bearer ",
        "af_",
        "Bearer af_short",
        "Bearer {c}x",
        "Bearer {c} ",
        "Bearer {c},{c}",
        "{c}",
    ],
)
def test_t053_every_wrong_credential_gets_the_same_answer(web: Web, ann: Person, given: str) -> None:
    answer = web.get("/v1/me", headers={"authorization": given.format(c=ann.credential)})

    refused(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    unknown = web.get("/v1/me", by=ids.new_credential())
    missing = web.get("/v1/me")
    assert answer.json["message"] == missing.json["message"] == unknown.json["message"]


def test_t053_two_credentials_are_none(web: Web, ann: Person, bob: Person) -> None:
    both = [("authorization", f"Bearer {each.credential}") for each in (ann, bob)]

    refused(web.get("/v1/me", headers=both), 401, "unauthenticated")
    assert web.get("/v1/me", headers={"authorization": f"bearer  {ann.credential}"}).status == 200


def test_t041_another_spelling_of_a_credential_is_not_accepted(web: Web, ann: Person) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(ann.credential[-1])
    other = ann.credential[:-1] + alphabet[last ^ 1]

    refused(web.get("/v1/me", by=other), 401, "unauthenticated")
    body = registration_body("carl", credential=other)
    refused(web.post("/v1/agents/register", body), 422, "bad_credential_format", "body.credential")


@pytest.mark.parametrize("key", ["short", "x" * 129, "with blanks in it ok", "ümlaut-ümlaut-ümlaut", "a" * 16 + "/"])
def test_an_idempotency_key_has_a_form(web: Web, ann: Person, key: str) -> None:
    answer = web.post("/v1/subforums", {"key": "a", "title": "T"}, by=ann, key=key)

    refused(answer, 422, "invalid_argument", "header.Idempotency-Key")


def test_a_command_needs_one_idempotency_key(web: Web, ann: Person) -> None:
    body = {"key": "general", "title": "T"}

    refused(web.post("/v1/subforums", body, by=ann, key=None), 400, "idempotency_key_required")
    twice = [("idempotency-key", "k" * 20), ("idempotency-key", "k" * 20)]
    refused(web.post("/v1/subforums", body, by=ann, key=None, headers=twice), 422, "invalid_argument")
    for key in ("k" * 16, "Az09._~-" * 16):
        assert web.post("/v1/subforums", {**body, "key": f"s{len(key)}"}, by=ann, key=key).status == 201


def test_a_fault_of_the_forum_tells_nothing_but_an_id(
    web: Web, ann: Person, forum: Forum, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(f"secret {ann.credential}")

    monkeypatch.setattr(forum.identities, "me", broken)
    with caplog.at_level(logging.ERROR):
        answer = web.get("/v1/me", by=ann)

    refused(answer, 500, "internal")
    assert b"secret" not in answer.body
    assert answer.json["requestId"] in caplog.text


def test_a_websocket_is_refused_at_the_handshake(web: Web) -> None:
    sent: list[dict[str, object]] = []

    async def scene() -> None:
        async def receive() -> dict[str, object]:
            return {"type": "websocket.connect"}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        await web.app({"type": "websocket", "path": "/v1/events", "headers": []}, receive, send)

    web.run(scene())
    assert sent == [{"type": "websocket.close", "code": 1008}]
