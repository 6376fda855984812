"""A real Pi as a person uses it, with the extension, in a repository and a tmux session of its own; so are its agents."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents import resources
from side_agents.clients.pi import EXTENSION
from tests.e2e.pi_support import SETTINGS, PiRig
from tests.fakes.model_server import ModelServer
from tests.support.repositories import Repository
from tests.support.waiting import eventually

PROGRAM = Path(sys.executable).with_name("side-agents")
WAIT = 60.0


@dataclass
class ParentPi:
    """One Pi and what is to be seen of it: its screen, its conversation, the agents of its repository."""

    rig: PiRig
    repo: Repository
    folder: Path
    session: str
    pane: str
    environment: Mapping[str, str]

    @property
    def model(self) -> ModelServer:
        return self.rig.model

    # What a person does.

    def type(self, text: str) -> None:
        """Type a line and press Enter; it is in the box before that."""
        self.rig.tmux("send-keys", "-l", "-t", self.pane, "--", text)
        eventually(lambda: text[-30:] in self.screen(), WAIT)
        self.keys("Enter")

    def paste(self, text: str) -> None:
        name = uuid.uuid4().hex
        self.rig.tmux("load-buffer", "-b", name, "-", stdin=text)
        self.rig.tmux("paste-buffer", "-p", "-d", "-b", name, "-t", self.pane)
        self.keys("Enter")

    def keys(self, *keys: str) -> None:
        self.rig.tmux("send-keys", "-t", self.pane, "--", *keys)

    def prints(self, prompt: str) -> subprocess.CompletedProcess[str]:
        """Run a Pi in print mode beside this one, in the same place; it must end by itself."""
        socket = self.rig.tmux("display-message", "-p", "-t", self.pane, "#{socket_path},#{pid},0").strip()
        environment = {**self.environment, "TMUX": socket, "TMUX_PANE": self.pane}
        command = ["pi", "-e", str(resources.template_path(EXTENSION)), "-p", prompt]
        return subprocess.run(
            command,
            cwd=self.repo.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=True,
        )

    # What a person sees.

    def screen(self, *, styled: bool = False) -> str:
        style = ["-e"] if styled else []
        text = self.rig.tmux("capture-pane", "-p", *style, "-t", self.pane)
        return "\n".join(line for line in text.split("\n") if line.strip())

    def sees(self, *texts: str, deadline: float = WAIT) -> str:
        """The screen once it shows all of these."""
        try:
            eventually(lambda: all(text in self.screen() for text in texts), deadline)
        except AssertionError as error:
            raise AssertionError(f"not all of {texts} in\n{self.screen()}") from error
        return self.screen()

    def settled(self) -> ParentPi:
        """This Pi when it waits with an empty box."""
        lines = lambda: self.rig.tmux("capture-pane", "-p", "-t", self.pane).split("\n")  # noqa: E731
        client = self.rig.client
        eventually(lambda: client.is_busy(lines()) is False and client.draft(lines()) == "", WAIT)
        return self

    # Its conversation.

    def entries(self) -> list[dict[str, Any]]:
        """All entries of the newest conversation that this Pi has in its own folder."""
        files = sorted(self._sessions.glob("*/*.jsonl"), key=lambda file: file.stat().st_mtime)
        mine = [file for file in files if f'"cwd":"{self.repo.path}"' in file.read_text().split("\n", 1)[0]]
        lines = mine[-1].read_text().splitlines(keepends=True) if mine else []
        # The last one may be half written.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def messages(self, custom_type: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries() if entry.get("customType") == custom_type]

    def notices(self, agent_id: str) -> list[dict[str, Any]]:
        """The details of the notices about one agent, with their text."""
        found = [(entry["details"], entry["content"]) for entry in self.messages("side-agent-status")]
        return [{**details, "content": content} for details, content in found if details["agentId"] == agent_id]

    def tool_results(self, name: str) -> list[dict[str, Any]]:
        """The answers that the model got from a tool, in order; each is one block of text."""
        messages = [entry["message"] for entry in self.entries() if entry["type"] == "message"]
        results = [m["content"] for m in messages if m["role"] == "toolResult" and m["toolName"] == name]
        assert all(len(content) == 1 and content[0]["type"] == "text" for content in results)
        return [json.loads(content[0]["text"]) for content in results]

    def calls_tool(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Let the model call a tool; its answer, once the turn is over."""
        done = f"done {uuid.uuid4().hex[:6]}"
        self.settled().paste(f"TOOL: {name} {json.dumps(given)}\nSAY: {done}")
        eventually(lambda: any(line.strip() == done for line in self.screen().split("\n")), WAIT)
        # Pi writes its conversation a moment after it has shown it.
        eventually(lambda: self._has_written(done), WAIT)
        return self.tool_results(name)[-1]

    def _has_written(self, words: str) -> bool:
        told = [entry["message"] for entry in self.entries() if entry["type"] == "message"]
        return any(message["role"] == "assistant" and words in json.dumps(message["content"]) for message in told)

    # The agents.

    @property
    def state(self) -> Path:
        return self.repo.path / ".pi" / "side-agents"

    def agents(self) -> dict[str, dict[str, Any]]:
        file = self.state / "registry.json"
        agents: dict[str, dict[str, Any]] = json.loads(file.read_text())["agents"] if file.exists() else {}
        return agents

    def agent(self, agent_id: str, status: str = "waiting_user") -> dict[str, Any]:
        """The registry's row of an agent once it has this status."""
        try:
            return (
                eventually(lambda: (row := self.agents().get(agent_id)) and row["status"] == status and row, WAIT) or {}
            )
        except AssertionError as error:
            raise AssertionError(f"{self.agents()}\n{self.screen()}") from error

    def window(self, agent_id: str) -> str:
        return str(self.agents()[agent_id]["tmuxPaneId"])

    def in_window(self, pane: str, cwd: Path) -> ParentPi:
        """The Pi in another pane of the same session, to look at it and type in it."""
        return ParentPi(self.rig, Repository(cwd), self.folder, self.session, pane, self.environment)

    def child(self, agent_id: str) -> ParentPi:
        row = self.agents()[agent_id]
        return self.in_window(row["tmuxPaneId"], Path(row["worktreePath"]))

    # Processes.

    def pid(self) -> int:
        return int(self.rig.tmux("display-message", "-p", "-t", self.pane, "#{pane_pid}"))

    def companions(self) -> list[int]:
        """The companion processes of this Pi."""
        return [pid for pid in children_of(self.pid()) if "companion" in command_line(pid)]

    def end(self) -> None:
        """End the session with all its windows, if it is still there."""
        if self.session in self.rig.tmux("list-sessions", "-F", "#{session_name}").split():
            self.rig.tmux("kill-session", "-t", f"={self.session}")

    @property
    def _sessions(self) -> Path:
        return self.folder / "pi" / "sessions"


