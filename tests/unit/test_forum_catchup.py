"""Catch-up plans: finite, fixed when made, read in pages, and moving the read progress by receipts only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from side_agents.forum import ids, limits
from side_agents.forum.requests import PlanScope
from side_agents.forum.store import catchup
from tests.support.forum import ForumFactory, Person, forum, forum_factory, refusal
from tests.support.forum_talk import Posted, Talk, talk

__all__ = ["forum", "forum_factory", "talk"]

HOUR = 3_600_000


@dataclass
class Reader:
    """Somebody who catches up."""

    talk: Talk
    person: Person

    @property
    def api(self) -> Any:
        return self.talk.forum.catchup

    def plan(self, scope: PlanScope = "all", **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.api.create(self.person.principal, scope=scope, **more)
        return made

    def page(self, plan: dict[str, Any], **more: Any) -> dict[str, Any]:
        page: dict[str, Any] = self.api.page(self.person.principal, plan["planId"], **more)
        return page

    def pages(self, plan: dict[str, Any], limit: int) -> list[dict[str, Any]]:
        pages = [self.page(plan, limit=limit)]
        while pages[-1]["pageInfo"]["hasMore"]:
            pages.append(self.page(plan, limit=limit, cursor=pages[-1]["pageInfo"]["nextCursor"]))
        return pages

    def ack(self, plan: dict[str, Any], page: dict[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = self.api.acknowledge(self.person.principal, plan["planId"], receipt_id=page["receiptId"])
        return done

    def progress(self, thread: str) -> tuple[str, int]:
        view = self.talk.thread_view(self.person, thread)
        return view["readThrough"], view["unreadCount"]


@pytest.fixture
def reader(talk: Talk) -> Reader:
    return Reader(talk, talk.person())


@pytest.fixture
def writer(talk: Talk) -> Person:
    return talk.person()


def shown(page: dict[str, Any]) -> list[int]:
    return [int(post["sequence"]) for post in page["posts"]]


def conversation(reader: Reader, writer: Person, replies: int) -> list[Posted]:
    """A visited thread of the writer's with so many replies; sequences count up from its opening post."""
    opening = reader.talk.thread(writer)
    reader.talk.forum.interests.visit_thread(reader.person.principal, opening.thread)
    return [opening, *(reader.talk.reply(writer, opening.thread) for _ in range(replies))]


def test_a_plan_says_what_it_holds_and_its_pages_tell_the_posts_and_why(reader: Reader, writer: Person) -> None:
    posts = conversation(reader, writer, 2)
    plan = reader.plan("visited")
    assert {
        name: plan[name] for name in ("scope", "subforum", "upperSequence", "threadCount", "postCount", "isFull")
    } == {
        "scope": "visited",
        "subforum": None,
        "upperSequence": "3",
        "threadCount": 1,
        "postCount": 3,
        "isFull": False,
    }
    assert ids.is_ulid("pl", plan["planId"])
    page = reader.page(plan)
    assert [post["id"] for post in page["posts"]] == [post.id for post in posts]
    assert page["posts"][0] == reader.talk.content.post(reader.person.principal, posts[0].id)
    assert page["threads"] == [
        {"threadId": posts[0].thread, "title": "A topic", "subforum": "general", "reasons": ["visited-threads"]}
    ]
    assert page["pageInfo"] == {"nextCursor": None, "hasMore": False}


def test_t223_the_receipt_of_a_later_page_is_refused_until_the_earlier_one_is_acknowledged(
    reader: Reader, writer: Person
) -> None:
    thread = conversation(reader, writer, 4)[0].thread
    plan = reader.plan()
    first, second, third = reader.pages(plan, 2)
    assert [shown(page) for page in (first, second, third)] == [[1, 2], [3, 4], [5]]
    for early in (second, third):
        error = refusal("coverage_gap", lambda early=early: reader.ack(plan, early))
        assert (error.status, error.retryable) == (409, False)
    assert reader.progress(thread) == ("0", 5)
    reader.ack(plan, first)
    refusal("coverage_gap", lambda: reader.ack(plan, third))
    assert reader.ack(plan, second)["threads"] == [{"threadId": thread, "readThrough": "4", "unreadCount": 1}]
    reader.ack(plan, third)
    assert reader.progress(thread) == ("5", 0)


