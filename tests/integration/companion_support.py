"""A companion and the other end of its pipes, as an extension would have them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from many_support import PROGRAM, environment
from orchestra import SLOW, Orchestra

Message = dict[str, Any]


@dataclass
class Companion:
    """``seen`` holds every message in its order; ``ended`` is set when its output has ended."""

    process: subprocess.Popen[bytes]
    seen: list[Message] = field(default_factory=list)
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def write(self, message: Message | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def idle(self, is_idle: bool = True) -> None:
        self.write({"idle": is_idle})

    def begin(self, call: str, /, **given: Any) -> int:
        """Send a call and return its id."""
        number = next(self.numbers)
        self.write({"id": number, "call": call, "input": given})
        return number

    def answer(self, number: int | str | None, count: int = 1) -> Message:
        found = self.until(lambda message: "answer" in message and message["id"] == number, count)
        answer: Message = found["answer"]
        return answer

    def call(self, call: str, /, **given: Any) -> Message:
        return self.answer(self.begin(call, **given))

    def good(self, call: str, /, **given: Any) -> Message:
        answer = self.call(call, **given)
        assert answer["ok"] is True, answer
        return answer

    def start(self, task: str = "say: hello", hint: str = "", **more: Any) -> str:
        """An agent of the script client, started as a model does it."""
        answer = self.good("agent-start", description=task, branchHint=hint, client="script", **more)
        agent_id: str = answer["id"]
        return agent_id

    def until(self, wanted: Callable[[Message], object], count: int = 1, deadline: float = SLOW) -> Message:
        """The message that is ``wanted``, the ``count``-th of its kind, whenever it came."""
        end = time.monotonic() + deadline
        with self.changed:
            while True:
                found = [message for message in self.seen if wanted(message)]
                if len(found) >= count:
                    return found[count - 1]
                left = end - time.monotonic()
                assert left > 0, f"nothing more came than {self.seen}"
                assert not self.ended, f"it ended after {self.seen}: {self.errors()}"
                self.changed.wait(left)

    def event(self, kind: str, wanted: Callable[[Message], object] = bool, count: int = 1) -> Message:
        return self.until(lambda message: message.get("event") == kind and wanted(message), count)

    def notice(self, agent_id: str, status: str, count: int = 1) -> Message:
        return self.event("notice", lambda each: (each["agentId"], each["toStatus"]) == (agent_id, status), count)

    def line(self, text: str) -> Message:
        """The status event with this text."""
        return self.event("status", lambda each: each["text"] == text)

    def events(self, kind: str) -> list[Message]:
        return [message for message in list(self.seen) if message.get("event") == kind]

    def told(self) -> list[tuple[str, str]]:
        return [(each["agentId"], each["toStatus"]) for each in self.events("notice")]

    def settle(self) -> None:
        """Return after the observer has looked at least once more; whatever was to be told is told."""
        # Its answer comes from a thread of its own, so the observer's own sign is a look at a session change.
        before = len(self.seen)
        self.call("status")
        assert len(self.seen) > before

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode(errors="replace") if self.process.poll() is not None else ""

    def close(self) -> int:
        """End the input, as a session that quits does; the exit status."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(SLOW)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(SLOW)


def hello(session: str | None = None, **more: Any) -> Message:
    return {"hello": {"protocol": 1, "session": session, "host": "test", "hostVersion": "0", **more}}


@contextmanager
def companion(
    stage: Orchestra,
    session: str | None = None,
    *,
    settle: float = 0,
    idle: bool = True,
    greet: bool = True,
    **more: Any,
) -> Iterator[Companion]:
    """A companion of the stage's caller that is ready; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [*PROGRAM, "companion", "--settle", str(settle)],
        cwd=stage.cwd,
        env=environment(stage),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    made = Companion(process)
    reader = threading.Thread(target=_pump, args=(made,))
    reader.start()
    try:
        if greet:
            made.write(hello(session, **more))
            made.until(lambda message: "ready" in message)
            if idle:
                made.idle()
        yield made
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def _pump(made: Companion) -> None:
    assert made.process.stdout is not None
    for line in made.process.stdout:
        with made.changed:
            made.seen.append(json.loads(line))
            made.changed.notify_all()
    with made.changed:
        made.ended = True
        made.changed.notify_all()


def children_of(pid: int) -> list[int]:
    """Every process that the threads of a process have started and that still is there."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found
