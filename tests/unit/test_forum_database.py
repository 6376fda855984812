"""The database file: when it is opened, how commands share a commit, who hears of it."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import (
    ForumError,
    NotFoundError,
    RefusedError,
    SideAgentsError,
    StateError,
    StateFromFutureError,
)
from side_agents.forum import failpoints
from side_agents.forum.store import opening, schema, writer
from side_agents.forum.store.database import READERS, Connection, Database
from side_agents.forum.store.writer import BATCH
from tests.support.forum import refusal
from tests.support.waiting import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "forums"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def database(folder: Path) -> Iterator[Database]:
    with Database.open(folder / "forum.db") as opened:
        yield opened


def add_session(name: str) -> Callable[[Connection], str]:
    def write(connection: Connection) -> str:
        connection.execute("INSERT INTO session(id, created_at) VALUES (?, 0)", (name,))
        return name

    return write


def sessions(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM session ORDER BY id")]


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_t049_the_installation_survives_reopening_and_differs_between_databases(folder: Path) -> None:
    with Database.open(folder / "one.db") as one, Database.open(folder / "two.db") as two:
        first = one.installation
        assert first.id.startswith("in_")
        assert first.epoch == 1
        assert len(first.cursor_key) == 32
        assert two.installation.id != first.id
        assert two.installation.cursor_key != first.cursor_key
    with Database.open(folder / "one.db") as again:
        assert again.installation == first
        assert again.read(lambda db: db.execute("SELECT count(*) FROM installation").get) == 1


def make_foreign(path: Path, application: int, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA application_id={application}; PRAGMA user_version={version}; CREATE TABLE t(x);")
    connection.close()
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("application", "version", "error"),
    [
        (schema.APPLICATION_ID, 0, StateError),
        (schema.APPLICATION_ID, schema.USER_VERSION + 1, StateFromFutureError),
        (schema.APPLICATION_ID, 2**31 - 1, StateFromFutureError),
        (0, schema.USER_VERSION, StateError),
        (1, 1, StateError),
    ],
)
def test_t061_i24_a_database_of_another_version_or_program_is_refused_untouched(
    folder: Path, application: int, version: int, error: type[SideAgentsError]
) -> None:
    path = folder / "forum.db"
    make_foreign(path, application, version)
    before = fingerprint(path)

    with pytest.raises(error):
        Database.open(path)
    assert fingerprint(path) == before
    assert [entry.name for entry in folder.iterdir()] == ["forum.db"]


@pytest.mark.parametrize(
    "content", [b"x", b"not a database at all, but long enough to hold a header" * 9, b"SQLite format 3\0"]
)
def test_t062_a_file_that_is_no_database_is_refused_untouched(folder: Path, content: bytes) -> None:
    path = folder / "forum.db"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(StateError, match="not a database"):
        Database.open(path)
    assert path.read_bytes() == content
    assert [entry.name for entry in folder.iterdir()] == ["forum.db"]


def test_t062_an_absent_or_empty_file_becomes_a_database_for_its_owner_only(tmp_path: Path) -> None:
    empty = tmp_path / "empty" / "forum.db"
    empty.parent.mkdir(mode=0o700)
    empty.touch(mode=0o600)
    for path in (empty, tmp_path / "deep" / "er" / "forum.db"):
        with Database.open(path) as database:
            assert database.read(sessions) == []
            assert {stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_without_create_nothing_is_made(folder: Path) -> None:
    with pytest.raises(NotFoundError):
        Database.open(folder / "sub" / "forum.db", create=False)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_regular_file_is_refused(folder: Path, kind: str) -> None:
    path = folder / "forum.db"
    path.mkdir() if kind == "folder" else os.mkfifo(path)

    with pytest.raises(StateError, match="regular file"):
        Database.open(path)


def test_a_file_or_folder_that_others_can_read_is_refused(folder: Path) -> None:
    path = folder / "forum.db"
    Database.open(path).close()
    path.chmod(0o640)
    with pytest.raises(RefusedError, match="other users"):
        Database.open(path)
    path.chmod(0o600)
    folder.chmod(0o750)
    with pytest.raises(RefusedError, match="other users"):
        Database.open(path)
    folder.chmod(0o700)
    Database.open(path).close()


def test_t220_i25_every_connection_has_the_settings_that_it_must_have(folder: Path) -> None:
    with Database.open(folder / "forum.db") as database:
        wanted = {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "trusted_schema": 0,
            "busy_timeout": opening.BUSY_MS,
            "wal_autocheckpoint": 0,
        }

        def effective(connection: Connection) -> dict[str, Any]:
            return {name: connection.pragma(name) for name in (*wanted, "query_only")}

        readers = all_readers(database, effective)
        assert readers == [{**wanted, "query_only": 1}] * READERS
        assert database.write(effective) == {**wanted, "query_only": 0}


def all_readers(database: Database, query: Callable[[Connection], Any]) -> list[Any]:
    """What each of the pooled connections says, held all at once so that each is another one."""
    together = threading.Barrier(READERS)
    found: list[Any] = []

    def hold(connection: Connection) -> None:
        together.wait(10)
        found.append(query(connection))

    threads = [threading.Thread(target=database.read, args=(hold,)) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_t220_a_setting_that_does_not_take_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "forum.db"
    Database.open(path).close()
    # The page size of an existing database in WAL mode cannot change.
    monkeypatch.setitem(opening.WRITER, "page_size", 512)
    with pytest.raises(StateError, match="page_size"):
        Database.open(path)


def test_a_database_that_is_not_in_wal_mode_is_refused(folder: Path) -> None:
    path = folder / "forum.db"
    Database.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()

    with pytest.raises(StateError, match="journal mode delete"):
        Database.open(path)


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.50.6", "3.51.0", "3.51.2"])
def test_a_library_with_the_fault_in_its_log_reset_is_refused_unless_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(opening, "library_version", lambda: version)
    with pytest.raises(RefusedError, match=version):
        Database.open(folder / "forum.db")
    assert list(folder.iterdir()) == []
    Database.open(folder / "forum.db", accept_old_sqlite=True).close()


@pytest.mark.parametrize("version", ["3.6.23", "3.50.7", "3.50.8", "3.51.3", "3.52.0", "3.54.1", "4.0.0"])
def test_a_sound_library_is_taken(version: str) -> None:
    assert not opening.is_affected(version)


def test_a_reader_cannot_write_and_sees_one_state(database: Database) -> None:
    with pytest.raises(Exception, match="readonly"):
        database.read(add_session("as_1"))

    def look_twice(connection: Connection) -> tuple[list[str], list[str]]:
        first = sessions(connection)
        database.write(add_session("as_2"))
        return first, sessions(connection)

    assert database.read(look_twice) == ([], [])
    assert database.read(sessions) == ["as_2"]


def test_a_failing_command_leaves_nothing_and_its_error_comes_back(database: Database) -> None:
    def fail_late(connection: Connection) -> None:
        add_session("as_1")(connection)
        raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        database.write(fail_late)
    assert database.read(sessions) == []
    assert database.write(add_session("as_2")) == "as_2"


class Batch:
    """Commands that are waiting together: the first one holds the writer until all others are in its queue."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.outcomes: dict[int, Any] = {}
        self._gate = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, commands: list[Callable[[Connection], Any]]) -> None:
        begun = threading.Event()

        def hold(connection: Connection) -> Any:
            begun.set()
            assert self._gate.wait(10)
            return commands[0](connection)

        self._start(0, hold)
        assert begun.wait(10)
        for number, each in enumerate(commands[1:], start=1):
            self._start(number, each)
            eventually(partial(self._are_queued, number))
        self._gate.set()
        for thread in self._threads:
            thread.join()

    def _are_queued(self, number: int) -> bool:
        return self.database._writer._jobs.qsize() == number

    def _start(self, number: int, command: Callable[[Connection], Any]) -> None:
        def target() -> None:
            try:
                self.outcomes[number] = self.database.write(command)
            except BaseException as error:  # noqa: BLE001 - the outcome, whatever it is
                self.outcomes[number] = error

        thread = threading.Thread(target=target)
        self._threads.append(thread)
        thread.start()


