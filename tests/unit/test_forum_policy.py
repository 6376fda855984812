"""Who may publish what (T110, T111, T114, T180-T187, T192, invariants 51 and 52)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import ForumError, RefusedError, UsageError
from side_agents.forum.client import policy, publication
from side_agents.forum.client.host import NOWHERE
from side_agents.forum.client.policy import Approval, Draft
from side_agents.forum.client.publication import capture
from side_agents.forum.client.settings import settings_from
from tests.support.forum import sound_forums
from tests.support.forum_client import (
    POST,
    THREAD,
    Place,
    add_subforum,
    json_response,
    known_document,
    scripted_worker,
)

__all__ = ["sound_forums"]

TOPIC = policy.draft(body="hello", subforum="lab", title="A title")
REPLY = policy.draft(body="hello", thread_id=THREAD)


def settings(mode: str, *free: str) -> Any:
    return settings_from({"postingMode": mode, "autonomousSubforums": list(free)})


def document(mode: str, *free: str, **more: Any) -> Any:
    return known_document(settings=settings(mode, *free).document(), **more)


def agreeing(approval: Approval) -> str:
    return approval.draft.digest()


def authorise(mode: str, *free: str, draft: Draft = TOPIC, subforum: str | None = "lab", **more: Any) -> None:
    policy.authorise(settings(mode, *free), draft, subforum=subforum, **{"origin": "model", "dialog": None, **more})


def test_t180_read_only_refuses_before_anything_is_sent(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, json_response(500, {}), made=document("read-only"))
    with worker:
        for draft in (TOPIC, REPLY):
            with pytest.raises(RefusedError, match="read-only"):
                worker.publish(draft, origin="model", dialog=agreeing)
        assert transport.seen == []
        assert worker.document["publications"] == []


def test_t181_approval_shows_exactly_what_would_be_published_and_a_no_sends_nothing(tmp_path: Path) -> None:
    shown: list[Approval] = []

    def refuse(approval: Approval) -> None:
        shown.append(approval)

    worker, transport = scripted_worker(tmp_path, json_response(500, {}), made=document("approval"))
    with worker:
        with pytest.raises(RefusedError, match="did not approve"):
            worker.publish(TOPIC, origin="model", dialog=refuse)
        assert transport.seen == []
        assert worker.document["publications"] == []
    assert shown == [Approval(TOPIC, "lab")]
    assert shown[0].draft.target() == {"subforum": "lab", "title": "A title"}


def test_t182_a_listed_subforum_needs_no_dialog() -> None:
    authorise("autonomous", "lab")


@pytest.mark.parametrize("subforum", ["other", None])
def test_t183_any_other_falls_back_to_approval(subforum: str | None) -> None:
    with pytest.raises(RefusedError, match="approval of a person"):
        authorise("autonomous", "lab", subforum=subforum)
    authorise("autonomous", "lab", subforum=subforum, dialog=agreeing)


def test_t183_where_a_reply_goes_is_looked_up_and_not_believed(tmp_path: Path) -> None:
    elsewhere = json_response(200, {"id": THREAD, "subforum": "other"})
    worker, transport = scripted_worker(tmp_path, elsewhere, made=document("autonomous", "lab"))
    with worker:
        with pytest.raises(RefusedError, match="approval of a person"):
            worker.publish(REPLY, origin="model")
        assert [request.method for request in transport.asked] == ["GET"]
        assert worker.document["publications"] == []


def test_t185_i52_without_a_dialog_nobody_has_approved() -> None:
    with pytest.raises(RefusedError, match="nobody to ask"):
        authorise("approval", "lab")


def test_t186_listing_a_subforum_does_not_watch_it(tmp_path: Path) -> None:
    with Place(tmp_path).worker("a") as worker:
        add_subforum(worker)
        subscriptions = worker.call(lambda api: api.subscriptions())

    assert subscriptions["subforums"] == []


@pytest.mark.parametrize("mode", ["read-only", "approval", "autonomous"])
def test_t187_a_persons_own_post_asks_for_its_own_confirmation_in_every_mode(mode: str) -> None:
    with pytest.raises(RefusedError):
        authorise(mode, "lab", origin="user")
    authorise(mode, "lab", origin="user", dialog=agreeing)


def test_t111_what_was_approved_must_be_what_is_published() -> None:
    other = policy.draft(body="hello!", subforum="lab", title="A title")
    with pytest.raises(RefusedError, match="not what would be published"):
        authorise("approval", dialog=lambda _: other.digest())


def test_t110_author_and_provenance_are_fixed_before_the_dialog(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a", postingMode="approval") as worker:
        add_subforum(worker)
        first = worker.document["identity"]

        def compact_meanwhile(approval: Approval) -> str:
            worker.compact(entry_id="entry-1", label="a")
            return approval.draft.digest()

        outcome = worker.publish(TOPIC, origin="model", dialog=compact_meanwhile)
        second = worker.document["identity"]

    assert first is not None
    assert second is not None
    assert outcome.posted is not None
    assert outcome.posted.author_id == first["agentId"] != second["agentId"]


def test_t114_the_twenty_first_unresolved_publication_is_refused_before_the_dialog(tmp_path: Path) -> None:
    asked: list[Approval] = []
    made = document("approval")
    prepared = [capture(made, TOPIC, origin="model", moment=NOWHERE) for _ in range(20)]
    worker, transport = scripted_worker(tmp_path, json_response(500, {}), made={**made, "publications": prepared})
    with worker:
        with pytest.raises(RefusedError, match="20 publications"):
            worker.publish(TOPIC, origin="model", dialog=asked.append)  # type: ignore[func-returns-value]
        assert (asked, transport.seen) == ([], [])


def test_t192_the_forum_itself_takes_any_valid_credential(tmp_path: Path) -> None:
    """The policy is a guard of the client: with the same credential the forum would have taken the post."""
    place = Place(tmp_path)
    with place.worker("a", postingMode="read-only") as worker:
        add_subforum(worker)
        with pytest.raises(RefusedError):
            worker.publish(TOPIC, origin="model")
        captured = capture(worker.document, TOPIC, origin="model", moment=NOWHERE)
        publication.save(worker.file, captured)
        assert worker.retry(captured["id"], confirm=lambda _: True).posted is not None


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"body": "x"}, "threadId"),
        ({"body": "x", "thread_id": THREAD, "subforum": "lab"}, "Leave out"),
        ({"body": "x", "thread_id": THREAD, "title": "t"}, "Leave out"),
        ({"body": "x", "subforum": "lab"}, "title"),
        ({"body": "x", "title": "t"}, "subforum"),
        ({"body": "x", "subforum": "lab", "title": "t", "reply_to": POST}, "threadId"),
        ({"body": "x", "thread_id": "42"}, "th_"),
        ({"body": "x", "thread_id": THREAD, "reply_to": THREAD}, "po_"),
    ],
)
def test_t212_shapes_that_are_neither_reply_nor_topic_are_refused_with_the_fix(given: dict[str, Any], fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        policy.draft(**given)
    assert fix in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    "given",
    [
        {"body": "", "thread_id": THREAD},
        {"body": "\x1b[31m", "thread_id": THREAD},
        {"body": "x" * 131_073, "thread_id": THREAD},
        {"body": "x", "subforum": "Lab", "title": "t"},
        {"body": "x", "subforum": "lab", "title": "a\nb"},
        {"body": "x", "subforum": "lab", "title": "t" * 201},
    ],
)
def test_texts_that_no_forum_takes_are_refused_before_they_are_prepared(given: dict[str, Any]) -> None:
    with pytest.raises(ForumError):
        policy.draft(**given)


def test_both_shapes_are_good() -> None:
    assert policy.draft(body="x", thread_id=THREAD, reply_to=POST).target() == {"threadId": THREAD, "replyTo": POST}
    assert policy.draft(body="x", subforum="lab", title=" t ").target() == {"subforum": "lab", "title": "t"}
