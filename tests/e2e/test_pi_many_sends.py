"""Two senders and one real Pi, idle and busy: what each send said is what the agent's own conversation shows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.pi_parent_support import PROGRAM, WAIT, ParentPi
from tests.support.waiting import eventually

SENDERS = ("one", "two")
# For each sender and each of the two states of the agent; 25 make it a hundred sends, which take a minute.
COUNT = int(os.environ.get("SIDE_AGENTS_TEST_SENDS", "6"))
LEADS = (
    "plain",
    "- a list",
    "--file x",
    "@nobody",
    "/nosuch command",
    "#",
    "你好，世界",
    "🙂👩‍👩‍👧",
    "a: !b",
    "\\e[31m",
)
SIZE = 10_000


def long_text(sender: str, number: int) -> str:
    """About 10 kB with many lines in three scripts."""
    head = f"{LEADS[number % len(LEADS)]} <{sender}:{number}>"
    line = f'line of {sender}:{number} with 中文 and 🚀, `code` $HOME "quotes"  two blanks'
    return "\n".join([head, "", *[line] * (SIZE // len(line.encode())), "!the end", "/of it"])


class Sender:
    """A companion of its own, as a second conversation of the person has: each send waits for its answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._say({"hello": {"protocol": 1, "session": "/sender.jsonl", "host": "test"}})

    def send(self, agent: str, text: str) -> dict[str, Any]:
        self._say({"id": 1, "call": "agent-send", "input": {"id": agent, "prompt": text}})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == 1:
                answer: dict[str, Any] = message["answer"]
                return answer
        raise AssertionError("the companion ended")

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def sender_of(parent: ParentPi) -> Iterator[Sender]:
    socket = parent.rig.tmux("display-message", "-p", "-t", parent.pane, "#{socket_path},#{pid},0").strip()
    process = subprocess.Popen(
        [PROGRAM, "companion"],
        cwd=parent.repo.path,
        env={**parent.environment, "TMUX": socket, "TMUX_PANE": parent.pane},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        yield Sender(process)
        assert process.stdin is not None
        process.stdin.close()


def text_of(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def told(parent: ParentPi, agent: str) -> list[str]:
    """What users said in the agent's own conversation file, in order."""
    file = Path(parent.agents()[agent]["childSessionFile"])
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [text_of(message["content"]) for message in messages if message["role"] == "user"]


def test_sends_of_10_kb_by_two_senders_arrive_once_or_say_otherwise(parent: ParentPi, tmp_path: Path) -> None:
    started, gate = tmp_path / "started", tmp_path / "gate"
    parent.calls_tool("agent-start", {"description": "SAY: ready", "branchHint": "alpha"})
    parent.agent("alpha")
    with sender_of(parent) as first, sender_of(parent) as second, ThreadPoolExecutor(2) as pool:
        senders = dict(zip(SENDERS, (first, second), strict=True))

        def send_all(name: str, numbers: range) -> list[tuple[str, dict[str, Any]]]:
            texts = [long_text(name, number) for number in numbers]
            return [(text, senders[name].send("alpha", text)) for text in texts]

        def both(numbers: range) -> dict[str, list[tuple[str, dict[str, Any]]]]:
            return dict(zip(SENDERS, pool.map(send_all, SENDERS, [numbers] * 2), strict=True))

        idle = both(range(COUNT))
        parent.child("alpha").settled()
        work = f"RUN: touch {started}; until [ -e {gate} ]; do sleep 0.05; done\nSAY: free"
        assert first.send("alpha", work)["ok"]
        eventually(started.exists, WAIT)
        busy = both(range(COUNT, 2 * COUNT))
        gate.touch()

    claims = {name: idle[name] + busy[name] for name in SENDERS}
    delivered = {name: [text for text, answer in claims[name] if answer["ok"]] for name in SENDERS}
    eventually(lambda: len(told(parent, "alpha")) >= 2 + sum(map(len, delivered.values())), WAIT)
    shown = told(parent, "alpha")
    for name in SENDERS:
        mine = [text for text in shown if f"<{name}:" in text]
        assert mine == delivered[name], [answer for _, answer in claims[name] if not answer["ok"]]
    # Nobody disturbed, so hardly anything had to be refused.
    assert sum(map(len, delivered.values())) >= 3 * COUNT
    # Whether Pi puts a message aside or takes it up is its own word; while a command ran it put some aside.
    ways = {answer["delivery"] for name in SENDERS for _, answer in busy[name] if answer["ok"]}
    assert {"queued"} <= ways <= {"queued", "submitted"}
