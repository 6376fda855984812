"""A real Pi with the extension, in a window of a world, and a model that says what the benchmark wants."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.harness import CLI, UnavailableError, World, until
from bench.pi_model import Call, Json, Model, Request, model
from side_agents import resources
from side_agents.clients.pi import EXTENSION
from side_agents.infra import processes

VERSIONS = ("1.6.0", "0.73.1")
_CLIENTS = Path(__file__).resolve().parents[1] / "tests" / "e2e" / "clients"
_SETTINGS = {"defaultProvider": "bench", "defaultModel": "bench-model", "quietStartup": True}


@dataclass(frozen=True)
class Outcome:
    """What came of calls in one message.

    ``inside`` are the seconds from the entry with the calls to that with the last result in Pi's conversation, which
    holds whole milliseconds. ``outside`` are those between the last byte of the calls from the model and the last byte
    of the request with the results: Pi's own work around them is in it.
    """

    answers: list[Json]
    inside: float
    outside: float


@dataclass
class Pi:
    """One Pi; at any time it either waits for its user, or for the model's answer to ``request``."""

    made: World
    model: Model
    pane: str
    pid: int
    sessions: Path
    request: Request | None = None
    _seen: list[Json] = field(default_factory=list)
    _read: int = 0

    def begin(self) -> None:
        """Say something, so that the model has a turn."""
        self.type("go on")
        self.request = self.model.request()

    def end(self) -> None:
        """Let the model end its turn."""
        said = len(self._of("assistant"))
        self._waiting().say("over")
        self.request = None
        self.find(lambda _: len(self._of("assistant")) > said, "the end of the turn")

    def ask(self, *calls: Call) -> tuple[list[str], float]:
        """Let the model call tools; their ids, and when that was sent."""
        asked = self._waiting().call(list(calls))
        self.request = None
        return asked

    def outcome(self, ids: list[str], sent: float) -> Outcome:
        """The results, once the model has them."""
        self.request = self.model.request()
        called = stamp(self.calling(ids[0]))
        noted = max(stamp(self.result(call_id)) for call_id in ids)
        return Outcome(self.request.results(ids), noted - called, self.request.came - sent)

    def call(self, *calls: Call) -> Outcome:
        """Let the model call tools, all in one message."""
        return self.outcome(*self.ask(*calls))

    def calling(self, call_id: str) -> Json:
        """The entry with a call; Pi carries it out right after it."""
        return self.find(lambda entry: call_id in _called(entry), "a call in Pi's conversation")

    def result(self, call_id: str) -> Json:
        """The entry with the result of a call."""
        return self.find(lambda entry: entry.get("message", {}).get("toolCallId") == call_id, "a result")

    def find(self, wanted: Callable[[Json], object], what: str, deadline: float = 60.0) -> Json:
        """The newest entry of the conversation that is ``wanted``; TimeoutError when none comes."""
        end = time.monotonic() + deadline
        while True:
            found = next((entry for entry in reversed(self._entries()) if wanted(entry)), None)
            if found is not None:
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not come within {deadline:g} s; Pi shows:\n{self.screen()}")
            time.sleep(0.005)

    def type(self, text: str) -> None:
        """Type a line and press Enter once it is in the box."""
        self.made.tmux("send-keys", "-l", "-t", self.pane, "--", text)
        until(lambda: text in self.screen(), f"{text!r} on the screen")
        self.made.tmux("send-keys", "-t", self.pane, "Enter")

    def screen(self) -> str:
        """What Pi shows."""
        return self.made.tmux("capture-pane", "-p", "-t", self.pane)

    def _waiting(self) -> Request:
        if self.request is None:
            raise RuntimeError("Pi has asked its model nothing")
        return self.request

    def _of(self, role: str) -> list[Json]:
        return [entry for entry in self._entries() if entry.get("message", {}).get("role") == role]

    def _entries(self) -> list[Json]:
        """All entries so far; the file is there once the model has said something."""
        for file in self.sessions.glob("*/*.jsonl"):
            with file.open("rb") as stream:
                stream.seek(self._read)
                new = stream.read()
            # The last line may be half written.
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self._seen += [json.loads(line) for line in whole.splitlines()]
        return self._seen


def stamp(entry: Json) -> float:
    """When Pi noted an entry, in seconds like ``time.time``."""
    return datetime.fromisoformat(entry["timestamp"]).timestamp()


def chosen_programs() -> Path:
    """Where Pi and its Node lie; UnavailableError when they are not installed. BENCH_PI names another version."""
    version = os.environ.get("BENCH_PI", VERSIONS[0])
    if version not in VERSIONS:
        raise UnavailableError(f"BENCH_PI is {version!r}; it can be {' or '.join(VERSIONS)}")
    folder = _CLIENTS / f"pi-{version}"
    if not (folder / "node_modules" / ".package-lock.json").exists():
        command = f"(cd tests/e2e/clients/{folder.name} && npm ci --ignore-scripts)"
        raise UnavailableError(f"Pi {version} is not installed, do: {command}")
    return folder / "node_modules" / ".bin"


@contextmanager
def opened(made: World) -> Iterator[Pi]:
    """A Pi in a window of the world; its first turn is over. It ends with the world at the latest."""
    programs = chosen_programs()
    with model() as served:
        folder = _pi_folder(made, served)
        variables = {
            "HOME": made.environment["HOME"],
            "LC_ALL": "C.UTF-8",
            "PI_CODING_AGENT_DIR": str(folder),
            "PI_OFFLINE": "1",
            "PI_SKIP_VERSION_CHECK": "1",
            "PI_TELEMETRY": "0",
            "SIDE_AGENTS_PROGRAM": str(_program(made)),
        }
        exports = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
        command = [str(programs / "pi"), "-e", str(resources.template_path(EXTENSION)), "begin"]
        # A new window has the PATH of the tmux that asks for it, whatever -e says; Pi's Node is found by it.
        pane, pid = made.run(
            "tmux", "-S", made.socket, "new-window", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-t", "bench:",
            "-c", made.repository, *exports, "--", *command,
            PATH=os.pathsep.join([str(programs), made.environment["PATH"]]),
        ).split()  # fmt: skip
        pi = Pi(made, served, pane, int(pid), folder / "sessions")
        try:
            pi.request = served.request()
            pi.end()
            yield pi
        finally:
            with suppress(RuntimeError):
                # It may have ended by itself.
                made.tmux("kill-pane", "-t", pane)
            until(lambda: processes.identify(pi.pid) is None, "the end of Pi")


def _pi_folder(made: World, served: Model) -> Path:
    """Pi's own folder."""
    folder = made.base / "pi"
    folder.mkdir()
    provider = {"baseUrl": served.url, "api": "openai-completions", "apiKey": "none", "models": [{"id": "bench-model"}]}
    (folder / "models.json").write_text(json.dumps({"providers": {"bench": provider}}), encoding="utf-8")
    (folder / "settings.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")
    return folder


def _program(made: World) -> Path:
    """The side-agents of this checkout as a program, whether or not it is installed."""
    program = made.base / "side-agents"
    words = " ".join(f"'{word}'" for word in CLI)
    program.write_text(f'#!{shutil.which("sh")}\nexec {words} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def _called(entry: Json) -> list[Any]:
    content = entry.get("message", {}).get("content")
    blocks = content if isinstance(content, list) else []
    return [block.get("id") for block in blocks if block.get("type") == "toolCall"]