def test_t235_i58_sixteen_commands_share_a_commit_and_an_invalid_one_harms_nobody(database: Database) -> None:
    traced: list[str] = []
    database.write(lambda db: db.set_exec_trace(lambda _, sql, __: bool(traced.append(sql) or True)))
    traced.clear()

    def invalid(connection: Connection) -> None:
        add_session("as_invalid")(connection)
        raise ValueError("refused")

    commands: list[Callable[[Connection], Any]] = [add_session(f"as_{number:02}") for number in range(16)]
    commands[7] = invalid
    batch = Batch(database)
    batch.run(commands)

    assert traced.count("COMMIT") == 1
    assert traced.count("BEGIN IMMEDIATE") == 1
    assert isinstance(batch.outcomes.pop(7), ValueError)
    assert batch.outcomes == {number: f"as_{number:02}" for number in range(16) if number != 7}
    assert database.read(sessions) == sorted(batch.outcomes.values())


def test_i58_however_a_command_ends_its_neighbours_are_told_only_what_is_kept(database: Database) -> None:
    def ends(connection: Connection) -> None:
        add_session("as_ended")(connection)
        raise KeyboardInterrupt

    batch = Batch(database)
    batch.run([add_session("as_0"), ends, add_session("as_2")])

    assert isinstance(batch.outcomes.pop(1), KeyboardInterrupt)
    assert batch.outcomes == {0: "as_0", 2: "as_2"}
    with Database.open(database.path) as another:
        assert another.read(sessions) == ["as_0", "as_2"]
    assert database.write(add_session("as_3")) == "as_3"


