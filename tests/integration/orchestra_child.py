"""Starts in processes of their own, for tests that kill them; each prints its result as JSON. See ``main``."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from side_agents.core import observe
from side_agents.core import send as sending
from side_agents.core.context import open_context
from side_agents.core.results import Checked, StartRequest
from side_agents.core.start import start
from side_agents.errors import SideAgentsError
from side_agents.forum import failpoints
from side_agents.models import AgentStatus
from tests.support.waiting import eventually

SLOW = 45.0
Answer = dict[str, Any]
Kill = tuple[bool, float]


def messages_in(path: Path) -> list[str]:
    """What the user said in a conversation file of the script client."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    told = [message["content"] for message in messages if message["role"] == "user"]
    return ["".join(block["text"] for block in content) for content in told]


def boundaries(die_at: str | None, seen: Callable[[str], None]) -> None:
    """Wrap each step that leaves a trace; after the one called ``die_at`` ("name" or "name 2") this process is killed."""
    from side_agents.infra import fs, git, tmux

    counts: dict[str, int] = {}

    def passed(name: str) -> None:
        counts[name] = counts.get(name, 0) + 1
        label = name if counts[name] == 1 else f"{name} {counts[name]}"
        seen(label)
        if label == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(module: Any, attribute: str, name: Callable[..., str | None]) -> None:
        inner = getattr(module, attribute)

        def outer(*args: Any, **more: Any) -> Any:
            result = inner(*args, **more)
            label = name(*args)
            if label:
                passed(label)
            return result

        setattr(module, attribute, outer)

    # In between a file that is being written has a name of its own, which for a lease lies in the agent's worktree.
    wrap(fs, "_write_temp", lambda path, *_: f"draft {path.name}" if path.name == "active.lock" else None)
    wrap(fs, "replace", lambda path, *_: f"write {path.name}")
    wrap(fs, "create_exclusive", lambda path, *_: f"create {path.name}")
    wrap(fs, "move", lambda *_: "archive")
    wrap(git, "call", lambda _directory, args, *_: _git_step(args))
    wrap(tmux, "change", lambda _socket, verb, *_: f"tmux {verb}")


def _git_step(args: Sequence[str]) -> str | None:
    verb = " ".join(args[:2] if args[0] == "worktree" else args[:1])
    if args[0] in ("checkout", "reset", "clean", "update-ref") or verb == "worktree add":
        return f"git {verb}" + (" branch" if "-b" in args and args[0] == "checkout" else "")
    return None


def _start_here(task: str, client: str) -> Answer:
    try:
        record = start(open_context(Path.cwd(), os.environ), StartRequest(task=task, client=client)).record
    except SideAgentsError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"id": record.id, "slot": record.worktree_path, "branch": record.branch, "warnings": record.warnings}


def _life(task: str, message: str) -> Answer:
    """One agent from its start to its second turn, as it looks in this process's own locale."""
    context = open_context(Path.cwd(), os.environ)
    record = start(context, StartRequest(task=task, client="script")).record

    def look() -> Checked:
        return observe.check(context, record.id)

    eventually(lambda: getattr(look().record, "status", None) is AgentStatus.WAITING_USER, SLOW)
    sent = sending.send(context, record.id, message).state
    shown = message.removeprefix("say: ")
    eventually(lambda: any(line == shown for line in look().backlog), SLOW)
    told = messages_in(Path(record.child_session_file or ""))
    return {"id": record.id, "slot": record.worktree_path, "sent": sent, "messages": told}


def _pairs(rounds: int) -> list[list[Answer | None]]:
    """Two starts at a time; a look in between lets go of agents that have ended, as far as they have."""
    answers = []
    for _ in range(rounds):
        answers.append(_storm(2, {}, "brief", ("same task",)))
        observe.list_agents(open_context(Path.cwd(), os.environ))
    return answers


def _storm(
    count: int, kills: Mapping[int, tuple[bool, float]], client: str, tasks: Sequence[str]
) -> list[dict[str, Any] | None]:
    """Start ``count`` agents from as many forks of this warm process; ``kills`` are by number of the fork, see ``_kill``."""
    import git  # noqa: F401 - loaded once for all
    import libtmux  # noqa: F401

    gate_read, gate_write = os.pipe()
    children: list[tuple[int, int]] = []
    for number in range(count):
        answer_read, answer_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            os.read(gate_read, 1)
            begin = time.monotonic()
            answer = _start_here(tasks[number % len(tasks)], client)
            os.write(answer_write, json.dumps({**answer, "seconds": time.monotonic() - begin}).encode())
            os._exit(0)
        os.close(answer_write)
        children.append((pid, answer_read))
    os.close(gate_write)
    _kill({children[number][0]: kill for number, kill in kills.items()})
    return [_answer(pid, pipe) for pid, pipe in children]


def _kill(pending: dict[int, Kill]) -> None:
    """Kill processes after a time that begins now or, for those marked so, with their reservation in the registry."""
    registry = open_context(Path.cwd(), os.environ).registry
    begin = dict.fromkeys((pid for pid, (is_reserved, _) in pending.items() if not is_reserved), time.monotonic())
    while pending:
        for record in registry.read().agents.values():
            if record.owner is not None:
                begin.setdefault(record.owner.pid, time.monotonic())
        for pid, (_, delay) in list(pending.items()):
            if pid in begin and time.monotonic() >= begin[pid] + delay:
                os.kill(pid, signal.SIGKILL)
                del pending[pid]
        select.select([], [], [], 0.002)


def _answer(pid: int, pipe: int) -> Answer | None:
    """What a fork reported; None for one that was killed before it could."""
    with os.fdopen(pipe, "rb") as file:
        text = file.read()
    status = os.waitpid(pid, 0)[1]
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        return None
    answer: Answer = json.loads(text) if text else {"error": f"ended with {status}"}
    return answer


def main(command: str, *arguments: str) -> None:
    """Do one thing and print the result as JSON.

    ``start TASK CLIENT [STEP]``: one start, killed after STEP. ``life TASK MESSAGE``: one agent. ``pairs ROUNDS``: two at
    a time. ``storm COUNT SEED KILLED SPREAD TASK...``: COUNT starts at once, KILLED of them killed within SPREAD seconds of
    their begin or their reservation.
    """
    failpoints.arm(os.environ.get(failpoints.VARIABLE))
    answer: object
    if command == "start":
        task, client, *die_at = arguments
        steps: list[str] = []
        boundaries(die_at[0] if die_at else None, steps.append)
        answer = {**_start_here(task, client), "steps": steps}
    elif command == "life":
        answer = _life(*arguments)
    elif command == "pairs":
        answer = _pairs(int(arguments[0]))
    else:
        count, seed, killed = map(int, arguments[:3])
        chance = random.Random(seed)
        kills = {
            number: (chance.random() < 0.75, chance.uniform(0.0, float(arguments[3])))
            for number in chance.sample(range(count), killed)
        }
        answer = _storm(count, kills, "fake", arguments[4:])
    # In the C locale text from outside is in surrogates, which become the bytes that they were.
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main(*sys.argv[1:])
