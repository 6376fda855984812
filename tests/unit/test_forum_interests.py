"""Watches, mutes, visits, pins, read progress and acknowledgements: who owns them, and that none moves another."""

from __future__ import annotations

import pytest

from side_agents.forum import limits
from side_agents.forum.requests import Inherit
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import interests
from tests.support.forum import Person, forum, forum_factory, refusal
from tests.support.forum_talk import Talk, talk

__all__ = ["forum", "forum_factory", "talk"]


def everything_of(talk: Talk, person: Person, thread: str) -> dict[str, object]:
    """All that a session has: what a compaction child must find and a spawn child must not."""
    view = talk.thread_view(person, thread)
    session = person.session

    def visit(relation: interests.Relation, target: str) -> int | None:
        return talk.forum.database.read(lambda db: interests.baseline(db, relation, session, target))

    return {
        "subscriptions": talk.forum.interests.subscriptions(person.principal),
        "progress": {name: view[name] for name in ("readThrough", "unreadCount", "watching", "involved", "muted")},
        "ack": talk.forum.events.acknowledged(person.principal)["throughSequence"],
        "visits": [visit(interests.THREAD_VISIT, thread), visit(interests.SUBFORUM_VISIT, "general")],
        "events": talk.heard(person),
    }


@pytest.fixture
def busy(talk: Talk) -> tuple[Person, str]:
    """Somebody with every relation there is to a thread in which another one has answered."""
    person, other = talk.person(), talk.person()
    thread = talk.thread(person).thread
    me = person.principal
    talk.forum.interests.watch_thread(me, thread)
    talk.forum.interests.watch_subforum(me, "general")
    talk.forum.interests.visit_thread(me, thread)
    talk.forum.interests.visit_subforum(me, "general", observed_sequence="1")
    answer = talk.reply(other, thread)
    talk.reply(other, thread)
    talk.forum.interests.mark_read(me, thread, through_post_id=answer.id)
    talk.forum.events.acknowledge(me, scope="involved,watched-threads,watched-subforums", through_sequence="2")
    return person, thread


def test_t007_t008_t009_t010_t011_a_compaction_child_finds_everything_of_its_session(
    talk: Talk, busy: tuple[Person, str]
) -> None:
    person, thread = busy
    before = everything_of(talk, person, thread)
    child = talk.compacted(person)
    assert child.id != person.id
    assert everything_of(talk, child, thread) == before
    assert before == {
        "subscriptions": {
            "subforums": [{"key": "general", "title": "general", "baselineSequence": "1"}],
            "threads": [{"threadId": thread, "title": "A topic", "subforum": "general", "baselineSequence": "1"}],
        },
        "progress": {"readThrough": "2", "unreadCount": 1, "watching": True, "involved": True, "muted": False},
        "ack": "2",
        "visits": [0, 1],
        "events": {n: ["involved", "watched-threads", "watched-subforums"] for n in (2, 3)},
    }


def test_t012_a_spawn_child_finds_none_of_it(talk: Talk, busy: tuple[Person, str]) -> None:
    person, thread = busy
    assert everything_of(talk, talk.spawned(person), thread) == {
        "subscriptions": {"subforums": [], "threads": []},
        "progress": {"readThrough": "0", "unreadCount": 3, "watching": False, "involved": False, "muted": False},
        "ack": "0",
        "visits": [None, None],
        "events": {},
    }


def test_invariant_13_watching_again_keeps_the_baseline_and_only_ending_it_makes_a_new_one(talk: Talk) -> None:
    writer, reader = talk.person(), talk.person()
    thread = talk.thread(writer).thread
    api = talk.forum.interests
    for watch, unwatch, target in (
        (api.watch_thread, api.unwatch_thread, thread),
        (api.watch_subforum, api.unwatch_subforum, "general"),
    ):
        first = talk.reply(writer, thread).sequence
        assert watch(reader.principal, target) == {
            "watching": True,
            "baselineSequence": str(first),
            "changed": True,
        }
        second = talk.reply(writer, thread).sequence
        assert watch(reader.principal, target) == {
            "watching": True,
            "baselineSequence": str(first),
            "changed": False,
        }
        gone = {"watching": False, "baselineSequence": None}
        assert unwatch(reader.principal, target) == {**gone, "changed": True}
        assert unwatch(reader.principal, target) == {**gone, "changed": False}
        assert watch(reader.principal, target)["baselineSequence"] == str(second)


