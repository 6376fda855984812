"""Power loss and failing disks below the database, simulated in a file layer (reference/forum.md 3.6, levels 2 and 3)."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from random import Random

import apsw
import pytest

from side_agents.errors import ForumError
from side_agents.forum import requests
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import invariants, opening, writer
from side_agents.forum.store.database import Connection, Database
from tests.integration.forum_kill_child import KEY, send
from tests.support.forum import (
    ORIGIN,
    Person,
    check,
    command,
    json_of,
    register,
    subforum,
    table_counts,
    thread,
    unhurried,
)
from tests.support.forum_vfs import Faults, Operation, Recorder, Shim

TRIALS = 500
WRITERS, POSTS = 4, 12


class World:
    """A closed forum with authors and a thread in it, to be copied for each trial."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.path = folder / "forum.db"
        with Database.open(self.path) as database:
            forum = Forum(database, origin=ORIGIN, pace=unhurried())
            self.authors = [register(forum) for _ in range(WRITERS)]
            subforum(forum, self.authors[0], "lab")
            self.thread = thread(forum, self.authors[0], "lab")["threadId"]
            self.before = table_counts(database)

    @property
    def ann(self) -> Person:
        return self.authors[0]

    def copy(self, folder: Path) -> Path:
        folder.mkdir(mode=0o700)
        return Path(shutil.copy2(self.path, folder / "forum.db"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("power") / "template")


def write_and_record(world: World, path: Path) -> Recorder:
    """Several authors post at once, with checkpoints in between; each success is noted when it is heard of."""
    recorder = Recorder()
    with Database.open(path, open_file=Shim(recorder).open_file) as database:
        forum = Forum(database, origin=ORIGIN, pace=unhurried())

        def post(person: Person) -> None:
            for number in range(POSTS):
                request = requests.ReplyRequest(body=f"zebra {number} " * 40)
                answer = forum.content.reply(person.principal, world.thread, request, command=command())
                recorder.promise(json_of(answer)["postId"])

        threads = [threading.Thread(target=post, args=(person,)) for person in world.authors]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(recorder.promised(len(recorder.log))) == WRITERS * POSTS
    return recorder


def lost_after_power_loss(world: World, recorder: Recorder, path: Path, random: Random) -> set[str] | None:
    """Cut the power once: which promised posts are gone; None when the database is not even sound."""
    moment = random.randrange(len(recorder.log))
    image = recorder.after_power_loss(moment, world.path.read_bytes(), random)
    path.write_bytes(image["db"])
    path.chmod(0o600)
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(image["wal"])
    log.chmod(0o600)
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA synchronous=OFF")
        sound = connection.execute("PRAGMA integrity_check").get == "ok" and not invariants.violations(connection)
        found = {row[0] for row in connection.execute("SELECT id FROM post")}
    except apsw.Error:
        sound = False
    finally:
        connection.close()
    return recorder.promised(moment) - found if sound else None


def cut_the_power(world: World, folder: Path, trials: int) -> list[set[str] | None]:
    recorder = write_and_record(world, world.copy(folder / "recorded"))
    random = Random(20260101)
    (folder / "trials").mkdir(mode=0o700)
    results = []
    for _ in range(trials):
        results.append(lost_after_power_loss(world, recorder, folder / "trials" / "forum.db", random))
        for left in (folder / "trials").iterdir():
            left.unlink()
    return results


def test_t227_no_promised_command_is_lost_in_500_power_losses(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 40)
    results = cut_the_power(world, tmp_path, TRIALS)

    assert len(results) == TRIALS
    assert all(lost == set() for lost in results)


@pytest.mark.parametrize("synchronous", [0, 1])
def test_the_simulation_does_lose_what_is_not_synced(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronous: int
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 40)
    monkeypatch.setitem(opening.WRITER, "synchronous", synchronous)
    results = cut_the_power(world, tmp_path, 40)

    assert any(lost != set() for lost in results)


@pytest.mark.parametrize(
    ("error", "code", "lasting", "step"),
    [
        (apsw.FullError, "storage_full", False, 1),
        (apsw.FullError, "storage_full", True, 3),
        (apsw.IOError, "storage_failed", False, 3),
        (apsw.IOError, "storage_failed", True, 3),
    ],
)
def test_t238_a_failing_disk_at_any_write_leaves_no_half_command(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[apsw.Error],
    code: str,
    lasting: bool,
    step: int,
) -> None:
    # Every commit is followed by a checkpoint, so that this fails too.
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 1)
    refused = 0
    for first in range(1, 1000, step):
        path = world.copy(tmp_path / f"{first}")
        faults = Faults(0, error, lasting)
        with Database.open(path, open_file=Shim(faults).open_file) as database:
            forum = Forum(database, origin=ORIGIN)
            faults.first, faults.seen = first, 0
            heard = outcome(world, forum)
            # What the writer does after its answers is over once it takes the next command.
            database.write(lambda _: None)
            fired = faults.fired
            # The disk works again; what was kept must be seen from here too.
            faults.first, faults.lasting = 0, False
            counts = database.write(count_posts)
        after_faults(world, path, heard)
        assert heard in (None, code)
        assert counts == world.before["post"] + (1 if heard is None else 0)
        refused += heard is not None
        if not fired:
            break
    assert fired == 0, "it never came through"
    assert refused > 5


