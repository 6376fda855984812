"""How soon ``wait`` wakes: after the end of a turn, after a client's end, after a killed window."""

from __future__ import annotations

import itertools
import os
import select
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Row, World, until, world
from side_agents.core.results import StartRequest
from side_agents.core.start import start
from side_agents.core.stop import stop
from side_agents.core.wait import wait_any
from side_agents.infra import fs
from side_agents.models import AgentRecord, AgentStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 15


@dataclass
class Wakes:
    """When a bare kernel wait and our waiter woke, in seconds after the cause, for each round."""

    floor: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    def row(self, what: str, goal: str) -> Row:
        """The medians."""
        return Row(what, len(self.ours), statistics.median(self.floor), statistics.median(self.ours), goal=goal)


def measure(rounds: int | None) -> list[Row]:
    """The floor is a thread that waits in the kernel for the same event with nothing around it."""
    count = rounds or ROUNDS
    with world(clients=True) as made:
        return [
            _turn_end(made, count).row("wait wakes after a turn's end", "20 ms"),
            _exit(made, count).row("wait wakes after the client's end (floor: the launcher's end)", "20 ms"),
            _killed_window(made, count).row("a killed window is noticed (floor: the launcher's end)", "50 ms"),
        ]


def _turn_end(made: World, count: int) -> Wakes:
    context = made.context()
    record = start(context, StartRequest(task="x", branch_hint="turns", client="probe")).record
    journal = context.paths.runtime(record.id).journal
    wakes = Wakes()
    cursor = 0
    for _ in range(count):
        fs.append_line(journal, '{"type":"turn_start"}')
        with _file_watch(journal, wakes.floor) as floor, _waiter(made, record.id, cursor, wakes.ours) as waiter:
            _settle()
            begin = time.perf_counter()
            fs.append_line(journal, '{"type":"turn_end","outcome":"completed"}')
            floor.begin = waiter.begin = begin
        cursor = waiter.cursor
    stop(context, record.id)
    return wakes


def _exit(made: World, count: int) -> Wakes:
    def cause(record: AgentRecord) -> None:
        pipe = Path(str(record.runtime_dir)) / "go"
        with pipe.open("w") as stream:
            stream.write("now\n")

    return _ends(made, count, cause, AgentStatus.DONE)


def _killed_window(made: World, count: int) -> Wakes:
    return _ends(
        made, count, lambda record: made.tmux("kill-window", "-t", str(record.tmux_window_id)), AgentStatus.CRASHED
    )


def _ends(made: World, count: int, cause: Callable[[AgentRecord], object], expected: AgentStatus) -> Wakes:
    context = made.context()
    wakes = Wakes()
    for number in itertools.count():
        if number == count:
            return wakes
        hint = f"{expected}-{number}"
        record = start(context, StartRequest(task="x", branch_hint=hint, client="until-told")).record
        until((Path(str(record.runtime_dir)) / "go").exists, "the client's start")
        launcher = record.launcher
        if launcher is None:
            raise RuntimeError("the launcher has ended already")
        with _process_watch(launcher.pid, wakes.floor) as floor, _waiter(made, record.id, None, wakes.ours) as waiter:
            _settle()
            floor.begin = waiter.begin = time.perf_counter()
            cause(record)
        if waiter.status is not expected:
            raise RuntimeError(f"{record.id} became {waiter.status}, not {expected}")
        if expected is not AgentStatus.DONE:
            stop(context, record.id)
    return wakes


def _settle() -> None:
    """Give both waiters the time to fall asleep."""
    time.sleep(0.1)


@dataclass
class _Wake:
    begin: float = 0.0
    cursor: int = 0
    status: AgentStatus | None = None


@contextmanager
def _waiter(made: World, agent_id: str, after: int | None, into: list[float]) -> Iterator[_Wake]:
    def sleep(wake: _Wake) -> None:
        waited = wait_any(made.context(), [agent_id], after=after, timeout=30)
        wake.cursor = waited.cursor
        agent = waited.checked.record or waited.checked.tombstone
        wake.status = agent.status if agent else None

    with _thread(sleep, into) as wake:
        yield wake


@contextmanager
def _file_watch(path: Path, into: list[float]) -> Iterator[_Wake]:
    from inotify_simple import INotify, flags  # there on Linux only

    with INotify() as watch:
        watch.add_watch(path, flags.MODIFY)
        with _thread(lambda _: watch.read(), into) as wake:
            yield wake


@contextmanager
def _process_watch(pid: int, into: list[float]) -> Iterator[_Wake]:
    handle = os.pidfd_open(pid)
    try:
        with _thread(lambda _: select.select([handle], [], [], 30), into) as wake:
            yield wake
    finally:
        os.close(handle)


@contextmanager
def _thread(sleep: Callable[[_Wake], object], into: list[float]) -> Iterator[_Wake]:
    wake = _Wake()
    woke: list[float] = []

    def body() -> None:
        sleep(wake)
        woke.append(time.perf_counter())

    thread = threading.Thread(target=body)
    thread.start()
    yield wake
    thread.join(40)
    if not woke:
        raise TimeoutError("a waiter did not wake")
    into.append(woke[0] - wake.begin)
