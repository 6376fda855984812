"""Opening posts and replies: what is kept of them, what is refused, and how fast they may come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from side_agents import schemas
from side_agents.errors import ForumError, UsageError
from side_agents.forum import limits
from side_agents.forum.requests import PostContent, ProfileRequest, Provenance, ReplyRequest, ThreadRequest
from side_agents.forum.service import chatter
from side_agents.forum.service.content import Content
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.pace import Pace
from side_agents.forum.store.posts import Turn
from tests.support.forum import (
    Person,
    command,
    forum,
    forum_factory,
    json_of,
    refusal,
    register,
    reply,
    subforum,
    table_counts,
    thread,
)

__all__ = ["forum", "forum_factory"]

CLAIMS = Provenance(
    host_session_id="host",
    transcript_ref="tr_1",
    context_key="ctx",
    turn_id="turn",
    entry_id="entry",
    tool_call_id="call",
    provider="provider",
    model="model",
    origin="model",
)
ON_THE_WIRE = {
    "hostSessionId": "host",
    "transcriptRef": "tr_1",
    "contextKey": "ctx",
    "turnId": "turn",
    "entryId": "entry",
    "toolCallId": "call",
    "provider": "provider",
    "model": "model",
    "origin": "model",
}


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    return person


@pytest.fixture
def bob(forum: Forum) -> Person:
    return register(forum, "bob")


def watches(forum: Forum, person: Person) -> list[str]:
    return [each["threadId"] for each in forum.interests.subscriptions(person.principal)["threads"]]


def test_a_thread_and_its_opening_post_are_one_activity(forum: Forum, ann: Person, bob: Person) -> None:
    made = thread(forum, ann, "lab", body="Why?", title="  A question ")
    post = forum.content.post(bob.principal, made["postId"])
    view = forum.content.thread(bob.principal, made["threadId"])
    assert (post["body"], post["replyTo"], post["threadId"]) == ("Why?", None, made["threadId"])
    assert made["sequence"] == post["sequence"] == view["createdSequence"] == view["lastSequence"] == "1"
    assert view["title"] == "A question"
    assert made["url"] == f"http://127.0.0.1:8080/threads/{made['threadId']}#{made['postId']}"
    assert (made["authorId"], made["subforum"]) == (ann.id, "lab")


def test_t209_d17_an_answer_has_ids_and_a_url_and_never_the_text(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab", body="a body nobody needs twice")
    answer = reply(forum, ann, opened["threadId"], body="a body nobody needs twice", provenance=CLAIMS)
    fields = {
        "schemaVersion",
        "threadId",
        "postId",
        "sequence",
        "authorId",
        "subforum",
        "url",
        "createdAt",
        "payloadSha256",
    }
    assert set(opened) == set(answer) == fields
    assert "nobody needs" not in str(answer)


def test_t210_posts_are_read_whole(forum: Forum, ann: Person, bob: Person) -> None:
    body = "Größe\t\n```\n" + "x" * 100_000
    opened = thread(forum, ann, "lab")
    answer = reply(
        forum,
        ann,
        opened["threadId"],
        body=body,
        reply_to=opened["postId"],
        metadata={"k": ["v", 1]},
        provenance=CLAIMS,
    )
    whole = forum.content.post(bob.principal, answer["postId"])
    assert whole == {
        "id": answer["postId"],
        "threadId": opened["threadId"],
        "sequence": answer["sequence"],
        "author": {"id": ann.id, "name": "ann", "sessionId": ann.session},
        "replyTo": opened["postId"],
        "body": body,
        "metadata": {"k": ["v", 1]},
        "provenance": ON_THE_WIRE,
        "attachments": [],
        "createdAt": answer["createdAt"],
        "redacted": False,
    }
    assert forum.content.posts(bob.principal, opened["threadId"])["posts"][1] == whole, "one builder, one form"


def test_t118_t120_nine_claims_are_stored_apart_and_returned_as_they_came(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab", post=PostContent(body="b", provenance=CLAIMS))
    assert forum.content.post(ann.principal, made["postId"])["provenance"] == ON_THE_WIRE
    bare = reply(forum, ann, made["threadId"], provenance=Provenance(origin="user"))
    assert forum.content.post(ann.principal, bare["postId"])["provenance"] == {"origin": "user"}


def test_t124_a_profile_that_changes_leaves_the_provenance_of_posts_alone(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab", post=PostContent(body="b", provenance=CLAIMS))
    before = forum.content.post(ann.principal, made["postId"])
    forum.identities.update_profile(ann.principal, ProfileRequest(display_name="Other", metadata={"model": "other"}))
    assert forum.content.post(ann.principal, made["postId"]) == before
    with pytest.raises(Exception, match="immutable"):
        forum.database.write(lambda connection: connection.execute("UPDATE post SET provenance = '{}'"))


def test_t127_oversize_provenance_is_refused_with_its_field(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    most = "m" * limits.PROVENANCE_FIELD_CHARACTERS
    reply(forum, ann, opened, provenance=Provenance(model=most))
    refusal(
        "invalid_argument",
        lambda: reply(forum, ann, opened, provenance=Provenance(model=most + "m")),
        field="body.provenance.model",
    )


@pytest.mark.parametrize("forged", ["authorId", "sessionId", "author", "createdAt", "sequence", "redacted"])
def test_t128_what_the_forum_decides_cannot_be_sent(forged: str) -> None:
    for request in (ReplyRequest, ThreadRequest, PostContent):
        good = {"title": "t", "post": {"body": "b"}} if request is ThreadRequest else {"body": "b"}
        schemas.validate(request, good, what="request")
        with pytest.raises(UsageError, match=forged):
            schemas.validate(request, {**good, forged: "x"}, what="request")


def test_a_reply_answers_a_post_of_its_own_thread(forum: Forum, ann: Person, bob: Person) -> None:
    opened, other = thread(forum, ann, "lab"), thread(forum, ann, "lab")
    first = reply(forum, bob, opened["threadId"], reply_to=opened["postId"])
    second = reply(forum, ann, opened["threadId"], reply_to=first["postId"])
    assert forum.content.post(ann.principal, second["postId"])["replyTo"] == first["postId"]
    before = table_counts(forum.database)
    for target in (other["postId"], "po_00000000000000000000000000", opened["threadId"], ""):
        refusal(
            "reply_target_mismatch",
            lambda target=target: reply(forum, bob, opened["threadId"], reply_to=target),
            field="body.replyTo",
        )
    assert table_counts(forum.database) == before


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"title": " "}, "body.title"),
        ({"title": "t" * 201}, "body.title"),
        ({"title": "a\nb"}, "body.title"),
        ({"post": PostContent(body="")}, "body.post.body"),
        ({"post": PostContent(body="x" * (limits.BODY_BYTES + 1))}, "body.post.body"),
        ({"post": PostContent(body="é" * (limits.BODY_BYTES // 2) + "é")}, "body.post.body"),
        ({"post": PostContent(body="a\x1bb")}, "body.post.body"),
        ({"post": PostContent(body="half \ud83d")}, "body.post.body"),
        ({"post": PostContent(body="b", metadata={"_k": 1})}, "body.post.metadata"),
        ({"metadata": {"k": "v" * limits.METADATA_BYTES}}, "body.metadata"),
    ],
)
def test_content_out_of_bounds_is_refused_by_name_and_leaves_nothing(
    forum: Forum, ann: Person, request_fields: dict[str, Any], field: str
) -> None:
    before = table_counts(forum.database)
    refusal("invalid_argument", lambda: thread(forum, ann, "lab", **request_fields), field=field)
    assert table_counts(forum.database) == before


def test_content_at_its_bounds_is_taken(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab", title="ü" * 200, body="x" * limits.BODY_BYTES)
    assert len(forum.content.post(ann.principal, made["postId"])["body"]) == limits.BODY_BYTES


def test_posting_takes_part_and_watches_only_when_asked(forum: Forum, ann: Person, bob: Person) -> None:
    quiet = thread(forum, ann, "lab")["threadId"]
    watched = thread(forum, ann, "lab", watch=True)["threadId"]
    assert watches(forum, ann) == [watched]
    reply(forum, bob, quiet)
    assert watches(forum, bob) == []
    assert forum.content.thread(bob.principal, quiet)["involved"]


def test_a_watch_beyond_the_most_refuses_the_thread_and_not_half_of_it(forum: Forum, ann: Person) -> None:
    def fill(connection: Any) -> None:
        thread_id = connection.execute("SELECT id FROM thread").get
        for number in range(limits.THREAD_WATCHES):
            connection.execute("INSERT INTO thread_watch VALUES(?, ?, 0)", (ann.session, f"{thread_id}{number}"))

    thread(forum, ann, "lab")
    forum.database.write(fill)
    before = table_counts(forum.database)
    refusal("invalid_argument", lambda: thread(forum, ann, "lab", watch=True), field="body.watch")
    assert table_counts(forum.database) == before
    forum.database.write(lambda connection: connection.execute("DELETE FROM thread_watch"))


def test_t235_i58_of_many_posts_at_once_only_the_invalid_one_is_refused(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    people = [register(forum) for _ in range(16)]
    outcomes: list[str] = []
    gate = threading.Barrier(len(people))

    def post(person: Person, reply_to: str | None) -> None:
        gate.wait()
        try:
            outcomes.append(str(reply(forum, person, opened, reply_to=reply_to)["postId"]))
        except ForumError as error:
            outcomes.append(error.forum_code)

    targets = [None] * 15 + ["po_00000000000000000000000000"]
    workers = [threading.Thread(target=post, args=pair) for pair in zip(people, targets, strict=True)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    stored = {post["id"] for post in forum.content.posts(ann.principal, opened, limit=100)["posts"][1:]}
    assert outcomes.count("reply_target_mismatch") == 1
    assert {each for each in outcomes if each != "reply_target_mismatch"} == stored
    assert len(stored) == 15


def test_t240_ten_short_acknowledgements_of_two_agents_get_a_warning_and_none_is_lost(
    forum: Forum, ann: Person, bob: Person
) -> None:
    opened = thread(forum, ann, "lab", body="A long question. " * 30)["threadId"]
    answers = [reply(forum, (bob, ann)[turn % 2], opened, body="Thanks, agreed!") for turn in range(11)]
    assert ["warning" in each for each in answers] == [False] * 9 + [True] * 2
    assert answers[-1]["warning"] == chatter.WARNING
    assert len(forum.content.posts(ann.principal, opened, limit=100)["posts"]) == 12
    # A finding, or somebody else, ends it.
    assert "warning" not in reply(forum, ann, opened, body="The cause is in the lexer. " * 20)
    carol = register(forum)
    assert "warning" not in reply(forum, carol, opened, body="ok")


def test_t240_a_replay_repeats_the_warning_byte_for_byte(forum: Forum, ann: Person, bob: Person) -> None:
    opened = thread(forum, ann, "lab", body="ok")["threadId"]
    for turn in range(8):
        reply(forum, (bob, ann)[turn % 2], opened, body="ok")
    request, key = ReplyRequest(body="ok"), "a-key-of-sixteen-characters"
    first = forum.content.reply(bob.principal, opened, request, command=command(key))
    reply(forum, register(forum), opened)
    again = forum.content.reply(bob.principal, opened, request, command=command(key))
    assert "warning" in json_of(first)
    assert (again.body, again.replayed) == (first.body, True)


def test_a_monologue_or_a_round_of_three_is_no_loop() -> None:
    def turns(*sessions: str, characters: int = 5) -> list[Turn]:
        return [Turn(session, characters, has_attachments=False, is_redacted=False) for session in sessions]

    assert chatter.is_loop(turns(*"abababab", "a", "b"))
    assert not chatter.is_loop(turns(*"ababababa"))
    assert not chatter.is_loop(turns(*"aaaaaaaaaa"))
    assert not chatter.is_loop(turns(*"abcabcabca"))
    assert not chatter.is_loop(turns(*"ababababab", characters=chatter.SHORT_CHARACTERS + 1))


class _Watch:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def paced(forum: Forum, ann: Person) -> tuple[Content, _Watch, Callable[..., Any]]:
    """The forum's content behind a real pace, the clock of it, and a way to post with a new key or a given one."""
    watch = _Watch()
    content = Content(forum.context, Pace(watch))
    opened = thread(forum, ann, "lab")["threadId"]

    def post(person: Person, key: str | None = None, **more: Any) -> Any:
        return content.reply(person.principal, opened, ReplyRequest(**{"body": "b", **more}), command=command(key))

    return content, watch, post


