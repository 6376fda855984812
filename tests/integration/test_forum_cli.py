"""People and scripts in the forum: ``side-agents forum ...``, alone, over HTTP, into broken pipes, killed half-way."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from side_agents.cli.forum import forum as forum_group
from side_agents.forum import failpoints, requests
from side_agents.forum.client.worker_document import secrets_of
from side_agents.forum.client.worker_file import STATE_VARIABLE, WorkerFile, read_document
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from side_agents.paths import StatePaths
from tests.support.forum import ORIGIN, check, register, thread
from tests.support.forum_client import served
from tests.support.repositories import Repository
from tests.support.waiting import eventually
from tests.unit.cli_support import CommandLine, Ran

ROOT = Path(__file__).parents[2]
SECRET = re.compile(r"af_[A-Za-z0-9_-]{43}")


class Project:
    """A repository with a forum of its own, and people at its command line."""

    def __init__(self, repo: Repository, home: Path, line: CommandLine) -> None:
        self.repo, self.home, self.line = repo, home, line
        self.database = StatePaths(repo.path).forum_db
        self.said: list[str] = []

    def run(self, *words: str, feed: bytes = b"") -> Ran:
        ran = self.line("forum", *words, feed=feed)
        self.said.append(ran.out + ran.err)
        return ran

    def json(self, *words: str, feed: bytes = b"") -> dict[str, Any]:
        ran = self.run(*words, "--json", feed=feed)
        assert ran.status == 0, ran
        answer: dict[str, Any] = json.loads(ran.out)
        assert answer["ok"]
        return answer

    def refused(self, *words: str, status: int) -> dict[str, Any]:
        ran = self.run(*words, "--json")
        assert ran.status == status, ran
        answer: dict[str, Any] = json.loads(ran.out)
        assert not answer["ok"]
        return answer

    def file(self, name: str) -> str:
        return str(self.home / "participants" / name / "worker.json")

    def somebody(self, name: str, *more: str) -> tuple[str, str]:
        """``--forum-state`` of a new author of that name."""
        self.json("profile", "register", "--provisioning-file", self.file(name), "--name", name, *more)
        return "--forum-state", self.file(name)

    def topic(self, *more: str, title: str = "A topic", text: str = "hello") -> dict[str, Any]:
        self.json("subforum", "create", "lab", "The lab", *more)
        return self.json("thread", "create", "lab", title, text, "--yes", *more)

    def process(self, *words: str, out: Any = subprocess.PIPE, **more: str) -> subprocess.Popen[bytes]:
        """The command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "side_agents", "forum", *words],
            cwd=self.repo.path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **more},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
        )

    @contextmanager
    def opened(self) -> Iterator[Forum]:
        with Database.open(self.database) as database:
            yield Forum(database, origin=ORIGIN)


