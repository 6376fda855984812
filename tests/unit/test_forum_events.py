"""The 15 rules of events (reference/forum.md 5.6), one by one; all together in test_forum_machine."""

from __future__ import annotations

import shutil
import time
from itertools import chain, combinations
from typing import Any

import apsw
import pytest

from side_agents.forum import limits, scopes
from side_agents.forum.cursors import Kind
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import events
from tests.support.forum import ForumFactory, Person, forum, forum_factory, refusal
from tests.support.forum_talk import Talk, talk

__all__ = ["forum", "forum_factory", "talk"]

SCOPES = [
    scopes.parse(",".join(chosen))
    for chosen in chain.from_iterable(combinations(scopes.TOKENS, size) for size in (1, 2, 3))
]


def sequences(page: dict[str, Any]) -> list[int]:
    return [int(event["sequence"]) for event in page["events"]]


def test_t016_t017_invariant_27_authors_of_one_session_do_not_hear_each_other(talk: Talk) -> None:
    first = talk.person()
    talk.forum.interests.watch_subforum(first.principal, "general")
    second = talk.compacted(first)
    thread = talk.thread(first, watch=True).thread
    talk.reply(second, thread)
    third = talk.compacted(second)
    talk.reply(third, thread)
    for author in (first, second, third):
        assert talk.heard(author) == {}


def test_t018_t019_t020_invariant_27_parents_children_and_siblings_hear_each_other(talk: Talk) -> None:
    parent = talk.person()
    children = [talk.spawned(parent), talk.spawned(parent)]
    family = [parent, *children]
    for person in family:
        talk.forum.interests.watch_subforum(person.principal, "general")
    thread = talk.thread(parent).thread
    said = [1, *(talk.reply(child, thread).sequence for child in children)]
    for person, own in zip(family, said, strict=True):
        assert list(talk.heard(person)) == [sequence for sequence in said if sequence != own]