def test_opening_a_database_again_leaves_the_locks_of_those_in_this_process_who_have_it_open(
    database: Database,
) -> None:
    """Without them another process takes itself for the only one, and may remove the log that is written to here."""
    with Database.open(database.path):
        opening.check_file(database.path)
        # The bytes that SQLite locks for as long as a connection uses the log.
        lock = f"fcntl.lockf(open({str(database.path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
        done = subprocess.run(
            [sys.executable, "-c", f"import fcntl; {lock}"], capture_output=True, check=False, timeout=30
        )
    assert b"BlockingIOError" in done.stderr


def test_a_batch_is_bounded_so_that_others_get_their_turn(database: Database) -> None:
    batch = Batch(database)
    commits: list[int] = []
    database.write(lambda db: db.set_commit_hook(lambda: bool(commits.append(1))))
    commits.clear()
    batch.run([add_session(f"as_{number:03}") for number in range(BATCH + 1)])

    assert len(commits) == 2
    assert len(database.read(sessions)) == BATCH + 1


def test_the_log_is_moved_into_the_database_before_it_grows_without_bound(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 20)
    log = database.path.with_name(f"{database.path.name}-wal")
    for number in range(200):
        database.write(add_session(f"as_{number}"))

    assert 0 < log.stat().st_size < 40 * 4200
    assert len(database.read(sessions)) == 200


def test_i26_nobody_hears_of_a_command_before_its_commit(database: Database) -> None:
    seen: list[tuple[str, bool]] = []
    other = sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)

    def durable(name: str) -> bool:
        return other.execute("SELECT 1 FROM session WHERE id = ?", (name,)).fetchone() is not None

    def listener() -> None:
        with sqlite3.connect(database.path) as mine:
            seen.append(("woken", mine.execute("SELECT count(*) FROM session").fetchone() == (3,)))
        mine.close()

    database.changed.add_listener(listener)
    during: list[bool] = []
    batch = Batch(database)

    def look(connection: Connection) -> str:
        name = add_session("as_2")(connection)
        during.append(durable("as_0") or durable("as_1"))
        assert batch.outcomes == {}
        return name

    batch.run([add_session("as_0"), add_session("as_1"), look])
    database.changed.remove_listener(listener)
    assert during == [False]
    assert seen == [("woken", True)]
    assert all(durable(name) for name in batch.outcomes.values())
    other.close()


