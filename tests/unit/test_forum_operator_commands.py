"""``side-agents forum doctor``, ``backup``, ``restore`` and ``redact`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from side_agents.forum import requests
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from tests.support.forum import ORIGIN, ForumFactory, Person, command, forum_factory, json_of, register
from tests.support.repositories import Repository
from tests.unit.cli_support import CommandLine

__all__ = ["forum_factory"]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository) -> CommandLine:
    monkeypatch.chdir(repo.path)
    return CommandLine(capsys, monkeypatch)


def at(path: Path) -> tuple[str, str]:
    return "--database", str(path)


def written(forum: Forum) -> tuple[Person, dict[str, Any]]:
    """An author and the answer to a thread of it."""
    author = register(forum)
    made = requests.SubforumRequest(key="general", title="General")
    forum.content.create_subforum(author.principal, made, command=command())
    content = requests.PostContent(body="A text that is to go.")
    request = requests.ThreadRequest(title="A title", post=content)
    return author, json_of(forum.content.create_thread(author.principal, "general", request, command=command()))


def test_the_group_alone_shows_its_commands(cli: CommandLine) -> None:
    shown = cli("forum")

    assert shown.status == 0
    for name in ("serve", "server-info", "doctor", "backup", "restore", "redact"):
        assert f"  {name} " in shown.out
    assert cli("forum", "nonsense").status == 2


@pytest.mark.parametrize("words", [("doctor",), ("backup", "copy.db"), ("redact", "po_x", "--yes"), ("server-info",)])
def test_looking_for_a_forum_makes_none(cli: CommandLine, repo: Repository, words: tuple[str, ...]) -> None:
    refused = cli("forum", *words, "--json")

    assert refused.status == 3, refused
    assert json.loads(refused.out)["code"] == "not-found"
    assert not (repo.path / ".pi").exists()


def test_the_doctor_says_what_there_is_and_that_all_rules_hold(cli: CommandLine, forum_factory: ForumFactory) -> None:
    written(forum_factory())
    path = forum_factory.path()
    told = cli("forum", "doctor", *at(path))
    found = json.loads(cli("forum", "doctor", *at(path), "--json").out)

    assert (told.status, told.err) == (0, "")
    assert "rules hold" in told.out
    assert (found["ok"], found["problems"], found["counts"]["posts"], found["lastSequence"]) == (True, [], 1, "1")


def test_the_doctor_says_what_does_not_hold(cli: CommandLine, forum_factory: ForumFactory) -> None:
    forum = forum_factory()
    author, _ = written(forum)
    row = ("INSERT INTO inbox_ack VALUES (?, 'stream', 99)", (author.session,))
    forum.database.write(lambda connection: connection.execute(*row))
    told = cli("forum", "doctor", *at(forum_factory.path()))
    found = cli("forum", "doctor", *at(forum_factory.path()), "--json")
    forum.database.write(lambda connection: connection.execute("DELETE FROM inbox_ack"))

    assert (told.status, found.status) == (1, 1)
    assert "problem" in told.out
    assert [problem["invariant"] for problem in json.loads(found.out)["problems"]] == [16]


def test_t231_a_backup_put_back_is_the_forum_in_a_new_epoch(
    cli: CommandLine, forum_factory: ForumFactory, tmp_path: Path
) -> None:
    forum = forum_factory()
    author, thread = written(forum)
    path, copy = forum_factory.path(), tmp_path / "copy.db"
    made = json.loads(cli("forum", "backup", str(copy), *at(path), "--json").out)
    assert (made["path"], made["lastSequence"]) == (str(copy), "1")
    assert cli("forum", "backup", str(copy), *at(path)).status == 8
    reply = requests.ReplyRequest(body="Later.")
    forum.content.reply(author.principal, thread["threadId"], reply, command=command())

    in_use = cli("forum", "restore", str(copy), "--replace", "--yes", *at(path))
    assert (in_use.status, "use the forum" in in_use.err) == (5, True)
    before = forum.installation
    forum_factory.close(forum)
    assert cli("forum", "restore", str(copy), *at(path)).status == 8
    assert cli("forum", "restore", str(copy), "--replace", *at(path)).status == 2

    done = json.loads(cli("forum", "restore", str(copy), "--replace", "--yes", *at(path), "--json").out)
    assert done["lastSequence"] == "1"
    assert Path(done["replaced"]).exists()
    again = forum_factory()
    assert (again.installation.id, again.installation.epoch) == (before.id, done["epoch"])
    assert again.installation.epoch > before.epoch


def test_a_redacted_post_has_no_text_and_is_still_there(cli: CommandLine, forum_factory: ForumFactory) -> None:
    forum = forum_factory()
    author, thread = written(forum)
    path = forum_factory.path()
    assert cli("forum", "redact", thread["postId"], *at(path)).status == 2
    told = cli("forum", "redact", thread["postId"], "--with-title", "--yes", *at(path))
    again = json.loads(cli("forum", "redact", thread["postId"], "--with-title", "--yes", *at(path), "--json").out)

    assert told.status == 0
    assert again["changed"] is False
    post = forum.content.post(author.principal, thread["postId"])
    assert (post["body"], post["redacted"], post["author"]["id"]) == ("", True, author.id)
    unknown = cli("forum", "redact", "po_unknown", "--yes", *at(path))
    assert (unknown.status, "no such post" in unknown.err) == (12, True)


def test_the_forum_of_the_project_is_the_default(cli: CommandLine, repo: Repository) -> None:
    path = repo.path / ".pi" / "side-agents" / "forum" / "forum.db"
    with Database.open(path) as database:
        installation = Forum(database, origin=ORIGIN).installation.id

    assert json.loads(cli("forum", "server-info", "--json").out)["installationId"] == installation
    assert json.loads(cli("forum", "doctor", "--json").out)["path"] == str(path)
    shown = cli("forum", "server-info")
    assert (shown.status, installation in shown.out, "bodyBytes" in shown.out) == (0, True, True)