def test_rule_2_all_reasons_within_the_scope_are_named_and_no_others(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(me, watch=True).thread
    talk.forum.interests.watch_subforum(me.principal, "general")
    answer = talk.reply(other, thread).sequence
    assert talk.heard(me) == {answer: ["involved", "watched-threads", "watched-subforums"]}
    assert talk.heard(me, scope="watched-subforums,involved") == {answer: ["involved", "watched-subforums"]}
    talk.forum.interests.unwatch_thread(me.principal, thread)
    assert talk.heard(me, scope="watched-threads") == {}


def test_an_event_tells_who_did_what_where_and_no_text(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    opening = talk.thread(me)
    answer = talk.reply(other, opening.thread, body="the text")
    (event,) = talk.page(me)["events"]
    assert event.pop("createdAt").endswith("Z")
    assert event == {
        "sequence": str(answer.sequence),
        "type": "post.created",
        "actor": {"id": other.id, "name": other.name, "sessionId": other.session},
        "threadId": opening.thread,
        "threadTitle": "A topic",
        "postId": answer.id,
        "replyTo": None,
        "subforum": "general",
        "reasons": ["involved"],
    }


def test_t151_invariant_32_what_came_before_a_watch_is_not_returned_by_beginning(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(other).thread
    talk.forum.interests.watch_thread(me.principal, thread)
    later = talk.reply(other, thread).sequence
    assert list(talk.heard(me, start="beginning")) == [later]


def test_rule_4_what_was_of_interest_only_before_the_poll_is_not_delivered(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    talk.forum.interests.watch_subforum(me.principal, "general")
    talk.thread(other)
    talk.forum.interests.unwatch_subforum(me.principal, "general")
    page = talk.page(me)
    assert (sequences(page), page["scannedThrough"]) == ([], "1")


@pytest.fixture
def ten(talk: Talk) -> tuple[Person, Person, str]:
    """A reader whose ten events are the even sequences up to 20; the odd ones are of its own session."""
    reader, writer = talk.person(), talk.person()
    thread = talk.thread(reader).thread
    for number in range(2, 21):
        talk.reply(writer if number % 2 == 0 else reader, thread)
    return reader, writer, thread


def chain_of(talk: Talk, person: Person, limit: int, **begin: Any) -> list[dict[str, Any]]:
    """All pages from a beginning to the tail."""
    pages = [talk.page(person, limit=limit, **begin)]
    while pages[-1]["hasMore"]:
        pages.append(talk.page(person, limit=limit, cursor=pages[-1]["nextCursor"]))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 9, 10, 11, 500])
def test_invariants_28_29_a_chain_of_pages_has_every_event_once_and_in_order(
    talk: Talk, ten: tuple[Person, Person, str], limit: int
) -> None:
    pages = chain_of(talk, ten[0], limit)
    assert list(chain.from_iterable(map(sequences, pages))) == list(range(2, 21, 2))
    assert all(len(page["events"]) <= limit for page in pages)
    assert pages[-1]["scannedThrough"] == "20"


def test_invariant_30_a_full_page_stops_at_its_last_event_and_a_last_one_at_the_tail(
    talk: Talk, ten: tuple[Person, Person, str]
) -> None:
    reader, _, thread = ten
    full = talk.page(reader, limit=9)
    assert (full["scannedThrough"], full["hasMore"]) == ("18", True)
    talk.reply(reader, thread)
    last = talk.page(reader, limit=9, cursor=full["nextCursor"])
    assert (sequences(last), last["scannedThrough"], last["hasMore"]) == ([20], "21", False)
    empty = talk.page(reader, limit=9, cursor=last["nextCursor"])
    assert (sequences(empty), empty["scannedThrough"]) == ([], "21")


def test_rule_8_the_three_starts(talk: Talk, ten: tuple[Person, Person, str]) -> None:
    reader, writer, thread = ten
    talk.forum.events.acknowledge(
        reader.principal, scope="watched-subforums,watched-threads,involved", through_sequence="14"
    )
    assert list(talk.heard(reader, start="acknowledged")) == [16, 18, 20]
    tail = talk.page(reader, start="tail")
    assert (sequences(tail), tail["scannedThrough"]) == ([], "20")
    talk.reply(writer, thread)
    assert sequences(talk.page(reader, cursor=tail["nextCursor"])) == [21]


def test_t149_t150_t152_invariant_33_an_acknowledgement_hides_nothing_and_collecting_acknowledges_nothing(
    talk: Talk, ten: tuple[Person, Person, str]
) -> None:
    reader = ten[0]
    talk.forum.events.acknowledge(
        reader.principal, scope="involved,watched-threads,watched-subforums", through_sequence="20"
    )
    before = talk.forum.events.acknowledged(reader.principal)
    assert list(talk.heard(reader)) == list(range(2, 21, 2))
    assert talk.forum.events.acknowledged(reader.principal) == before


def test_rule_11_t162_a_compaction_child_continues_the_cursor_and_a_spawn_child_cannot(
    talk: Talk, ten: tuple[Person, Person, str]
) -> None:
    reader = ten[0]
    cursor = talk.page(reader, limit=4)["nextCursor"]
    child = talk.compacted(reader)
    assert sequences(talk.page(child, cursor=cursor)) == [10, 12, 14, 16, 18, 20]
    spawned = talk.spawned(reader)
    refusal("invalid_cursor", lambda: talk.page(spawned, cursor=cursor))


def test_rule_12_two_authors_of_a_session_see_the_same_stream(talk: Talk, ten: tuple[Person, Person, str]) -> None:
    child = talk.compacted(ten[0])
    for limit in (1, 20):
        assert talk.page(child, limit=limit) == talk.page(ten[0], limit=limit)


def test_rule_13_asking_again_with_an_old_cursor_repeats_the_page(talk: Talk, ten: tuple[Person, Person, str]) -> None:
    first = talk.page(ten[0], limit=4)
    pages = [talk.page(ten[0], limit=4, cursor=first["nextCursor"]) for _ in range(2)]
    assert pages[0] == pages[1]


def test_t157_t158_invariant_31_a_cursor_of_another_scope_kind_or_forum_is_refused(
    talk: Talk, ten: tuple[Person, Person, str], forum_factory: ForumFactory
) -> None:
    reader, _, thread = ten
    cursor = talk.page(reader, limit=4)["nextCursor"]
    refusal("cursor_scope_mismatch", lambda: talk.page(reader, scope="involved", cursor=cursor))
    refusal("invalid_cursor", lambda: talk.content.posts(reader.principal, thread, cursor=cursor))
    posts = talk.content.posts(reader.principal, thread, limit=1)["pageInfo"]["nextCursor"]
    refusal("invalid_cursor", lambda: talk.page(reader, cursor=posts))
    elsewhere = Talk(forum_factory("another"))
    refusal("invalid_cursor", lambda: elsewhere.page(elsewhere.person(), cursor=cursor))


def test_t156_a_number_is_no_cursor_of_events_or_posts(talk: Talk, ten: tuple[Person, Person, str]) -> None:
    reader, _, thread = ten
    refusal("invalid_cursor", lambda: talk.page(reader, cursor="6"), field="query.cursor")
    refusal("invalid_cursor", lambda: talk.content.posts(reader.principal, thread, cursor="6"))


def test_t215_the_order_of_a_scope_does_not_matter(talk: Talk, ten: tuple[Person, Person, str]) -> None:
    reader = ten[0]
    one = talk.page(reader, scope="involved,watched-threads,watched-subforums", limit=3)
    two = talk.page(reader, scope="watched-subforums,involved,watched-threads", limit=3)
    assert one == two == talk.page(reader, limit=3)
    assert sequences(talk.page(reader, scope="watched-threads,watched-subforums,involved", cursor=one["nextCursor"]))


@pytest.mark.parametrize(
    "scope", ["", "mentions", "involved,", "involved,mentions", "Involved", " involved", "15", "visited-threads"]
)
def test_t215_an_unknown_part_of_a_scope_is_refused(talk: Talk, scope: str) -> None:
    me = talk.person().principal
    for action in (
        lambda: talk.forum.events.page(me, scope=scope, start="beginning"),
        lambda: talk.forum.events.acknowledged(me, scope=scope),
        lambda: talk.forum.events.acknowledge(me, scope=scope, through_sequence="0"),
    ):
        assert refusal("invalid_scope", action).status == 422


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_t172_a_limit_out_of_bounds_is_refused(talk: Talk, limit: int) -> None:
    me = talk.person()
    assert refusal("invalid_argument", lambda: talk.page(me, limit=limit), field="query.limit").status == 422


@pytest.mark.parametrize("limit", [1, limits.EVENTS_PAGE])
def test_t172_the_outermost_limits_are_taken(talk: Talk, limit: int) -> None:
    assert talk.page(talk.person(), limit=limit)["events"] == []


@pytest.mark.parametrize("asked", [{}, {"start": "now"}, {"start": ""}, {"start": "tail", "cursor": "x"}])
def test_exactly_one_beginning_is_needed(talk: Talk, asked: dict[str, str]) -> None:
    me = talk.person().principal
    refusal("invalid_argument", lambda: talk.forum.events.page(me, **asked))


def test_t231_invariant_57_after_a_restore_old_cursors_are_told_as_expired(
    talk: Talk, ten: tuple[Person, Person, str], forum_factory: ForumFactory, forum: Forum
) -> None:
    reader, _, thread = ten
    old = talk.page(reader, limit=4)["nextCursor"]
    old_posts = talk.content.posts(reader.principal, thread, limit=1)["pageInfo"]["nextCursor"]
    forum_factory.close(forum)
    connection = apsw.Connection(str(forum_factory.path()))
    connection.execute("UPDATE installation SET epoch = epoch + 1")
    connection.close()
    again = Talk(forum_factory())
    assert refusal("cursor_expired", lambda: again.page(reader, cursor=old)).status == 410
    refusal("cursor_expired", lambda: again.content.posts(reader.principal, thread, cursor=old_posts))
    assert len(again.heard(reader)) == 10


def test_t232_invariant_57_a_cursor_beyond_the_tail_of_a_file_rolled_back_by_hand_is_no_empty_page(
    talk: Talk, ten: tuple[Person, Person, str], forum_factory: ForumFactory, forum: Forum
) -> None:
    reader, writer, thread = ten
    forum_factory.close(forum)
    path = forum_factory.path()
    shutil.copy(path, path.with_suffix(".old"))
    grown = forum_factory()
    talk = Talk(grown)
    talk.reply(writer, thread)
    cursor = talk.page(reader)["nextCursor"]
    forum_factory.close(grown)
    shutil.copy(path.with_suffix(".old"), path)
    rolled_back = Talk(forum_factory())
    error = refusal("cursor_expired", lambda: rolled_back.page(reader, cursor=cursor))
    assert error.status == 410
    assert "21" in error.message
    assert "20" in error.message


def test_t234_invariant_60_a_clock_that_jumps_changes_neither_order_nor_pages_nor_unread(
    forum_factory: ForumFactory,
) -> None:
    now = [time.time_ns() // 1_000_000]
    talk = Talk(forum_factory("jumping", clock=lambda: now[0]))
    talk.subforum(talk.person())
    me, other = talk.person(), talk.person()
    thread = talk.thread(me).thread
    made = []
    for hours in (0, -1, 24, -48, 2):
        now[0] += hours * 3_600_000
        made.append(talk.reply(other, thread))
    assert list(talk.heard(me)) == [post.sequence for post in made] == [2, 3, 4, 5, 6]
    pages = chain_of(talk, me, 2)
    assert [sequences(page) for page in pages] == [[2, 3], [4, 5], [6]]
    shown = talk.content.posts(me.principal, thread)["posts"]
    assert [post["id"] for post in shown[1:]] == [post.id for post in made]
    read = talk.forum.interests.mark_read(me.principal, thread, through_post_id=made[2].id)
    assert read == {"readThrough": "4", "unreadCount": 2}
    times = [post["createdAt"] for post in shown]
    assert times != sorted(times)


def test_watches_and_other_state_are_no_activity(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    opening = talk.thread(me)
    talk.forum.interests.watch_subforum(me.principal, "general")
    for change in (
        lambda: talk.forum.interests.watch_thread(other.principal, opening.thread),
        lambda: talk.forum.interests.mute_thread(other.principal, opening.thread),
        lambda: talk.forum.interests.visit_thread(other.principal, opening.thread),
        lambda: talk.forum.interests.mark_read(other.principal, opening.thread, through_post_id=opening.id),
        lambda: talk.forum.events.acknowledge(other.principal, scope="involved", through_sequence="1"),
    ):
        change()
    assert talk.page(me)["scannedThrough"] == "1"


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: "+".join(scopes.names(scope)))
def test_the_events_query_reads_no_table_from_end_to_end(forum: Forum, scope: scopes.Reason) -> None:
    named = {"session": "as_1", "after": 0, "tail": 1, "limit": 1}
    rows = forum.database.read(
        lambda db: db.execute(f"EXPLAIN QUERY PLAN {events.eligible_sql(scope)}", named).fetchall()
    )
    steps = [str(row[3]) for row in rows]
    assert not [step for step in steps if step.startswith("SCAN")], steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps
    # Activity is the outermost loop, walked by its key within bounds; everything else is found by key in it.
    assert [step for step in steps if step.startswith("SEARCH a ")] == [
        "SEARCH a USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
    ]
    relations = [step.split()[1] for step in steps if step.endswith("LEFT-JOIN") and step.startswith("SEARCH r")]
    assert relations == [f"r{int(reason)}" for reason in scopes.NAMES if reason in scope & scopes.EVENT_SCOPE]


def test_the_cursor_is_of_the_kind_and_stream_that_it_says(talk: Talk) -> None:
    me = talk.person()
    cursor = talk.page(me)["nextCursor"]
    opened = talk.forum.context.cursors.decode(
        cursor, Kind.EVENTS, me.session, "involved,watched-subforums,watched-threads;1"
    )
    assert opened == (0,)
