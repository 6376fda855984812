"""A warm companion at the other end of two pipes, as a session's extension has it."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.harness import CLI, World

Message = dict[str, Any]


@dataclass
class Link:
    """``seen`` holds each message with the time at which it came."""

    process: subprocess.Popen[bytes]
    seen: list[tuple[float, Message]] = field(default_factory=list)
    came: threading.Condition = field(default_factory=threading.Condition)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def write(self, *messages: Message) -> None:
        """Send lines, several in one write."""
        if self.process.stdin is None:
            raise RuntimeError("the companion has no input")
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.process.stdin.flush()

    def begin(self, call: str, **given: Any) -> int:
        """Send a call; its id."""
        number = next(self.numbers)
        self.write({"id": number, "call": call, "input": given})
        return number

    def answer(self, number: int) -> tuple[float, Message]:
        """The answer to a call and when it came; RuntimeError when it is not ok."""
        came, message = self.until(lambda each: each.get("id") == number and "answer" in each)
        if not message["answer"]["ok"]:
            raise RuntimeError(f"{message}")
        return came, message["answer"]

    def call(self, name: str, **given: Any) -> Message:
        """Call and wait."""
        return self.answer(self.begin(name, **given))[1]

    def until(self, wanted: Callable[[Message], object], deadline: float = 60.0) -> tuple[float, Message]:
        """The first message that is ``wanted``."""
        end = time.monotonic() + deadline
        done = 0
        with self.came:
            while True:
                for came, message in self.seen[done:]:
                    if wanted(message):
                        return came, message
                done = len(self.seen)
                if not self.came.wait(end - time.monotonic()):
                    raise TimeoutError("the companion said nothing more")

    def forget(self) -> None:
        """Drop what has come so far."""
        with self.came:
            self.seen.clear()


@contextmanager
def companion(made: World, *, settle: float = 0.0) -> Iterator[Link]:
    """A companion that is warm, in an idle session."""
    process = subprocess.Popen(
        [*CLI, "companion", "--settle", str(settle)],
        cwd=made.repository, env=made.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    link = Link(process)
    reader = threading.Thread(target=_pump, args=(link,))
    reader.start()
    try:
        link.write({"hello": {"protocol": 1, "session": "/bench.jsonl", "host": "bench"}}, {"idle": True})
        # Answered once everything is loaded.
        link.call("status")
        yield link
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(30)
        reader.join()
        if process.stdout is not None:
            process.stdout.close()


def _pump(link: Link) -> None:
    for line in link.process.stdout or ():
        came = time.perf_counter()
        with link.came:
            link.seen.append((came, json.loads(line)))
            link.came.notify_all()
