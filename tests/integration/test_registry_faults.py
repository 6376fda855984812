"""The registry under many processes, death at any step and a full disk: old or new, never garbage, and never locked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from side_agents.core import observe
from side_agents.core.context import open_context
from side_agents.core.registry import Registry
from side_agents.errors import BusyError, StateError
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Tombstone
from side_agents.paths import StatePaths
from tests.support.repositories import Repository

ROOT = Path(__file__).parents[2]
PREAMBLE = """
import json, os, resource, signal, sys
import filelock
from pathlib import Path
from side_agents.core.registry import Registry
from side_agents.errors import SideAgentsError
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Tombstone
from side_agents.paths import StatePaths

def registry_in(folder, timeout=60.0):
    return Registry(StatePaths(Path(folder)), lock_timeout=timeout)

def record(name, **values):
    return AgentRecord(id=name, status=AgentStatus.RUNNING, **values)

def stone(name, **values):
    return Tombstone(id=name, status=AgentStatus.DONE, ended_by=EndedBy.EXIT, **values)

argv = sys.argv[1:]
"""


def spawn(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def run(code: str, *arguments: object) -> str:
    with spawn(code, *arguments) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def registry_in(folder: Path, timeout: float = 0) -> Registry:
    return Registry(StatePaths(folder), lock_timeout=timeout)


def put(registry: Registry, *records: AgentRecord) -> None:
    with registry.transaction("a test") as state:
        for one in records:
            state.put(one)


def record(agent_id: str, task: str = "") -> AgentRecord:
    return AgentRecord(id=agent_id, status=AgentStatus.RUNNING, task=task)


def test_f_r7_sixteen_processes_with_twenty_five_changes_each_lose_nothing(tmp_path: Path) -> None:
    run(
        """
os.fsync = lambda handle: None  # what others see, not what survives a power cut
def work(me):
    registry = registry_in(argv[0])
    for number in range(25):
        with registry.transaction("count") as state:
            state.put(record(f"w{me}-{number}", stop_seq=state.next_sequence()))
            if number % 5:
                state.bury(stone(f"w{me}-{number - 1}"))
workers = []
for me in range(16):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(me)
            status = 0
        finally:
            os._exit(status)
    workers.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in workers] == [0] * 16
""",
        tmp_path,
    )
    registry = registry_in(tmp_path)
    state = registry.read()
    buried = {f"w{me}-{number}" for me in range(16) for number in range(25) if number % 5 != 4}
    assert set(state.agents) == {f"w{me}-{number}" for me in range(16) for number in range(25)} - buried
    assert state.sequence == 400
    assert len({row.stop_seq for row in state.agents.values()}) == len(state.agents)
    assert sorted(stone.id for stone in registry.history()) == sorted(buried)


KILLED_AT_EACH_STEP = """
steps = []
for number in range(200):
    folder = Path(argv[0]) / str(number)
    registry = registry_in(folder, 0)
    with registry.transaction("before") as state:
        state.put(record("stays", task="x" * 5000))
        state.put(record("goes"))
    with registry.transaction("before") as state:
        state.put(record("stays", task="y" * 5000))
    pid = os.fork()
    if pid == 0:
        seen = []
        def die(event, arguments):
            if event.startswith(("open", "os.")) and any(str(folder) in str(item) for item in arguments):
                seen.append(event)
                if len(seen) > number:
                    os.write(1, (event + "\\n").encode())
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(die)
        with registry.transaction("the change") as state:
            state.bury(stone("goes"))
            state.put(record("new"))
        os._exit(0)
    if os.WIFEXITED(os.waitpid(pid, 0)[1]):
        break
"""


def test_a_death_at_any_step_leaves_old_or_new_and_a_free_lock(tmp_path: Path) -> None:
    steps = run(KILLED_AT_EACH_STEP, tmp_path).split()
    # Lock, read, tombstone, backup, temporary file, rename: less would mean that the steps were not seen.
    assert steps.count("os.rename") == 2
    assert {"open", "os.link", "os.truncate"} <= set(steps)

    outcomes = []
    for number in range(len(steps)):
        registry = registry_in(tmp_path / str(number))
        state = registry.read()
        buried = [stone.id for stone in registry.history()]
        outcomes.append(set(state.agents))
        assert outcomes[-1] in ({"stays", "goes"}, {"stays", "new"})
        assert state.agents["stays"].task == "y" * 5000
        assert buried in ([], ["goes"])
        # Whoever has left the registry is remembered; the other way round the next look buries again.
        assert "goes" in state.agents or buried == ["goes"]
        backup = json.loads(registry.paths.registry_backup.read_bytes())
        assert backup["agents"]["stays"]["task"] in ("x" * 5000, "y" * 5000)
        with registry.transaction("after") as state:
            state.bury(Tombstone(id="goes", status=AgentStatus.DONE, ended_by=EndedBy.EXIT))
            state.put(record("new"))
        assert set(registry.read().agents) == {"stays", "new"}
        found = registry.tombstone("goes")
        assert found is not None
    assert outcomes[0] == {"stays", "goes"}
    assert outcomes[-1] == {"stays", "new"}
    assert {"stays", "new"} in outcomes


HOLD = """
with registry_in(argv[0]).transaction("a slow change") as state:
    state.put(record("slow"))
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a transaction, which it completes when its input ends."""
    with spawn(HOLD, folder) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_x22_a_slow_live_holder_keeps_the_registry_and_is_named(tmp_path: Path) -> None:
    registry = registry_in(tmp_path)
    put(registry, record("a"))
    before = registry.paths.registry.read_bytes()
    # However old the lock file is, age alone frees nothing.
    with holder(tmp_path) as process:
        os.utime(registry.paths.registry_lock, (0, 0))
        with pytest.raises(BusyError, match=rf"(?s){process.pid}.*a slow change") as caught:
            put(registry, record("b"))
        assert "which still runs" in caught.value.message
        assert registry.paths.registry.read_bytes() == before
        assert set(registry.read().agents) == {"a"}
        process.communicate(timeout=30)
    assert set(registry.read().agents) == {"a", "slow"}
    put(registry, record("b"))
    assert set(registry.read().agents) == {"a", "slow", "b"}


def test_a_holder_that_is_killed_leaves_the_old_registry_and_a_free_lock(tmp_path: Path) -> None:
    registry = registry_in(tmp_path)
    put(registry, record("a"))
    with holder(tmp_path) as process:
        process.kill()
        process.wait(timeout=30)
        put(registry, record("b"))
    assert set(registry.read().agents) == {"a", "b"}


READER = """
import signal
def stop(*_):
    raise SystemExit
