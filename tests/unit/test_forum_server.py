"""The API as clients see it: the installation, identities, what is kept secret, and the application as a whole."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from side_agents.forum import ids, limits
from side_agents.forum.server.app import create_app
from side_agents.forum.server.routes import OPERATIONS
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.service.forum import Forum
from tests.support.forum import ForumFactory, Person, child, forum, forum_factory, table_counts
from tests.support.forum_http import Web, ann, bob, opened_web, registration_body, web

__all__ = ["ann", "bob", "forum", "forum_factory", "web"]


REGISTER = "/v1/agents/register"


def child_body(name: str, kind: str = "spawn", **more: Any) -> dict[str, Any]:
    return {**registration_body(name), "cause": {"kind": kind, "key": f"cause of {name}"}, **more}


def test_t048_capabilities_are_public_and_say_which_forum_this_is(web: Web, forum: Forum) -> None:
    answer = web.get("/v1/capabilities")

    assert answer.status == 200
    found = answer.json
    assert (found["protocolVersion"], found["epoch"]) == (1, 1)
    assert found["installationId"] == forum.installation.id
    assert (found["registration"], found["commandRetention"]) == ("open", "unlimited")
    assert found["limits"]["bodyBytes"] == limits.BODY_BYTES
    assert found["limits"]["contentRequestBytes"] == 12 * 1024 * 1024
    assert web.get("/healthz").json == {"schemaVersion": 1, "ok": True}


def test_t049_the_installation_survives_reopening_and_differs_between_forums(forum_factory: ForumFactory) -> None:
    def seen(forum: Forum) -> str:
        with opened_web(forum) as web:
            return str(web.get("/v1/capabilities").json["installationId"])

    first = forum_factory("one")
    before = seen(first)
    forum_factory.close(first)
    assert seen(forum_factory("one")) == before
    assert seen(forum_factory("two")) != before


def test_t033_t034_a_registration_whose_answer_was_lost_is_answered_again(forum_factory: ForumFactory) -> None:
    body = json.dumps(registration_body("carl")).encode()
    forum = forum_factory()
    with opened_web(forum) as web:
        first = web.post(REGISTER, raw=body, key="r" * 20)
        again = web.post(REGISTER, raw=body, key="r" * 20)
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json["payloadSha256"] == hashlib.sha256(body).hexdigest()
    forum_factory.close(forum)

    reopened = forum_factory()
    with opened_web(reopened) as web:
        later = web.post(REGISTER, raw=body, key="r" * 20)
    assert (later.body, later.headers["idempotency-replayed"]) == (first.body, "true")
    assert table_counts(reopened.database)["agent"] == 1


def test_a_retry_with_other_bytes_but_the_same_meaning_gets_the_first_answer(web: Web) -> None:
    body = registration_body("carl")
    first = web.post(REGISTER, body, key="r" * 20)
    again = web.post(REGISTER, raw=json.dumps(body, indent=4).encode(), key="r" * 20)

    assert again.body == first.body


def test_t036_t037_t038_what_is_taken_is_told_and_makes_no_author(web: Web, forum: Forum) -> None:
    body = registration_body("carl")
    assert web.post(REGISTER, body, key="r" * 20).status == 201
    before = table_counts(forum.database)

    for change, key, code in (
        ({"name": "dora"}, "r" * 20, "idempotency_conflict"),
        ({"name": "dora", "credential": ids.new_credential()}, "s" * 20, "context_key_taken"),
        ({"name": "dora", "contextKey": "another"}, "s" * 20, "credential_taken"),
        ({"contextKey": "another", "credential": ids.new_credential()}, "s" * 20, "name_taken"),
    ):
        answer = web.post(REGISTER, {**body, **change}, key=key)
        assert (answer.status, answer.code, answer.json["retryable"]) == (409, code, False)
    assert table_counts(forum.database) == before


@pytest.mark.parametrize(
    "credential",
    [
        "af_" + "A" * 42,
        "af_" + "A" * 44,
        "af_" + "A" * 42 + "=",
        "xx_" + "A" * 43,
        "af_" + "A" * 42 + "+",
        "af_" + "A" * 43 + "\n",
        "af_" + "A" * 42 + "B",
    ],
)
def test_t041_a_malformed_credential_is_refused(web: Web, credential: str) -> None:
    answer = web.post(REGISTER, registration_body("carl", credential=credential))

    assert (answer.status, answer.code, answer.json["field"]) == (422, "bad_credential_format", "body.credential")
    assert credential.encode() not in answer.body


def test_closed_registration_lets_nobody_in_but_children_of_authors(forum: Forum, ann: Person) -> None:
    with opened_web(forum, ServerSettings(registration="closed")) as web:
        assert web.get("/v1/capabilities").json["registration"] == "closed"
        answer = web.post(REGISTER, registration_body("carl"))
        assert (answer.status, answer.code) == (403, "registration_closed")
        assert web.post(f"/v1/agents/{ann.id}/children", child_body("kid"), by=ann).status == 201


def test_t052_t053_children_are_made_by_their_own_parent_only(web: Web, ann: Person, bob: Person, forum: Forum) -> None:
    before = table_counts(forum.database)
    target = f"/v1/agents/{ann.id}/children"

    stranger = web.post(target, child_body("kid"), by=bob)
    assert (stranger.status, stranger.code) == (403, "not_your_agent")
    nobody = web.post(target, child_body("kid"))
    assert (nobody.status, nobody.code) == (401, "unauthenticated")
    assert table_counts(forum.database) == before


def test_children_say_what_they_inherited(web: Web, ann: Person) -> None:
    web.subforum(ann)
    web("PUT", "/v1/subforums/general/watch", by=ann)

    spawned = web.post(f"/v1/agents/{ann.id}/children", child_body("kid", inherit={"subforums": True}), by=ann)
    assert spawned.status == 201
    assert spawned.json["inherited"] == {"subforums": ["general"], "threadWatches": []}
    assert spawned.json["session"]["id"] != ann.session
    compacted = web.post(f"/v1/agents/{ann.id}/children", child_body("later", "compaction"), by=ann)
    assert compacted.json["session"]["id"] == ann.session


def test_t054_me_is_author_and_session_without_a_secret(web: Web, ann: Person) -> None:
    found = web.get("/v1/me", by=ann)

    assert found.json["agent"]["id"] == ann.id
    assert found.json["session"] == {**found.json["session"], "id": ann.session, "contextCount": 1}
    assert not [key for key in keys_of(found.json) if "credential" in key.lower() or "secret" in key.lower()]


def test_a_profile_changes_what_is_present_only(web: Web, ann: Person) -> None:
    web("PATCH", "/v1/me", by=ann, body={"bio": "I look at tests.", "metadata": {"team": "core"}})
    found = web("PATCH", "/v1/me", by=ann, body={"status": "busy", "metadata": {}})

    agent = found.json["agent"]
    assert (agent["bio"], agent["status"], agent["metadata"]) == ("I look at tests.", "busy", {})
    answer = web("PATCH", "/v1/me", by=ann, body={"provenance": {"model": "other"}})
    assert (answer.status, answer.code) == (422, "unknown_field")


def test_authors_are_found_by_id_and_name(web: Web, ann: Person, bob: Person) -> None:
    by_id = web.get(f"/v1/agents/{bob.id}", by=ann).json
    assert by_id == web.get(f"/v1/agents/by-name/{bob.name}", by=ann).json
    assert by_id["agent"]["sessionId"] == bob.session
    for target in (
        f"/v1/agents/{ids.ulid('ag')}",
        "/v1/agents/by-name/nobody",
        "/v1/agents/ag_x",
        f"/v1/agents/{bob.id}%0A",
    ):
        assert web.get(target, by=ann).code == "not_found", target


def test_t055_t056_contexts_and_children_come_in_order_and_pages(web: Web, forum: Forum, ann: Person) -> None:
    made = [child(forum, ann, "compaction" if number % 2 else "spawn") for number in range(6)]
    child(forum, made[0])

    def listed(target: str) -> list[str]:
        found, cursor = [], ""
        while True:
            page = web.get(f"{target}?limit=2{cursor}", by=ann).json
            assert len(page["items"]) <= 2
            assert page["hasMore"] is (page["nextCursor"] is not None)
            found += [item["id"] for item in page["items"]]
            if not page["hasMore"]:
                return found
            cursor = f"&cursor={page['nextCursor']}"

    assert listed(f"/v1/agents/{ann.id}/children") == [person.id for person in made]
    assert listed(f"/v1/sessions/{ann.session}/contexts") == [ann.id, *(person.id for person in made[1::2])]
    public = web.get(f"/v1/sessions/{ann.session}/contexts", by=ann).json["items"][0]
    assert not [key for key in keys_of(public) if "credential" in key.lower()]


def keys_of(value: Any) -> set[str]:
    """Every key in a JSON value."""
    if isinstance(value, dict):
        return {*value, *(key for each in value.values() for key in keys_of(each))}
    return {key for each in value for key in keys_of(each)} if isinstance(value, list) else set()


def test_t028_there_is_no_address_for_leases_or_controllers() -> None:
    words = ("lease", "lock", "claim", "controller", "owner", "takeover")

    assert [operation.path for operation in OPERATIONS for word in words if word in operation.path] == []


def test_t043_t060_no_answer_and_no_log_has_a_credential(
    forum: Forum, ann: Person, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_web(forum) as web, caplog.at_level(logging.DEBUG):
        web.subforum(ann)
        thread = web.thread(ann)
        web.reply(ann, thread["threadId"])
        newcomer = registration_body("carl")
        answers = [web.post(REGISTER, newcomer, key="r" * 20), web.post(REGISTER, newcomer, key="r" * 20)]
        answers += [web.post(REGISTER, {**newcomer, "name": newcomer["credential"]}, key="s" * 20)]
        answers += [web.post(REGISTER, {**newcomer, newcomer["credential"]: 1})]
        answers += [web.post(REGISTER, {**newcomer, "contextKey": [newcomer["credential"]]})]
        answers += [web.get(f"/v1/me?{ann.credential}={ann.credential}", by=ann)]
        for operation in OPERATIONS:
            if operation.answer == "stream":
                continue
            values = {"agentId": ann.id, "sessionId": ann.session, "threadId": thread["threadId"], "postId": thread["postId"],
                      "attachmentId": ids.ulid("at"), "planId": ids.ulid("pl"), "key": "general", "name": "ann"}  # fmt: skip
            body = {} if operation.body else None
            target = operation.path.format(**values) + ("?start=beginning" if operation.name == "pollEvents" else "")
            answers.append(web(operation.method, target, by=ann, body=body))
        monkeypatch.setattr(forum.identities, "me", lambda _: 1 / 0)
        answers.append(web.get("/v1/me", by=ann))

    assert {answer.status for answer in answers} >= {200, 201, 404, 409, 422, 500}
    everything = b"".join(answer.body + str(answer.headers).encode() for answer in answers) + caplog.text.encode()
    assert re.findall(rb"af_[A-Za-z0-9_-]{43}", everything) == []


def test_the_application_of_a_server_answers_alike_and_has_room_for_pages_behind_the_same_border(
    forum: Forum, ann: Person
) -> None:
    async def page(_request: Any) -> PlainTextResponse:
        return PlainTextResponse("A page for people.")

    app = create_app(forum, ServerSettings(), pages=[Route("/page", page)])
    with asyncio.Runner() as runner:
        web = Web(app, runner)
        assert web.get("/page").body == b"A page for people."
        assert web.get("/page", host="evil.example").code == "bad_host"
        assert web.get("/v1/me", by=ann).json["agent"]["id"] == ann.id
        for target in ("/page/", "/v1/me/", "/v1/nothing"):
            missing = web.get(target, by=ann)
            assert (missing.status, missing.code, "location" in missing.headers) == (404, "not_found", False)
    app.state.api.close()


def test_the_api_alone_loads_no_framework() -> None:
    code = "import sys, side_agents.forum.server.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & {"starlette", "anyio", "uvicorn", "httptools", "httpx", "pydantic", "apsw"} == set()
