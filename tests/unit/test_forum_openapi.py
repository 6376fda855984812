"""The OpenAPI document: the same as the file in review, and true for every answer; test_forum_schemathesis attacks it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs

from side_agents.forum import ids
from side_agents.forum.failures import STATUS
from side_agents.forum.server import openapi
from side_agents.forum.server.routes import OPERATIONS
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, forum, forum_factory
from tests.support.forum_http import Answer, Web, ann, scene, web

__all__ = ["ann", "forum", "forum_factory", "web"]

STORED = Path(__file__).parents[1] / "contract" / "forum-openapi.json"
# What reference/forum 5.3 lists.
PROMISED = {
    "GET /v1/capabilities", "GET /healthz", "GET /v1/health/deep", "POST /v1/agents/register", "POST /v1/agents/{}/children",
    "GET /v1/me", "PATCH /v1/me", "GET /v1/agents/{}", "GET /v1/agents/by-name/{}", "GET /v1/agents/{}/children",
    "GET /v1/sessions/{}/contexts", "GET /v1/subforums", "POST /v1/subforums", "GET /v1/subforums/{}",
    "PUT /v1/subforums/{}/watch", "DELETE /v1/subforums/{}/watch", "GET /v1/me/subscriptions", "POST /v1/subforums/{}/threads",
    "GET /v1/threads", "GET /v1/threads/recent", "GET /v1/threads/{}", "GET /v1/threads/{}/posts", "GET /v1/posts/{}",
    "POST /v1/threads/{}/posts", "PUT /v1/threads/{}/watch", "DELETE /v1/threads/{}/watch", "PUT /v1/threads/{}/mute",
    "DELETE /v1/threads/{}/mute", "POST /v1/threads/{}/read", "PUT /v1/threads/{}/pin", "DELETE /v1/threads/{}/pin",
    "PUT /v1/posts/{}/pin", "DELETE /v1/posts/{}/pin", "GET /v1/threads/{}/pins", "GET /v1/subforums/{}/pins",
    "PUT /v1/threads/{}/visit", "PUT /v1/subforums/{}/visit", "GET /v1/attachments/{}", "GET /v1/events",
    "GET /v1/events/stream", "GET /v1/events/ack", "POST /v1/events/ack", "POST /v1/search", "POST /v1/catchup/plans",
    "GET /v1/catchup/plans/{}/pages", "POST /v1/catchup/plans/{}/ack", "DELETE /v1/catchup/plans/{}",
}  # fmt: skip
KEYED = {
    "POST /v1/agents/register", "POST /v1/agents/{}/children", "POST /v1/subforums", "POST /v1/subforums/{}/threads",
    "POST /v1/threads/{}/posts",
}  # fmt: skip


def plain(method: str, path: str) -> str:
    return f"{method} " + re.sub(r"\{\w+\}", "{}", path)


def test_the_file_is_what_is_generated() -> None:
    """After a change that is meant: ``python -m side_agents.forum.server.openapi tests/contract/forum-openapi.json``."""
    assert json.loads(STORED.read_text(encoding="utf-8")) == json.loads(openapi.text())


def test_the_document_has_the_routes_of_the_contract() -> None:
    described = {plain(method.upper(), path) for path, item in openapi.document()["paths"].items() for method in item}

    assert described == PROMISED
    assert {plain(each.method, each.path) for each in OPERATIONS if each.is_keyed} == KEYED
    assert {plain(each.method, each.path) for each in OPERATIONS if each.is_public} == {
        "GET /v1/capabilities", "GET /healthz", "POST /v1/agents/register",
    }  # fmt: skip


def test_every_operation_runs_in_one_way_and_has_a_name_of_its_own() -> None:
    assert [each.name for each in OPERATIONS if (each.run is None) == (each.converse is None)] == []
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)
    assert [code for each in OPERATIONS for code in each.failures if code not in STATUS] == []


def test_every_reference_of_the_document_leads_somewhere() -> None:
    document = openapi.document()
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))

    assert references <= set(document["components"]["schemas"])
    assert references | {"Error"} >= set(document["components"]["schemas"]) - {"Error"}
    assert "$defs" not in json.dumps(document)


def test_t126_provenance_is_called_a_claim() -> None:
    document = openapi.document()

    assert "Provenance is what a client says" in document["info"]["description"]
    schemas = document["components"]["schemas"]
    assert "claim" in schemas["Provenance"]["description"].lower()
    for name in ("Agent", "Post"):
        assert "claim" in schemas[name]["properties"]["provenance"]["description"].lower()


def test_t060_no_answer_of_the_document_has_a_place_for_a_secret() -> None:
    schemas = openapi.document()["components"]["schemas"]
    requests = {each.body.__name__ for each in OPERATIONS if each.body}
    named = [
        (name, key)
        for name, schema in schemas.items()
        if name not in requests
        for key in re.findall(r'"(\w+)": \{', json.dumps(schema))
    ]

    assert [found for found in named if re.search("credential|secret|token", found[1], re.IGNORECASE)] == []


def strict(value: Any) -> Any:
    """The same schema, but nothing may be there that it does not name."""
    if isinstance(value, list):
        return [strict(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: strict(each) for key, each in value.items()}
    return (
        found | {"additionalProperties": False}
        if "properties" in found and "additionalProperties" not in found
        else found
    )


class Checker:
    """Compares answers with what the document says of their operation and status."""

    def __init__(self) -> None:
        self.document = strict(openapi.document())
        self.seen: set[tuple[str, int]] = set()

    def check(self, name: str, answer: Answer) -> None:
        operation = next(
            each for item in self.document["paths"].values() for each in item.values() if each["operationId"] == name
        )
        described = operation["responses"][str(answer.status)]["content"]
        media = answer.headers["content-type"]
        assert media in described, (name, answer.status, media)
        if media == "application/json":
            schema = {**described[media]["schema"], "components": self.document["components"]}
            errors = [each.message for each in jsonschema_rs.validator_for(schema).iter_errors(answer.json)]
            assert errors == [], (name, answer.status, answer.json)
        self.seen.add((name, answer.status))


def test_t109_every_answer_is_as_the_document_says_and_has_nothing_else(web: Web, forum: Forum, ann: Person) -> None:
    checker = Checker()
    bodies, values = scene(web, forum, ann)
    for operation in OPERATIONS:
        if operation.answer == "stream":
            continue
        for by in (ann, None, ids.new_credential()):
            target = operation.path.format(**values)
            if operation.name == "pollEvents":
                target += "?start=beginning"
            answer = web(operation.method, target, by=by, body=bodies.get(operation.name))
            if by is ann and operation.name in ("createPlan", "readPlanPage"):
                values |= {key: answer.json[key] for key in ("planId", "receiptId") if answer.json.get(key)}
                bodies["ackPlanPage"] = {"receiptId": values.get("receiptId")}
            checker.check(operation.name, answer)
        if operation.body is not None:
            checker.check(operation.name, web(operation.method, target, by=ann, body={"nonsense": 1}))
            checker.check(operation.name, web(operation.method, target, by=ann, raw=b"nonsense"))
        if operation.query:
            checker.check(
                operation.name, web(operation.method, f"{target}&x=1" if "?" in target else f"{target}?x=1", by=ann)
            )

    good = {name for name, status in checker.seen if status < 300}
    assert good == {each.name for each in OPERATIONS if each.answer != "stream"}
