"""What the operator does: taking a text away for good, and looking after the forum's health."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from side_agents.errors import NotFoundError, RefusedError
from side_agents.forum.requests import AttachmentInput, PostContent, ReplyRequest, SearchRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.operator import OPERATOR_NAME
from tests.support.forum import (
    ForumFactory,
    Person,
    command,
    forum,
    forum_factory,
    json_of,
    refusal,
    register,
    registration,
    reply,
    subforum,
    thread,
)

__all__ = ["forum", "forum_factory"]

SECRET = "zebrasecret"
FILE = AttachmentInput(name="key.txt", media_type="text/plain", data=base64.b64encode(b"filesecret" * 2000).decode())


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    return person


def hits(forum: Forum, ann: Person, **wanted: object) -> int:
    return len(forum.search.find(ann.principal, SearchRequest(**wanted))["hits"])  # type: ignore[arg-type]


def bytes_with(path: Path, *needles: bytes) -> list[str]:
    """Files of a forum that have one of the texts in them."""
    files = [each for each in path.parent.iterdir() if each.name.startswith(path.name)]
    return [each.name for each in files if any(needle in each.read_bytes() for needle in needles)]


def test_a_redacted_post_keeps_its_place_and_loses_everything_that_was_said(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    content = {"body": f"my {SECRET}", "metadata": {"k": SECRET}, "attachments": (FILE,)}
    made = reply(forum, ann, opened, **content)
    answer = reply(forum, ann, opened, reply_to=made["postId"])
    before = forum.content.post(ann.principal, made["postId"])
    done = forum.operator.redact(made["postId"])
    after = forum.content.post(ann.principal, made["postId"])
    assert after == {**before, "body": "", "metadata": {}, "attachments": [], "redacted": True}
    assert (done["changed"], done["attachmentsRemoved"], done["sequence"]) == (True, 1, "4")
    assert forum.content.post(ann.principal, answer["postId"])["replyTo"] == made["postId"]
    assert hits(forum, ann, text=SECRET) == hits(forum, ann, metadata={"k": SECRET}) == 0
    refusal("not_found", lambda: forum.content.attachment(ann.principal, before["attachments"][0]["id"]))


def test_those_concerned_hear_of_a_redaction_the_author_included(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab")
    forum.operator.redact(made["postId"])
    (event,) = forum.events.page(ann.principal, start="beginning")["events"]
    assert (event["type"], event["postId"], event["reasons"]) == ("post.redacted", made["postId"], ["involved"])
    assert event["actor"]["name"] == OPERATOR_NAME
    assert forum.content.thread(ann.principal, made["threadId"])["lastSequence"] == event["sequence"]
    with pytest.raises(Exception, match="name must be"):
        forum.identities.register(registration(OPERATOR_NAME), command=command())


def test_redacting_twice_is_one_activity(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab")["postId"]
    forum.operator.redact(made)
    again = forum.operator.redact(made)
    assert (again["changed"], again["sequence"]) == (False, None)
    assert forum.operator.health()["lastSequence"] == "2"


def test_a_title_goes_only_when_it_is_asked_for_and_only_with_its_opening_post(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab", title=f"On {SECRET}", metadata={"k": SECRET})
    answer = reply(forum, ann, made["threadId"])["postId"]
    assert not forum.operator.redact(made["postId"])["titleRedacted"]
    assert SECRET in forum.content.thread(ann.principal, made["threadId"])["title"]
    assert hits(forum, ann, text=SECRET) == 0
    assert forum.operator.redact(made["postId"], with_title=True)["titleRedacted"]
    view = forum.content.thread(ann.principal, made["threadId"])
    assert (view["title"], view["metadata"]) == ("[redacted]", {})
    assert forum.content.threads(ann.principal, meta={"k": SECRET})["items"] == []
    refusal("invalid_argument", lambda: forum.operator.redact(answer, with_title=True))
    refusal("not_found", lambda: forum.operator.redact("po_none"))


def test_i7_a_replay_after_a_redaction_gives_the_first_answer_and_brings_nothing_back(
    forum: Forum, ann: Person
) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    request, key = ReplyRequest(body=SECRET), "a-key-of-sixteen-characters"
    first = forum.content.reply(ann.principal, opened, request, command=command(key, b"p"))
    forum.operator.redact(json_of(first)["postId"])
    again = forum.content.reply(ann.principal, opened, request, command=command(key, b"p"))
    assert (again.body, again.status, again.replayed) == (first.body, first.status, True)
    assert [post["body"] for post in forum.content.posts(ann.principal, opened)["posts"]] == ["An opening.", ""]


def test_not_a_byte_of_a_redacted_text_is_left_in_the_files(forum_factory: ForumFactory) -> None:
    forum = forum_factory()
    ann = register(forum)
    subforum(forum, ann, "lab")
    content = PostContent(body=f"{SECRET} " * 900, metadata={"k": "metasecret"}, attachments=(FILE,))
    made = thread(forum, ann, "lab", title="A titlesecret", metadata={"k": "threadsecret"}, post=content)
    for _ in range(30):
        reply(forum, ann, made["threadId"], body="the words of others stay " * 20)
    needles = [SECRET.encode(), b"filesecret", b"metasecret", b"titlesecret", b"threadsecret"]
    path = forum_factory.path()
    assert bytes_with(path, *needles)
    done = forum.operator.redact(made["postId"], with_title=True)
    assert done["erased"]
    assert bytes_with(path, *needles) == []
    assert hits(forum, ann, text="others stay") == 20


def test_a_reader_that_keeps_old_bytes_is_told_of_and_redacting_again_removes_them(forum: Forum, ann: Person) -> None:
    made = thread(forum, ann, "lab", body=SECRET)["postId"]
    outcome = forum.database.read(lambda connection: _redact_while_reading(forum, connection, made))
    assert outcome is False
    assert forum.content.post(ann.principal, made)["redacted"]
    assert bytes_with(forum.database.path, SECRET.encode())
    again = forum.operator.redact(made)
    assert (again["changed"], again["erased"]) == (False, True)
    assert not bytes_with(forum.database.path, SECRET.encode())


def _redact_while_reading(forum: Forum, connection: object, post: str) -> bool:
    connection.execute("SELECT count(*) FROM post").fetchall()  # type: ignore[attr-defined]
    return bool(forum.operator.redact(post)["erased"])


def test_health_has_counts_versions_and_the_last_check(forum: Forum, ann: Person) -> None:
    thread(forum, ann, "lab", post=PostContent(body="b", attachments=(FILE,)))
    before = forum.operator.health()
    assert before["counts"] == {
        "agents": 1, "sessions": 1, "subforums": 1, "threads": 1, "posts": 1, "attachments": 1, "commands": 3
    }  # fmt: skip
    assert before["lastIntegrityCheck"] is None
    assert before["walBytes"] > 0
    assert forum.operator.check()["ok"]
    assert forum.operator.health()["lastIntegrityCheck"]["ok"] is True


def test_a_backup_never_replaces_anything(forum: Forum, ann: Person, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    for taken in (there, dangling, tmp_path):
        with pytest.raises(RefusedError):
            forum.operator.backup(taken)
    with pytest.raises(NotFoundError):
        forum.operator.backup(tmp_path / "no" / "folder")
    assert there.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling", "forums", "there"]