def test_t223_a_gap_in_one_thread_rejects_the_whole_receipt(reader: Reader, writer: Person) -> None:
    one = conversation(reader, writer, 2)
    two = conversation(reader, writer, 1)
    plan = reader.plan()
    first, second = reader.pages(plan, 2)[:2]
    assert shown(second) == [one[2].sequence, two[0].sequence]
    refusal("coverage_gap", lambda: reader.ack(plan, second))
    assert (reader.progress(one[0].thread)[0], reader.progress(two[0].thread)[0]) == ("0", "0")
    reader.ack(plan, first)
    assert len(reader.ack(plan, second)["threads"]) == 2


def test_reading_in_another_way_closes_the_gap(reader: Reader, writer: Person) -> None:
    posts = conversation(reader, writer, 3)
    plan = reader.plan()
    _, second = reader.pages(plan, 2)
    reader.talk.forum.interests.mark_read(reader.person.principal, posts[0].thread, through_post_id=posts[1].id)
    assert reader.ack(plan, second)["threads"][0]["readThrough"] == "4"


def test_acknowledging_never_goes_back_and_may_be_repeated(reader: Reader, writer: Person) -> None:
    posts = conversation(reader, writer, 3)
    plan = reader.plan()
    first, second = reader.pages(plan, 2)
    done = [reader.ack(plan, page) for page in (first, second, first, second)]
    assert [each["threads"][0]["readThrough"] for each in done] == ["2", "4", "4", "4"]
    assert reader.progress(posts[0].thread) == ("4", 0)


def test_invariant_17_pages_move_nothing(reader: Reader, writer: Person) -> None:
    thread = conversation(reader, writer, 3)[0].thread
    plan = reader.plan()
    for _ in range(2):
        reader.pages(plan, 1)
    assert reader.progress(thread) == ("0", 4)
    assert reader.talk.forum.events.acknowledged(reader.person.principal)["throughSequence"] == "0"


def test_the_same_page_keeps_its_receipt(reader: Reader, writer: Person) -> None:
    conversation(reader, writer, 2)
    plan = reader.plan()
    assert reader.page(plan, limit=2) == reader.page(plan, limit=2)
    assert reader.page(plan, limit=2)["receiptId"] != reader.page(plan, limit=3)["receiptId"]


def test_a_plan_does_not_grow(reader: Reader, writer: Person) -> None:
    posts = conversation(reader, writer, 1)
    plan = reader.plan()
    reader.talk.reply(writer, posts[0].thread)
    conversation(reader, writer, 0)
    assert [shown(page) for page in reader.pages(plan, 1)] == [[1], [2]]
    for page in reader.pages(plan, 100):
        reader.ack(plan, page)
    assert reader.progress(posts[0].thread) == ("2", 1)
    assert [shown(page) for page in reader.pages(reader.plan(), 100)] == [[3, 4]]


def test_own_posts_are_passed_over_and_muted_and_read_threads_left_out(reader: Reader, writer: Person) -> None:
    talk, me = reader.talk, reader.person
    posts = conversation(reader, writer, 0)
    talk.reply(me, posts[0].thread)
    answer = talk.reply(writer, posts[0].thread)
    talk.reply(me, posts[0].thread)
    muted = conversation(reader, writer, 0)[0].thread
    talk.forum.interests.mute_thread(me.principal, muted)
    read = conversation(reader, writer, 0)[0]
    talk.forum.interests.mark_read(me.principal, read.thread, through_post_id=read.id)
    only_own = talk.thread(me).thread
    talk.forum.interests.visit_thread(me.principal, only_own)
    plan = reader.plan()
    assert (plan["threadCount"], plan["postCount"]) == (1, 2)
    page = reader.page(plan)
    assert shown(page) == [1, answer.sequence]
    # The own post at the end was examined too, so nothing of the thread is left.
    assert reader.ack(plan, page)["threads"] == [{"threadId": posts[0].thread, "readThrough": "4", "unreadCount": 0}]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("visited", {"visited-threads": 1, "visited-subforums": 1}),
        ("subscriptions", {"watched-threads": 1, "watched-subforums": 1}),
        (
            "all",
            {"visited-threads": 1, "visited-subforums": 1, "watched-threads": 1, "watched-subforums": 1, "involved": 1},
        ),
    ],
)
def test_each_scope_selects_by_its_own_relations(
    reader: Reader, writer: Person, scope: PlanScope, expected: dict[str, int]
) -> None:
    talk, me = reader.talk, reader.person
    for key in ("visited", "watched"):
        talk.subforum(writer, key)
    conversation(reader, writer, 0)
    watched = talk.thread(writer).thread
    talk.forum.interests.watch_thread(me.principal, watched)
    involved = talk.thread(me).thread
    talk.forum.interests.visit_subforum(me.principal, "visited", observed_sequence="0")
    talk.forum.interests.watch_subforum(me.principal, "watched")
    talk.reply(writer, watched)
    talk.reply(writer, involved)
    talk.thread(writer, "visited")
    talk.thread(writer, "watched")
    talk.thread(writer)
    pages = reader.pages(reader.plan(scope), 100)
    counted: dict[str, int] = {}
    for thread in pages[0]["threads"]:
        for reason in thread["reasons"]:
            counted[reason] = counted.get(reason, 0) + 1
    assert counted == expected