def count_posts(connection: Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM post").get)


def outcome(world: World, forum: Forum) -> str | None:
    """The code of the refusal of one thread, None when it was made."""
    try:
        send(forum, "thread", world.ann.principal, world.thread)
    except ForumError as error:
        return error.forum_code if error.retryable else f"{error.forum_code}, not retryable"
    return None


def after_faults(world: World, path: Path, heard: str | None) -> None:
    """The next process finds all of it or nothing, and the same request works then."""
    with Database.open(path) as database:
        forum = Forum(database, origin=ORIGIN)
        check(forum)
        assert (table_counts(database) == world.before) is (heard is not None)
        assert send(forum, "thread", world.ann.principal, world.thread).replayed is (heard is None)
        assert table_counts(database)["post"] == world.before["post"] + 1
        check(forum)


def test_t237_when_the_commit_fails_everybody_in_the_batch_hears_it_and_nothing_exists(
    world: World, tmp_path: Path
) -> None:
    path = world.copy(tmp_path / "copy")
    armed = threading.Event()

    def fail_sync(operation: Operation) -> None:
        if armed.is_set() and (operation.kind, operation.file) == ("sync", "wal"):
            raise apsw.IOError("injected")

    heard: dict[int, str] = {}
    with Database.open(path, open_file=Shim(fail_sync).open_file) as database:
        forum = Forum(database, origin=ORIGIN, pace=unhurried())
        generation = database.changed._generation

        def post(number: int) -> None:
            # One of them would have been refused anyhow, and may not know better than the others what is kept.
            target = world.thread if number else "th_missing"
            try:
                send(forum, "reply", world.ann.principal, target, f"{KEY}-{number}")
            except ForumError as error:
                heard[number] = error.forum_code

        threads = [threading.Thread(target=post, args=(number,)) for number in range(4)]

        def hold(_: Connection) -> None:
            armed.set()
            for each in threads:
                each.start()
            while database._writer._jobs.qsize() < len(threads):
                threading.Event().wait(0.001)

        with pytest.raises(ForumError, match="could not save"):
            database.write(hold)
        for each in threads:
            each.join()
        armed.clear()
        assert heard == dict.fromkeys(range(4), "storage_failed")
        assert database.changed._generation == generation, "nobody may be woken by what does not exist"
        assert database.write(count_posts) == world.before["post"]
        # The writer goes on.
        assert not send(forum, "reply", world.ann.principal, world.thread, f"{KEY}-1").replayed
    with Database.open(path) as database:
        assert table_counts(database)["post"] == world.before["post"] + 1
        check(Forum(database, origin=ORIGIN))