def test_a_session_may_post_ten_at_once_and_then_one_in_two_seconds(
    paced: tuple[Content, _Watch, Callable[..., Any]], ann: Person, bob: Person
) -> None:
    _, watch, post = paced
    for _ in range(limits.POSTS_BURST):
        post(ann)
    error = refusal("rate_limited", lambda: post(ann))
    assert error.retryable
    assert error.retry_after == pytest.approx(2.0)
    post(bob)
    watch.seconds += 2.0
    post(ann)
    refusal("rate_limited", lambda: post(ann))
    watch.seconds += 3600
    for _ in range(limits.POSTS_BURST):
        post(ann)
    refusal("rate_limited", lambda: post(ann))


def test_replays_and_refused_posts_cost_nothing(paced: tuple[Content, _Watch, Callable[..., Any]], ann: Person) -> None:
    _, _, post = paced
    key = "the-key-of-the-first-post"
    post(ann, key)
    for _ in range(20):
        assert post(ann, key).replayed
        refusal("reply_target_mismatch", lambda: post(ann, reply_to="po_none"))
        refusal("idempotency_conflict", lambda: post(ann, key, body="another"))
    for _ in range(limits.POSTS_BURST - 1):
        post(ann)
    refusal("rate_limited", lambda: post(ann))
    assert post(ann, key).replayed, "also when nothing new may be posted"


def test_a_pace_forgets_sessions_that_have_all_their_posts_again() -> None:
    watch = _Watch()
    pace = Pace(watch)
    for number in range(3000):
        pace.take(f"as_{number}")
        watch.seconds += 1.0
    assert len(pace._full_at) < 1100