def test_a_plan_begins_at_the_lowest_baseline_or_where_reading_stopped(reader: Reader, writer: Person) -> None:
    talk, me = reader.talk, reader.person
    opening = talk.thread(writer)
    talk.forum.interests.watch_thread(me.principal, opening.thread)
    later = [talk.reply(writer, opening.thread) for _ in range(3)]
    plan = reader.plan("subscriptions")
    assert shown(reader.page(plan)) == [2, 3, 4]
    talk.forum.interests.mark_read(me.principal, opening.thread, through_post_id=later[0].id)
    assert shown(reader.page(reader.plan("subscriptions"))) == [3, 4]
    talk.forum.interests.visit_thread(me.principal, opening.thread)
    again = reader.plan("all")
    assert shown(reader.page(again)) == [3, 4]


def test_a_plan_of_one_subforum_leaves_the_others_out(reader: Reader, writer: Person) -> None:
    reader.talk.subforum(writer, "other")
    conversation(reader, writer, 0)
    elsewhere = reader.talk.thread(writer, "other")
    reader.talk.forum.interests.visit_thread(reader.person.principal, elsewhere.thread)
    plan = reader.plan("all", subforum="other")
    assert shown(reader.page(plan)) == [elsewhere.sequence]
    refusal("not_found", lambda: reader.plan("all", subforum="nowhere"))


def test_a_plan_with_nothing_in_it_has_one_empty_page_without_a_receipt(reader: Reader) -> None:
    plan = reader.plan()
    page = reader.page(plan)
    assert (page["posts"], page["threads"], page["receiptId"]) == ([], [], None)
    assert page["pageInfo"] == {"nextCursor": None, "hasMore": False}


def test_pages_end_before_they_grow_too_large_and_have_at_least_one_post(reader: Reader, writer: Person) -> None:
    opening = reader.talk.thread(writer, body="\n" * limits.BODY_BYTES)
    reader.talk.forum.interests.visit_thread(reader.person.principal, opening.thread)
    for _ in range(12):
        reader.talk.reply(writer, opening.thread, body="\n" * limits.BODY_BYTES)
    pages = reader.pages(reader.plan(), 100)
    assert sum(len(page["posts"]) for page in pages) == 13
    for page in pages:
        assert page["posts"]
        assert len(json.dumps(page["posts"], ensure_ascii=False).encode()) <= limits.PLAN_PAGE_BYTES + 16
    assert len(pages) == 3


@pytest.mark.parametrize("limit", [0, 101])
def test_a_page_limit_out_of_bounds_is_refused(reader: Reader, limit: int) -> None:
    plan = reader.plan()
    refusal("invalid_argument", lambda: reader.page(plan, limit=limit))


def test_a_session_has_at_most_three_plans_and_deleting_makes_room(reader: Reader) -> None:
    plans = [reader.plan() for _ in range(3)]
    assert refusal("plan_limit", reader.plan).status == 409
    me = reader.person.principal
    assert reader.api.close(me, plans[0]["planId"]) == {"closed": True}
    refusal("not_found", lambda: reader.api.close(me, plans[0]["planId"]))
    refusal("not_found", lambda: reader.page(plans[0]))
    reader.plan()
    Reader(reader.talk, reader.talk.person()).plan()


def test_a_plan_belongs_to_its_session(reader: Reader, writer: Person) -> None:
    conversation(reader, writer, 1)
    plan = reader.plan()
    first = reader.page(plan, limit=1)
    child = Reader(reader.talk, reader.talk.compacted(reader.person))
    assert child.page(plan, limit=1) == first
    stranger = Reader(reader.talk, writer)
    refusal("not_found", lambda: stranger.page(plan))
    refusal("not_found", lambda: stranger.ack(plan, first))
    refusal("not_found", lambda: stranger.api.close(writer.principal, plan["planId"]))