def test_a_commit_is_seen_by_whoever_asked_for_the_generation_before(database: Database) -> None:
    generation = database.changed.generation()
    assert not database.changed.wait(generation, 0)
    database.write(add_session("as_1"))
    assert database.changed.wait(generation, 0)
    assert database.changed.generation() == generation + 1


def test_a_command_that_changed_nothing_wakes_nobody(database: Database) -> None:
    generation = database.changed.generation()
    database.write(sessions)
    assert database.changed.generation() == generation


def test_waiters_are_woken_by_a_commit_and_by_closing(folder: Path) -> None:
    database = Database.open(folder / "forum.db")
    generation = database.changed.generation()
    answers: list[bool] = []
    for action in (lambda: database.write(add_session("as_1")), database.close):
        wait = partial(database.changed.wait, generation, 30)
        threads = [threading.Thread(target=lambda wait=wait: answers.append(wait())) for _ in range(4)]
        for thread in threads:
            thread.start()
        action()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        generation = generation + 1
    assert answers == [True] * 4 + [False] * 4


def test_after_closing_everything_is_refused_and_closing_again_is_harmless(folder: Path) -> None:
    database = Database.open(folder / "forum.db")
    database.read(sessions)
    database.close()
    database.close()
    refusal("shutting_down", lambda: database.read(sessions))
    refusal("shutting_down", lambda: database.write(sessions))
    assert sorted(path.name for path in folder.iterdir()) == ["forum.db", "forum.db.users", "forum.db.wake"]


def test_what_is_queued_is_finished_before_closing(folder: Path) -> None:
    database = Database.open(folder / "forum.db")
    batch = Batch(database)
    closing = threading.Thread(target=database.close)

    def close_meanwhile(connection: Connection) -> str:
        closing.start()
        eventually(lambda: database._writer._closed)
        return add_session("as_0")(connection)

    batch.run([close_meanwhile, add_session("as_1"), add_session("as_2")])
    closing.join(10)
    assert batch.outcomes == {0: "as_0", 1: "as_1", 2: "as_2"}
    with Database.open(folder / "forum.db") as again:
        assert again.read(sessions) == ["as_0", "as_1", "as_2"]


def leave_in_disorder(path: Path, change: Callable[[bytearray], None]) -> None:
    """Leave the files as a killed process does: with a log; and change the database file."""
    database = Database.open(path)
    database.write(add_session("as_1"))
    log = path.with_name(f"{path.name}-wal")
    kept = log.read_bytes()
    database.close()
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    log.write_bytes(kept)
    log.chmod(0o600)


def test_after_a_disorderly_end_the_database_is_examined_before_use(folder: Path) -> None:
    path = folder / "forum.db"
    leave_in_disorder(path, lambda content: None)
    with Database.open(path) as database:
        assert database.read(sessions) == ["as_1"]

    def damage_end(content: bytearray) -> None:
        content[-4096] = 0x55

    def damage_all(content: bytearray) -> None:
        # Of the first page only what comes behind the file's header.
        for offset in (100, *range(4096, len(content), 4096)):
            content[offset] = 0x55

    for damage in (damage_end, damage_all):
        path.unlink()
        leave_in_disorder(path, damage)
        with pytest.raises(StateError, match="damaged"):
            Database.open(path)


