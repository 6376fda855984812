"""Commands from a cold start, over a Python that does nothing."""

from __future__ import annotations

import itertools

from bench.harness import BARE_PYTHON, Row, World, interleave, timed, until, world, write_settings
from side_agents.core.observe import check
from side_agents.core.results import StartRequest
from side_agents.core.start import start
from side_agents.core.stop import stop
from side_agents.models import AgentStatus

ROUNDS = 11
GOALS = {
    "--help": 50, "--version": 50, "status": 50, "check": 90, "list": 90, "send": 90, "start": 250,
}  # fmt: skip


def measure(rounds: int | None) -> list[Row]:
    """With one idle script agent present; ``send`` ends when the agent is seen to have taken the message."""
    count = rounds or ROUNDS
    with world() as made:
        context = made.context()
        target = start(context, StartRequest(task="say: ready", branch_hint="target", client="script")).record.id
        numbers = itertools.count(1)

        def until_idle() -> None:
            until(lambda: _status(made, target) is AgentStatus.WAITING_USER, "the end of a turn")

        def command(*argv: str) -> float:
            until_idle()
            return timed(lambda: made.cli(*argv))

        def started() -> float:
            name = f"cold-{next(numbers)}"
            taken = timed(lambda: made.cli("start", "--client", "script", "--name", name, "a task"))
            stop(context, name)
            return taken

        medians = interleave(
            count,
            {
                "bare": lambda: timed(lambda: made.run(*BARE_PYTHON)),
                "--help": lambda: command("--help"),
                "--version": lambda: command("--version"),
                "status": lambda: command("status"),
                "check": lambda: command("check", target),
                "list": lambda: command("list"),
                "send": lambda: command("send", target, "say: again"),
                "start": started,
            },
        )
        write_settings(made)
        settings = interleave(
            count,
            {"bare": lambda: timed(lambda: made.run(*BARE_PYTHON)), "status": lambda: command("status")},
        )
    rows = [
        Row(f"cold `{name}`", count, medians["bare"], medians[name], goal=f"floor + {goal} ms")
        for name, goal in GOALS.items()
    ]
    with_settings = Row("cold `status` with a settings file", count, settings["bare"], settings["status"])
    return [*rows, with_settings]


def _status(made: World, agent_id: str) -> AgentStatus | None:
    record = check(made.context(), agent_id).record
    return record.status if record else None
