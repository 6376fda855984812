"""Locks between real processes: dead holders free them, live ones keep them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from side_agents.errors import BusyError, StateError
from side_agents.infra import fs, processes
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
HOLD = """
import subprocess, sys
from pathlib import Path
from side_agents.infra import fs
with fs.locked(Path(sys.argv[1]), purpose="a slow test"):
    spawned = subprocess.Popen(["sleep", "60"]).pid if len(sys.argv) > 2 else 0
    print(spawned, flush=True)
    sys.stdin.read()
"""
COUNT = """
import sys, time
from pathlib import Path
from side_agents.infra import fs
lock, counter = map(Path, sys.argv[1:])
for _ in range(25):
    with fs.locked(lock, purpose="counting", timeout=60):
        value = int(counter.read_text())
        time.sleep(0.0005)
        counter.write_text(str(value + 1))
"""


@contextmanager
def holder(lock: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that holds the lock until its input ends, and the pid of what it started, or 0."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, lock, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        assert process.stdout is not None
        spawned = int(process.stdout.readline())
        try:
            yield process, spawned
        finally:
            process.kill()
            if spawned:
                os.kill(spawned, signal.SIGKILL)


def take(lock: Path, timeout: float = 10.0) -> None:
    with fs.locked(lock, purpose="a test", timeout=timeout):
        pass


def test_a_killed_holder_frees_the_lock_at_once(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with holder(lock) as (process, _):
        process.kill()
        process.wait()
        take(lock, timeout=0)


def test_x22_a_live_holder_keeps_the_lock_and_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with holder(lock) as (process, _):
        # However old the file looks: age proves nothing.
        os.utime(lock, (1, 1))
        with pytest.raises(BusyError) as caught:
            take(lock, timeout=0.3)
        assert processes.identify(process.pid) is not None
    message, hint = caught.value.message, caught.value.hint
    assert f"process {process.pid}" in message
    assert Path(sys.executable).name in message
    assert "a slow test" in message
    assert "still runs" in message
    assert hint is not None
    assert f"kill {process.pid}" in hint


def test_a_waiter_gets_the_lock_when_the_holder_ends(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with holder(lock) as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        take(lock, timeout=20)


def test_field_46_what_was_started_under_the_lock_does_not_keep_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with holder(lock, "spawn") as (process, spawned):
        process.kill()
        process.wait()
        assert processes.identify(spawned) is not None
        take(lock, timeout=0)


def test_no_increment_is_lost_between_processes(tmp_path: Path) -> None:
    lock, counter = tmp_path / "lock", tmp_path / "counter"
    counter.write_text("0")
    children = [
        subprocess.Popen([sys.executable, "-c", COUNT, lock, counter], env={**os.environ, "PYTHONPATH": str(ROOT)})
        for _ in range(4)
    ]
    assert [child.wait(timeout=100) for child in children] == [0] * 4
    assert counter.read_text() == "100"


@pytest.mark.parametrize("error", [FileExistsError("exists"), TimeoutError("late"), OSError(11, "again")], ids=repr)
def test_x24_an_error_of_the_body_surfaces_after_one_run(tmp_path: Path, error: OSError) -> None:
    runs = []

    def work() -> None:
        with fs.locked(tmp_path / "lock", purpose="a test"):
            runs.append(1)
            raise error

    with pytest.raises(type(error)) as caught:
        work()
    assert caught.value is error
    assert runs == [1]
    take(tmp_path / "lock", timeout=0)


def test_the_holder_is_written_while_the_lock_is_held_only(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert fs.lock_holder(lock) is None
    with fs.locked(lock, purpose="writing"):
        found = fs.lock_holder(lock)
        me = processes.identify(os.getpid())
        assert found is not None
        assert me is not None
        assert (found["pid"], found["startedAt"], found["purpose"]) == (me.pid, me.started, "writing")
        assert found.keys() == {"pid", "startedAt", "host", "command", "purpose", "since"}
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert fs.lock_holder(lock) is None
    assert lock.exists(), "a lock file that is removed can be held twice"


def test_the_same_file_stays_locked_from_holder_to_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    take(lock)
    inode = lock.stat().st_ino
    take(lock)
    assert lock.stat().st_ino == inode


def test_one_who_already_holds_it_is_refused_and_not_stuck(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with fs.locked(lock, purpose="outer"), pytest.raises(BusyError, match=str(os.getpid())):
        take(lock, timeout=0.05)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"host": "elsewhere"}, "on elsewhere"), ({"startedAt": "0:0"}, "has ended"), ({"pid": "x"}, "has ended")],
    ids=["host", "start", "pid"],
)
def test_a_holder_that_cannot_be_the_one_written_down_is_not_called_alive(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    lock = tmp_path / "lock"
    with fs.locked(lock, purpose="outer"):
        found = fs.lock_holder(lock)
        assert found is not None
        lock.write_text(json.dumps({**found, **change}))
        with pytest.raises(BusyError, match=said):
            take(lock, timeout=0)


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_holder_without_a_name_is_reported_as_such(tmp_path: Path, content: str) -> None:
    lock = tmp_path / "lock"
    with fs.locked(lock, purpose="outer"):
        lock.write_text(content)
        with pytest.raises(BusyError, match="not left a name"):
            take(lock, timeout=0)


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StateError, match="cannot be used"):
        take(tmp_path / "lock", timeout=0.1)
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_name_that_cannot_be_written_does_not_prevent_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with fs.locked(tmp_path / "lock", purpose="a test"):
            held = True
    assert held


def test_the_lock_is_free_again_within_a_moment_of_its_release(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with holder(lock) as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        eventually(lambda: process.poll() is not None)
        started = time.monotonic()
        take(lock)
        assert time.monotonic() - started < 20