def test_an_orderly_end_spares_the_next_one_the_examination(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "forum.db"
    Database.open(path).close()
    monkeypatch.setattr(opening, "_examine", lambda _: pytest.fail("examined"))
    with Database.open(path) as first:
        first.write(add_session("as_1"))
        # The log of a user who is still here is no sign of disorder.
        with Database.open(path) as second:
            assert second.read(sessions) == ["as_1"]


def test_leftovers_of_a_killed_creation_are_removed_by_the_next_one(folder: Path) -> None:
    stray = folder / ".forum.db.123-abc.new"
    stray.write_bytes(b"half")
    Database.open(folder / "forum.db").close()
    assert not stray.exists()


def test_sixteen_first_users_make_one_database(folder: Path) -> None:
    path = folder / "forum.db"
    found: list[str] = []
    together = threading.Barrier(16)

    def use() -> None:
        together.wait(10)
        with Database.open(path) as database:
            found.append(database.installation.id)

    threads = [threading.Thread(target=use) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1


def test_memory_file_systems_are_recognised() -> None:
    assert not opening.is_volatile(Path("/proc/self/status"))
    if Path("/dev/shm").is_dir():
        assert opening.is_volatile(Path("/dev/shm/forum/forum.db"))


def test_t028_the_tables_are_those_of_the_contract_and_none_keeps_leases(database: Database) -> None:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'post_fts_%' AND name NOT LIKE 'sqlite_%'"
    found = database.read(lambda db: {row[0] for row in db.execute(query)})
    assert found == {
        "installation", "session", "agent", "subforum", "activity", "thread", "post", "attachment", "term", "post_fts",
        "participation", "thread_watch", "subforum_watch", "thread_visit", "subforum_visit", "thread_mute",
        "read_progress", "inbox_ack", "command", "catchup_plan", "catchup_plan_thread", "catchup_receipt",
    }  # fmt: skip


def test_i4_i18_what_must_not_change_cannot(database: Database) -> None:
    def fill(connection: Connection) -> None:
        add_session("as_1")(connection)
        connection.execute(
            "INSERT INTO agent(id, name, session_id, cause_kind, context_key, credential_hash, provenance, profile,"
            " created_at) VALUES ('ag_1', 'ann', 'as_1', 'root', 'k', zeroblob(32), '{}', '{}', 0)"
        )
        connection.execute(
            "INSERT INTO activity(type, actor_id, session_id, subforum, thread_id, at)"
            " VALUES ('thread.created', 'ag_1', 'as_1', 'lab', 'th_1', 0)"
        )
        connection.execute("INSERT INTO read_progress VALUES ('as_1', 'th_1', 5)")
        connection.execute("INSERT INTO inbox_ack VALUES ('as_1', 'x', 5)")
        connection.execute(
            "INSERT INTO command VALUES ('s', 'o', 'k', zeroblob(32), zeroblob(32), 201, x'00', 'ag_1', 0)"
        )

    database.write(fill)
    for statement in (
        "UPDATE activity SET at = 1",
        "DELETE FROM activity",
        "UPDATE agent SET name = 'bob'",
        "DELETE FROM agent",
        "UPDATE command SET status = 200",
        "DELETE FROM command",
        "UPDATE read_progress SET through_seq = 4",
        "UPDATE inbox_ack SET through_seq = 4",
    ):
        with pytest.raises(Exception, match=r"immutable|regress"):
            database.write(lambda db, statement=statement: db.execute(statement).fetchall())


def test_an_unarmed_failpoint_is_nothing_and_an_armed_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, signal: killed.append((pid, signal)))
    failpoints.reach("S5")
    try:
        failpoints.arm("S5:2")
        for name in ("S4", "S5", "S4"):
            failpoints.reach(name)
        assert killed == []
        failpoints.reach("S5")
        assert killed == [(os.getpid(), 9)]
    finally:
        failpoints.arm(None)
    failpoints.reach("S5")
    assert len(killed) == 1


def test_errors_of_the_disk_have_the_words_of_the_forum(database: Database) -> None:
    import apsw

    def failing(error: Exception) -> Callable[[Connection], None]:
        def run(connection: Connection) -> None:
            add_session("as_1")(connection)
            raise error

        return run

    for raised, code in (
        (apsw.FullError("full"), "storage_full"),
        (apsw.IOError("io"), "storage_failed"),
        (apsw.BusyError("busy"), "busy"),
    ):
        error = refusal(code, lambda raised=raised: database.write(failing(raised)))
        assert isinstance(error, ForumError)
        assert error.retryable
    assert database.read(sessions) == []
