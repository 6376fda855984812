"""What is refused by looking at the head of a request: sizes, hosts, origins, secrets in addresses, other forums."""

from __future__ import annotations

import pytest

from side_agents.forum import ids, limits
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, forum, forum_factory, table_counts
from tests.support.forum_http import Web, ann, bob, opened_web, refused, web

__all__ = ["ann", "bob", "forum", "forum_factory", "web"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:65535"]
)
def test_t228_loopback_names_are_answered(web: Web, host: str) -> None:
    assert web.get("/v1/capabilities", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "1270.0.0.1", "[::2]", "localhost:", "localhost:x",
        "::1",         "localhost:65536", "user@localhost", "localhost/", "", " localhost", "localhost,evil.example",
    ],
)  # fmt: skip
def test_t228_other_hosts_are_refused(web: Web, host: str) -> None:
    refused(web.get("/v1/capabilities", host=host), 400, "bad_host")


def test_t228_exactly_one_host_is_needed(web: Web) -> None:
    refused(web.get("/v1/capabilities", host=None), 400, "bad_host")
    two = [("host", "localhost"), ("host", "localhost")]
    refused(web.get("/v1/capabilities", headers=two), 400, "bad_host")


def test_t228_a_configured_host_is_answered_with_and_without_its_port(forum: Forum) -> None:
    settings = ServerSettings(hosts=frozenset({"forum.example", "other.example:8443"}))
    with opened_web(forum, settings) as web:
        assert web.get("/healthz", host="forum.example").status == 200
        assert web.get("/healthz", host="Forum.Example:444").status == 200
        assert web.get("/healthz", host="other.example:8443").status == 200
        assert web.get("/healthz", host="other.example").status == 400


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://localhost", "http://localhost:3000", "http://127.0.0.1", "file://", ""],
)
def test_t228_foreign_origins_are_refused_and_do_nothing(web: Web, ann: Person, forum: Forum, origin: str) -> None:
    before = table_counts(forum.database)
    body = {"key": "general", "title": "General"}

    refused(web.post("/v1/subforums", body, by=ann, headers={"origin": origin}), 403, "origin_refused")
    assert table_counts(forum.database) == before


def test_t228_the_own_and_the_configured_origin_are_let_in_and_no_answer_allows_others(forum: Forum) -> None:
    with opened_web(forum, ServerSettings(origins=frozenset({"https://desk.example"}))) as web:
        for host, origin in (("localhost:8080", "http://localhost:8080"), ("localhost", "https://desk.example")):
            answer = web.get("/v1/capabilities", host=host, headers={"origin": origin})
            assert answer.status == 200
            assert not [name for name in answer.headers if name.startswith("access-control")]
        preflight = web("OPTIONS", "/v1/capabilities", headers={"origin": "https://desk.example"})
        refused(preflight, 405, "method_not_allowed")
        assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_nothing_redirects(web: Web, ann: Person) -> None:
    for target in ("/v1/capabilities/", "/v1//capabilities", "/v1", "/", "/v1/threads/", "/v1/me/../me"):
        answer = web.get(target, by=ann)
        refused(answer, 404, "not_found")
        assert "location" not in answer.headers


def test_another_method_is_refused_and_says_which_there_are(web: Web, ann: Person) -> None:
    answer = web("DELETE", "/v1/me", by=ann)

    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, PATCH"
    refused(web("HEAD", "/v1/capabilities"), 405, "method_not_allowed")


def test_another_installation_is_refused_before_the_credential_is_looked_at(
    web: Web, forum: Forum, ann: Person
) -> None:
    other = {"forum-installation": ids.ulid("in")}
    own = {"forum-installation": forum.installation.id}

    for person in (None, ann, ids.new_credential()):
        refused(web.get("/v1/me", by=person, headers=other), 412, "installation_mismatch")
    refused(web.get("/v1/me", by=ann, headers=[*own.items(), *own.items()]), 412, "installation_mismatch")
    refused(web.get("/v1/me", headers=own), 401, "unauthenticated")
    assert web.get("/v1/me", by=ann, headers=own).status == 200


@pytest.mark.parametrize(
    "place", ["/v1/me?token={}", "/v1/me?cursor={}", "/v1/agents/{}", "/v1/{}?x=1", "/v1/me?a%66_x&{}=1"]
)
def test_t043_a_credential_in_an_address_is_refused_and_not_repeated(web: Web, ann: Person, place: str) -> None:
    answer = web.get(place.format(ann.credential), by=ann)

    refused(answer, 422, "invalid_argument", "url")
    assert ann.credential.encode() not in answer.body


def test_a_credential_that_is_escaped_in_an_address_is_recognised(web: Web, ann: Person) -> None:
    escaped = "".join(f"%{ord(letter):02x}" for letter in ann.credential)

    refused(web.get(f"/v1/me?cursor={escaped}", by=ann), 422, "invalid_argument", "url")
    refused(web.get(f"/v1/agents/by-name/{escaped}", by=ann), 422, "invalid_argument", "url")
    refused(web.get("/v1/me?access_token=short", by=ann), 422, "invalid_argument", "url")


def block_of(size: int, by: Person) -> dict[str, str]:
    """Headers that make a request of exactly that size for GET /v1/me."""
    fixed = len("GET/v1/me") + sum(
        len(name) + len(value) + 4
        for name, value in (("host", "localhost"), ("authorization", f"Bearer {by.credential}"))
    )
    return {"x": "y" * (size - fixed - len("x") - 4)}


def test_t174_the_header_block_has_a_bound(web: Web, ann: Person) -> None:
    most = limits.HEADER_BLOCK_BYTES
    for size, status in ((most - 1, 200), (most, 200), (most + 1, 413)):
        answer = web.get("/v1/me", by=ann, headers=block_of(size, ann))
        assert answer.status == status, size
    refused(answer, 413, "payload_too_large")
    assert answer.headers["connection"] == "close"
