"""A person's tmux pane in a repository, from which agents are started as real Pis and spoken to by the command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.pi_support import PiRig
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@dataclass
class Desk:
    """``environment`` is that of a program in the pane."""

    repo: Repository
    environment: dict[str, str]
    server: PrivateServer
    rig: PiRig

    def run(self, *args: str, text: str | None = None, status: int = 0) -> dict[str, Any]:
        """One command with ``--json``; its answer."""
        command = [sys.executable, "-P", "-m", "side_agents", *args, "--json"]
        data = None if text is None else text.encode()
        done = subprocess.run(
            command, cwd=self.repo.path, env=self.environment, input=data, capture_output=True, timeout=90, check=False
        )
        assert done.returncode == status, (args, done.stdout.decode(), done.stderr.decode())
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def start(self, name: str, task: str) -> dict[str, Any]:
        """A Pi with this task; its first turn is over when it is returned."""
        answer = self.run("start", "--client", "pi", "--name", name, "--file", "-", text=task)
        self.idle(name)
        return answer

    def agent(self, name: str) -> dict[str, Any]:
        """What ``check`` says."""
        found: dict[str, Any] = self.run("check", name)["agent"]
        return found

    def idle(self, name: str, turn: int = 0) -> dict[str, Any]:
        """The agent when it waits for a message, after so many turns of this process."""

        def look() -> dict[str, Any] | None:
            found = self.agent(name)
            return found if found["status"] == "waiting_user" and found.get("turn", 0) >= turn else None

        try:
            return eventually(look, 60)
        except AssertionError as error:
            raise AssertionError(f"{self.agent(name)}\n{self.screen(name)}") from error

    def say(self, name: str, message: str) -> dict[str, Any]:
        """Send a message and wait until its turn is over."""
        turn = self.agent(name).get("turn", 0)
        assert self.run("send", name, "--file", "-", text=message)["delivery"] == "submitted"
        return self.idle(name, turn + 1)

    def quit(self, name: str) -> None:
        self.run("send", name, "/quit")
        assert self.run("wait", name, "--timeout", "60", "--state", "done")["agent"]["status"] == "done"

    def row(self, name: str) -> dict[str, Any]:
        """The registry's own row."""
        registry = json.loads((self.repo.path / ".pi/side-agents/registry.json").read_text())
        row: dict[str, Any] = registry["agents"][name]
        return row

    def runtime(self, name: str) -> Path:
        return self.repo.path / ".pi/side-agents/runtime" / name

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        lines = (self.runtime(name) / "events.jsonl").read_text().splitlines()
        return [event for line in lines if (event := json.loads(line))["type"] == kind]

    def wait_event(self, name: str, kind: str, **fields: Any) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.events(name, kind) if (self.runtime(name) / "events.jsonl").exists() else []
            return next((event for event in found if fields.items() <= event.items()), None)

        return eventually(look, 60)

    def screen(self, name: str) -> str:
        return "\n".join(self.server.tmux.capture(self.row(name)["tmuxPaneId"])).rstrip()

    def type(self, name: str, *keys: str) -> None:
        """Keys as a person types them; the last one is a key's name."""
        pane = self.row(name)["tmuxPaneId"]
        command = ["tmux", "-S", self.row(name)["tmuxSocket"], "send-keys", "-t", pane]
        for key in keys[:-1]:
            subprocess.run([*command, "-l", "--", key], check=True, timeout=10)
        subprocess.run([*command, keys[-1]], check=True, timeout=10)

    def session(self, name: str) -> Path:
        """The file of the agent's conversation, also of one that it has just begun."""
        self.agent(name)
        return Path(self.row(name)["childSessionFile"])


def sit_down(repo: Repository, server: PrivateServer, rig: PiRig, folder: Path) -> Desk:
    """A desk in the first pane of the server."""
    environment = {**rig.environment, "XDG_CONFIG_HOME": str(folder / "config")}
    pane = server.start(cwd=repo.path, env=environment)
    inside = {"TMUX": f"{pane.socket},{pane.server.pid},0", "TMUX_PANE": pane.pane_id}
    return Desk(repo, environment | inside, server, rig)


def entries(file: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The entries of a conversation, or those of one type; the header is the first."""
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [entry for entry in found if kind is None or kind in (entry["type"], entry.get("customType"))]
