"""A real Pi in a private tmux server, launched as ``PiClient`` plans it, with a scripted model behind it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from side_agents.clients.interface import LaunchPlan, LaunchRequest
from side_agents.clients.pi import PiClient
from tests.fakes.model_server import ModelServer
from tests.support.repositories import make_repository
from tests.support.waiting import eventually

SETTINGS = {
    "defaultProvider": "fake",
    "defaultModel": "fake-model",
    "retry": {"enabled": True, "maxRetries": 1, "baseDelayMs": 50, "provider": {"maxRetries": 0}},
}
# An extension of the user's, as many have one that asks before something is done.
ASKING_EXTENSION = """
export default function (pi) {
  pi.registerTool({
    name: "ask_user", label: "Ask", description: "Asks the user", parameters: { type: "object", properties: {} },
    async execute(_id, _parameters, _signal, _update, ctx) {
      const yes = await ctx.ui.confirm("May I?", "It is only a test.");
      return { content: [{ type: "text", text: String(yes) }], details: {} };
    },
  });
}
"""
# The status is written here since tmux 3.3a sometimes loses it.
WRAPPER = 'exit_file=$1; shift; "$@"; printf %s "$?" >"$exit_file.part"; mv "$exit_file.part" "$exit_file"'


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class PiRig:
    """What agents of one Pi version share: tmux server, HOME, Pi's own folder, the model server."""

    def __init__(self, installation: Path, version: str, model: ModelServer, folder: Path) -> None:
        self.client = PiClient()
        self.version = version
        self.model = model
        self.folder = folder
        self.pi_folder = folder / "pi"
        self._programs = installation / "node_modules" / ".bin"
        self._socket = Path(tempfile.mkdtemp(prefix="sa-pi-", dir="/tmp")) / "s"
        self._count = 0
        for place in (folder / "home", self.pi_folder):
            place.mkdir()
        provider = {"baseUrl": f"{model.url}/v1", "api": "openai-completions", "apiKey": "dummy"}
        models = {"providers": {"fake": {**provider, "models": [{"id": "fake-model"}]}}}
        (self.pi_folder / "models.json").write_text(json.dumps(models))
        (self.pi_folder / "extensions").mkdir()
        (self.pi_folder / "extensions" / "asking.js").write_text(ASKING_EXTENSION)
        (self.pi_folder / "settings.json").write_text(json.dumps(SETTINGS))
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "--", "cat", "-u")

    @property
    def environment(self) -> dict[str, str]:
        """The caller's environment: nothing of this machine's user, Pi without its network."""
        return {
            "HOME": str(self.folder / "home"),
            "PATH": os.pathsep.join([str(self._programs), os.environ["PATH"]]),
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
            "PI_CODING_AGENT_DIR": str(self.pi_folder),
            "PI_OFFLINE": "1",
            "PI_SKIP_VERSION_CHECK": "1",
            "PI_TELEMETRY": "0",
            **{name: value for name, value in os.environ.items() if name.startswith("GIT_")},
        }

    def tmux(self, *args: str, stdin: str | None = None) -> str:
        command = ["tmux", "-u", "-S", str(self._socket), *args]
        data = None if stdin is None else stdin.encode()
        done = subprocess.run(command, input=data, env=self.environment, capture_output=True, timeout=20, check=False)
        if done.returncode:
            raise AssertionError(f"{args[:2]}: {os.fsdecode(done.stderr)}")
        return done.stdout.decode()

    def panes(self) -> set[str]:
        return set(self.tmux("list-panes", "-a", "-F", "#{pane_id}").split())

    def stop(self) -> None:
        self.tmux("kill-server")
        shutil.rmtree(self._socket.parent)

    def launch(
        self, prompt: str, *, project: Mapping[str, str] | None = None, root: Path | None = None, **request: Any
    ) -> PiAgent:
        """Start an agent on a fresh repository, which is its state root unless ``root`` is.

        ``project`` adds files to the repository, ``request`` replaces fields of the launch request.
        """
        self._count += 1
        name = f"agent-{self._count}"
        runtime = self.folder / name
        runtime.mkdir()
        repository = make_repository(self.folder / f"{name}-work")
        for path, text in (project or {}).items():
            repository.write(path, text)
        (runtime / "kickoff.md").write_bytes(prompt.encode())
        plan = self.client.launch_plan(self._request(name, runtime, repository.path, bool(prompt), request))
        variables = {
            "PI_SIDE_AGENT_ID": name,
            "PI_SIDE_PARENT_SESSION": "/parent/session.jsonl",
            "PI_SIDE_AGENTS_ROOT": str(root or repository.path),
            "PI_SIDE_RUNTIME_DIR": str(runtime),
            "SIDE_AGENTS_LAUNCH_TOKEN": uuid.uuid4().hex,
            "SIDE_AGENTS_CLIENT": "pi",
            **plan.env,
        }
        pane = self.window(plan, variables, repository.path, runtime / "exit")
        return PiAgent(self, name, plan, variables, runtime, repository.path, pane)

    def window(self, plan: LaunchPlan, variables: Mapping[str, str], cwd: Path, exit_file: Path) -> str:
        exports = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
        command = ["sh", "-c", WRAPPER, "sh", str(exit_file), *plan.argv]
        return self.tmux("new-window", "-d", "-P", "-F", "#{pane_id}", "-c", str(cwd), *exports, "--", *command).strip()

    def _request(
        self, name: str, runtime: Path, worktree: Path, has_prompt: bool, fields: Mapping[str, Any]
    ) -> LaunchRequest:
        values: dict[str, Any] = {
            "agent_id": name,
            "prompt_file": runtime / "kickoff.md",
            "has_prompt": has_prompt,
            "worktree": worktree,
            "runtime_dir": runtime,
            "model": None,
            "session_id": str(uuid.uuid4()),
            "skills_dir": None,
            "environment": self.environment,
            **fields,
        }
        return LaunchRequest(**values)


