"""One start in a warm process against the same by hand: ``git worktree add`` in a slot and ``tmux new-window``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import PROBE, Row, World, interleave, until, world
from side_agents.core.results import StartRequest
from side_agents.core.start import start
from side_agents.core.stop import stop
from side_agents.models import AgentRecord

ROUNDS = 11


@dataclass
class Times:
    """When the result was there and when the client ran, for each round of one case."""

    result: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)


def measure(rounds: int | None) -> list[Row]:
    """New and reused slots, alone, among a dozen agents, and in a tmux whose shells have the prompt of many users."""
    count = rounds or ROUNDS
    rows = _rows("", count, agents=0, prompt="$ ")
    rows += _rows(", a dozen agents present", count, agents=12, prompt="$ ")
    return rows + _rows(", shells prompt with ❯", count, agents=0, prompt="❯ ")


def _rows(suffix: str, count: int, *, agents: int, prompt: str) -> list[Row]:
    with world(prompt=prompt, clients=True) as ours, world(prompt=prompt) as raw:
        context = ours.context()
        for number in range(agents):
            start(context, StartRequest(task="say: here", branch_hint=f"present-{number}", client="script"))
        rows = []
        for kind, prepare_ours, by_hand in (
            ("new slot", forget_slot, new_by_hand),
            ("reused slot", _keep_slot, _reused_by_hand),
        ):
            result, running = _compare(count, _Ours(ours, prepare_ours), by_hand(raw))
            rows.append(Row(f"start, {kind}{suffix}: result", count, result["raw"], result["ours"], goal="80 ms"))
            rows.append(
                Row(f"start, {kind}{suffix}: child runs", count, running["raw"], running["ours"], goal="5 x the floor")
            )
        return rows


def _compare(
    count: int, ours: Callable[[], tuple[float, float]], raw: Callable[[], tuple[float, float]]
) -> tuple[dict[str, float], dict[str, float]]:
    running: dict[str, list[float]] = {"ours": [], "raw": []}

    def once(name: str, case: Callable[[], tuple[float, float]]) -> float:
        result, child = case()
        running[name].append(child)
        return result

    results = interleave(count, {"raw": lambda: once("raw", raw), "ours": lambda: once("ours", ours)})
    medians = {name: sorted(values[1:])[len(values[1:]) // 2] for name, values in running.items()}
    return results, medians


class _Ours:
    """One start of ours; afterwards the agent is ended and its slot removed or kept."""

    def __init__(self, made: World, clear: Callable[[World, AgentRecord], None]) -> None:
        self._made = made
        self._context = made.context()
        self._clear = clear
        self._numbers = itertools.count(1)

    def __call__(self) -> tuple[float, float]:
        request = StartRequest(task="a task", branch_hint=f"round-{next(self._numbers)}", client="probe")
        stamp, begin = time.time(), time.perf_counter()
        record = start(self._context, request).record
        result = time.perf_counter() - begin
        child = _stamp(Path(str(record.runtime_dir)) / "up") - stamp
        stop(self._context, record.id)
        self._clear(self._made, record)
        return result, child


def _keep_slot(made: World, record: AgentRecord) -> None:
    made.git("branch", "--list", str(record.branch))


def forget_slot(made: World, record: AgentRecord) -> None:
    made.git("worktree", "remove", "--force", "--force", str(record.worktree_path))
    made.git("branch", "-q", "-D", str(record.branch))


def new_by_hand(made: World) -> Callable[[], tuple[float, float]]:
    numbers = itertools.count(1)

    def once() -> tuple[float, float]:
        name = f"by-hand-{next(numbers)}"
        slot = made.slot(name)

        def act() -> str:
            made.git("worktree", "add", "-q", "--no-track", "-b", name, slot, "HEAD")
            return _open_window(made, slot, name)

        taken = _by_hand(made, name, act)
        made.git("worktree", "remove", "--force", slot)
        made.git("branch", "-q", "-D", name)
        return taken

    return once


def _reused_by_hand(made: World) -> Callable[[], tuple[float, float]]:
    numbers = itertools.count(1)
    slot = made.slot("by-hand-slot")
    made.git("worktree", "add", "-q", "--detach", slot, "HEAD")

    def once() -> tuple[float, float]:
        name = f"reused-{next(numbers)}"

        def act() -> str:
            made.git("-C", slot, "checkout", "-q", "-f", "--no-track", "-B", name, "main")
            made.git("-C", slot, "clean", "-fdq")
            return _open_window(made, slot, name)

        return _by_hand(made, name, act)

    return once


def _by_hand(made: World, name: str, act: Callable[[], str]) -> tuple[float, float]:
    folder = made.base / name
    folder.mkdir()
    stamp, begin = time.time(), time.perf_counter()
    window = act()
    result = time.perf_counter() - begin
    child = _stamp(folder / "up") - stamp
    made.tmux("kill-window", "-t", window)
    return result, child


def _open_window(made: World, slot: Path, name: str) -> str:
    variable = f"PI_SIDE_RUNTIME_DIR={made.base / name}"
    return made.tmux(
        "new-window", "-d", "-P", "-F", "#{window_id}", "-t", "bench:", "-n", name, "-c", str(slot), "-e", variable,
        "--", "bash", "-c", PROBE,
    )  # fmt: skip


def _stamp(path: Path) -> float:
    until(lambda: path.exists() and path.stat().st_size > 0, f"{path.name} of the client")
    return float(path.read_text(encoding="ascii").replace(",", "."))
