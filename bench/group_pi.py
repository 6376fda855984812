"""A real Pi as the parent: its model calls our tools, its agents end, it idles and quits (Linux only).

The agents are script clients, or clients that do nothing, so that the figures are about the parent. Times inside Pi are
those of the entries of its conversation, in whole milliseconds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.group_idle import megabytes, nanoseconds, reaped
from bench.group_start import forget_slot, new_by_hand
from bench.harness import Row, World, interleave, until, world
from bench.kernel_wait import file_changes, first_wake, process_end
from bench.pi_model import Call, Json
from bench.pi_session import Pi, chosen_programs, opened, stamp
from side_agents.core.observe import check
from side_agents.core.stop import stop
from side_agents.infra import fs, processes
from side_agents.models import AgentStatus

ROUNDS = 7
WAKES = 11
CROWD_ROUNDS = 14
CROWD = 8
IDLE_AGENTS = 10
PRESENT = 12
IDLE_SECONDS = 10.0

_rounds = itertools.count(1)


def measure(rounds: int | None) -> list[Row]:
    """Everything in one Pi, and starts once more where shells have the prompt of many users."""
    chosen_programs()
    count, wakes = rounds or ROUNDS, rounds or WAKES
    with world(clients=True) as made, world() as raw, opened(made) as pi:
        by_hand = new_by_hand(raw)
        bare = _share([pi.pid], IDLE_SECONDS / 2)
        pi.begin()
        rows = _starts(pi, by_hand, count, "no agents present")
        rows += _turn_ends(pi, wakes)
        rows += _crowds(pi, by_hand, rounds or CROWD_ROUNDS)
        rows += _crashes(pi, wakes)
        pi.begin()
        _present(pi, range(IDLE_AGENTS))
        pi.end()
        rows += _idle(pi, bare)
        pi.begin()
        _present(pi, range(IDLE_AGENTS, PRESENT))
        rows += _starts(pi, by_hand, count, f"{PRESENT} agents present")
        pi.end()
        rows += _quit(pi)
    return rows + _odd_prompt(count)


def _odd_prompt(count: int) -> list[Row]:
    with world(prompt="❯ ", clients=True) as made, world(prompt="❯ ") as raw, opened(made) as pi:
        pi.begin()
        return _starts(pi, new_by_hand(raw), count, "shells prompt with ❯")


def _starts(pi: Pi, by_hand: Callable[[], tuple[float, float]], count: int, among: str) -> list[Row]:
    """Call to result, over a start by hand; and with all that Pi does around a call, over a call of its own ``bash``."""
    context = pi.made.context()
    inside: list[float] = []

    def start() -> float:
        outcome = pi.call(_start_call(f"round-{next(_rounds)}"))
        inside.append(outcome.inside)
        record = context.registry.read().agents[outcome.answers[0]["id"]]
        stop(context, record.id)
        forget_slot(pi.made, record)
        return outcome.outside

    def bare_call() -> float:
        return pi.call(("bash", {"command": "true"})).outside

    times = interleave(count, {"raw": lambda: by_hand()[0], "bash": bare_call, "ours": start})
    return [
        Row(
            f"Pi: agent-start, call to result, {among}",
            count,
            times["raw"],
            statistics.median(inside[1:]),
            goal="80 ms",
        ),
        Row("the same seen by the model (floor: Pi's own `bash` with `true`)", count, times["bash"], times["ours"]),
    ]


def _start_call(hint: str, client: str = "probe") -> Call:
    return "agent-start", {"description": "say: here", "branchHint": hint, "client": client}


def _turn_ends(pi: Pi, count: int) -> list[Row]:
    [begun] = pi.call(_start_call("turns")).answers
    context = pi.made.context()
    journal = context.paths.runtime(begun["id"]).journal
    floor: list[float] = []
    ours: list[float] = []
    cursor = 0
    for _ in range(count + 1):
        fs.append_line(journal, '{"type":"turn_start"}')
        asked = pi.ask(("agent-wait-any", {"ids": [begun["id"]], "after": cursor}))
        pi.calling(asked[0][0])
        _settle()
        with file_changes(journal) as changed, first_wake(changed, floor):
            began = time.time()
            fs.append_line(journal, '{"type":"turn_end","outcome":"completed"}')
        [answer] = pi.outcome(*asked).answers
        cursor = answer["cursor"]
        ours.append(stamp(pi.result(asked[0][0])) - began)
    stop(context, begun["id"])
    return [_wakes_row("Pi: agent-wait-any wakes after a turn's end", floor, ours, "20 ms")]


def _crashes(pi: Pi, count: int) -> list[Row]:
    """From an idle Pi; its turn is over afterwards."""
    agents = [each["id"] for each in pi.call(*(_start_call(f"crash-{n}") for n in range(count + 1))).answers]
    pi.end()
    context = pi.made.context()
    floor: list[float] = []
    ours: list[float] = []
    for agent in agents:
        record = context.registry.read().agents[agent]
        if record.launcher is None:
            raise RuntimeError(f"{agent} has ended already")
        _settle()
        with process_end(record.launcher.pid) as ended, first_wake(ended, floor):
            began = time.time()
            pi.made.tmux("kill-window", "-t", str(record.tmux_window_id))
        ours.append(stamp(_notice(pi, agent, "crashed")) - began)
        stop(context, agent)
    pi.made.remove_slots()
    what = "Pi: a killed window is told in the conversation (floor: the launcher's end)"
    return [_wakes_row(what, floor, ours, "50 ms")]


def _notice(pi: Pi, agent: str, status: str) -> Json:
    """The entry that tells what an agent has become."""

    def tells(entry: Json) -> bool:
        details = entry.get("details") or {}
        return (details.get("agentId"), details.get("toStatus")) == (agent, status)

    return pi.find(tells, f"the notice that {agent} is {status}")


def _wakes_row(what: str, floor: list[float], ours: list[float], goal: str) -> Row:
    """The medians without the first round."""
    return Row(what, len(ours) - 1, statistics.median(floor[1:]), statistics.median(ours[1:]), goal=goal)


def _crowds(pi: Pi, by_hand: Callable[[], tuple[float, float]], rounds: int) -> list[Row]:
    """Starts in one message of the model, all asking for the same name; each round counts."""
    context = pi.made.context()
    clean = 0
    floor: list[float] = []
    ours: list[float] = []
    for number in range(rounds):
        floor.append(sum(by_hand()[0] for _ in range(CROWD)))
        outcome = pi.call(*[_start_call(f"crowd-{number}")] * CROWD)
        ours.append(outcome.inside)
        started = [answer for answer in outcome.answers if answer.get("ok")]
        keys = ("id", "branch", "worktreePath", "tmuxWindowId")
        clean += all(len({answer[key] for answer in started}) == CROWD for key in keys)
        for answer in started:
            stop(context, answer["id"])
        pi.made.remove_slots()
    what = f"Pi: {CROWD} agent-starts in one message, all results (floor: by hand one after the other)"
    return [
        Row(what, rounds, statistics.median(floor), statistics.median(ours)),
        Row(
            "the same: rounds in which nothing was shared or failed", rounds, figure=f"{clean} of {rounds}", goal="all"
        ),
    ]


def _present(pi: Pi, numbers: range) -> None:
    """Script agents whose turn is over."""
    agents = [each["id"] for each in pi.call(*(_start_call(f"present-{n}", "script") for n in numbers)).answers]
    for agent in agents:
        until(partial(_is_idle, pi, agent), f"the end of {agent}'s turn")


def _is_idle(pi: Pi, agent: str) -> bool:
    record = check(pi.made.context(), agent).record
    return record is not None and record.status is AgentStatus.WAITING_USER


def _idle(pi: Pi, bare: float) -> list[Row]:
    """Once all that has to be told of them is told; ``bare`` is the share of a core that Pi took before it had agents."""
    for number in range(IDLE_AGENTS):
        _notice(pi, f"present-{number}", "waiting_user")
    time.sleep(1.0)
    clients = {record.client_pid for record in pi.made.context().registry.read().agents.values()}
    everything = _below_server(pi.made)
    ours = everything - clients - {pi.pid, _holder(pi.made)}
    gone, before, pi_before = reaped(everything), nanoseconds(ours), nanoseconds([pi.pid])
    time.sleep(IDLE_SECONDS)
    share = (nanoseconds(ours) - before) / 1e9 / IDLE_SECONDS
    pi_share = (nanoseconds([pi.pid]) - pi_before) / 1e9 / IDLE_SECONDS
    quiet = _below_server(pi.made) == everything and reaped(everything) == gone
    memory = f"{megabytes(ours):.1f} MB, {megabytes(_companions(pi)):.1f} MB of it the companion's"
    what = f"Pi with {IDLE_AGENTS} idle agents"
    return [
        Row(f"{what}: companion and launchers", 1, figure=f"{share:.3%} of a core", goal="1 % of a core"),
        Row(f"{what}: Pi itself, over the same without", 1, figure=f"{pi_share:.3%} over {bare:.3%} of a core"),
        Row(f"{what}: programs started", 1, figure="none" if quiet else "some", goal="none"),
        Row(f"{what}: memory of companion and launchers", 1, figure=memory, goal="60 MB"),
    ]


def _share(pids: list[int], seconds: float) -> float:
    """The share of a core that processes take which have come to rest."""
    time.sleep(1.0)
    before = nanoseconds(pids)
    time.sleep(seconds)
    return (nanoseconds(pids) - before) / 1e9 / seconds


def _quit(pi: Pi) -> list[Row]:
    """What is there five seconds after Pi's end, neither an agent's nor there without Pi."""
    companions = _companions(pi)
    if not companions:
        raise RuntimeError("this Pi has no companion")
    others = _of_world(pi.made) - companions - {pi.pid}
    pi.type("/quit")
    until(lambda: processes.identify(pi.pid) is None, "the end of Pi")
    end = time.monotonic() + 5
    while (left := _of_world(pi.made) - others) and time.monotonic() < end:
        time.sleep(0.05)
    return [Row("Pi: processes left behind by /quit", 1, figure=f"{len(left) or 'none'}", goal="none")]


def _companions(pi: Pi) -> set[int]:
    """All that Pi has started."""
    return {ref.pid for ref in processes.descendants(pi.pid)}


def _of_world(made: World) -> set[int]:
    """All processes below the world's tmux server, and those elsewhere that have its home."""
    home = f"HOME={made.environment['HOME']}".encode()
    found = _below_server(made)
    for place in Path("/proc").glob("[0-9]*"):
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if home in variables:
            found.add(int(place.name))
    return found


def _below_server(made: World) -> set[int]:
    return {ref.pid for ref in processes.descendants(int(made.environment["TMUX"].split(",")[1]))}


def _holder(made: World) -> int:
    """The process in the first window, which is not ours."""
    return int(made.tmux("display-message", "-p", "-t", "%0", "#{pane_pid}"))


def _settle() -> None:
    """Give everybody the time to fall asleep."""
    time.sleep(0.3)
