"""SIGKILL at every boundary of a server command (reference/forum.md 6.1), then the same request again.

Whatever the moment: afterwards the command has happened once, whole, with its original author.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from side_agents.forum import ids
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from tests.integration.forum_kill_child import KEY, NOT_REACHED, credential, send
from tests.support.forum import ORIGIN, Person, check, json_of, subforum, table_counts, thread, unhurried
from tests.support.forum import register as register_author

ROOT = Path(__file__).parents[2]
KILLED = -9
BEFORE_COMMIT = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11")
AFTER_COMMIT = ("S13", "S14")
# Identity commands have no content to stop at.
COMMON = tuple(point for point in BEFORE_COMMIT if point in ("S1", "S2", "S3", "S10", "S11"))
POINTS = {
    "register": COMMON,
    "child": COMMON,
    "subforum": COMMON,
    "thread": BEFORE_COMMIT,
    "reply": BEFORE_COMMIT,
}


class Killer:
    """Sends jobs to the process that dies for us."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, job: dict[str, Any]) -> int:
        """How the job ended: -9 when it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    argv = [sys.executable, "-m", "tests.integration.forum_kill_child"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Killer(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


class World:
    """One forum with an author and a thread, and what it looked like before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with Database.open(path) as database:
            forum = open_forum(database)
            self.author: Person = register_author(forum, "original-author")
            subforum(forum, self.author, "lab")
            forum.interests.watch_subforum(self.author.principal, "lab")
            self.thread = thread(forum, self.author, "lab", watch=True)["threadId"]
            self.before = table_counts(database)

    def job(self, operation: str, **more: Any) -> dict[str, Any]:
        principal = self.author.principal
        author = {"agent_id": principal.agent_id, "session_id": principal.session_id, "name": principal.name}
        return {"path": str(self.path), "operation": operation, "author": author, "target": self.thread, **more}

    def send(self, forum: Forum, operation: str, key: str = KEY) -> Any:
        return send(forum, operation, self.author.principal, self.thread, key)


def open_forum(database: Database) -> Forum:
    return Forum(database, origin=ORIGIN, pace=unhurried())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("template")
    folder.chmod(0o700)
    return World(folder / "forum.db")


@pytest.fixture
def world(template: World, tmp_path: Path) -> World:
    return copy_of(template, tmp_path / "world")


@pytest.mark.parametrize("operation", POINTS)
def test_t115_killed_before_the_commit_nothing_has_happened_and_the_same_request_does_it_once(
    killer: Killer, template: World, tmp_path: Path, operation: str
) -> None:
    for point in POINTS[operation]:
        world = copy_of(template, tmp_path / point)
        assert killer(world.job(operation, failpoint=point)) == KILLED, point
        after_restart(world, operation, happened=False)


@pytest.mark.parametrize("operation", POINTS)
def test_t115_killed_after_the_commit_it_has_happened_and_the_same_request_only_hears_of_it(
    killer: Killer, template: World, tmp_path: Path, operation: str
) -> None:
    for point in AFTER_COMMIT:
        world = copy_of(template, tmp_path / point)
        assert killer(world.job(operation, failpoint=point)) == KILLED, point
        after_restart(world, operation, happened=True)


# A page is two writes, a short one and a long one; every third write is each of them in turn.
@pytest.mark.parametrize("operation", ["thread", "reply", "child"])
def test_t115_s12_killed_at_any_write_or_sync_of_the_commit_it_has_happened_wholly_or_not_at_all(
    killer: Killer, template: World, tmp_path: Path, operation: str
) -> None:
    outcomes = set()
    for kind, step in (("write", 3), ("sync", 1)):
        for turn in range(1, 1000, step):
            world = copy_of(template, tmp_path / f"{kind}-{turn}")
            ended = killer(world.job(operation, die=[kind, "wal", turn]))
            if ended == NOT_REACHED:
                assert turn > 1, "the commit must have written something"
                break
            assert ended == KILLED
            outcomes.add(after_restart(world, operation))
    assert False in outcomes


