"""Subforums, threads and their listings, pages of posts: what is read, in which order, and what a cursor continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from side_agents.forum import ids, limits
from side_agents.forum.cursors import Kind
from side_agents.forum.requests import Inherit, SubforumRequest
from side_agents.forum.service.forum import Forum
from tests.support.forum import (
    ForumFactory,
    Person,
    child,
    command,
    forum,
    forum_factory,
    json_of,
    refusal,
    register,
    reply,
    subforum,
    thread,
)

__all__ = ["forum", "forum_factory"]

Page = dict[str, Any]


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    return person


@pytest.fixture
def bob(forum: Forum) -> Person:
    return register(forum, "bob")


def chain(first: Page, following: Callable[[str], Page]) -> list[Page]:
    """All pages from the first one on."""
    pages = [first]
    while cursor := pages[-1].get("nextCursor") or pages[-1].get("pageInfo", {}).get("nextCursor"):
        pages.append(following(cursor))
    return pages


def ids_of(page: Page) -> list[str]:
    return [item["id"] for item in page["items"]]


def test_a_subforum_is_shown_as_it_was_made_with_its_threads_counted(forum: Forum, ann: Person, bob: Person) -> None:
    request = SubforumRequest(
        key="art", title="  Art ", description="Pictures\nand more", metadata={"a": [1, {"b": None}]}
    )
    made = json_of(forum.content.create_subforum(ann.principal, request, command=command()))
    thread(forum, ann, "art")
    forum.interests.watch_subforum(bob.principal, "art")
    seen = forum.content.subforum(bob.principal, "art")
    assert (seen["title"], seen["description"], seen["metadata"]) == (
        "Art",
        "Pictures\nand more",
        {"a": [1, {"b": None}]},
    )
    assert (made["threadCount"], made["watching"]) == (0, False)
    assert (seen["threadCount"], seen["watching"]) == (1, True)
    assert forum.content.subforum(ann.principal, "art")["watching"] is False


def test_a_second_subforum_of_one_key_is_refused_and_the_first_stays(forum: Forum, ann: Person, bob: Person) -> None:
    again = SubforumRequest(key="lab", title="Mine")
    refusal(
        "subforum_exists",
        lambda: forum.content.create_subforum(bob.principal, again, command=command()),
        field="body.key",
    )
    assert forum.content.subforum(bob.principal, "lab")["title"] == "About lab"


@pytest.mark.parametrize("key", ["", "Lab", "-lab", "la_b", "l" * 65, "lab\n", "läb"])
def test_a_subforum_key_is_a_slug(forum: Forum, ann: Person, key: str) -> None:
    request = SubforumRequest(key=key, title="T")
    refusal("invalid_argument", lambda: forum.content.create_subforum(ann.principal, request, command=command()))


def test_d9_subforums_come_in_pages_by_key_and_each_says_whether_there_are_more(forum: Forum, ann: Person) -> None:
    for key in ("d", "a", "c", "b"):
        subforum(forum, ann, key)

    def page(cursor: str | None = None) -> Page:
        return forum.content.subforums(ann.principal, cursor=cursor, limit=2)

    pages = chain(page(), page)
    assert [[item["key"] for item in each["items"]] for each in pages] == [["a", "b"], ["c", "d"], ["lab"]]
    assert [each["hasMore"] for each in pages] == [True, True, False]
    # A page that is exactly full is the last one.
    assert forum.content.subforums(ann.principal, limit=5)["hasMore"] is False


def test_threads_are_listed_by_creation_whatever_is_answered_or_begun_meanwhile(
    forum: Forum, ann: Person, bob: Person
) -> None:
    first, second, third = (thread(forum, ann, "lab")["threadId"] for _ in range(3))
    page = forum.content.threads(bob.principal, subforum="lab", limit=2)
    reply(forum, bob, first)
    thread(forum, bob, "lab")
    rest = forum.content.threads(bob.principal, subforum="lab", limit=2, cursor=page["nextCursor"])
    assert (ids_of(page), ids_of(rest)) == ([third, second], [first])
    assert (page["hasMore"], rest["hasMore"], rest["nextCursor"]) == (True, False, None)


def test_recent_threads_are_ranked_by_their_newest_activity(forum: Forum, ann: Person) -> None:
    subforum(forum, ann, "art")
    first, second = (thread(forum, ann, "lab")["threadId"] for _ in range(2))
    elsewhere = thread(forum, ann, "art")["threadId"]
    reply(forum, ann, first)
    assert ids_of(forum.content.recent_threads(ann.principal)) == [first, elsewhere, second]
    assert ids_of(forum.content.recent_threads(ann.principal, subforum="lab", limit=1)) == [first]


def test_threads_can_be_narrowed_to_what_a_session_has_to_do_with(forum: Forum, ann: Person, bob: Person) -> None:
    watched = thread(forum, ann, "lab")["threadId"]
    joined = thread(forum, ann, "lab")["threadId"]
    unread = thread(forum, ann, "lab")["threadId"]
    own = thread(forum, bob, "lab")["threadId"]
    forum.interests.watch_thread(bob.principal, watched)
    opening = forum.content.posts(bob.principal, watched)["posts"][0]["id"]
    forum.interests.mark_read(bob.principal, watched, through_post_id=opening)
    last = reply(forum, bob, joined)["postId"]
    forum.interests.mark_read(bob.principal, joined, through_post_id=last)
    heir = child(forum, bob, "compaction")
    stranger = child(forum, bob, "spawn", inherit=Inherit())

    def listed(person: Person, relation: Any) -> list[str]:
        return ids_of(forum.content.threads(person.principal, relation=relation))

    for person in (bob, heir):
        assert listed(person, "watching") == [watched]
        assert listed(person, "involved") == [own, joined]
        assert listed(person, "unread") == [unread]
    assert listed(stranger, "watching") == []
    assert listed(stranger, "unread") == [own, unread, joined, watched]


def test_threads_are_found_by_all_of_the_metadata_terms_that_are_asked_for(forum: Forum, ann: Person) -> None:
    both = thread(forum, ann, "lab", metadata={"kind": "bug", "part": {"name": "parser"}, "tags": ["a", "b"]})[
        "threadId"
    ]
    one = thread(forum, ann, "lab", metadata={"kind": "bug", "open": True, "size": 3})["threadId"]

    def found(**meta: str) -> list[str]:
        return ids_of(forum.content.threads(ann.principal, meta=meta))

    assert found(kind="bug") == [one, both]
    assert found(**{"kind": "bug", "part.name": "parser"}) == [both]
    assert found(tags="b") == [both]
    assert found(open="true") == found(size="3") == [one]
    assert found(kind="bug", tags="c") == []


def test_a_thread_view_counts_posts_unread_and_read(forum: Forum, ann: Person, bob: Person) -> None:
    made = thread(forum, ann, "lab", title="On parsers", metadata={"k": "v"}, watch=True)
    second = reply(forum, ann, made["threadId"])
    third = reply(forum, bob, made["threadId"])
    forum.interests.mark_read(bob.principal, made["threadId"], through_post_id=made["postId"])
    forum.interests.mute_thread(bob.principal, made["threadId"])
    view = forum.content.thread(bob.principal, made["threadId"])
    assert view == {
        "id": made["threadId"],
        "subforum": "lab",
        "title": "On parsers",
        "metadata": {"k": "v"},
        "author": {"id": ann.id, "name": "ann", "sessionId": ann.session},
        "createdSequence": made["sequence"],
        "lastSequence": third["sequence"],
        "postCount": 3,
        "unreadCount": 1,
        "readThrough": made["sequence"],
        "watching": False,
        "involved": True,
        "muted": True,
        "createdAt": made["createdAt"],
    }
    own = forum.content.thread(ann.principal, made["threadId"])
    assert (own["watching"], own["unreadCount"], own["readThrough"]) == (True, 1, "0")
    assert int(second["sequence"]) < int(third["sequence"])
    assert forum.content.threads(bob.principal)["items"] == [view], "every listing shows what a single read shows"


def test_reading_changes_nothing(forum: Forum, ann: Person, bob: Person) -> None:
    made = thread(forum, ann, "lab")["threadId"]
    before = forum.content.thread(bob.principal, made)
    changes = forum.database.changed.generation()
    forum.content.posts(bob.principal, made)
    forum.content.threads(bob.principal)
    assert forum.content.thread(bob.principal, made) == before
    assert forum.database.changed.generation() == changes


def test_t219_posts_of_later_stay_out_of_a_chain_of_pages(forum: Forum, ann: Person, bob: Person) -> None:
    opened = thread(forum, ann, "lab")
    expected = [opened["postId"], *(reply(forum, ann, opened["threadId"])["postId"] for _ in range(4))]

    def page(cursor: str | None = None) -> Page:
        found = forum.content.posts(bob.principal, opened["threadId"], cursor=cursor, limit=2)
        reply(forum, ann, opened["threadId"])
        return found

    pages = chain(page(), page)
    assert [post["id"] for each in pages for post in each["posts"]] == expected
    assert {each["pageInfo"]["snapshotSequence"] for each in pages} == {"5"}
    assert [each["pageInfo"]["hasMore"] for each in pages] == [True, True, False]


def test_a_page_of_posts_ends_before_it_is_too_large_but_has_one_post(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab", body="x" * 3000)["threadId"]
    for _ in range(4):
        reply(forum, ann, opened, body="\n" * 3000)

    def page(cursor: str | None = None, most: int = 9000) -> Page:
        return forum.content.posts(ann.principal, opened, cursor=cursor, max_bytes=most)

    pages = chain(page(), page)
    assert [len(each["posts"]) for each in pages] == [1, 1, 1, 1, 1]
    assert [len(each["posts"]) for each in chain(page(most=15_000), lambda cursor: page(cursor, 15_000))] == [2, 2, 1]
    assert len(page(most=1)["posts"]) == 1


def test_the_largest_posts_fit_a_page_within_its_bound(forum: Forum, ann: Person) -> None:
    worst = {"body": "\n" * limits.BODY_BYTES, "metadata": {"k": "\t" * (limits.METADATA_BYTES // 2 - 10)}}
    opened = thread(forum, ann, "lab")["threadId"]
    for _ in range(6):
        reply(forum, ann, opened, **worst)
    page = forum.content.posts(ann.principal, opened, limit=100)
    assert 2 <= len(page["posts"]) < 7
    assert len(json.dumps(page, ensure_ascii=False).encode()) <= limits.POSTS_PAGE_BYTES + 1000
    assert page["pageInfo"]["hasMore"]


@pytest.mark.parametrize("limit", [0, 101, -1])
def test_t172_a_page_has_one_to_a_hundred_posts(forum: Forum, ann: Person, limit: int) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    refusal("invalid_argument", lambda: forum.content.posts(ann.principal, opened, limit=limit), field="query.limit")
    assert forum.content.posts(ann.principal, opened, limit=100)["posts"]


def test_t157_a_cursor_continues_only_the_thread_filter_and_session_that_gave_it(
    forum: Forum, ann: Person, bob: Person
) -> None:
    opened, other = (thread(forum, ann, "lab")["threadId"] for _ in range(2))
    reply(forum, ann, opened)
    posts = forum.content.posts(ann.principal, opened, limit=1)["pageInfo"]["nextCursor"]
    listed = forum.content.threads(ann.principal, limit=1)["nextCursor"]
    refusal("cursor_scope_mismatch", lambda: forum.content.posts(ann.principal, other, cursor=posts))
    refusal("cursor_scope_mismatch", lambda: forum.content.threads(ann.principal, subforum="lab", cursor=listed))
    refusal("cursor_scope_mismatch", lambda: forum.content.threads(ann.principal, meta={"k": "v"}, cursor=listed))
    for wrong in (
        lambda: forum.content.posts(ann.principal, opened, cursor=listed),
        lambda: forum.content.threads(ann.principal, cursor=posts),
        lambda: forum.content.posts(bob.principal, opened, cursor=posts),
        lambda: forum.content.posts(ann.principal, opened, cursor="6"),
        lambda: forum.content.posts(ann.principal, opened, cursor=posts[:-1] + ("A" if posts[-1] != "A" else "B")),
    ):
        refusal("invalid_cursor", wrong)


def test_t232_a_cursor_of_posts_or_threads_beyond_the_tail_is_over(forum_factory: ForumFactory) -> None:
    forum = forum_factory()
    ann = register(forum)
    subforum(forum, ann, "lab")
    opened = thread(forum, ann, "lab")["threadId"]
    cursors = forum.context.cursors
    # As a store would have issued them that has lost its newest posts since.
    post = cursors.encode(Kind.POSTS, ann.session, opened, 5, 9)
    refusal("cursor_expired", lambda: forum.content.posts(ann.principal, opened, cursor=post))
    stream = ids.digest([None, None, []]).hex()
    listed = cursors.encode(Kind.THREADS, ann.session, stream, 9)
    refusal("cursor_expired", lambda: forum.content.threads(ann.principal, cursor=listed))


def test_t234_a_clock_that_jumps_back_changes_no_order_page_or_count(forum_factory: ForumFactory) -> None:
    hour = 3_600_000
    times = [hour * 10]
    forum = forum_factory(clock=lambda: times[0])
    ann, bob = register(forum), register(forum)
    subforum(forum, ann, "lab")
    first = thread(forum, ann, "lab")
    times[0] -= hour
    second = thread(forum, ann, "lab")
    answer = reply(forum, ann, first["threadId"])
    assert answer["createdAt"] < first["createdAt"]
    assert ids_of(forum.content.threads(bob.principal)) == [second["threadId"], first["threadId"]]
    assert ids_of(forum.content.recent_threads(bob.principal)) == [first["threadId"], second["threadId"]]
    page = forum.content.posts(bob.principal, first["threadId"])
    assert [post["id"] for post in page["posts"]] == [first["postId"], answer["postId"]]
    assert forum.content.thread(bob.principal, first["threadId"])["unreadCount"] == 2


def test_what_does_not_exist_is_not_found(forum: Forum, ann: Person) -> None:
    absent = "th_00000000000000000000000000"
    for action in (
        lambda: forum.content.subforum(ann.principal, "none"),
        lambda: forum.content.threads(ann.principal, subforum="none"),
        lambda: forum.content.recent_threads(ann.principal, subforum="none"),
        lambda: forum.content.thread(ann.principal, absent),
        lambda: forum.content.posts(ann.principal, absent),
        lambda: forum.content.post(ann.principal, "po_00000000000000000000000000"),
        lambda: forum.content.attachment(ann.principal, "at_00000000000000000000000000"),
        lambda: thread(forum, ann, "none"),
        lambda: reply(forum, ann, absent),
    ):
        refusal("not_found", action)