def test_a_receipt_and_a_cursor_belong_to_their_plan(reader: Reader, writer: Person) -> None:
    conversation(reader, writer, 1)
    one, two = reader.plan(), reader.plan()
    first = reader.page(one, limit=1)
    refusal("not_found", lambda: reader.ack(two, first), field="body.receiptId")
    refusal("not_found", lambda: reader.ack(one, {"receiptId": "rc_00000000000000000000000000"}))
    refusal("cursor_scope_mismatch", lambda: reader.page(two, cursor=first["pageInfo"]["nextCursor"]))
    events = reader.talk.page(reader.person)["nextCursor"]
    refusal("invalid_cursor", lambda: reader.page(one, cursor=events))


def test_a_plan_ends_after_a_day_and_says_so(forum_factory: ForumFactory) -> None:
    now = [ids.now_ms()]
    talk = Talk(forum_factory("timed", clock=lambda: now[0]))
    writer = talk.person()
    talk.subforum(writer)
    reader = Reader(talk, talk.person())
    thread = conversation(reader, writer, 1)[0].thread
    plans = [reader.plan() for _ in range(3)]
    pages = reader.pages(plans[0], 1)
    now[0] += limits.PLAN_HOURS * HOUR - 1
    reader.ack(plans[0], pages[0])
    refusal("plan_limit", reader.plan)
    now[0] += 1
    for action in (lambda: reader.page(plans[0]), lambda: reader.ack(plans[0], pages[1])):
        assert refusal("plan_expired", action).status == 410
    assert reader.progress(thread) == ("1", 1)
    plan = reader.plan()
    assert shown(reader.page(plan)) == [2]
    # What the expired ones held is gone, that they existed is not.
    assert refusal("plan_expired", lambda: reader.page(plans[0])).status == 410
    left = talk.forum.database.read(lambda db: db.execute("SELECT count(*) FROM catchup_plan_thread").get)
    assert left == 1
    assert reader.api.close(reader.person.principal, plans[1]["planId"]) == {"closed": True}


def test_a_plan_with_too_many_threads_takes_the_oldest_and_says_that_it_is_full(
    reader: Reader, writer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = [conversation(reader, writer, 0)[0] for _ in range(3)]
    monkeypatch.setattr(limits, "PLAN_THREADS", 2)
    plan = reader.plan()
    assert (plan["threadCount"], plan["isFull"]) == (2, True)
    page = reader.page(plan)
    assert shown(page) == [1, 2]
    reader.ack(plan, page)
    rest = reader.plan()
    assert (rest["isFull"], shown(reader.page(rest))) == (False, [posts[2].sequence])


def test_plans_survive_a_restart(reader: Reader, writer: Person, forum_factory: ForumFactory) -> None:
    conversation(reader, writer, 2)
    plan = reader.plan()
    first, second = reader.pages(plan, 2)
    forum_factory.close(reader.talk.forum)
    again = Reader(Talk(forum_factory()), reader.person)
    assert again.pages(plan, 2) == [first, second]
    again.ack(plan, first)
    assert again.ack(plan, second)["threads"][0]["unreadCount"] == 0


def test_walking_a_plan_reads_no_table_from_end_to_end(talk: Talk) -> None:
    plan = catchup.Plan("pl_x", "as_x", "all", None, 9, 0, 0)
    traced: list[str] = []

    def query(db: Any) -> None:
        db.exec_trace = lambda _cursor, sql, _bindings: traced.append(sql) or True
        try:
            catchup.examine(db, plan, catchup.START, 5)
            catchup.threads(db, plan.id, 0, 5)
            catchup.stretches(db, plan, "rc_x")
        finally:
            db.exec_trace = None
        for sql in traced:
            steps = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", _unbound(sql))]
            assert not [step for step in steps if step.startswith("SCAN")], steps

    talk.forum.database.read(query)
    assert len(traced) == 3


def _unbound(sql: str) -> dict[str, None] | tuple[None, ...]:
    """Bindings that fit, for a plan that does not depend on them."""
    if ":plan" in sql:
        return dict.fromkeys(("plan", "session", "ordinal", "after", "upper", "limit"))
    return (None,) * 3