signal.signal(signal.SIGTERM, stop)
registry, reads, last = registry_in(argv[0]), 0, -1
print("ready", flush=True)
try:
    while True:
        state = registry.read()
        assert state.sequence >= last, (state.sequence, last)
        assert {row.stop_seq for row in state.agents.values()} <= {state.sequence}, "a mixture"
        assert len(state.agents) in (0, 5)
        reads, last = reads + 1, state.sequence
finally:
    print(reads, last, flush=True)
"""


def test_a_reader_during_a_thousand_writes_sees_whole_registries_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    registry = registry_in(tmp_path)
    with spawn(READER, tmp_path) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            for number in range(1000):
                with registry.transaction("a test") as state:
                    sequence = state.next_sequence()
                    for name in "abcde":
                        task = name * (number * 37 % 3000)
                        state.put(AgentRecord(id=name, status=AgentStatus.RUNNING, task=task, stop_seq=sequence))
            reader.terminate()
            out, err = reader.communicate(timeout=30)
        finally:
            reader.kill()
    assert (reader.returncode, err) == (0, "")
    reads, last = map(int, out.split())
    assert reads > 20
    assert 0 < last <= 1000


def put_too_much(folder: Path, *, bury: bool) -> str:
    return run(
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    with registry_in(argv[0], 0).transaction("a test") as state:
        state.put(record("big", task="x" * 9000))
        if argv[1] == "True":
            state.bury(stone("a"))
except SideAgentsError as error:
    print(error.code, error.message)
""",
        folder,
        bury,
    )


@pytest.mark.parametrize("bury", [False, True])
def test_a_registry_that_cannot_be_written_whole_stays_the_old_one(tmp_path: Path, bury: bool) -> None:
    registry = registry_in(tmp_path)
    put(registry, record("a"))
    before = registry.paths.registry.read_bytes()
    said = put_too_much(tmp_path, bury=bury)
    assert said.startswith("state-corrupt ")
    assert "old content is intact" in said
    assert registry.paths.registry.read_bytes() == before
    assert not list(registry.paths.meta.glob(".*.tmp"))
    put(registry, record("b"))
    assert set(registry.read().agents) == {"a", "b"}


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB, where we may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, timeout=10, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program")
    if done.returncode != 0:
        pytest.skip("may not mount a file system; the test with a file size limit stands for it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], capture_output=True, timeout=10, check=True)


def test_a_full_disk_is_an_error_that_says_so_and_changes_nothing(tiny_disk: Path) -> None:
    registry = registry_in(tiny_disk)
    put(registry, record("a"), record("b"))
    before = registry.paths.registry.read_bytes()
    filler = tiny_disk / "filler"
    size = os.statvfs(tiny_disk).f_blocks * os.statvfs(tiny_disk).f_frsize
    with filler.open("wb", buffering=0) as file:
        # As much of it as there is room for is written.
        file.write(b"x" * size)

    for change in (record("c", task="x" * 20_000), record("d")):
        with pytest.raises(StateError, match="No space left") as caught:
            put(registry, change)
        assert "Free some space" in (caught.value.hint or "")
        assert registry.paths.registry.read_bytes() == before
        assert set(registry.read().agents) == {"a", "b"}

    filler.unlink()
    put(registry, record("c"))
    assert set(registry.read().agents) == {"a", "b", "c"}
    assert not list(registry.paths.meta.glob(".*.tmp"))


def test_a_folder_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / ".pi").write_text("not a folder")
    with pytest.raises(StateError, match=r"\.pi"):
        put(registry_in(tmp_path), record("a"))
    assert (tmp_path / ".pi").read_text() == "not a folder"


def test_6_2_a_row_left_over_as_done_moves_to_the_history(repo: Repository) -> None:
    context = open_context(repo.path, {"HOME": str(repo.path.parent)})
    with context.registry.transaction("test") as state:
        state.put(AgentRecord(id="fix", status=AgentStatus.DONE, exit_code=0, started_at="2026-01-01T00:00:00.000Z"))
    assert observe.list_agents(context).records == ()
    stone = observe.check(context, "fix").tombstone
    assert stone is not None
    assert (stone.status, stone.exit_code) == (AgentStatus.DONE, 0)