def open_parent(
    rig: PiRig,
    repo: Repository,
    folder: Path,
    *,
    pi_args: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    is_installed: bool = False,
) -> ParentPi:
    """Start a Pi in a tmux session of its own and wait until it takes input. The folder is its HOME, fresh or shared.

    ``is_installed``: this Pi finds the extension by itself.
    """
    pi_folder = _pi_folder(rig, folder)
    environment = environment or {
        **rig.environment,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "PI_CODING_AGENT_DIR": str(pi_folder),
        "SIDE_AGENTS_PROGRAM": str(PROGRAM),
    }
    session = f"p-{uuid.uuid4().hex[:8]}"
    exports = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
    where = ["-s", session, "-x", "130", "-y", "50", "-c", str(repo.path)]
    extension = () if is_installed else ("-e", str(resources.template_path(EXTENSION)))
    command = ["pi", *extension, *pi_args]
    pane = rig.tmux("new-session", "-d", "-P", "-F", "#{pane_id}", *where, *exports, "--", *command).strip()
    return ParentPi(rig, repo, folder, session, pane, environment).settled()


def _pi_folder(rig: PiRig, folder: Path) -> Path:
    """Pi's own folder with the scripted model twice: as it is, and as one that thinks; and one that cannot be reached."""
    place = folder / "pi"
    if (place / "models.json").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    provider = {"baseUrl": f"{rig.model.url}/v1", "api": "openai-completions", "apiKey": "dummy"}
    models = [{"id": "fake-model"}, {"id": "thinker", "reasoning": True}]
    broken = {**provider, "baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "silent"}]}
    (place / "models.json").write_text(
        json.dumps({"providers": {"fake": {**provider, "models": models}, "broken": broken}})
    )
    (place / "settings.json").write_text(json.dumps({**SETTINGS, "quietStartup": True}))
    return place


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody waits for counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