@pytest.fixture
def project(
    repo: Repository, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    monkeypatch.chdir(repo.path)
    made = Project(repo, home, CommandLine(capsys, monkeypatch))
    yield made
    if made.database.exists():
        with made.opened() as forum:
            check(forum)
    assert repo.status() == ""
    assert not SECRET.search("".join(made.said))


def ended(process: subprocess.Popen[bytes]) -> int:
    with process:
        process.communicate(timeout=60)
    return process.returncode


def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_a_person_talks_without_any_preparation(project: Project) -> None:
    made = project.topic()
    answer = project.json(
        "post", "create", made["threadId"], "-", "--reply-to", made["postId"], "--yes", feed=b"two\nlines"
    )
    shown = project.json("thread", "show", made["threadId"])

    assert [post["body"] for post in shown["posts"]] == ["hello", "two\nlines"]
    assert shown["posts"][1]["replyTo"] == made["postId"]
    assert {post["author"]["name"] for post in shown["posts"]} == {project.json("profile", "show")["agent"]["name"]}
    assert {post["provenance"]["origin"] for post in shown["posts"]} == {"user"}
    assert project.json("post", "show", answer["postId"])["body"] == "two\nlines"
    assert [hit["postId"] for hit in project.json("search", "lines")["hits"]] == [answer["postId"]]
    assert project.json("worker", "show")["publications"] == []


def test_a_post_needs_a_yes_and_nothing_is_sent_without_one(project: Project) -> None:
    made = project.topic()
    refused = project.refused("post", "create", made["threadId"], "x", status=2)

    assert refused["hint"] == "Add --yes."
    assert len(project.json("thread", "show", made["threadId"])["posts"]) == 1


@pytest.mark.parametrize("variable", ["PI_SIDE_AGENT_ID", "SIDE_AGENTS_SESSION"])
def test_t126_an_agents_own_yes_is_nobodys_approval(
    project: Project, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    made = project.topic()
    monkeypatch.setenv(variable, "somebody")
    refused = project.refused("post", "create", made["threadId"], "x", "--yes", status=8)

    assert "approval of a person" in refused["error"]
    assert len(project.json("thread", "show", made["threadId"])["posts"]) == 1


def test_subforums_are_made_once_and_watched(project: Project) -> None:
    first = project.json("subforum", "create", "lab", "The lab", "--description", "For tests")
    assert project.json("subforum", "create", "lab", "The lab", "--description", "For tests") == first
    taken = project.refused("subforum", "create", "lab", "Another", status=12)
    assert (taken["code"], taken["forumCode"]) == ("forum", "subforum_exists")
    assert project.json("subforum", "watch", "lab")["changed"]
    assert not project.json("subforum", "watch", "lab")["changed"]
    [listed] = project.json("subforum", "list")["items"]
    assert (listed["key"], listed["watching"]) == ("lab", True)
    assert project.json("subforum", "unwatch", "lab")["watching"] is False
    assert project.json("subforum", "show", "lab")["recentThreads"] == []


def test_threads_are_listed_watched_and_muted(project: Project) -> None:
    made = project.topic()
    other = project.somebody("other")
    thread_id = made["threadId"]
    assert project.json("thread", "list", "--relation", "involved", *other)["items"] == []
    assert project.json("thread", "watch", thread_id, *other)["watching"]
    [watched] = project.json("thread", "list", "--relation", "watching", *other)["items"]
    assert (watched["id"], watched["unreadCount"]) == (thread_id, 1)
    assert project.json("thread", "mute", thread_id, *other)["muted"]
    project.json("post", "create", thread_id, "unheard", "--yes")
    assert project.json("events", "poll", *other)["events"] == []
    assert project.json("thread", "unmute", thread_id, *other)["muted"] is False
    assert project.json("thread", "unwatch", thread_id, *other)["watching"] is False
    assert [each["id"] for each in project.json("thread", "list", "--recent")["items"]] == [thread_id]
    assert project.refused("thread", "list", "--recent", "--relation", "unread", status=2)


def test_reading_is_declared_and_never_happens_by_looking(project: Project) -> None:
    made = project.topic()
    last = project.json("post", "create", made["threadId"], "more", "--yes")
    reader = project.somebody("reader")
    assert project.json("thread", "show", made["threadId"], *reader)["thread"]["unreadCount"] == 2
    assert project.json("thread", "show", made["threadId"], *reader)["thread"]["unreadCount"] == 2
    assert project.json("post", "read", made["postId"], *reader)["unreadCount"] == 1
    assert project.json("post", "read", last["postId"], *reader)["unreadCount"] == 0
    assert project.json("post", "read", made["postId"], *reader)["readThrough"] == "2"


def test_pages_go_on_where_they_ended(project: Project) -> None:
    made = project.topic()
    for number in range(3):
        project.json("post", "create", made["threadId"], str(number), "--yes")
    seen, cursor = [], []
    while True:
        page = project.json("thread", "show", made["threadId"], "--limit", "3", *cursor)
        seen += [post["body"] for post in page["posts"]]
        if page["pageInfo"]["nextCursor"] is None:
            break
        cursor = ["--cursor", page["pageInfo"]["nextCursor"]]
    assert seen == ["hello", "0", "1", "2"]


def test_ids_of_another_kind_are_refused_before_anything_is_sent(project: Project) -> None:
    for words in (
        ("thread", "show", "po_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("post", "show", "th_01ARZ3NDEKTSV4RRFFQ69G5FAV/../x"),
        ("subforum", "show", "../me"),
        ("attachment", "download", "at_1"),
        ("profile", "show", "a b"),
        ("catchup", "close", "pl_1"),
        ("events", "ack", "-1x"),
        ("thread", "list", "--meta", "nothing"),
    ):
        assert project.refused(*words, status=2)
    assert not project.database.exists()


def test_t026_the_forum_looks_the_same_directly_and_over_http(project: Project) -> None:
    made = project.topic(text="seven halves")
    project.json("post", "create", made["threadId"], "three", "--yes")
    with project.opened() as forum, served(forum) as origin:
        near = project.somebody("near")
        far = project.somebody("far", "--server", origin)
        assert read_document(Path(far[1]))["server"] != read_document(Path(near[1]))["server"]
        for words in (
            ("subforum", "list"),
            ("subforum", "show", "lab"),
            ("thread", "list"),
            ("thread", "list", "--recent"),
            ("thread", "show", made["threadId"]),
            ("post", "show", made["postId"]),
            ("search", "halves"),
            ("profile", "show", "near"),
            ("thread", "watch", made["threadId"]),
            ("post", "read", made["postId"]),
            ("events", "ack"),
        ):
            assert project.json(*words, *near) == project.json(*words, *far), words
        project.json("post", "create", made["threadId"], "four", "--yes")
        first, second = (project.json("events", "poll", *who) for who in (near, far))
        assert len(first["events"]) == 1
        assert first["events"] == second["events"]


def test_t057_register_needs_a_file_saves_it_first_and_prints_no_secret(project: Project) -> None:
    assert "--provisioning-file" in project.refused("profile", "register", "--name", "alice", status=2)["error"]
    path = Path(project.file("alice"))
    words = ("profile", "register", "--provisioning-file", str(path), "--name", "alice", "--json")
    killed = project.process(*words, **{failpoints.VARIABLE: "K2"})
    assert ended(killed) == -signal.SIGKILL
    prepared = read_document(path)
    assert prepared["identity"] is None
    assert prepared["pendingCreation"] is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    made = project.json("profile", "register", "--provisioning-file", str(path), "--name", "alice")
    again = project.json("profile", "register", "--provisioning-file", str(path))
    identity = read_document(path)["identity"]
    assert identity is not None
    assert (made["agentId"], made["name"]) == (identity["agentId"], "alice")
    assert again == made
    assert identity["credential"] == prepared["pendingCreation"]["credential"]
    assert "alice" in project.run("profile", "register", "--provisioning-file", str(path)).out
    # The fixture looks for secrets in everything that was printed.
    assert secrets_of(read_document(path))


def test_t058_create_child_needs_a_file_saves_it_and_prints_no_secret(project: Project) -> None:
    assert "--provisioning-file" in project.refused("profile", "create-child", "--name", "bob", status=2)["error"]
    parent = project.somebody("alice")
    path = project.file("bob")
    words = ("profile", "create-child", "--provisioning-file", path, "--name", "bob", "--reason", "to help", *parent)
    killed = project.process(*words, "--json", **{failpoints.VARIABLE: "P3"})
    assert ended(killed) == -signal.SIGKILL
    assert not Path(path).exists()

    made = project.json(*words)
    assert project.json(*words) == made
    assert made["cause"]["kind"] == "spawn"
    [child] = project.json("profile", "children", *parent)["items"]
    assert (child["id"], child["name"], child["reason"]) == (made["agentId"], "bob", "to help")
    secrets = secrets_of(read_document(Path(path)))
    assert len(secrets) == 1
    # Once the child has its file, the parent's knows nothing of its secret.
    assert not secrets & secrets_of(read_document(Path(parent[1])))
    assert project.json("profile", "show", "--forum-state", path)["agent"]["parentId"] == child["parentId"]


def test_a_provisioning_file_of_somebody_else_is_kept(project: Project) -> None:
    project.somebody("alice")
    before = Path(project.file("alice")).read_bytes()
    conflict = project.refused("profile", "create-child", "--provisioning-file", project.file("alice"), status=4)
    assert "somebody else" in conflict["error"]
    assert project.refused("profile", "register", "--provisioning-file", project.file("alice"), "--name", "x", status=4)
    assert Path(project.file("alice")).read_bytes() == before


def test_no_secret_is_written_into_the_repository(project: Project) -> None:
    refused = project.refused("profile", "register", "--provisioning-file", "worker.json", status=2)
    assert "repository" in refused["error"]
    assert not (project.repo.path / "worker.json").exists()


def test_t060_no_command_takes_or_promises_a_secret(project: Project) -> None:
    def leaves(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from leaves(child)

    names = {
        name for leaf in leaves(forum_group) for option in leaf.params for name in (*option.opts, option.name or "")
    }
    assert {name for name in names if re.search("secret|token|credential|password|bearer", name)} == set()
    project.topic()
    for words in (("worker", "show"), ("profile", "show"), ("profile", "session"), ("thread", "list")):
        assert not SECRET.search(project.run(*words, "--json").out + project.run(*words).out)


def test_the_profile_is_changed_in_the_parts_that_are_given(project: Project) -> None:
    assert project.refused("profile", "update", status=2)
    project.json("profile", "update", "--bio", "I test.", "--metadata", '{"team": "lab"}')
    found = project.json("profile", "update", "--status", "testing")["agent"]
    assert (found["bio"], found["status"], found["metadata"]) == ("I test.", "testing", {"team": "lab"})
    assert project.json("profile", "update", "--bio", "")["agent"]["bio"] == ""
    assert project.refused("profile", "update", "--metadata", "[1]", status=2)


def test_t230_what_others_wrote_is_harmless_on_a_terminal(project: Project) -> None:
    evil = "\u202egnp.exe \u2066 2J plain"
    made = project.topic(title="A \u202etitle", text=evil)
    # What only steers a terminal is not even kept.
    refused = project.refused("post", "create", made["threadId"], "\u009b2J plain", "--yes", status=12)
    assert (refused["forumCode"], "control characters" in refused["error"]) == ("invalid_argument", True)
    project.json("profile", "update", "--bio", "bio \u202e")
    reader = project.somebody("reader")
    project.json("thread", "watch", made["threadId"], *reader)
    project.json("post", "create", made["threadId"], evil, "--yes")
    for words in (
        ("thread", "show", made["threadId"]),
        ("thread", "list"),
        ("post", "show", made["postId"]),
        ("search", "plain"),
        ("events", "poll"),
        ("catchup",),
    ):
        shown = project.run(*words, *reader).out
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f]", shown), words
        assert "title" in shown or "plain" in shown, words
    # A text can end our own line, but none of its lines looks like one of ours.
    assert all(line.startswith("  │ ") for line in project.run("post", "show", made["postId"]).out.splitlines()[1:])


def test_attachments_are_saved_and_not_shown(project: Project) -> None:
    project.json("subforum", "create", "lab", "The lab")
    data = bytes(range(256)) * 10
    with project.opened() as forum:
        author = register(forum)
        made = thread(forum, author, "lab", post=content(data))
        attachment = forum.content.post(author.principal, made["postId"])["attachments"][0]["id"]
    saved = project.process("attachment", "download", attachment)
    out, _ = saved.communicate(timeout=60)
    assert (saved.returncode, out) == (0, data)
    assert project.json("attachment", "download", attachment)["size"] == len(data)
    assert project.refused("attachment", "download", "at_01ARZ3NDEKTSV4RRFFQ69G5FAV", status=12)


def content(data: bytes) -> requests.PostContent:
    import base64

    file = requests.AttachmentInput(
        name="data.bin", media_type="application/octet-stream", data=base64.b64encode(data).decode()
    )
    return requests.PostContent(body="with a file", attachments=(file,))


def talked_to(project: Project) -> tuple[tuple[str, str], dict[str, Any]]:
    """A reader who watches a thread, in which something was said since."""
    made = project.topic()
    reader = project.somebody("reader")
    project.json("thread", "watch", made["threadId"], *reader)
    project.json("post", "create", made["threadId"], "news", "--yes")
    return reader, made


def acknowledged(project: Project, reader: tuple[str, str]) -> str:
    return str(project.json("events", "ack", *reader)["throughSequence"])


def test_following_writes_each_event_and_acknowledges_what_was_taken(project: Project) -> None:
    reader, made = talked_to(project)
    following = project.process("events", "follow", "--json", *reader)
    assert following.stdout is not None
    first = json.loads(following.stdout.readline())
    assert (first["threadId"], first["sequence"]) == (made["threadId"], "2")
    eventually(lambda: acknowledged(project, reader) == "2")
    # The file of the one who follows is free for other commands, and a wait is woken by them.
    project.json("post", "create", made["threadId"], "more", "--yes")
    assert json.loads(following.stdout.readline())["sequence"] == "3"
    eventually(lambda: acknowledged(project, reader) == "3")
    following.send_signal(signal.SIGTERM)
    assert ended(following) == 128 + signal.SIGTERM
    assert project.json("events", "poll", *reader)["events"] == []
    assert len(project.json("events", "poll", "--start", "beginning", *reader)["events"]) == 2


@pytest.mark.parametrize("words", [("--no-ack",), ()])
def test_following_acknowledges_nothing_that_was_not_taken(project: Project, words: tuple[str, ...]) -> None:
    reader, _ = talked_to(project)
    if words:
        following = project.process("events", "follow", "--json", *words, *reader)
        assert following.stdout is not None
        assert following.stdout.readline()
        following.send_signal(signal.SIGTERM)
        ended(following)
    else:
        pipe = closed_pipe()
        assert ended(project.process("events", "follow", *reader, out=pipe)) == 128 + signal.SIGPIPE
        os.close(pipe)
    assert acknowledged(project, reader) == "0"
    assert len(project.json("events", "poll", *reader)["events"]) == 1


def test_events_are_acknowledged_by_hand_and_never_back(project: Project) -> None:
    reader, _ = talked_to(project)
    assert project.json("events", "ack", "2", *reader)["throughSequence"] == "2"
    assert project.json("events", "ack", "1", *reader)["throughSequence"] == "2"
    assert project.refused("events", "ack", "99", *reader, status=12)["forumCode"] == "future_sequence"
    assert project.json("events", "ack", "--scope", "involved", *reader)["throughSequence"] == "0"


@pytest.mark.parametrize("fault", ["a broken pipe", "a full disk"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_t224_catching_up_into_nowhere_acknowledges_nothing(project: Project, fault: str, form: str) -> None:
    reader, made = talked_to(project)
    flags = ("--json",) if form == "json" else ()
    with Path("/dev/full").open("wb") as full:
        pipe = closed_pipe()
        out = pipe if fault == "a broken pipe" else full
        status = ended(project.process("catchup", *flags, *reader, out=out))
        os.close(pipe)
    assert status == (128 + signal.SIGPIPE if fault == "a broken pipe" else 1)
    assert project.json("thread", "show", made["threadId"], *reader)["thread"]["unreadCount"] == 2
    # The plan is not left over either: three are all that a session may have.
    for _ in range(4):
        assert project.run("catchup", *reader).status == 0
    assert project.json("thread", "show", made["threadId"], *reader)["thread"]["unreadCount"] == 0
    assert "Nothing is new to you." in project.run("catchup", *reader).out


def test_catching_up_by_hand_goes_by_receipts(project: Project) -> None:
    reader, made = talked_to(project)
    page, end = map(json.loads, project.run("catchup", "--no-ack", "--json", *reader).out.splitlines())
    # What was said before the watch began is nothing new; it counts as unread all the same.
    assert [post["body"] for post in page["posts"]] == ["news"]
    assert (end["acknowledged"], end["receiptIds"]) == (False, [page["receiptId"]])
    assert project.json("thread", "show", made["threadId"], *reader)["thread"]["unreadCount"] == 2
    done = project.json("catchup", "ack", end["planId"], page["receiptId"], *reader)
    assert done["threads"] == [{"threadId": made["threadId"], "readThrough": "2", "unreadCount": 0}]
    assert project.json("catchup", "close", end["planId"], *reader)["closed"]
    assert project.refused("catchup", "close", end["planId"], *reader, status=12)["forumCode"] == "not_found"


def test_a_kept_post_is_sent_again_or_forgotten_by_a_person(project: Project) -> None:
    made = project.topic()
    killed = project.process("post", "create", made["threadId"], "once", "--yes", **{failpoints.VARIABLE: "K4"})
    assert ended(killed) == -signal.SIGKILL
    [kept] = project.json("worker", "show")["publications"]
    assert (kept["text"], kept["target"]) == ("once", {"threadId": made["threadId"]})
    assert kept["id"] in project.run("worker", "show").out
    assert project.refused("worker", "retry", kept["id"], status=2)["hint"] == "Add --yes."
    again = project.json("worker", "retry", kept["id"], "--yes")
    assert again["outcome"] == "published"
    # The forum had it already, and has it once.
    assert [post["body"] for post in project.json("thread", "show", made["threadId"])["posts"]] == ["hello", "once"]
    assert project.refused("worker", "discard", kept["id"], "--yes", status=3)

    refused = project.refused("post", "create", "th_01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "--yes", status=12)
    [kept] = project.json("worker", "show")["publications"]
    assert (kept["status"], refused["forumCode"]) == ("refused", "not_found")
    assert kept["id"] in refused["hint"]
    project.json("worker", "discard", kept["id"], "--yes")
    assert project.json("worker", "show")["publications"] == []


def test_somebody_new_keeps_the_old_file(project: Project) -> None:
    project.topic()
    old = project.json("worker", "show")
    assert project.refused("worker", "new", status=2)
    made = project.json("worker", "new", "--yes")
    kept = read_document(Path(made["kept"]))
    assert kept["identity"] is not None
    assert kept["identity"]["agentId"] == old["identity"]["agentId"]
    assert project.json("worker", "show")["identity"] is None
    assert project.json("profile", "show")["agent"]["id"] != old["identity"]["agentId"]


def test_a_lock_is_removed_only_when_its_owner_is_gone(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, project.somebody("alice")[1])
    path = Path(project.file("alice"))
    with WorkerFile.open(path, purpose="test"):
        assert "test" in project.json("worker", "show")["inUseBy"]
        assert project.refused("worker", "unlock", status=5)["code"] == "busy"
    assert project.refused("worker", "unlock", status=3)
    lock = path.with_name("worker.lock")
    lock.write_text(json.dumps({"pid": 1, "host": "elsewhere", "purpose": "forum post", "since": "yesterday"}))
    assert project.refused("worker", "unlock", str(path), status=2)["hint"] == "Add --yes."
    assert project.json("worker", "unlock", str(path), "--yes")["host"] == "elsewhere"
    assert not lock.exists()


def test_references_are_dropped_without_reading_anything(project: Project) -> None:
    reader, made = talked_to(project)
    watched = subprocess.run(
        [sys.executable, "-m", "side_agents", "tool", "forum_watch"],
        cwd=project.repo.path,
        env={**os.environ, "PYTHONPATH": str(ROOT), STATE_VARIABLE: reader[1]},
        input=b'{"waitSeconds": 0}',
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert len(json.loads(watched.stdout)["references"]) == 1
    assert project.json("worker", "show", *reader)["references"] == 1
    assert project.json("worker", "dismiss", "99", *reader)["dismissed"] == 0
    assert project.json("worker", "dismiss", *reader)["dismissed"] == 1
    assert project.json("thread", "show", made["threadId"], *reader)["thread"]["unreadCount"] == 2
    assert acknowledged(project, reader) == "0"


def test_every_group_alone_shows_its_commands(project: Project) -> None:
    for name in ("subforum", "thread", "post", "attachment", "events", "profile", "worker"):
        shown = project.run(name)
        assert (shown.status, "Commands:" in shown.out) == (0, True), name
    assert not project.database.exists()


def test_an_identity_whose_forum_was_away_goes_on_when_it_is_back(project: Project) -> None:
    made = project.topic()
    away = project.database.with_name("away.db")
    project.database.rename(away)
    for _ in range(2):
        assert project.refused("subforum", "list", status=12)["forumCode"] == "installation_mismatch"
    for left in project.database.parent.glob("forum.db*"):
        left.unlink()
    away.rename(project.database)
    project.json("post", "create", made["threadId"], "again", "--yes")
    assert [post["body"] for post in project.json("thread", "show", made["threadId"])["posts"]] == ["hello", "again"]


def test_a_damaged_forum_is_called_damaged_with_the_way_out(project: Project) -> None:
    project.topic()
    with project.database.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 20_000)
    for words in (("doctor",), ("subforum", "list")):
        said = project.refused(*words, status=12)
        assert "is damaged" in said["error"]
        assert "forum restore" in said["error"]
    for left in project.database.parent.glob("forum.db*"):
        left.unlink()


def test_a_post_to_a_server_that_is_down_is_kept_and_nobody_says_that_it_was_published(project: Project) -> None:
    made = project.topic()
    with project.opened() as forum, served(forum) as origin:
        far = project.somebody("far", "--server", origin)
        project.json("thread", "show", made["threadId"], *far)
    said = project.refused("post", "create", made["threadId"], "later", "--yes", *far, status=12)
    assert (said["forumCode"], "Nothing was sent" in said["error"]) == ("unreachable", True)
    assert "may have been" not in said["error"]
    [kept] = project.json("worker", "show", *far)["publications"]
    assert kept["id"] in said["error"]
    assert f"worker retry {kept['id']}" in said["hint"]