@pytest.mark.parametrize(("kind", "step"), [("write", 2), ("sync", 1)])
def test_t115_s16_killed_in_the_checkpoint_what_was_committed_is_there(
    killer: Killer, template: World, tmp_path: Path, kind: str, step: int
) -> None:
    for turn in range(1, 1000, step):
        world = copy_of(template, tmp_path / f"{kind}-{turn}")
        ended = killer(world.job("thread", die=[kind, "db", turn]))
        if ended == NOT_REACHED:
            assert turn > 1, "the checkpoint must have touched the file"
            break
        assert ended == KILLED
        after_restart(world, "thread", happened=True)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_t115_s17_killed_in_the_middle_of_a_batch_none_of_it_has_happened(
    killer: Killer, world: World, turn: int
) -> None:
    assert killer(world.job("batch", failpoint=f"S17:{turn}")) == KILLED
    with Database.open(world.path) as database:
        forum = open_forum(database)
        assert table_counts(database) == world.before
        answers = [world.send(forum, "reply", f"{KEY}-{number}") for number in range(3)]
        assert not any(answer.replayed for answer in answers)
        assert table_counts(database)["post"] == world.before["post"] + 3
        check(forum)


def test_t115_s18_killed_while_the_database_is_made_there_is_none_and_the_next_one_makes_it(
    killer: Killer, world: World, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "forum.db"
    assert killer({**world.job("create", failpoint="S18"), "path": str(path)}) == KILLED
    assert not path.exists()
    with Database.open(path) as database:
        assert ids.is_ulid("in", database.installation.id)
        check(open_forum(database))
    assert sorted(each.name for each in path.parent.iterdir()) == ["forum.db", "forum.db.users", "forum.db.wake"]


def test_t115_a_death_after_the_commit_is_noticed_by_waiters_of_other_processes(killer: Killer, world: World) -> None:
    with Database.open(world.path) as database:
        generation = database.changed.generation()
        # Killed between its commit and its wake-up.
        assert killer(world.job("reply", failpoint="S13")) == KILLED
        assert database.changed.wait(generation, 10)
        assert table_counts(database)["post"] == world.before["post"] + 1


def copy_of(template: World, folder: Path) -> World:
    copied = World.__new__(World)
    copied.__dict__.update(template.__dict__)
    folder.mkdir(mode=0o700)
    copied.path = folder / "forum.db"
    shutil.copy2(template.path, copied.path)
    return copied


def after_restart(world: World, operation: str, *, happened: bool | None = None) -> bool:
    """Check the forum as the next process finds it, and that the same request then has happened exactly once."""
    with Database.open(world.path) as database:
        forum = open_forum(database)
        found = table_counts(database)
        has_happened = found != world.before
        assert happened in (None, has_happened)
        check(forum)
        answer = world.send(forum, operation)
        assert answer.replayed is has_happened
        after = table_counts(database)
        assert after["command"] == world.before["command"] + 1
        assert found in (world.before, after), "half a command"
        check_once(world, forum, operation, json_of(answer))
        check(forum)
    return has_happened


def check_once(world: World, forum: Forum, operation: str, answer: dict[str, Any]) -> None:
    author = world.author.principal
    if operation in ("thread", "reply"):
        posts = forum.content.posts(author, answer["threadId"])["posts"]
        assert [post["author"]["id"] for post in posts] == [author.agent_id] * len(posts)
        assert [post["id"] for post in posts].count(answer["postId"]) == 1
        hits = forum.database.read(lambda db: db.execute("SELECT count(*) FROM post_fts('zebra')").get)
        assert hits == 1
    elif operation in ("register", "child"):
        name = {"register": "root", "child": "child"}[operation]
        assert forum.identities.authenticate(credential(name)).agent_id == answer["agent"]["id"]
