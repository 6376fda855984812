"""Collection: backpressure, one request shared by all who wait, and lifetimes of their own (T129-T134, T142-T170)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import ForumError, RefusedError, UsageError
from side_agents.forum import failpoints
from side_agents.forum.client import collector as module
from side_agents.forum.client import policy
from side_agents.forum.client.api import EventPage
from side_agents.forum.client.collector import BackgroundCollection, Collector, check_after, dismiss, start_over
from side_agents.forum.client.transport import Signal, cancelled, no_answer
from side_agents.forum.client.worker_file import WorkerFile
from tests.support.forum import sound_forums
from tests.support.forum_client import (
    Place,
    add_subforum,
    error_response,
    event,
    json_response,
    known_document,
    new_file,
    reference,
    scripted_worker,
)
from tests.support.waiting import eventually

__all__ = ["sound_forums"]


@dataclass
class Feed:
    """A forum that answers at once with what there is, or holds a request that waits until something comes."""

    tail: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    failure: ForumError | None = None
    oversize: int = 0
    news: threading.Condition = field(default_factory=threading.Condition)

    def add(self, *numbers: int) -> None:
        with self.news:
            self.events += [event(number) for number in numbers]
            self.news.notify_all()

    def __call__(self, *, cursor: str | None, limit: int, wait: int, cancellation: Signal) -> EventPage:
        self.calls.append({"cursor": cursor, "limit": limit, "wait": wait, "cancellation": cancellation})
        if self.failure is not None:
            raise self.failure
        after = int(cursor or "0")
        deadline = time.monotonic() + wait
        cancellation.on_fire(self._wake)
        with self.news:
            while not (rows := [e for e in self.events if int(e["sequence"]) > after]):
                if cancellation.is_set:
                    raise cancelled("local")
                if time.monotonic() >= deadline:
                    break
                self.news.wait(max(0.0, deadline - time.monotonic()))
        page = rows[: limit + self.oversize]
        following = page[-1]["sequence"] if page else str(max(after, self.tail))
        return EventPage(tuple(page), following, len(rows) > len(page), timed_out=not page and wait > 0)

    def _wake(self) -> None:
        with self.news:
            self.news.notify_all()


@dataclass
class Post:
    file: WorkerFile
    feed: Feed
    collector: Collector
    failures: list[ForumError]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Post]]:
    made: list[Post] = []

    def build(references: int = 0, **more: Any) -> Post:
        stored = [reference(number) for number in range(1, references + 1)]
        file = new_file(tmp_path, known_document(references=stored, **more))
        feed, failures = Feed(), []  # type: ignore[var-annotated]
        post = Post(file, feed, Collector(file, feed, failures.append), failures)
        if references:
            file.update(lambda draft: draft["collector"].update(cursor=str(references)))
        made.append(post)
        return post

    yield build
    for post in made:
        post.collector.close()
        post.file.close()


def sequences(references: Any) -> list[int]:
    return [int(each["sequence"]) for each in references]


def in_thread(action: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def test_t149_the_first_request_has_no_cursor_which_means_from_the_beginning(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.add(1)
    post.collector.collect()
    post.collector.collect()

    assert [call["cursor"] for call in post.feed.calls] == [None, "1"]


@pytest.mark.parametrize(("held", "limit"), [(0, 20), (79, 20), (80, 20), (81, 19), (95, 5), (99, 1)])
def test_t164_the_request_asks_for_what_there_is_room_for(make: Callable[..., Post], held: int, limit: int) -> None:
    post = make(held)
    post.collector.collect()

    assert [call["limit"] for call in post.feed.calls] == [limit]


def test_t165_without_room_nothing_is_asked_and_the_backlog_is_told(make: Callable[..., Post]) -> None:
    post = make(100)
    found = post.collector.wait(after="100", seconds=30)

    assert (found.references, found.has_backlog, found.timed_out) == ((), True, False)
    assert post.collector.collect() is False
    assert post.feed.calls == []


def test_t166_a_page_larger_than_asked_for_is_rejected_whole(make: Callable[..., Post]) -> None:
    post = make(95)
    post.feed.oversize = 1
    post.feed.add(*range(96, 120))

    with pytest.raises(ForumError) as caught:
        post.collector.collect()
    assert caught.value.forum_code == "page_exceeds_capacity"
    assert len(post.file.document["references"]) == 95
    assert post.file.document["collector"]["cursor"] == "95"


def test_a_page_with_an_event_that_makes_no_sense_is_rejected_whole(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.events = [event(1), event(2, threadId="../x")]

    with pytest.raises(ForumError, match="makes no sense"):
        post.collector.collect()
    assert post.file.document["references"] == []
    assert post.file.document["collector"]["cursor"] is None


def test_i41_references_and_cursor_are_in_one_revision(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.add(1, 2, 3)
    before = post.file.document["revision"]
    post.collector.collect()

    assert post.file.document["revision"] == before + 1
    assert sequences(post.file.document["references"]) == [1, 2, 3]
    assert post.file.document["collector"]["cursor"] == "3"


def test_t167_a_page_that_was_not_saved_comes_again(make: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> None:
        if name == "E1":
            raise InterruptedError

    post = make()
    post.feed.add(1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", interrupt)
        with pytest.raises(InterruptedError):
            post.collector.collect()
    assert post.file.document["references"] == []
    post.collector.collect()
    assert sequences(post.file.document["references"]) == [1, 2]


def test_i13_what_comes_twice_is_kept_once(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.add(1, 2)
    post.collector.collect()
    start_over(post.file)
    post.feed.add(3)
    post.collector.collect()

    assert sequences(post.file.document["references"]) == [1, 2, 3]


def test_t169_t170_dismissing_makes_room_and_collection_goes_on_where_it_stopped(make: Callable[..., Post]) -> None:
    post = make(100)
    post.feed.add(*range(101, 104))
    requests = len(post.feed.calls)
    assert dismiss(post.file, ["1", "2", "nothing"]) == 2
    assert len(post.feed.calls) == requests

    post.collector.collect()
    assert post.feed.calls[-1]["limit"] == 2
    assert sequences(post.file.document["references"])[-2:] == [101, 102]
    assert dismiss(post.file) == 100
    post.collector.collect()
    assert sequences(post.file.document["references"]) == [103]


def test_t143_what_is_here_is_returned_without_a_request(make: Callable[..., Post]) -> None:
    post = make(5)
    found = post.collector.wait(after="3", seconds=30)

    assert sequences(found.references) == [4, 5]
    assert (found.after, found.timed_out) == ("5", False)
    assert post.feed.calls == []


def test_t153_i55_only_what_is_later_is_returned_and_the_answer_says_after_what_to_go_on(
    make: Callable[..., Post],
) -> None:
    post = make(50)
    seen, after = [], "0"
    while after != "50":
        found = post.collector.wait(after=after, seconds=1)
        assert len(found.references) <= 20
        assert min(sequences(found.references)) > int(after)
        seen += sequences(found.references)
        after = found.after
    assert seen == list(range(1, 51))


def test_t133_t154_nothing_new_ends_at_the_deadline(make: Callable[..., Post]) -> None:
    post = make(3)
    begun = time.monotonic()
    found = post.collector.wait(after="999", seconds=1)

    assert (found.references, found.timed_out, found.after) == ((), True, "999")
    assert 0.9 <= time.monotonic() - begun <= 20
    assert len(post.feed.calls) <= 2


def test_t134_a_wait_of_no_time_asks_once_and_returns(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.add(1)
    assert sequences(post.collector.wait(after="0", seconds=0).references) == [1]
    found = post.collector.wait(after="1", seconds=0)

    assert found.timed_out
    assert [call["wait"] for call in post.feed.calls] == [0, 0]


def test_t132_t142_two_who_wait_share_one_request_and_both_get_what_comes(make: Callable[..., Post]) -> None:
    post = make()
    waiting = [in_thread(lambda: post.collector.wait(after="0", seconds=30)) for _ in range(2)]
    eventually(lambda: post.collector._flight is not None and post.collector._flight.parties == 2)
    post.feed.add(1)
    for thread, _ in waiting:
        thread.join(10)

    assert [sequences(results[0].references) for _, results in waiting] == [[1], [1]]
    assert len(post.feed.calls) == 1


def test_t144_i53_the_end_of_one_wait_leaves_the_other_alone(make: Callable[..., Post]) -> None:
    post = make()
    long, results = in_thread(lambda: post.collector.wait(after="0", seconds=30))
    eventually(lambda: post.feed.calls)
    given_up = Signal()
    short, ended = in_thread(lambda: post.collector.wait(after="0", seconds=30, cancellation=given_up))
    eventually(lambda: post.collector._flight is not None and post.collector._flight.parties == 2)
    given_up.fire()
    short.join(10)
    assert post.collector.wait(after="0", seconds=0).timed_out
    assert not post.feed.calls[0]["cancellation"].is_set

    post.feed.add(1)
    long.join(10)
    assert ended[0].timed_out
    assert sequences(results[0].references) == [1]
    assert len(post.feed.calls) == 1


def test_t146_the_last_who_leaves_ends_the_request(make: Callable[..., Post]) -> None:
    post = make()
    given_up = Signal()
    thread, _ = in_thread(lambda: post.collector.wait(after="0", seconds=30, cancellation=given_up))
    eventually(lambda: post.feed.calls)
    given_up.fire()
    thread.join(10)

    assert post.feed.calls[0]["cancellation"].is_set
    eventually(lambda: not post.collector._threads)
    assert post.failures == []


def test_a_wait_that_was_given_up_before_it_began_asks_nothing(make: Callable[..., Post]) -> None:
    post = make()
    given_up = Signal()
    given_up.fire()

    assert post.collector.wait(after="0", seconds=30, cancellation=given_up).timed_out
    assert post.feed.calls == []


def test_t147_a_failure_is_told_to_who_waits_and_remembered(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.failure = no_answer("local", "silence")

    with pytest.raises(ForumError, match="gave no answer"):
        post.collector.wait(after="0", seconds=5)
    assert [failure.forum_code for failure in post.failures] == ["no_answer"]
    assert post.file.document["collector"]["cursor"] is None


def test_t129_t131_background_collection_runs_while_the_agent_works_and_once_when_it_settles(
    make: Callable[..., Post],
) -> None:
    post = make()
    background = BackgroundCollection(post.collector, 0.02)
    background.settle()
    assert post.feed.calls == []

    background.start()
    background.start()
    post.feed.add(1)
    eventually(lambda: sequences(post.file.document["references"]) == [1])
    background.settle()
    settled = len(post.feed.calls)
    post.feed.add(2)
    assert sequences(post.file.document["references"]) == [1]
    background.settle()
    assert len(post.feed.calls) == settled


def test_t131_settling_looks_once_more(make: Callable[..., Post]) -> None:
    post = make()
    background = BackgroundCollection(post.collector, 3600)
    background.start()
    post.feed.add(1)
    background.settle()

    assert sequences(post.file.document["references"]) == [1]
    assert len(post.feed.calls) == 1


def test_background_collection_goes_on_after_a_failure(make: Callable[..., Post]) -> None:
    post = make()
    post.feed.failure = no_answer("local", "silence")
    background = BackgroundCollection(post.collector, 0.02)
    background.start()
    eventually(lambda: len(post.failures) >= 2)
    post.feed.failure = None
    post.feed.add(1)
    eventually(lambda: sequences(post.file.document["references"]) == [1])
    background.stop()


def test_closing_ends_what_is_on_its_way_and_lets_everybody_go(make: Callable[..., Post]) -> None:
    post = make()
    thread, results = in_thread(lambda: post.collector.wait(after="0", seconds=60))
    eventually(lambda: post.feed.calls)
    post.collector.close()
    thread.join(10)

    assert results[0].timed_out
    assert len(post.feed.calls) == 1


@pytest.mark.parametrize("after", ["-1", "1.5", "abc", "", "٣", "1" * 20, "th_1"])
def test_a_sequence_to_wait_after_is_decimal_digits(after: str) -> None:
    with pytest.raises(UsageError, match="afterSequence"):
        check_after(after)


def test_a_sequence_to_wait_after_may_be_left_out() -> None:
    assert [check_after(None), check_after("0"), check_after("0042")] == ["0", "0", "42"]


@pytest.mark.parametrize("seconds", [-1, 61, "30", 1.5, True, None])
def test_t135_a_time_to_wait_is_a_whole_number_from_0_to_60(tmp_path: Path, seconds: Any) -> None:
    worker, transport = scripted_worker(tmp_path, json_response(500, {}))
    with worker, pytest.raises(UsageError, match="0 to 60"):
        worker.wait(after=None, seconds=seconds)
    assert transport.seen == []


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(410, "cursor_expired", "cursor_expired"), (401, "unauthenticated", "auth_failed"),
     (412, "installation_mismatch", "installation_mismatch")],
)  # fmt: skip
def test_t191_t233_some_answers_suspend_collection_and_keep_everything(
    tmp_path: Path, status: int, code: str, reason: str
) -> None:
    made = known_document(references=[reference(1)])
    made["collector"]["cursor"] = "old"
    worker, transport = scripted_worker(tmp_path, error_response(status, code), made=made)
    with worker:
        with pytest.raises(ForumError):
            worker.wait(after="1", seconds=1)
        kept = worker.document
        assert kept["suspended"] is not None
        assert kept["suspended"]["reason"] == reason
        assert kept["collector"]["lastError"] is not None
        assert (kept["identity"], kept["references"], kept["collector"]["cursor"]) == (
            made["identity"], made["references"], "old",
        )  # fmt: skip
        asked = len(transport.asked)
        with pytest.raises(RefusedError):
            worker.wait(after="1", seconds=1)
        assert len(transport.asked) == asked
        assert all(request.method == "GET" for request in transport.asked)


def test_t233_only_a_person_lets_collection_begin_anew(tmp_path: Path) -> None:
    page = json_response(200, {"events": [], "nextCursor": "new", "hasMore": False, "timedOut": False})
    made = known_document(
        references=[reference(1)], suspended={"reason": "cursor_expired", "at": "2026-03-03T02:58:00.000Z"}
    )
    worker, transport = scripted_worker(tmp_path, page, made=made)
    with worker:
        with pytest.raises(RefusedError, match="earlier state"):
            worker.collector.collect()
        assert transport.asked == []
        module.start_over(worker.file)
        worker.collector.collect()
        assert "start=beginning" in transport.asked[0].target
        assert worker.document["references"] == [reference(1)]


def test_t147_the_request_is_given_the_time_to_wait_and_a_grace(tmp_path: Path) -> None:
    page = json_response(200, {"events": [event(5)], "nextCursor": "5", "hasMore": False, "timedOut": False})
    worker, transport = scripted_worker(tmp_path, page)
    with worker:
        worker.wait(after="0", seconds=60)
    assert transport.asked[0].timeout == 70
    assert "wait=60" in transport.asked[0].target
    assert "scope=involved%2Cwatched-threads%2Cwatched-subforums" in transport.asked[0].target


def test_t151_what_happened_before_a_watch_is_not_collected_from_the_beginning(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("writer") as writer, place.worker("reader") as reader:
        add_subforum(writer)
        writer.publish(policy.draft(body="before", subforum="lab", title="before"), origin="model")
        reader.watch_subforum("lab", watching=True)
        writer.publish(policy.draft(body="after", subforum="lab", title="after"), origin="model")
        found = reader.wait(after=None, seconds=5)

    assert [each["threadTitle"] for each in found.references] == ["after"]
