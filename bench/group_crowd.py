"""Sixteen starts at the same moment, from sixteen warm processes, against the same by hand."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from bench.harness import PROBE, Row, World, interleave, until, world
from side_agents.core.context import Context
from side_agents.core.results import StartRequest
from side_agents.core.start import start
from side_agents.core.stop import stop

ROUNDS = 5
STARTS = 16


def measure(rounds: int | None) -> list[Row]:
    """New slots each time; also counts what two agents were given at once."""
    count = rounds or ROUNDS
    with world(clients=True) as ours, world() as raw:
        warm = _Ours(ours)
        hand = _ByHand(raw)
        # The first start of a process imports the libraries; the crowd inherits them.
        warm.once(1)
        times = interleave(count, {"raw": lambda: hand.once(STARTS), "ours": lambda: warm.once(STARTS)})
    return [
        Row(f"{STARTS} starts at once: all results", count, times["raw"], times["ours"], goal="1.3 x the floor"),
        Row(
            "the same: slots, ids or branches given twice",
            count,
            figure=f"{warm.shared} of {warm.started} starts, {warm.failed} failed",
            goal="none",
        ),
    ]


def _crowd(size: int, act: Callable[[int], str]) -> tuple[float, list[str]]:
    """Fork, let all go at once, and return the time until the last has answered, and the answers."""
    gate, opener = os.pipe()
    answers = []
    for number in range(size):
        answer, writer = os.pipe()
        if os.fork() == 0:
            _child(gate, opener, writer, act, number)
        os.close(writer)
        answers.append(answer)
    os.close(gate)
    time.sleep(0.2)
    begin = time.perf_counter()
    os.close(opener)
    texts = [_read_all(answer) for answer in answers]
    taken = time.perf_counter() - begin
    for _ in range(size):
        os.wait()
    return taken, texts


def _child(gate: int, opener: int, writer: int, act: Callable[[int], str], number: int) -> None:
    status = 1
    try:
        os.close(opener)
        os.read(gate, 1)
        os.write(writer, act(number).encode())
        status = 0
    except Exception:  # noqa: BLE001 - a forked child must end here, whatever happened
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _read_all(answer: int) -> str:
    with os.fdopen(answer, encoding="utf-8") as stream:
        return stream.read()


class _Ours:
    """Rounds of starts by side-agents; keeps count of what went wrong."""

    def __init__(self, made: World) -> None:
        self._made = made
        self._context: Context = made.context()
        self._rounds = itertools.count(1)
        self.started = 0
        self.shared = 0
        self.failed = 0

    def once(self, size: int) -> float:
        """One round; afterwards its agents are ended and their slots removed."""
        number = next(self._rounds)

        def act(_: int) -> str:
            # All ask for the same name, the hardest case.
            record = start(self._context, StartRequest(task="x", branch_hint=f"crowd-{number}", client="probe")).record
            return json.dumps([record.id, record.worktree_path, record.branch])

        if size == 1:
            taken, texts = 0.0, [act(0)]
        else:
            taken, texts = _crowd(size, act)
        given = [json.loads(text) for text in texts if text]
        self.started += size
        self.failed += size - len(given)
        self.shared += sum(len(given) - len(set(column)) for column in zip(*given, strict=True))
        for agent_id, _, _ in given:
            stop(self._context, agent_id)
        self._made.remove_slots()
        return taken


class _ByHand:
    """The same with git and tmux alone. Parallel ``git worktree add`` fails, so that step has a lock."""

    def __init__(self, made: World) -> None:
        self._made = made
        self._rounds = itertools.count(1)

    def once(self, size: int) -> float:
        """One round, cleared like ours."""
        number = next(self._rounds)
        made = self._made

        def act(index: int) -> str:
            name = f"hand-{number}-{index}"
            slot = made.slot(name)
            with Path(made.base / "add.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                made.git("worktree", "add", "-q", "--no-track", "--no-checkout", "-b", name, slot, "HEAD")
            made.git("-C", slot, "reset", "-q", "--hard")
            (made.base / name).mkdir()
            variable = f"PI_SIDE_RUNTIME_DIR={made.base / name}"
            return made.tmux(
                "new-window", "-d", "-P", "-F", "#{window_id}", "-t", "bench:", "-n", name, "-c", str(slot),
                "-e", variable, "--", "bash", "-c", PROBE,
            )  # fmt: skip

        taken, windows = _crowd(size, act)
        until(lambda: all((made.base / f"hand-{number}-{i}" / "up").exists() for i in range(size)), "the clients")
        for window in windows:
            made.tmux("kill-window", "-t", window)
        made.remove_slots()
        return taken
