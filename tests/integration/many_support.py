"""The command line in processes of its own, and streams of its lines, for tests of many agents."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestra import SLOW, Orchestra

import side_agents

CHECKOUT = Path(side_agents.__file__).parents[1]
PROGRAM = (sys.executable, "-m", "side_agents")


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(stage: Orchestra, **more: str) -> dict[str, str]:
    return {**stage.environment, "PYTHONPATH": str(CHECKOUT), **more}


def run(stage: Orchestra, *arguments: str, feed: str = "", **more: str) -> Ran:
    """``side-agents`` with these arguments, where the stage is."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=stage.cwd,
        env=environment(stage, **more),
        input=feed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@dataclass
class Stream:
    """The JSON lines of a command that streams."""

    process: subprocess.Popen[str]
    lines: queue.Queue[str] = field(default_factory=queue.Queue)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next line that is ``wanted``; the ones before it are kept in ``seen``."""
        while True:
            try:
                line = self.lines.get(timeout=SLOW)
            except queue.Empty as error:
                raise AssertionError(f"nothing came after {self.seen}") from error
            self.seen.append(json.loads(line))
            if wanted(self.seen[-1]):
                return self.seen[-1]

    def about(self, agent_id: str, status: str) -> dict[str, Any]:
        return self.until(lambda line: (line["agentId"], line["toStatus"]) == (agent_id, status))

    def rest(self) -> list[dict[str, Any]]:
        """All lines there are, after the stream was ended."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SLOW)
        while (line := self.lines.get(timeout=SLOW)) != "":
            self.seen.append(json.loads(line))
        return [line for line in self.seen if line.get("type") == "notice"]


@contextmanager
def following(stage: Orchestra, *arguments: str, **more: str) -> Iterator[Stream]:
    """``side-agents notices --follow --json`` beside the test."""
    process = subprocess.Popen(
        [*PROGRAM, "notices", "--follow", "--json", *arguments],
        cwd=stage.cwd,
        env=environment(stage, **more),
        stdout=subprocess.PIPE,
        text=True,
    )
    stream = Stream(process)

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            stream.lines.put(line)
        stream.lines.put("")

    reader = threading.Thread(target=pump)
    reader.start()
    try:
        yield stream
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()
