"""SIGKILL at every boundary of the client (reference/forum 6.1: F, K, C, E and the forum's part of P), then life goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from side_agents.errors import BusyError
from side_agents.forum.client import worker_lock
from side_agents.forum.client.worker_document import WorkerDocument, secrets_of
from side_agents.forum.client.worker_file import WorkerFile, read_document
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import invariants
from side_agents.forum.store.database import Database
from tests.integration.forum_stage import CHILD, ROOT, Nursery, Stage, nursery
from tests.support.forum_client import Place, add_subforum

__all__ = ["nursery"]


# All that a post comes by in the forum, but those of several commands in one commit (S17) and of SQLite's own steps (S12, S16).
FORUM_POINTS = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S13", "S14", "S15")


def start(place: Place, name: str, action: str) -> subprocess.Popen[str]:
    """An action that goes on beside the test."""
    return subprocess.Popen(
        [*CHILD, str(place.folder), place.origin, name, action],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def place(tmp_path: Path, nursery: Nursery) -> Iterator[Stage]:
    """A project with a forum and one participant in it; every invariant of the forum holds at the end."""
    made = Stage(tmp_path, nursery=nursery)
    with made.worker("a") as worker:
        add_subforum(worker)
    yield made
    with Database.open(made.database) as database:
        assert database.read(invariants.violations) == []


def document(place: Place, name: str = "a") -> WorkerDocument:
    return read_document(place.state(name))


def counts(place: Place) -> dict[str, int]:
    with Database.open(place.database) as database:
        forum = Forum(database, origin="http://127.0.0.1:8080")
        return {
            table: forum.database.read(lambda connection, t=table: connection.execute(f"SELECT count(*) FROM {t}").get)
            for table in ("agent", "session", "post", "activity")
        }


def authors_of_posts(place: Place) -> list[str]:
    with Database.open(place.database) as database:
        found = database.read(
            lambda connection: connection.execute("SELECT author_id FROM post ORDER BY created_seq").fetchall()
        )
    return [str(author) for (author,) in found]


@pytest.mark.parametrize("point", ["F1", "F2", "F3", "F4", "F5", "F6"])
def test_t072_i43_killed_during_a_save_the_file_is_the_old_or_the_new_one(place: Stage, point: str) -> None:
    before = document(place)
    place.killed("a", "change", point)
    after = document(place)

    strays = list(place.state("a").parent.glob(".worker.json.*"))
    assert len(strays) == (1 if point in ("F1", "F2", "F3", "F4") else 0)
    is_new = point in ("F5", "F6")
    assert after["revision"] == before["revision"] + is_new
    assert (after["host"]["leafEntryId"] == "new") is is_new
    assert {**after, "host": before["host"], "revision": before["revision"]} == before
    assert place.run("a", "change") == after["revision"] + 1
    assert list(place.state("a").parent.glob(".worker.json.*")) == []


@pytest.mark.parametrize("point", ["K1", "K2", "K3", "K4", "K5", "S3", "S10", "S13"])
def test_t034_t035_killed_during_a_registration_there_is_one_author_in_the_end(place: Stage, point: str) -> None:
    before = counts(place)
    place.killed("b", "register", point)
    prepared = document(place, "b")["pendingCreation"]
    became = document(place, "b")["identity"]
    author = place.run("b", "register")
    after, saved = counts(place), document(place, "b")

    assert (prepared is None, became is None) == (point in ("K1", "K5"), point != "K5")
    assert saved["pendingCreation"] is None
    assert saved["identity"] is not None
    assert saved["identity"]["agentId"] == author
    if prepared is not None:
        assert saved["identity"]["credential"] == prepared["credential"]
    assert after == {**before, "agent": before["agent"] + 1, "session": before["session"] + 1}


@pytest.mark.parametrize("point", ["K1", "K2", "K3", "K4", "K5"])
def test_t092_i47_killed_during_a_compaction_there_is_one_child_in_the_end(place: Stage, point: str) -> None:
    before, first = counts(place), document(place)["identity"]
    place.killed("a", "compact", point)
    author = place.run("a", "compact")
    saved = document(place)

    assert first is not None
    assert saved["identity"] is not None
    assert saved["identity"]["agentId"] == author != first["agentId"]
    assert saved["identity"]["sessionId"] == first["sessionId"]
    assert [each["agentId"] for each in saved["lineage"]] == [first["agentId"]]
    assert counts(place) == {**before, "agent": before["agent"] + 1}


@pytest.mark.parametrize("compacted", [False, True], ids=["same author", "after a compaction"])
@pytest.mark.parametrize("point", ["C1", "K1", "K2", "K3", "K4", "C2", "K5", "S5", "S13", "S15"])
def test_t104_t115_killed_during_a_publication_there_is_one_post_by_its_author_or_none(
    place: Stage, point: str, compacted: bool
) -> None:
    before, author = counts(place), document(place)["identity"]
    place.killed("a", "publish", point)
    pending = document(place)["publications"]
    was_saved = point not in ("C1", "K1")
    assert len(pending) == (1 if was_saved and point != "K5" else 0)

    if compacted:
        place.run("a", "compact")
    assert all(place.run("a", "retry"))

    assert document(place)["publications"] == []
    assert counts(place)["post"] == before["post"] + was_saved
    assert author is not None
    assert authors_of_posts(place) == ([author["agentId"]] if was_saved else [])


@pytest.mark.parametrize(("first", "later"), [("K3", "K4"), ("C2", "K5")])
def test_t115_killed_at_a_point_of_the_client_and_at_one_of_the_forum_there_is_one_post_by_its_author(
    place: Stage, first: str, later: str
) -> None:
    """The product of both sides: the client dies first and then the forum in the retry, and the other way about; now and
    then the author is another one by the time of the last retry."""
    expected = []
    for number, point in enumerate(FORUM_POINTS):
        for one, other in ((first, point), (point, later)):
            identity = document(place)["identity"]
            assert identity is not None
            expected.append(identity["agentId"])
            place.killed("a", "publish", one)
            # Where the first death left a whole post, the retry does not come to the points of making one.
            is_replay = one in ("K4", "C2", "S13", "S14", "S15") and other.startswith("S")
            died = place.dies("a", "retry", other)
            assert died or is_replay, (one, other)
            if number % 4 == 0 and one == point:
                place.run("a", f"compact:entry-{number}")
            if document(place)["publications"]:
                assert place.run("a", "retry") == [True], (one, other)
            assert document(place)["publications"] == [], (one, other)
            assert authors_of_posts(place) == expected, (one, other)


@pytest.mark.parametrize("point", ["E1", "E2", "E3"])
def test_t167_t171_killed_during_collection_nothing_is_lost(place: Stage, point: str) -> None:
    with place.worker("reader") as reader:
        reader.watch_subforum("lab", watching=True)
    place.run("a", "publish")
    place.run("a", "publish")
    place.killed("reader", "collect", point)

    saved = document(place, "reader")
    assert len(saved["references"]) == (0 if point == "E1" else 2)
    assert (saved["collector"]["cursor"] is None) is (point == "E1")
    assert len(place.run("reader", "collect")) == 2
    assert len(document(place, "reader")["references"]) == 2


@pytest.mark.parametrize("point", ["K1", "P1", "K3", "K4", "P2", "P3", "P4", "P5", "P6", "P7"])
def test_t193_t194_killed_during_a_spawn_there_is_one_child_with_one_file_in_the_end(place: Stage, point: str) -> None:
    before, parent = counts(place), document(place)["identity"]
    place.killed("a", "spawn", point)
    child = read_document(Path(place.run("a", "spawn")))
    saved = document(place)

    assert parent is not None
    assert child["identity"] is not None
    assert counts(place) == {**before, "agent": before["agent"] + 1, "session": before["session"] + 1}
    assert [spawn["stage"] for spawn in saved["pendingSpawns"]] == ["launched"]
    assert child["identity"]["sessionId"] != parent["sessionId"]
    assert not secrets_of(child) & secrets_of(saved)
    assert len(list(place.state("a").parent.parent.iterdir())) == 2


def test_t074_i44_a_second_process_is_refused_with_the_pid_of_the_first(place: Stage) -> None:
    with start(place, "a", "hold") as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(BusyError, match=rf"process {child.pid} .*still runs"):
            WorkerFile.open(place.state("a"), purpose="test", patience=0)
        with pytest.raises(BusyError, match="still runs"):
            worker_lock.unlock(place.state("a"))
        child.communicate("", timeout=30)
    WorkerFile.open(place.state("a"), purpose="test", patience=0).close()


def test_t075_a_process_that_died_here_is_succeeded_by_the_next(place: Stage) -> None:
    """DESIGN 4 outranks the reference here: the kernel has freed the lock, so nobody has to be asked."""
    with start(place, "a", "hold") as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    with WorkerFile.open(place.state("a"), purpose="test", patience=0):
        owner = worker_lock.owner_of(place.state("a"))
        assert owner is not None
        assert owner.pid == os.getpid()


def test_t075_t076_the_lock_of_another_machine_stays_until_a_person_removes_it(place: Stage) -> None:
    lock = worker_lock.lock_path(place.state("a"))
    lock.write_text(json.dumps({"pid": 42, "host": "elsewhere", "purpose": "forum_post"}), encoding="utf-8")
    for patience in (0, 1):
        with pytest.raises(BusyError, match=r"process 42 on elsewhere \(forum_post\)") as caught:
            WorkerFile.open(place.state("a"), purpose="test", patience=patience)
        assert "worker unlock" in str(caught.value.hint)
    assert lock.exists()
    assert worker_lock.unlock(place.state("a")).pid == 42
    WorkerFile.open(place.state("a"), purpose="test", patience=0).close()


def test_who_waits_for_a_process_that_dies_takes_its_place_at_once(place: Stage) -> None:
    with start(place, "a", "hold") as child:
        assert child.stdout is not None
        child.stdout.readline()
        with start(place, "a", "change") as waiting:
            child.kill()
            out, err = waiting.communicate(timeout=30)
    assert json.loads(out) == document(place)["revision"], err


def test_t032_t069_a_save_is_synced_before_the_rename_and_the_folder_before_anything_is_sent(place: Stage) -> None:
    import shutil

    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    done = subprocess.run(
        [
            strace, "-f", "-y", "-e", "trace=openat,write,fsync,rename,sendto", sys.executable, "-m",
            "tests.integration.forum_worker_child", str(place.folder), place.origin, "a", "change",
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    if "ptrace" in done.stderr and done.returncode != 0:
        pytest.skip("strace may not trace here")
    folder = str(place.state("a").parent)
    steps = [line for line in done.stderr.splitlines() if "worker.json" in line or f"<{folder}>" in line]
    kinds = [
        kind
        for line in steps
        for kind in ("write(", "fsync(", "rename(")
        if kind in line and (".worker.json." in line or f"<{folder}>" in line)
    ]
    assert kinds == ["write(", "write(", "fsync(", "rename(", "fsync("]
