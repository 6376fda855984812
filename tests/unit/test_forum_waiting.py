"""Waiting for events without a transaction, by the recipe of ``Events.page``: generation, page, wait, page.

What the HTTP face adds (deadlines, places, clients that go away) is tested in test_forum_server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw
import pytest

from tests.support.forum import ForumFactory, Person, forum, forum_factory
from tests.support.forum_talk import Talk, talk
from tests.support.waiting import eventually

__all__ = ["forum", "forum_factory", "talk"]

NOTHING: Callable[[], None] = lambda: None  # noqa: E731


def awaited(
    talk: Talk,
    person: Person,
    page: dict[str, Any],
    *,
    seconds: float = 20.0,
    before_query: Callable[[], object] = NOTHING,
    after_query: Callable[[], object] = NOTHING,
) -> dict[str, Any]:
    """The next page with events behind ``page``, or an empty one when the time is over; hooks run at the two instants."""
    changed = talk.forum.database.changed
    deadline = time.monotonic() + seconds
    while True:
        generation = changed.generation()
        before_query()
        page = talk.page(person, cursor=page["nextCursor"])
        after_query()
        if page["events"] or not changed.wait(generation, max(0.0, deadline - time.monotonic())):
            return page


def once(action: Callable[[], object]) -> Callable[[], None]:
    """A hook that acts the first time only."""
    pending = [action]

    def hook() -> None:
        if pending:
            pending.pop()()

    return hook


def sequences(page: dict[str, Any]) -> list[int]:
    return [int(event["sequence"]) for event in page["events"]]


@pytest.fixture
def pair(talk: Talk) -> tuple[Person, Person, str]:
    """A listener involved in a thread, and somebody who answers there."""
    listener, speaker = talk.person(), talk.person()
    return listener, speaker, talk.thread(listener).thread


@pytest.mark.parametrize("instant", ["before the wait", "before_query", "after_query"])
def test_invariant_34_a_commit_at_any_instant_around_the_query_wakes(
    talk: Talk, pair: tuple[Person, Person, str], instant: str
) -> None:
    listener, speaker, thread = pair
    start = talk.page(listener, start="tail")
    speak = once(lambda: talk.reply(speaker, thread))
    hooks = {} if instant == "before the wait" else {instant: speak}
    if not hooks:
        speak()
    # With a lost wake-up this would sleep for the whole of its time.
    before = time.monotonic()
    assert sequences(awaited(talk, listener, start, seconds=60, **hooks)) == [2]
    assert time.monotonic() - before < 30


def test_invariant_34_a_commit_while_sleeping_wakes(talk: Talk, pair: tuple[Person, Person, str]) -> None:
    listener, speaker, thread = pair
    start = talk.page(listener, start="tail")
    asleep = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(awaited, talk, listener, start, seconds=60, after_query=asleep.set)
        assert asleep.wait(20)
        talk.reply(speaker, thread)
        assert sequences(waiter.result(30)) == [2]


def test_rule_9_at_the_deadline_the_cursor_has_passed_what_was_examined(
    talk: Talk, pair: tuple[Person, Person, str]
) -> None:
    listener, _, thread = pair
    start = talk.page(listener, start="beginning")
    talk.reply(listener, thread)
    page = awaited(talk, listener, start, seconds=0.05)
    assert (page["events"], page["scannedThrough"]) == ([], "2")
    assert page["nextCursor"] != start["nextCursor"]


def test_a_waiter_sleeps_through_what_does_not_concern_it(talk: Talk, pair: tuple[Person, Person, str]) -> None:
    listener, speaker, thread = pair
    stranger = talk.person()
    start = talk.page(listener, start="tail")
    passed: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        looks = iter(range(1, 1000))
        waiter = pool.submit(awaited, talk, listener, start, seconds=60, after_query=lambda: passed.append(next(looks)))
        eventually(lambda: passed)
        for _ in range(3):
            seen = len(passed)
            talk.thread(stranger)
            eventually(lambda seen=seen: len(passed) > seen)
        assert not waiter.done()
        own = talk.reply(speaker, thread).sequence
        assert sequences(waiter.result(30)) == [own]


def test_t221_sixteen_waiters_hear_eight_posts_each_without_a_lock_error(talk: Talk) -> None:
    speaker = talk.person()
    listeners = [talk.person() for _ in range(16)]
    for listener in listeners:
        talk.forum.interests.watch_subforum(listener.principal, "general")
    starts = [talk.page(listener, start="tail") for listener in listeners]

    def listen(listener: Person, page: dict[str, Any]) -> list[int]:
        heard: list[int] = []
        while len(heard) < 8:
            page = awaited(talk, listener, page, seconds=60)
            assert page["events"]
            heard += sequences(page)
        return heard

    with ThreadPoolExecutor(16) as pool:
        waiters = [pool.submit(listen, *each) for each in zip(listeners, starts, strict=True)]
        thread = talk.thread(speaker).thread
        said = [1, *(talk.reply(speaker, thread).sequence for _ in range(7))]
        assert [waiter.result(60) for waiter in waiters] == [said] * 16


def test_t144_a_waiter_whose_time_is_over_takes_nothing_from_another(
    talk: Talk, pair: tuple[Person, Person, str]
) -> None:
    listener, speaker, thread = pair
    start = talk.page(listener, start="tail")
    asleep = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(awaited, talk, listener, start, seconds=60, after_query=asleep.set)
        assert asleep.wait(20)
        assert awaited(talk, listener, start, seconds=0.01)["events"] == []
        assert not patient.done()
        answer = talk.reply(speaker, thread).sequence
        assert sequences(patient.result(30)) == [answer]


def test_invariant_36_while_all_wait_the_log_can_be_emptied(
    talk: Talk, pair: tuple[Person, Person, str], forum_factory: ForumFactory
) -> None:
    listener, speaker, thread = pair
    start = talk.page(listener, start="tail")
    asleep = threading.Barrier(9)
    with ThreadPoolExecutor(8) as pool:
        waiters = [
            pool.submit(awaited, talk, listener, start, seconds=60, after_query=once(lambda: asleep.wait(20)))
            for _ in range(8)
        ]
        asleep.wait(20)
        outside = apsw.Connection(str(forum_factory.path()))
        outside.set_busy_timeout(5000)
        busy, log, moved = outside.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
        outside.close()
        assert (busy, log, moved) == (0, 0, 0)
        answer = talk.reply(speaker, thread).sequence
        assert [sequences(waiter.result(30)) for waiter in waiters] == [[answer]] * 8
