"""Commands that are sent again: one effect, one answer, byte for byte."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from side_agents.forum import requests
from side_agents.forum.requests import AttachmentInput, Provenance
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.principal import CommandResult
from side_agents.forum.store.database import Connection
from tests.support.forum import (
    ForumFactory,
    Person,
    child,
    child_request,
    command,
    forum,
    forum_factory,
    json_of,
    refusal,
    register,
    registration,
    subforum,
    table_counts,
    thread,
)

__all__ = ["forum", "forum_factory"]

KEY = "key-of-this-request"
Send = Callable[[], CommandResult]


def commands_of(forum: Forum, ann: Person, key: str = KEY) -> dict[str, Send]:
    """One prepared request for every operation that can be sent again."""
    opened = thread(forum, ann, "lab")["threadId"]
    root = registration("root")
    spawn = child_request("spawned", "spawn")
    room = requests.SubforumRequest(key="art", title="Art", metadata={"a": [1, 2]})
    topic = requests.ThreadRequest(title="T", post=requests.PostContent(body="b", metadata={"k": "v"}), watch=True)
    answer = requests.ReplyRequest(body="b", provenance=Provenance(origin="user"))
    content = forum.content
    return {
        "register": lambda: forum.identities.register(root, command=command(key, b"1")),
        "child": lambda: forum.identities.create_child(ann.principal, ann.id, spawn, command=command(key, b"2")),
        "subforum": lambda: content.create_subforum(ann.principal, room, command=command(key, b"3")),
        "thread": lambda: content.create_thread(ann.principal, "lab", topic, command=command(key, b"4")),
        "reply": lambda: content.reply(ann.principal, opened, answer, command=command(key, b"5")),
    }


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    return person


def test_i7_a_replay_has_the_same_status_and_bytes_and_no_effect(forum: Forum, ann: Person) -> None:
    for operation, send in commands_of(forum, ann).items():
        first = send()
        before = table_counts(forum.database)
        again = send()

        assert (first.status, first.replayed) == (201, False), operation
        assert (again.status, again.body, again.replayed) == (201, first.body, True), operation
        assert table_counts(forum.database) == before, operation


def test_t034_a_replay_after_reopening_is_the_same(forum_factory: ForumFactory) -> None:
    forum = forum_factory()
    request = registration("ann")
    first = forum.identities.register(request, command=command(KEY))
    forum_factory.close(forum)

    again = forum_factory().identities.register(request, command=command(KEY))
    assert (again.body, again.replayed) == (first.body, True)


def test_every_answer_names_the_hash_of_the_body_that_came_first(forum: Forum, ann: Person) -> None:
    for number, send in enumerate(commands_of(forum, ann).values(), start=1):
        document = json_of(send())
        assert document["schemaVersion"] == 1
        assert document["payloadSha256"] == hashlib.sha256(str(number).encode()).hexdigest()


def test_one_key_may_serve_several_operations(forum: Forum, ann: Person) -> None:
    answers = [send() for send in commands_of(forum, ann).values()]
    assert not any(answer.replayed for answer in answers)


def test_t105_a_changed_request_under_the_same_key_conflicts_and_changes_nothing(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    other = thread(forum, ann, "lab")["threadId"]
    file = AttachmentInput(name="a", media_type="text/plain", data="eA==")
    base = requests.ReplyRequest(body="b", metadata={"k": 1}, attachments=(file, replace(file, name="b")))
    forum.content.reply(ann.principal, opened, base, command=command(KEY))
    before = table_counts(forum.database)
    changed = [
        replace(base, body="c"),
        replace(base, metadata={"k": 2}),
        replace(base, metadata={"k": "1"}),
        replace(base, provenance=Provenance(model="m")),
        replace(base, reply_to=thread(forum, ann, "lab")["postId"]),
    ]
    before = table_counts(forum.database)
    for request in changed:
        refusal(
            "idempotency_conflict",
            lambda request=request: forum.content.reply(ann.principal, opened, request, command=command(KEY)),
        )
    refusal("idempotency_conflict", lambda: forum.content.reply(ann.principal, other, base, command=command(KEY)))
    assert table_counts(forum.database) == before


def test_t117_bytes_name_type_and_order_of_attachments_are_part_of_the_request(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    one = AttachmentInput(name="a", media_type="text/plain", data="eA==")
    two = replace(one, name="b")

    def send(*files: AttachmentInput) -> CommandResult:
        request = requests.ReplyRequest(body="b", attachments=files)
        return forum.content.reply(ann.principal, opened, request, command=command(KEY))

    first = send(one, two)
    assert send(one, two).body == first.body
    for files in (
        (two, one),
        (one,),
        (one, two, two),
        (replace(one, data="eQ=="), two),
        (replace(one, name="c"), two),
        (replace(one, media_type="text/html"), two),
    ):
        refusal("idempotency_conflict", lambda files=files: send(*files))


def test_the_order_of_keys_in_metadata_is_no_difference(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]

    def send(metadata: dict[str, Any]) -> CommandResult:
        request = requests.ReplyRequest(body="b", metadata=metadata)
        return forum.content.reply(ann.principal, opened, request, command=command(KEY))

    assert send({"a": 1, "b": 2}).body == send({"b": 2, "a": 1}).body


def test_t106_i59_a_hundred_identical_requests_at_once_make_one_post(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    before = table_counts(forum.database)
    request = requests.ReplyRequest(body="only once")
    answers: list[CommandResult] = []
    together = threading.Barrier(100)

    def send() -> None:
        together.wait(30)
        answers.append(forum.content.reply(ann.principal, opened, request, command=command(KEY)))

    threads = [threading.Thread(target=send) for _ in range(100)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    after = table_counts(forum.database)
    assert len({answer.body for answer in answers}) == 1
    assert (len(answers), sum(answer.replayed for answer in answers)) == (100, 99)
    assert (after["post"] - before["post"], after["command"] - before["command"]) == (1, 1)


def test_t107_two_authors_may_use_the_same_key_also_within_one_session(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    request = requests.ReplyRequest(body="the same words")
    authors = [ann, register(forum, "bob"), child(forum, ann, "compaction", "heir")]

    posts = {
        json_of(forum.content.reply(person.principal, opened, request, command=command(KEY)))["postId"]
        for person in authors
    }
    assert len(posts) == 3


def test_refusals_are_not_remembered(forum: Forum, ann: Person) -> None:
    missing = requests.SubforumRequest(key="art", title="   ")
    refusal("invalid_argument", lambda: forum.content.create_subforum(ann.principal, missing, command=command(KEY)))
    good = replace(missing, title="Art")
    assert forum.content.create_subforum(ann.principal, good, command=command(KEY)).status == 201

    topic = requests.ThreadRequest(title="T", post=requests.PostContent(body="b"))
    late = command("another-key-of-ours")
    refusal("not_found", lambda: forum.content.create_thread(ann.principal, "zoo", topic, command=late))
    subforum(forum, ann, "zoo")
    assert forum.content.create_thread(ann.principal, "zoo", topic, command=late).status == 201


@pytest.mark.parametrize("key", ["", "short", "x" * 129, "with space in the key"])
def test_without_a_proper_key_nothing_is_done(forum: Forum, ann: Person, key: str) -> None:
    before = table_counts(forum.database)
    request = requests.SubforumRequest(key="art", title="Art")
    with pytest.raises(Exception, match="Idempotency-Key"):
        forum.content.create_subforum(ann.principal, request, command=replace(command(), key=key))
    assert table_counts(forum.database) == before


FAULTS = {
    "thread": ("activity", "thread", "post", "attachment", "participation", "thread_watch", "term", "command"),
    "reply": ("activity", "post", "attachment", "participation", "term", "command"),
    "child": ("session", "agent", "subforum_watch", "thread_watch", "command"),
}


@pytest.mark.parametrize(("operation", "table"), [(name, table) for name, tables in FAULTS.items() for table in tables])
def test_t022_t023_t024_i8_a_fault_at_any_table_leaves_all_tables_as_they_were(
    forum: Forum, ann: Person, operation: str, table: str
) -> None:
    bob = register(forum, "bob")
    forum.interests.watch_subforum(bob.principal, "lab")
    opened = thread(forum, ann, "lab")["threadId"]
    forum.interests.watch_thread(bob.principal, opened)
    send = commands_with_everything(forum, bob, opened)[operation]
    before = table_counts(forum.database)
    trigger = f"CREATE TRIGGER fault BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'injected'); END"
    forum.database.write(lambda db: db.execute(trigger).fetchall())

    with pytest.raises(Exception, match="injected"):
        send()
    assert table_counts(forum.database) == before
    forum.database.write(lambda db: db.execute("DROP TRIGGER fault").fetchall())
    assert not send().replayed
    assert all(table_counts(forum.database)[name] > before[name] for name in FAULTS[operation])


def commands_with_everything(forum: Forum, bob: Person, opened: str) -> dict[str, Send]:
    file = AttachmentInput(name="a", media_type="text/plain", data="eA==")
    content = requests.PostContent(body="b", metadata={"k": 1}, attachments=(file,))
    topic = requests.ThreadRequest(title="T", post=content, metadata={"t": 1}, watch=True)
    answer = requests.ReplyRequest(body="b", metadata={"k": 1}, attachments=(file,))
    spawn = child_request("spawned", "spawn", inherit=requests.Inherit(subforums=True, thread_watches=True))
    return {
        "thread": lambda: forum.content.create_thread(bob.principal, "lab", topic, command=command(KEY)),
        "reply": lambda: forum.content.reply(bob.principal, opened, answer, command=command(KEY)),
        "child": lambda: forum.identities.create_child(bob.principal, bob.id, spawn, command=command(KEY)),
    }


def test_t025_a_reader_sees_all_of_a_command_or_nothing(forum: Forum, ann: Person) -> None:
    opened = thread(forum, ann, "lab")["threadId"]
    tables = ("post", "activity", "command")
    stop = threading.Event()
    looks: list[tuple[int, ...]] = []

    def count(connection: Connection) -> tuple[int, ...]:
        return tuple(connection.execute(f"SELECT count(*) FROM {table}").get for table in tables)

    def watch() -> None:
        while not stop.is_set():
            looks.append(forum.database.read(count))

    first = forum.database.read(count)
    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(60):
        forum.content.reply(ann.principal, opened, requests.ReplyRequest(body=f"{number}"), command=command())
    stop.set()
    watcher.join()

    looks.append(forum.database.read(count))
    steps = {tuple(now - then for now, then in zip(look, first, strict=True)) for look in looks}
    assert all(len(set(step)) == 1 for step in steps)
    assert max(steps) == (60, 60, 60)
