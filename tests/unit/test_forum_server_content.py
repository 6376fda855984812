"""Posting and reading over the API: retries, downloads, pages, cursors, filters, hostile text."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re

import pytest

from side_agents.forum import limits
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.pace import Pace
from tests.support.forum import ForumFactory, Person, forum, forum_factory, table_counts
from tests.support.forum_http import Answer, Web, ann, bob, opened_web, tail, watched, web

__all__ = ["ann", "bob", "forum", "forum_factory", "web"]

ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"


def test_t106_a_hundred_identical_requests_at_once_make_one_post(web: Web, forum: Forum, ann: Person) -> None:
    web.subforum(ann)
    thread = web.thread(ann)["threadId"]
    before = table_counts(forum.database)["post"]

    async def all_at_once() -> list[Answer]:
        body = json.dumps({"body": "Only once."}).encode()
        target = f"/v1/threads/{thread}/posts"
        return await asyncio.gather(*(web.ask("POST", target, raw=body, by=ann, key="k" * 16) for _ in range(100)))

    answers = web.run(all_at_once())
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert table_counts(forum.database)["post"] == before + 1


def test_t105_t107_a_key_is_bound_to_its_author_and_its_content(web: Web, ann: Person, bob: Person) -> None:
    web.subforum(ann)
    target = f"/v1/threads/{web.thread(ann)['threadId']}/posts"

    first = web.post(target, {"body": "One."}, by=ann, key="k" * 16)
    other = web.post(target, {"body": "One."}, by=bob, key="k" * 16)
    changed = web.post(target, {"body": "Two."}, by=ann, key="k" * 16)
    assert first.json["postId"] != other.json["postId"]
    assert (changed.status, changed.code) == (409, "idempotency_conflict")


def test_t109_an_answer_to_a_post_has_what_a_client_checks(web: Web, ann: Person) -> None:
    web.subforum(ann)
    topic = web.thread(ann)
    raw = json.dumps({"body": "A reply.", "replyTo": topic["postId"]}).encode()
    reply = web.post(f"/v1/threads/{topic['threadId']}/posts", raw=raw, by=ann).json

    assert re.fullmatch(f"th_{ULID}", topic["threadId"])
    assert topic["subforum"] == reply["subforum"] == "general"
    assert reply["threadId"] == topic["threadId"]
    assert re.fullmatch(f"po_{ULID}", reply["postId"])
    assert reply["authorId"] == ann.id
    assert reply["payloadSha256"] == hashlib.sha256(raw).hexdigest()
    assert int(reply["sequence"]) > int(topic["sequence"])
    assert b"A reply." not in json.dumps(reply).encode()


def test_a_session_that_posts_too_fast_is_told_how_long_to_wait(forum: Forum, ann: Person) -> None:
    hurried = Forum(forum.database, origin="http://localhost", pace=Pace(lambda: 0.0))
    with opened_web(hurried) as web:
        web.subforum(ann)
        target = f"/v1/threads/{web.thread(ann)['threadId']}/posts"
        answers = [web.post(target, {"body": f"{number}"}, by=ann) for number in range(limits.POSTS_BURST)]

    assert [answer.status for answer in answers] == [201] * (limits.POSTS_BURST - 1) + [429]
    refused = answers[-1]
    assert (refused.code, refused.json["retryable"], refused.headers["retry-after"]) == ("rate_limited", True, "2")


def test_t118_t126_provenance_comes_back_as_it_was_claimed(web: Web, ann: Person) -> None:
    web.subforum(ann)
    claim = {"hostSessionId": "h", "transcriptRef": "tr_1", "contextKey": "c", "turnId": "t", "entryId": "e",
             "toolCallId": "tc", "provider": "p", "model": "m", "origin": "model"}  # fmt: skip
    thread = web.thread(ann, provenance=claim)

    assert web.get(f"/v1/posts/{thread['postId']}", by=ann).json["provenance"] == claim
    too_long = web.post(
        "/v1/subforums/general/threads",
        {"title": "T", "post": {"body": "x", "provenance": {"model": "m" * 257}}},
        by=ann,
    )
    assert (too_long.status, too_long.json["field"]) == (422, "body.post.provenance.model")


HOSTILE = "\x1b[31mred \u202egnp.exe\u202c <script>alert(1)</script> \u2066x\u2069 \x9b0m"


def test_t230_control_characters_are_refused_and_other_hostile_text_is_plain_json(web: Web, ann: Person) -> None:
    web.subforum(ann)
    refused = web.post("/v1/subforums/general/threads", {"title": "T", "post": {"body": HOSTILE}}, by=ann)
    assert (refused.status, refused.code, refused.json["field"]) == (422, "invalid_argument", "body.post.body")
    assert b"\x1b" not in refused.body

    harmless = HOSTILE.replace("\x1b", "").replace("\x9b", "")
    thread = web.thread(ann, body=harmless)
    answer = web.get(f"/v1/posts/{thread['postId']}", by=ann)
    assert answer.json["body"] == harmless
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("application/json", "nosniff")


def attachment(data: bytes, name: str = "page.html", kind: str = "text/html") -> dict[str, str]:
    return {"name": name, "mediaType": kind, "data": base64.b64encode(data).decode()}


@pytest.mark.parametrize("name", ["page.html", "a b'c\"d;e.txt", "naïve – файл.txt", "x" * 255])
def test_t225_a_download_is_forced_whatever_the_author_claims(web: Web, ann: Person, name: str) -> None:
    web.subforum(ann)
    data = b"<script>alert(1)</script>"
    thread = web.thread(ann, attachments=[attachment(data, name)])
    manifest = web.get(f"/v1/posts/{thread['postId']}", by=ann).json["attachments"][0]
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest()
    assert (manifest["name"], manifest["mediaType"], manifest["size"]) == (name, "text/html", len(data))

    answer = web.get(f"/v1/attachments/{manifest['id']}", by=ann)
    assert (answer.status, answer.body) == (200, data)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert answer.headers["content-disposition"].isascii()
    assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")
    assert web.get(f"/v1/attachments/{manifest['id']}").status == 401


def test_t156_t157_t159_a_cursor_is_taken_for_nothing_else(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)
    for number in range(3):
        web.reply(writer, thread, f"{number}")
    posts = f"/v1/threads/{thread}/posts"
    event_cursor = tail(web, watcher)
    post_cursor = web.get(f"{posts}?limit=1", by=watcher).json["pageInfo"]["nextCursor"]
    edited = post_cursor[:-5] + ("A" if post_cursor[-5] != "A" else "B") + post_cursor[-4:]

    for target, cursor in (
        (posts, "6"), (posts, event_cursor), (posts, edited), (posts, "not.base64"), (posts, "x" * 2049), ("/v1/events", "6"),
        ("/v1/events", post_cursor), ("/v1/events", edited), ("/v1/threads", post_cursor), ("/v1/subforums", event_cursor),
    ):  # fmt: skip
        answer = web.get(f"{target}?cursor={cursor}", by=watcher)
        assert (answer.status, answer.code, answer.json["field"]) == (422, "invalid_cursor", "query.cursor"), (
            target,
            cursor,
        )
    assert web.get(f"{posts}?cursor={post_cursor}", by=writer).code == "invalid_cursor"
    other = web.thread(writer, title="Another")["threadId"]
    assert web.get(f"/v1/threads/{other}/posts?cursor={post_cursor}", by=watcher).code == "cursor_scope_mismatch"
    assert web.get(f"/v1/events?scope=involved&cursor={event_cursor}", by=watcher).code == "cursor_scope_mismatch"


def test_t219_a_chain_of_pages_ends_where_it_was_when_it_began(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)
    first = [web.reply(writer, thread, f"{number}")["postId"] for number in range(3)]
    posts = f"/v1/threads/{thread}/posts"

    page = web.get(f"{posts}?limit=2", by=watcher).json
    snapshot = page["pageInfo"]["snapshotSequence"]
    web.reply(writer, thread, "late")
    seen = [post["id"] for post in page["posts"]]
    while page["pageInfo"]["hasMore"]:
        page = web.get(f"{posts}?limit=2&cursor={page['pageInfo']['nextCursor']}", by=watcher).json
        assert page["pageInfo"]["snapshotSequence"] == snapshot
        seen += [post["id"] for post in page["posts"]]
    assert seen[1:] == first
    assert len(web.get(posts, by=watcher).json["posts"]) == 5


def test_t174_a_page_of_posts_stays_within_the_bytes_that_were_asked_for(web: Web, ann: Person) -> None:
    web.subforum(ann)
    thread = web.thread(ann)["threadId"]
    for number in range(4):
        web.reply(ann, thread, f"{number}" * 20_000)
    target = f"/v1/threads/{thread}/posts"

    assert len(web.get(f"{target}?maxBytes=50000", by=ann).body) <= 50_000 + 500
    one = web.get(f"{target}?maxBytes=1", by=ann).json
    assert (len(one["posts"]), one["pageInfo"]["hasMore"]) == (1, True)
    most = limits.POSTS_PAGE_BYTES
    asked = [web.get(f"{target}?maxBytes={value}", by=ann).status for value in (0, 1, most, most + 1)]
    assert asked == [422, 200, 200, 422]
    # The default fits what a client takes.
    assert len(web.get(f"{target}?limit=100", by=ann).body) < limits.CLIENT_RESPONSE_BYTES


def test_invariant_17_reading_and_polling_and_searching_change_nothing(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)
    post = web.reply(writer, thread, "Something to be found.")
    before = web.get(f"/v1/threads/{thread}", by=watcher).json
    counts = table_counts(forum.database)
    for target in ("/v1/threads", "/v1/threads/recent", f"/v1/threads/{thread}/posts", f"/v1/posts/{post['postId']}",
                   "/v1/events?start=beginning", "/v1/me/subscriptions", f"/v1/threads/{thread}/pins"):  # fmt: skip
        assert web.get(target, by=watcher).status == 200
    hits = web.post("/v1/search", {"text": "found"}, by=watcher, key=None)
    assert [hit["postId"] for hit in hits.json["hits"]] == [post["postId"]]

    assert web.get(f"/v1/threads/{thread}", by=watcher).json == before
    assert before["unreadCount"] == 2
    assert table_counts(forum.database) == counts
    read = web.post(f"/v1/threads/{thread}/read", {"throughPostId": post["postId"]}, by=watcher, key=None)
    assert (read.status, read.json["unreadCount"]) == (200, 0)


def test_threads_are_filtered_by_metadata_in_the_query(web: Web, ann: Person) -> None:
    web.subforum(ann)
    for title, metadata in (("Red", {"colour": "red", "size": 3}), ("Blue", {"colour": "blue", "size": 3})):
        body = {"title": title, "metadata": metadata, "post": {"body": "x"}}
        assert web.post("/v1/subforums/general/threads", body, by=ann).status == 201

    def titles(query: str) -> list[str]:
        return [item["title"] for item in web.get(f"/v1/threads?{query}", by=ann).json["items"]]

    assert titles("meta.colour=red") == ["Red"]
    assert titles("meta.size=3&meta.colour=blue") == ["Blue"]
    assert titles("meta.size=3") == ["Blue", "Red"]
    assert web.get("/v1/threads?meta.=3", by=ann).code == "unknown_field"
    assert web.get("/v1/threads?meta.size=3&meta.size=3", by=ann).status == 422


def test_pins_mutes_visits_and_plans_work_over_the_wire(web: Web, forum: Forum) -> None:
    watcher, writer, thread = watched(web, forum)
    post = web.reply(writer, thread)["postId"]

    assert web("PUT", f"/v1/threads/{thread}/pin", by=watcher).json["changed"] is True
    assert web("PUT", f"/v1/posts/{post}/pin", by=watcher).json["changed"] is True
    pinned = web.get(f"/v1/threads/{thread}/pins", by=watcher)
    assert [each["id"] for each in pinned.json["posts"]] == [post], pinned.body
    assert [each["id"] for each in web.get("/v1/subforums/general/pins", by=watcher).json["threads"]] == [thread]
    assert web("DELETE", f"/v1/posts/{post}/pin", by=watcher).json == {
        "schemaVersion": 1,
        "pinned": False,
        "changed": True,
    }
    assert web("PUT", f"/v1/threads/{thread}/visit", by=watcher).json["baselineSequence"] == "0"
    visit = web("PUT", "/v1/subforums/general/visit", by=watcher, body={"observedSequence": "1"})
    assert visit.json == {"schemaVersion": 1, "visited": True, "baselineSequence": "1", "changed": True}

    plan = web.post("/v1/catchup/plans", {"scope": "all"}, by=watcher, key=None)
    assert (plan.status, plan.json["threadCount"], plan.json["postCount"]) == (200, 1, 2)
    target = f"/v1/catchup/plans/{plan.json['planId']}"
    page = web.get(f"{target}/pages", by=watcher)
    assert len(page.json["posts"]) == 2
    done = web.post(f"{target}/ack", {"receiptId": page.json["receiptId"]}, by=watcher, key=None)
    assert done.json["threads"][0]["unreadCount"] == 0
    assert web("DELETE", target, by=watcher).json == {"schemaVersion": 1, "closed": True}
    assert web.get(f"{target}/pages", by=watcher).code == "not_found"
    assert web("PUT", f"/v1/threads/{thread}/mute", by=watcher).json == {
        "schemaVersion": 1,
        "muted": True,
        "changed": True,
    }


def test_t233_a_cursor_from_before_a_restore_is_gone_not_empty(
    web: Web, forum: Forum, forum_factory: ForumFactory
) -> None:
    watcher, writer, thread = watched(web, forum)
    web.reply(writer, thread)
    web.reply(writer, thread)
    posts = f"/v1/threads/{thread}/posts"
    cursors = {
        "/v1/events": tail(web, watcher),
        posts: web.get(f"{posts}?limit=1", by=watcher).json["pageInfo"]["nextCursor"],
    }
    forum.database.write(lambda connection: connection.execute("UPDATE installation SET epoch = epoch + 1"))

    reopened = forum_factory()
    with opened_web(reopened) as later:
        assert later.get("/v1/capabilities").json["epoch"] == 2
        for target, cursor in cursors.items():
            for wait in ("", "&wait=5") if target == "/v1/events" else ("",):
                answer = later.get(f"{target}?cursor={cursor}{wait}", by=watcher)
                assert (answer.status, answer.code, answer.json["retryable"]) == (410, "cursor_expired", False)


def test_deep_health_is_for_authors(web: Web, ann: Person) -> None:
    assert web.get("/v1/health/deep").status == 401
    found = web.get("/v1/health/deep", by=ann)
    assert (found.status, found.json["waiters"]) == (200, 0)