def test_a_watch_of_something_that_does_not_exist_is_refused(talk: Talk) -> None:
    me = talk.person().principal
    api = talk.forum.interests
    for action in (api.watch_thread, api.unwatch_thread, api.mute_thread, api.unmute_thread, api.visit_thread):
        refusal("not_found", lambda action=action: action(me, "th_00000000000000000000000000"))
    for action in (api.watch_subforum, api.unwatch_subforum):
        refusal("not_found", lambda action=action: action(me, "nowhere"))
    refusal("not_found", lambda: api.visit_subforum(me, "nowhere", observed_sequence="0"))


def test_more_watches_than_allowed_are_refused_and_leave_no_trace(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    me = talk.person()
    others = [talk.thread(talk.person()).thread for _ in range(2)]
    monkeypatch.setattr(
        "side_agents.forum.service.interests._MOST_WATCHES", {interests.THREAD_WATCH: 1, interests.SUBFORUM_WATCH: 0}
    )
    talk.forum.interests.watch_thread(me.principal, others[0])
    talk.forum.interests.watch_thread(me.principal, others[0])
    refusal("invalid_argument", lambda: talk.forum.interests.watch_thread(me.principal, others[1]))
    refusal("invalid_argument", lambda: talk.forum.interests.watch_subforum(me.principal, "general"))
    listed = talk.forum.interests.subscriptions(me.principal)
    assert [found["threadId"] for found in listed["threads"]] == [others[0]]
    assert listed["subforums"] == []


def test_the_published_bounds_are_those_that_are_enforced() -> None:
    from side_agents.forum.service.interests import _MOST_WATCHES

    assert list(_MOST_WATCHES.values()) == [limits.THREAD_WATCHES, limits.SUBFORUM_WATCHES] == [1000, 200]


def test_t197_t198_a_spawn_child_inherits_targets_from_now_on_and_only_those_asked_for(talk: Talk) -> None:
    parent, other = talk.person(), talk.person()
    thread = talk.thread(other).thread
    talk.forum.interests.watch_subforum(parent.principal, "general")
    talk.forum.interests.watch_thread(parent.principal, thread)
    talk.reply(parent, thread)
    missed = talk.reply(other, thread).sequence
    subforums_only = talk.spawned(parent, inherit=Inherit(subforums=True))
    both = talk.spawned(parent, inherit=Inherit(subforums=True, thread_watches=True))
    neither = talk.spawned(parent)
    heard = talk.reply(other, thread).sequence
    assert talk.heard(subforums_only) == {heard: ["watched-subforums"]}
    assert talk.heard(both) == {heard: ["watched-threads", "watched-subforums"]}
    assert talk.heard(neither) == {}
    listed = talk.forum.interests.subscriptions(both.principal)
    assert {found["baselineSequence"] for found in listed["threads"] + listed["subforums"]} == {str(missed)}
    view = talk.thread_view(both, thread)
    assert (view["involved"], view["readThrough"]) == (False, "0")


def test_invariant_49_what_a_child_inherited_is_a_copy(talk: Talk) -> None:
    parent = talk.person()
    talk.forum.interests.watch_subforum(parent.principal, "general")
    child = talk.spawned(parent, inherit=Inherit(subforums=True))
    talk.forum.interests.unwatch_subforum(child.principal, "general")
    assert len(talk.forum.interests.subscriptions(parent.principal)["subforums"]) == 1
    talk.forum.interests.unwatch_subforum(parent.principal, "general")
    again = talk.spawned(parent, inherit=Inherit(subforums=True))
    assert talk.forum.interests.subscriptions(again.principal)["subforums"] == []


def test_invariant_14_posting_makes_involved_once_and_unwatching_does_not_end_it(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(other).thread
    own = [talk.reply(me, thread).sequence for _ in range(2)]
    talk.forum.interests.watch_thread(me.principal, thread)
    talk.forum.interests.unwatch_thread(me.principal, thread)
    answer = talk.reply(other, thread).sequence
    assert talk.heard(me) == {answer: ["involved"]}
    baseline = talk.forum.database.read(lambda db: interests.baseline(db, interests.PARTICIPATION, me.session, thread))
    assert baseline == own[0]


def test_invariant_15_reading_only_goes_forward_and_counts_posts_of_others(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    opening = talk.thread(other)
    own = talk.reply(me, opening.thread)
    last = talk.reply(other, opening.thread)
    mark = talk.forum.interests.mark_read

    def reading(post: str) -> dict[str, object]:
        return mark(me.principal, opening.thread, through_post_id=post)

    assert talk.thread_view(me, opening.thread)["unreadCount"] == 2
    assert reading(own.id) == {"readThrough": str(own.sequence), "unreadCount": 1}
    assert reading(opening.id) == {"readThrough": str(own.sequence), "unreadCount": 1}
    assert reading(last.id) == {"readThrough": str(last.sequence), "unreadCount": 0}
    assert talk.thread_view(other, opening.thread)["readThrough"] == "0"


def test_posting_does_not_move_the_own_read_frontier(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(other).thread
    talk.reply(me, thread)
    view = talk.thread_view(me, thread)
    assert (view["readThrough"], view["unreadCount"]) == ("0", 1)


def test_a_post_of_another_thread_does_not_mark_this_one_read(talk: Talk) -> None:
    me = talk.person()
    one, two = talk.thread(me), talk.thread(me)
    mark = talk.forum.interests.mark_read
    refusal(
        "invalid_argument",
        lambda: mark(me.principal, one.thread, through_post_id=two.id),
        field="body.throughPostId",
    )
    refusal("not_found", lambda: mark(me.principal, one.thread, through_post_id="po_00000000000000000000000000"))
    refusal("not_found", lambda: mark(me.principal, "th_00000000000000000000000000", through_post_id=two.id))
    assert talk.thread_view(me, one.thread)["readThrough"] == "0"


def test_t160_t161_invariant_17_looking_moves_neither_reading_nor_acknowledgement(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(other)
    talk.forum.interests.watch_subforum(me.principal, "general")
    talk.reply(other, thread.thread)

    def progress() -> tuple[object, ...]:
        view = talk.thread_view(me, thread.thread)
        return (view["readThrough"], view["unreadCount"], talk.forum.events.acknowledged(me.principal))

    before = progress()
    generation = talk.forum.database.changed.generation()
    for start in ("beginning", "tail", "acknowledged"):
        talk.page(me, start=start)
    talk.content.posts(me.principal, thread.thread)
    talk.content.post(me.principal, thread.id)
    talk.content.threads(me.principal)
    talk.forum.interests.subscriptions(me.principal)
    assert talk.forum.database.changed.generation() == generation
    talk.forum.interests.visit_thread(me.principal, thread.thread)
    assert progress() == before
    assert before[:2] == ("0", 2)


def test_invariant_17_acknowledging_is_not_reading_and_the_reverse(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    opening = talk.thread(other)
    talk.forum.events.acknowledge(me.principal, scope="involved", through_sequence="1")
    assert talk.thread_view(me, opening.thread)["readThrough"] == "0"
    talk.forum.interests.mark_read(me.principal, opening.thread, through_post_id=opening.id)
    assert talk.forum.events.acknowledged(me.principal, scope="watched-threads")["throughSequence"] == "0"


def test_t213_an_acknowledgement_never_goes_back(talk: Talk) -> None:
    me = talk.person()
    thread = talk.thread(me).thread
    for _ in range(99):
        talk.reply(me, thread)
    ack = talk.forum.events.acknowledge
    assert ack(me.principal, scope="involved", through_sequence="100")["throughSequence"] == "100"
    assert ack(me.principal, scope="involved", through_sequence="50")["throughSequence"] == "100"
    assert talk.forum.events.acknowledged(me.principal, scope="involved")["throughSequence"] == "100"


def test_t214_invariant_16_an_acknowledgement_beyond_the_tail_is_refused(talk: Talk) -> None:
    me = talk.person()
    talk.thread(me)
    ack = talk.forum.events.acknowledge
    error = refusal("future_sequence", lambda: ack(me.principal, scope="involved", through_sequence="2"))
    assert (error.status, error.field) == (422, "body.throughSequence")
    assert ack(me.principal, scope="involved", through_sequence="1")["throughSequence"] == "1"


@pytest.mark.parametrize("text", ["", "-1", "1.0", "01", "+1", "1 ", "a", "²", "9" * 20])
def test_a_sequence_that_is_no_decimal_is_refused(talk: Talk, text: str) -> None:
    me = talk.person().principal
    refusal("invalid_argument", lambda: talk.forum.events.acknowledge(me, scope="involved", through_sequence=text))
    refusal("invalid_argument", lambda: talk.forum.interests.visit_subforum(me, "general", observed_sequence=text))


def test_invariant_16_each_scope_has_an_acknowledgement_of_its_own(talk: Talk) -> None:
    me = talk.person()
    talk.thread(me)
    talk.forum.events.acknowledge(me.principal, scope="involved,watched-threads", through_sequence="1")
    acknowledged = talk.forum.events.acknowledged
    assert acknowledged(me.principal, scope="watched-threads,involved")["throughSequence"] == "1"
    assert acknowledged(me.principal, scope="involved")["throughSequence"] == "0"
    assert acknowledged(me.principal)["throughSequence"] == "0"


def test_a_first_thread_visit_covers_all_history_and_a_subforum_visit_what_came_later(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(other).thread
    talk.reply(other, thread)
    api = talk.forum.interests
    assert api.visit_thread(me.principal, thread) == {"visited": True, "baselineSequence": "0", "changed": True}
    assert api.visit_thread(me.principal, thread) == {"visited": True, "baselineSequence": "0", "changed": False}

    def visit(observed: str, *, history: bool = False) -> dict[str, object]:
        return api.visit_subforum(me.principal, "general", observed_sequence=observed, include_history=history)

    assert visit("1") == {"visited": True, "baselineSequence": "1", "changed": True}
    assert visit("2") == {"visited": True, "baselineSequence": "1", "changed": False}
    assert visit("2", history=True) == {"visited": True, "baselineSequence": "0", "changed": True}
    assert visit("2", history=True)["changed"] is False
    refusal("future_sequence", lambda: visit("3"), field="body.observedSequence")


def test_a_muted_thread_is_silent_for_every_reason_until_it_is_unmuted(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    thread = talk.thread(me, watch=True).thread
    talk.forum.interests.watch_subforum(me.principal, "general")
    assert talk.forum.interests.mute_thread(me.principal, thread) == {"muted": True, "changed": True}
    assert talk.forum.interests.mute_thread(me.principal, thread) == {"muted": True, "changed": False}
    silent = talk.reply(other, thread).sequence
    elsewhere = talk.thread(other).sequence
    assert list(talk.heard(me)) == [elsewhere]
    assert talk.thread_view(me, thread)["muted"] is True
    assert talk.forum.interests.unmute_thread(me.principal, thread) == {"muted": False, "changed": True}
    assert talk.forum.interests.unmute_thread(me.principal, thread) == {"muted": False, "changed": False}
    assert list(talk.heard(me)) == [silent, elsewhere]


def test_t222_pinning_twice_is_one_activity_and_the_order_of_creation_stays(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    talk.forum.interests.watch_subforum(other.principal, "general")
    threads = [talk.thread(me).thread for _ in range(3)]
    pins = talk.forum.pins
    assert pins.pin_thread(me.principal, threads[1]) == {"pinned": True, "changed": True}
    assert pins.pin_thread(other.principal, threads[1]) == {"pinned": True, "changed": False}
    pins.pin_thread(me.principal, threads[0])
    pinned = pins.pinned_threads(me.principal, "general")["threads"]
    assert [view["id"] for view in pinned] == [threads[1], threads[0]]
    assert pins.unpin_thread(me.principal, threads[1]) == {"pinned": False, "changed": True}
    assert pins.unpin_thread(me.principal, threads[1]) == {"pinned": False, "changed": False}
    listed = talk.content.threads(me.principal)["items"]
    assert [view["id"] for view in listed] == threads[::-1]
    told = [(event["type"], event["threadId"], event["postId"]) for event in talk.page(other)["events"][3:]]
    assert told == [
        ("thread.pinned", threads[1], None),
        ("thread.pinned", threads[0], None),
        ("thread.unpinned", threads[1], None),
    ]


def test_t222_posts_are_pinned_in_their_thread_without_becoming_unread_or_involving(talk: Talk) -> None:
    me, other = talk.person(), talk.person()
    opening = talk.thread(other)
    answer = talk.reply(other, opening.thread)
    talk.forum.interests.mark_read(me.principal, opening.thread, through_post_id=answer.id)
    pins = talk.forum.pins
    for post in (answer, opening, answer):
        pins.pin_post(me.principal, post.id)
    listed = pins.pinned_posts(me.principal, opening.thread)
    assert [view["id"] for view in listed["posts"]] == [answer.id, opening.id]
    assert listed["omitted"] == []
    view = talk.thread_view(me, opening.thread)
    assert (view["unreadCount"], view["involved"], view["lastSequence"]) == (0, False, "4")
    shown = talk.content.posts(me.principal, opening.thread)["posts"]
    assert [post["id"] for post in shown] == [opening.id, answer.id]
    assert talk.heard(other) == {3: ["involved"], 4: ["involved"]}


def test_the_21st_pin_of_one_place_is_refused(talk: Talk) -> None:
    me = talk.person()
    opening = talk.thread(me)
    posts = [talk.reply(me, opening.thread).id for _ in range(21)]
    for post in posts[:20]:
        talk.forum.pins.pin_post(me.principal, post)
    refusal("pin_limit", lambda: talk.forum.pins.pin_post(me.principal, posts[20]))
    talk.forum.pins.pin_post(me.principal, posts[0])
    talk.forum.pins.pin_thread(me.principal, opening.thread)
    talk.forum.pins.unpin_post(me.principal, posts[0])
    assert talk.forum.pins.pin_post(me.principal, posts[20]) == {"pinned": True, "changed": True}


def test_pinned_posts_that_do_not_fit_into_one_answer_are_named(talk: Talk) -> None:
    me = talk.person()
    opening = talk.thread(me)
    large = [talk.reply(me, opening.thread, body="\n" * limits.BODY_BYTES).id for _ in range(7)]
    for post in large:
        talk.forum.pins.pin_post(me.principal, post)
    listed = talk.forum.pins.pinned_posts(me.principal, opening.thread)
    assert [view["id"] for view in listed["posts"]] == large[:5]
    assert listed["omitted"] == large[5:]


def test_pins_of_what_does_not_exist_are_refused(talk: Talk) -> None:
    me = talk.person().principal
    pins = talk.forum.pins
    for action in (pins.pin_thread, pins.unpin_thread, pins.pinned_posts):
        refusal("not_found", lambda action=action: action(me, "th_00000000000000000000000000"))
    for action in (pins.pin_post, pins.unpin_post):
        refusal("not_found", lambda action=action: action(me, "po_00000000000000000000000000"))
    refusal("not_found", lambda: pins.pinned_threads(me, "nowhere"))


def test_interests_survive_reopening(talk: Talk, busy: tuple[Person, str], forum: Forum, forum_factory) -> None:  # type: ignore[no-untyped-def]  # pytest knows the fixture
    person, thread = busy
    before = everything_of(talk, person, thread)
    forum_factory.close(forum)
    assert everything_of(Talk(forum_factory()), person, thread) == before
