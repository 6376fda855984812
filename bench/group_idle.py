"""What waiting costs: processor time, wake-ups, started programs and memory, read from /proc (Linux only)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from bench.harness import CLI, Row, World, until, world
from side_agents.core.observe import check
from side_agents.core.results import StartRequest
from side_agents.core.start import start
from side_agents.infra import processes
from side_agents.models import AgentStatus

SECONDS = 10.0
AGENTS = 10


def measure(rounds: int | None) -> list[Row]:
    """One look of ten seconds each; ``rounds`` is taken as seconds here."""
    seconds = float(rounds or SECONDS)
    with world() as made:
        context = made.context()
        for number in range(AGENTS):
            start(context, StartRequest(task="say: here", branch_hint=f"idle-{number}", client="script"))
        until(lambda: all(_is_idle(made, f"idle-{number}") for number in range(AGENTS)), "the end of all turns")
        return _agents(made, seconds) + _waiter(made, seconds)


def _is_idle(made: World, agent_id: str) -> bool:
    record = check(made.context(), agent_id).record
    return record is not None and record.status is AgentStatus.WAITING_USER


def _agents(made: World, seconds: float) -> list[Row]:
    records = made.context().registry.read().agents.values()
    clients = {record.client_pid for record in records if record.client_pid}
    server = int(made.environment["TMUX"].split(",")[1])
    everything = {ref.pid for ref in processes.descendants(server)}
    ours = everything - clients - {_holder(made)}
    before = nanoseconds(ours)
    clients_before = nanoseconds(clients)
    gone = reaped(everything)
    time.sleep(seconds)
    share = (nanoseconds(ours) - before) / 1e9 / seconds
    client_share = (nanoseconds(clients) - clients_before) / 1e9 / seconds
    quiet = {ref.pid for ref in processes.descendants(server)} == everything and reaped(everything) == gone
    return [
        Row(f"{AGENTS} idle agents: our processes", 1, figure=f"{share:.3%} of a core", goal="1 % of a core"),
        Row(f"{AGENTS} idle agents: script clients", 1, figure=f"{client_share:.3%} of a core"),
        Row(f"{AGENTS} idle agents: programs started", 1, figure="none" if quiet else "some", goal="none"),
        Row(f"{AGENTS} idle agents: our memory", 1, figure=f"{megabytes(ours):.1f} MB", goal="60 MB"),
        Row(f"{AGENTS} idle agents: memory of the script clients", 1, figure=f"{megabytes(clients):.1f} MB"),
    ]


def _waiter(made: World, seconds: float) -> list[Row]:
    names = [f"idle-{number}" for number in range(AGENTS)]
    cursor = max(record.stop_seq for record in made.context().registry.read().agents.values())
    waiter = subprocess.Popen(
        [*CLI, "wait", *names, "--after", str(cursor)],
        cwd=made.repository, env=made.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1.5)
        before, woken, gone = nanoseconds([waiter.pid]), switches(waiter.pid), reaped([waiter.pid])
        time.sleep(seconds)
        share = (nanoseconds([waiter.pid]) - before) / 1e9 / seconds
        wakes = switches(waiter.pid) - woken
        quiet = not processes.descendants(waiter.pid) and reaped([waiter.pid]) == gone
        if waiter.poll() is not None:
            raise RuntimeError("the waiter ended by itself")
        memory = megabytes([waiter.pid])
    finally:
        waiter.terminate()
        waiter.wait(10)
    return [
        Row(f"`wait` for {AGENTS} agents", 1, figure=f"{share:.3%} of a core", goal="0.2 % of a core"),
        Row("the same: wake-ups a second", 1, figure=f"{wakes / seconds:.1f}"),
        Row("the same: programs started", 1, figure="none" if quiet else "some", goal="none"),
        Row("the same: memory", 1, figure=f"{memory:.1f} MB"),
    ]


def _holder(made: World) -> int:
    """The process in the first window, which is not ours."""
    return int(made.tmux("display-message", "-p", "-t", "%0", "#{pane_pid}"))


def nanoseconds(pids: Iterable[int]) -> int:
    """Processor time of all threads of these processes."""
    return sum(int((task / "schedstat").read_text().split()[0]) for pid in pids for task in _threads(pid))


def switches(pid: int) -> int:
    """How often the threads of a process have fallen asleep."""
    lines = [line for task in _threads(pid) for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def _threads(pid: int) -> list[Path]:
    return list((Path("/proc") / str(pid) / "task").iterdir())


def megabytes(pids: Iterable[int]) -> float:
    """Proportional set size: pages shared with others count in part."""
    total = 0
    for pid in pids:
        lines = (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def reaped(pids: Iterable[int]) -> int:
    """Page faults of all children that these processes have waited for; any child at all makes it grow."""
    texts = ((Path("/proc") / str(pid) / "stat").read_text() for pid in pids)
    return sum(int(text.rpartition(")")[2].split()[8]) for text in texts)