@dataclass
class PiAgent:
    """One Pi in its window."""

    rig: PiRig
    name: str
    plan: LaunchPlan
    variables: Mapping[str, str]
    runtime: Path
    worktree: Path
    pane: str
    seen: int = 0

    @property
    def client(self) -> PiClient:
        return self.rig.client

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All events of the journal so far, or those of one type; every line must be whole and short."""
        path = self.runtime / "events.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        assert all(len(line) < 4096 and line.endswith(b"\n") for line in lines)
        found = [json.loads(line) for line in lines]
        return [event for event in found if kind is None or event["type"] == kind]

    def new_events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Events since ``settle``."""
        return [event for event in self.events()[self.seen :] if kind is None or event["type"] == kind]

    def wait_event(self, kind: str, *, deadline: float = 40.0, **fields: Any) -> dict[str, Any]:
        """The first new event of this type with these fields."""

        def found() -> dict[str, Any] | None:
            events = self.new_events(kind)
            return next((event for event in events if fields.items() <= event.items()), None)

        return eventually(found, deadline)

    def settle(self) -> None:
        """Wait until Pi is idle with an empty box; new events count from here."""
        if self.draft():
            self.keys("C-c")
        eventually(lambda: self.busy() is False and self.draft() == "", 40)
        self.seen = len(self.events())

    def screen(self) -> list[str]:
        return self.rig.tmux("capture-pane", "-p", "-t", self.pane).split("\n")

    def draft(self) -> str | None:
        return self.client.draft(self.screen())

    def busy(self) -> bool | None:
        return self.client.is_busy(self.screen())

    def keys(self, *keys: str) -> None:
        self.rig.tmux("send-keys", "-t", self.pane, "--", *keys)

    def type(self, text: str) -> None:
        self.rig.tmux("send-keys", "-l", "-t", self.pane, "--", text)

    def send(self, text: str) -> None:
        """Paste and submit, as the core does."""
        name = f"b-{uuid.uuid4().hex}"
        self.rig.tmux("load-buffer", "-b", name, "-", stdin=text)
        self.rig.tmux("paste-buffer", "-p", "-d", "-b", name, "-t", self.pane)
        self.keys("Enter")

    def exit_code(self, deadline: float = 40.0) -> int:
        file = self.runtime / "exit"
        return int(eventually(lambda: file.exists() and file.read_text(), deadline))
