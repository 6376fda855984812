"""A script agent in a tmux server of its own, for tests: what a person could type and see, plus what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from side_agents.clients import script_screen
from side_agents.clients.interface import LaunchPlan, LaunchRequest
from side_agents.clients.script import ScriptClient
from tests.support.waiting import eventually

_RECORD_STATUS = '"$@"; echo $? >"$0.part"; mv "$0.part" "$0"'


class AgentPane:
    """One tmux server with at most one pane; ``worktree`` is a fresh git repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worktree = folder / "work tree"
        self.runtime = folder / "runtime"
        self.home = folder / "script home"
        self.status_file = folder / "status"
        self._socket = f"script-agent-{uuid.uuid4().hex[:12]}"
        self.worktree.mkdir()
        self.runtime.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TERM": "screen-256color",
            "LANG": "C.UTF-8",
            "SIDE_AGENTS_SCRIPT_HOME": str(self.home),
            "PI_SIDE_RUNTIME_DIR": str(self.runtime),
            "SIDE_AGENTS_LAUNCH_TOKEN": "token-1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        # A server that ends with its last session could refuse the next one, which is started at once.
        self._settings = folder / "tmux.conf"
        self._settings.write_text("set -s exit-empty off\n")
        self.git("init", "-q", "-b", "main")

    def __enter__(self) -> AgentPane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tmux("kill-server", check=False)

    def git(self, *argv: str) -> str:
        command = ["git", "-C", str(self.worktree), *argv]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self.environment).stdout.strip()

    def tmux(self, *argv: str, given: bytes | None = None, check: bool = True) -> str:
        command = ["tmux", "-u", "-L", self._socket, "-f", str(self._settings), *argv]
        done = subprocess.run(command, check=check, capture_output=True, input=given, env=self.environment, timeout=20)
        return done.stdout.decode()

    def plan(self, prompt: str | bytes | None = None, **changes: Any) -> LaunchPlan:
        """Return the adapter's plan for this worktree; ``prompt`` is written to the prompt file."""
        prompt_file = self.folder / "kickoff.md"
        if prompt is not None:
            prompt_file.write_bytes(prompt.encode() if isinstance(prompt, str) else prompt)
        request: dict[str, Any] = {
            "agent_id": "a-1",
            "prompt_file": prompt_file,
            "has_prompt": prompt is not None,
            "worktree": self.worktree,
            "runtime_dir": self.runtime,
            "model": None,
            "session_id": str(uuid.uuid4()),
            "skills_dir": None,
            "environment": self.environment,
        }
        return ScriptClient().launch_plan(LaunchRequest(**{**request, **changes}))

    def start(self, prompt: str | bytes | None = None, *, extra: Sequence[str] = (), **changes: Any) -> LaunchPlan:
        """Start the agent in a new pane and wait until it is ready."""
        plan = self.plan(prompt, **changes)
        ready = len(self.events("ready"))
        self.launch(["sh", "-c", _RECORD_STATUS, str(self.status_file), *plan.argv, *extra])
        eventually(lambda: len(self.events("ready")) > ready)
        return plan

    def launch(self, argv: Sequence[str], *, size: tuple[int, int] = (80, 24), env: Mapping[str, str] = {}) -> None:
        """Run any program in the pane, with exactly our environment."""
        exports = [f"{key}={value}" for key, value in {**self.environment, **env}.items()]
        where = ["-d", "-x", str(size[0]), "-y", str(size[1]), "-c", str(self.worktree)]
        self.tmux("new-session", *where, "--", "env", "-i", *exports, *argv)

    def keys(self, *names: str) -> None:
        self.tmux("send-keys", *names)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", "--", text)

    def paste(self, text: str) -> None:
        self.tmux(
            "load-buffer", "-b", "given", "-", ";", "paste-buffer", "-p", "-d", "-b", "given", given=text.encode()
        )

    def send(self, text: str) -> None:
        """Paste and submit, and wait until the agent says that it took the message."""
        taken = len(self.events("input"))
        self.paste(text)
        self.keys("Enter")
        eventually(lambda: len(self.events("input")) > taken)

    def screen(self, *, history: bool = False) -> list[str]:
        return self.tmux("capture-pane", "-p", "-J", *(("-S", "-") if history else ())).split("\n")

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.screen(history=True))

    def draft(self) -> str | None:
        return script_screen.read_box(self.screen())

    def state(self) -> str | None:
        return script_screen.footer_state(self.screen())

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.runtime / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if kind in (None, event["type"])]

    def wait_turns(self, count: int) -> dict[str, Any]:
        """Wait for the end of the turn number ``count`` and return its event."""
        return eventually(lambda: self.events("turn_end")[count - 1 : count])[0]

    def wait_exit(self) -> int:
        eventually(self.status_file.exists)
        return int(self.status_file.read_text())

    def pid(self) -> int:
        return int(self.events("session")[-1]["pid"])

    def messages(self, plan: LaunchPlan) -> list[dict[str, Any]]:
        """Return the messages in the session file."""
        assert plan.session_file is not None
        entries = [json.loads(line) for line in Path(plan.session_file).read_text().splitlines()]
        return [entry["message"] for entry in entries if entry["type"] == "message"]

    def texts(self, plan: LaunchPlan, role: str) -> list[str]:
        """Return the texts of one role in the session file."""
        chosen = [message for message in self.messages(plan) if message["role"] == role]
        return ["".join(part.get("text", "") for part in message["content"]) for message in chosen]
