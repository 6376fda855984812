"""The system clock may jump: it only ever decorates (reference/forum.md 5.6 rule 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from side_agents.forum.service.forum import Forum
from tests.support.forum import ForumFactory, child, forum_factory, register, reply, subforum, thread

__all__ = ["forum_factory"]

HOUR = 3_600_000
NOW = 1_800_000_000_000


def forwards() -> Iterator[int]:
    return count(NOW, 1000)


def backwards() -> Iterator[int]:
    return count(NOW, -HOUR)


def to_and_fro() -> Iterator[int]:
    return (NOW + (HOUR if step % 2 else -HOUR) * step for step in count())


def standing() -> Iterator[int]:
    return (NOW for _ in count())


def story(forum: Forum) -> dict[str, Any]:
    """What two authors see of a conversation, without ids and times."""
    ann, bob = register(forum, "ann"), register(forum, "bob")
    subforum(forum, ann, "lab")
    forum.interests.watch_subforum(bob.principal, "lab")
    topics = [
        thread(forum, ann, "lab", f"opening {number}", title=f"topic {number}")["threadId"] for number in range(4)
    ]
    posts = [reply(forum, ann, topics[number % 4], f"reply {number}") for number in range(12)]
    heir = child(forum, ann, "compaction", "heir")
    forum.interests.mark_read(bob.principal, topics[1], through_post_id=posts[5]["postId"])
    reply(forum, heir, topics[1], "the last word")
    return {
        "threads": [item["title"] for item in forum.content.threads(bob.principal)["items"]],
        "recent": [item["title"] for item in forum.content.recent_threads(bob.principal)["items"]],
        "posts": pages(lambda cursor: forum.content.posts(bob.principal, topics[1], limit=2, cursor=cursor)),
        "events": events(forum, bob.principal),
        "unread": [forum.content.thread(bob.principal, topic)["unreadCount"] for topic in topics],
        "contexts": [item["name"] for item in forum.identities.contexts(bob.principal, ann.session)["items"]],
    }


def pages(page: Callable[[str | None], dict[str, Any]]) -> list[list[str]]:
    found, cursor = [], None
    while True:
        answer = page(cursor)
        found.append([post["body"] for post in answer["posts"]])
        cursor = answer["pageInfo"]["nextCursor"]
        if cursor is None:
            return found


def events(forum: Forum, principal: Any) -> list[list[str]]:
    found: list[list[str]] = []
    asked: dict[str, str] = {"start": "beginning"}
    while True:
        page = forum.events.page(principal, scope="watched-subforums", limit=5, **asked)
        found.append([event["sequence"] for event in page["events"]])
        asked = {"cursor": page["nextCursor"]}
        if not page["hasMore"]:
            return found


@pytest.mark.parametrize("times", [backwards, to_and_fro, standing])
def test_t234_i60_order_pages_cursors_and_unread_do_not_depend_on_the_clock(
    forum_factory: ForumFactory, times: Callable[[], Iterator[int]]
) -> None:
    usual, strange = forwards(), times()
    expected = story(forum_factory("usual", clock=lambda: next(usual)))

    assert story(forum_factory("strange", clock=lambda: next(strange))) == expected
    assert expected["posts"] == [["opening 1", "reply 1"], ["reply 5", "reply 9"], ["the last word"]]
    assert expected["unread"] == [4, 2, 4, 4]
    assert expected["recent"] == ["topic 1", "topic 3", "topic 2", "topic 0"]
