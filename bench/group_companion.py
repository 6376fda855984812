"""Tool calls, notices and the idle cost of a session's companion; the session itself is played by this program."""

from __future__ import annotations

import itertools
import statistics
import time

from bench.companion_link import Link, companion
from bench.group_idle import megabytes, nanoseconds, reaped, switches
from bench.group_start import forget_slot, new_by_hand
from bench.harness import Row, World, interleave, until, world
from side_agents.core.context import Context
from side_agents.core.stop import stop
from side_agents.infra import fs, processes

ROUNDS = 11
CROWD_ROUNDS = 14
CROWD = 8
IDLE_AGENTS = 10
IDLE_SECONDS = 10.0


def measure(rounds: int | None) -> list[Row]:
    """Everything through the pipes of one companion for each world."""
    count = rounds or ROUNDS
    return [*_starts(count, 0), *_starts(count, 12), *_wakes(count), *_crowds(rounds or CROWD_ROUNDS), *_idle()]


def _starts(count: int, agents: int) -> list[Row]:
    with world(clients=True) as ours, world() as raw, companion(ours, settle=3600) as link:
        for number in range(agents):
            _present(link, number)
        by_hand = new_by_hand(raw)
        context, numbers = ours.context(), itertools.count()

        def start() -> float:
            begin = time.perf_counter()
            came, answer = link.answer(_begin_probe(link, f"round-{next(numbers)}"))
            taken = came - begin
            record = context.registry.read().agents[answer["id"]]
            stop(context, record.id)
            forget_slot(ours, record)
            return taken

        times = interleave(count, {"raw": lambda: by_hand()[0], "ours": start})
    among = f", {agents} agents present" if agents else ""
    return [Row(f"agent-start through a companion{among}: result", count, times["raw"], times["ours"], goal="80 ms")]


def _present(link: Link, number: int) -> None:
    link.call("agent-start", description="say: here", branchHint=f"present-{number}", client="script")
    link.call("agent-wait-any", ids=[f"present-{number}"])


def _begin_probe(link: Link, hint: str) -> int:
    return link.begin("agent-start", description="x", branchHint=hint, client="probe")


def _wakes(count: int) -> list[Row]:
    turn: list[float] = []
    crash: list[float] = []
    with world(clients=True) as made, companion(made) as link:
        context = made.context()
        agent = link.answer(_begin_probe(link, "turns"))[1]["id"]
        journal = context.paths.runtime(agent).journal
        cursor = 0
        for _ in range(count):
            fs.append_line(journal, '{"type":"turn_start"}')
            waiting = link.begin("agent-wait-any", ids=[agent], after=cursor)
            _settle()
            begin = time.perf_counter()
            fs.append_line(journal, '{"type":"turn_end","outcome":"completed"}')
            came, answer = link.answer(waiting)
            turn.append(came - begin)
            cursor = answer["cursor"]
        for number in range(count):
            crash.append(_crash(made, link, context, f"crash-{number}"))
    return [
        Row(
            "agent-wait-any through a companion wakes after a turn's end",
            count,
            ours=statistics.median(turn),
            goal="20 ms",
        ),
        Row("a killed window is told as a notice", count, ours=statistics.median(crash), goal="50 ms"),
    ]


def _crash(made: World, link: Link, context: Context, hint: str) -> float:
    agent = link.answer(_begin_probe(link, hint))[1]["id"]
    link.until(lambda message: hint in message.get("text", "") and message.get("event") == "status")
    _settle()
    window = str(context.registry.read().agents[agent].tmux_window_id)
    begin = time.perf_counter()
    made.tmux("kill-window", "-t", window)
    came, _ = link.until(lambda each: each.get("agentId") == agent and each.get("toStatus") == "crashed")
    stop(context, agent)
    link.forget()
    return came - begin


def _crowds(rounds: int) -> list[Row]:
    """Rounds of starts that come in one write, all asking for the same name."""
    clean = 0
    times: list[float] = []
    with world(clients=True) as made, companion(made, settle=3600) as link:
        context = made.context()
        for number in range(rounds):
            given = {"description": "x", "branchHint": f"crowd-{number}", "client": "probe"}
            ids = [next(link.numbers) for _ in range(CROWD)]
            begin = time.perf_counter()
            link.write(*({"id": each, "call": "agent-start", "input": given} for each in ids))
            answers = [link.answer(each) for each in ids]
            times.append(max(came for came, _ in answers) - begin)
            columns = [
                [answer[key] for _, answer in answers] for key in ("id", "branch", "worktreePath", "tmuxWindowId")
            ]
            clean += all(len(set(column)) == CROWD for column in columns)
            for agent in columns[0]:
                stop(context, agent)
            made.remove_slots()
    return [
        Row(f"{CROWD} agent-starts in one message: all results", rounds, ours=statistics.median(times)),
        Row(
            "the same: rounds in which nothing was shared or failed", rounds, figure=f"{clean} of {rounds}", goal="all"
        ),
    ]


def _idle() -> list[Row]:
    with world() as made, companion(made) as link:
        for number in range(IDLE_AGENTS):
            _present(link, number)
        pid = link.process.pid
        until(lambda: not processes.descendants(pid), "the end of what the companion had started")
        time.sleep(1.0)
        before, wakes, gone = nanoseconds([pid]), switches(pid), reaped([pid])
        time.sleep(IDLE_SECONDS)
        share = (nanoseconds([pid]) - before) / 1e9 / IDLE_SECONDS
        woken = (switches(pid) - wakes) / IDLE_SECONDS
        quiet = not processes.descendants(pid) and reaped([pid]) == gone
        memory = megabytes([pid])
    return [
        Row(f"companion with {IDLE_AGENTS} idle agents", 1, figure=f"{share:.3%} of a core", goal="1 % of a core"),
        Row("the same: wake-ups a second", 1, figure=f"{woken:.1f}"),
        Row("the same: programs started", 1, figure="none" if quiet else "some", goal="none"),
        Row("the same: memory", 1, figure=f"{memory:.1f} MB", goal="60 MB"),
    ]


def _settle() -> None:
    """Give everybody the time to fall asleep."""
    time.sleep(0.1)
