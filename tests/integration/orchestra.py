"""A repository, a tmux server and side agents in it, as one object for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestra_child import SLOW, messages_in

from side_agents.core import leases, observe
from side_agents.core import send as sending
from side_agents.core import stop as stopping
from side_agents.core.context import Context, open_context
from side_agents.core.results import Checked, Listed, Sent, Started, StartRequest, Stopped
from side_agents.core.start import start
from side_agents.errors import SideAgentsError
from side_agents.infra.tmux import CallerPane, PaneInfo
from side_agents.models import AgentRecord, AgentStatus, Lease
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

__all__ = ["SLOW", "Orchestra", "messages_in", "orchestra"]

MARK = "ORCHESTRA_MARK"
# ``fake`` is up in a millisecond, shows what it was given and stays until its window is closed; ``brief`` ends at once.
_SETTINGS = 'window_close = "close"\n'
_FAKE = """
[clients.fake]
argv = ["sh", "-c", 'cat -- "$1"; exec cat > /dev/null', "fake", "{prompt_file}"]
prompt = "file"
quiet_seconds = 0.2
quit_text = "/quit"

[clients.brief]
argv = ["sh", "-c", "exit 0"]
prompt = "stdin"
"""


@dataclass
class Orchestra:
    """``environment`` is that of a person in the first pane; ``cwd`` is where commands are run, by default the repository."""

    repo: Repository
    server: PrivateServer
    pane: CallerPane
    environment: dict[str, str]
    cwd: Path
    records: dict[str, AgentRecord] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        return open_context(self.cwd, self.environment)

    @property
    def meta(self) -> Path:
        return self.context.paths.meta

    def configure(self, text: str = "", *, forum: bool = False) -> None:
        """Settings of the user; windows close by themselves and the fake client is there anyway."""
        path = Path(self.environment["XDG_CONFIG_HOME"], "side-agents", "config.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{_SETTINGS}forum = {str(forum).lower()}\n{text}{_FAKE}", encoding="utf-8")

    def start(self, task: str = "say: hello", *, client: str = "script", **more: Any) -> AgentRecord:
        return self.launch(task, client=client, **more).record

    def launch(self, task: str = "say: hello", *, client: str = "script", **more: Any) -> Started:
        started = start(self.context, StartRequest(task=task, client=client, **more))
        self.records[started.record.id] = started.record
        return started

    def inside(self, record: AgentRecord, cwd: Path | None = None) -> Orchestra:
        """The same as seen by the agent itself: its own environment and worktree."""
        event = self.event(record, "client")
        raw = Path(f"/proc/{event['pid']}/environ").read_bytes().split(b"\0")
        environment = dict(os.fsdecode(item).partition("=")[::2] for item in raw if item)
        return replace(self, environment=environment, cwd=cwd or Path(record.worktree_path or ""))

    def check(self, agent_id: str) -> Checked:
        return observe.check(self.context, agent_id)

    def listed(self) -> Listed:
        return observe.list_agents(self.context)

    def row(self, agent_id: str) -> AgentRecord:
        return self.context.registry.read().agents[agent_id]

    def send(self, agent_id: str, message: str) -> Sent:
        return sending.send(self.context, agent_id, message)

    def stop(self, agent_id: str) -> Stopped:
        return stopping.stop(self.context, agent_id)

    def eventually_status(self, agent_id: str, *wanted: AgentStatus, deadline: float = SLOW) -> Checked:
        seen: list[object] = []

        def look() -> Checked | None:
            checked = self.check(agent_id)
            found = checked.record or checked.tombstone
            assert found is not None
            seen[:] = [found]
            return checked if found.status in wanted else None

        try:
            checked = eventually(look, deadline)
        except AssertionError as error:
            raise AssertionError(f"{agent_id} is not {wanted}: {seen!s:.3000}\n{self.screen(agent_id)}") from error
        assert checked is not None
        return checked

    def eventually_idle(self, agent_id: str) -> AgentRecord:
        record = self.eventually_status(agent_id, AgentStatus.WAITING_USER).record
        assert record is not None
        return record

    def quit(self, agent_id: str) -> None:
        """Let an agent end by itself and close its window."""
        self.send(agent_id, "/quit")
        self.eventually_status(agent_id, AgentStatus.DONE)

    def journal(self, agent_id: str) -> list[dict[str, Any]]:
        path = self.context.paths.runtime(agent_id).journal
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def event(self, record: AgentRecord, kind: str, count: int = 1) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            found = [event for event in self.journal(record.id) if event["type"] == kind]
            return found[count - 1] if len(found) >= count else None

        event = eventually(find, SLOW)
        assert event is not None
        return event

    def messages(self, record: AgentRecord) -> list[str]:
        """What the script client was told, from its own conversation file."""
        return messages_in(Path(self.row(record.id).child_session_file or record.child_session_file or ""))

    def slot(self, number: int) -> Path:
        top = self.context.paths.root
        return top.parent / f"{top.name}-agent-worktree-{number:04d}"

    def slots(self) -> list[Path]:
        top = self.context.paths.root
        return sorted(path for path in top.parent.iterdir() if path.name.startswith(f"{top.name}-agent-worktree-"))

    def worktree(self, record: AgentRecord) -> Repository:
        return Repository(Path(record.worktree_path or ""))

    def log(self, agent_id: str) -> str:
        path = self.context.paths.runtime(agent_id).backlog
        return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""

    def screen(self, agent_id: str) -> str:
        record = self.context.registry.read().agents.get(agent_id) or self.records.get(agent_id)
        if record is None or record.tmux_pane_id is None:
            return ""
        try:
            return "\n".join(self.server.tmux.capture(record.tmux_pane_id)).rstrip()
        except SideAgentsError as error:
            return str(error)

    def panes(self) -> list[PaneInfo]:
        """Every pane but the first one."""
        return [pane for pane in self.server.sweep().panes.values() if pane.pane_id != self.pane.pane_id]

    def branches(self) -> set[str]:
        """Ids that have a branch."""
        names = self.repo.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/side-agent").split()
        return set(names)

    def leases(self) -> dict[str, Lease]:
        found = {slot.name: leases.read(slot) for slot in self.slots() if slot.is_dir()}
        return {name: lease for name, lease in found.items() if lease is not None}

    def processes(self) -> dict[int, str]:
        """Living processes that inherited this server's environment, the server and its first pane excepted."""
        mark = f"{MARK}={self.environment[MARK]}".encode()
        ours = {self.pane.server.pid, self.server.sweep().panes[self.pane.pane_id].pane_pid}
        ours |= {pane.pane_pid for pane in self.panes() if _is_placeholder(pane)}
        return {pid: name for pid, name in _marked(mark) if pid not in ours}

    def assert_sound(self) -> Listed:
        """Nothing is used twice, and all that exists is shown by ``list``."""
        seen = self.listed()
        rows = {record.id: record for record in seen.records}
        holding = [record.worktree_path for record in rows.values() if record.worktree_path]
        assert len(holding) == len(set(holding)), f"a slot is used twice: {sorted(holding)}"
        branches = [record.branch for record in rows.values()]
        assert len(branches) == len(set(branches))
        assert not seen.unreadable
        for name, lease in self.leases().items():
            assert lease.agent_id in rows, f"{name} is leased to {lease.agent_id}, which nobody lists"
            assert Path(rows[lease.agent_id].worktree_path or "").name == name
        for pane in self.panes():
            if pane.agent_tag:
                assert rows[pane.agent_tag].tmux_pane_id == pane.pane_id, f"window {pane} is not that of its row"
        known = {*rows, *(stone.id for stone in self.context.registry.history())}
        assert self.branches() <= known, "branches that nobody lists"
        return seen

    def assert_quiet(self) -> None:
        """After everything was stopped: no row, lease, window or process is left."""
        assert [(record.id, record.status, record.error) for record in self.listed().records] == []
        assert self.leases() == {}
        eventually(lambda: all(_is_placeholder(pane) for pane in self.panes()), SLOW)
        eventually(lambda: not self.processes(), SLOW)
        dirty = [path for path in self.slots() if Repository(path).status()]
        assert not dirty, "slots that nobody has are not clean:\n" + "\n".join(map(self.story, dirty))

    def story(self, slot: Path) -> str:
        """Everything that tells how a slot came to look as it does, for the message of a failed test."""
        git = Repository(slot)
        asked = (
            "status --porcelain=v2 --branch --untracked-files=all",
            "log --max-count=20 --walk-reflogs --format=%h_%gd_%gs --date=iso",
            "diff --stat",
            "worktree list",
        )
        told = {f"git {args}": git.git(*args.split(), check=False) for args in asked}
        admin = Path(git.git("rev-parse", "--absolute-git-dir"))
        told["git's entry"] = f"{(admin / 'HEAD').read_text()}{_listing(admin)}"
        told[".pi"] = _listing(slot / ".pi")
        registry = self.context.registry
        rows = [(row.id, row.worktree_path, row) for row in registry.read().agents.values()]
        stones = [(stone.id, stone.worktree_path, stone) for stone in registry.history()]
        for name, _, holder in [each for each in (*stones, *rows) if each[1] == str(slot)][-5:]:
            told[f"agent {name}"] = f"{holder}\n{self.journal(name)}"
        return f"{slot.name}:\n" + "\n".join(f"--- {what}\n{text}" for what, text in told.items())

    def child(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        """A program in the repository, see ``orchestra_child.main``."""
        command = [sys.executable, str(Path(__file__).with_name("orchestra_child.py")), *arguments]
        return subprocess.Popen(
            command, cwd=self.cwd, env={**self.environment, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


@contextmanager
def orchestra(
    repo: Repository, server: PrivateServer, *, options: Sequence[str] = (), cwd: Path | None = None, **env: str
) -> Iterator[Orchestra]:
    """Start the tmux server beside the repository; all that ran in it is gone at the end."""
    environment = {**os.environ, MARK: uuid.uuid4().hex, **env}
    pane = server.start(options=options, env=environment)
    environment |= {"TMUX": f"{server.tmux.socket},{pane.server.pid},0", "TMUX_PANE": pane.pane_id}
    stage = Orchestra(repo, server, pane, environment, cwd or repo.path)
    stage.configure()
    try:
        yield stage
    finally:
        server.stop()
        mark = f"{MARK}={environment[MARK]}".encode()
        left = _outlive(mark, 8.0)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"processes outlived their tmux server: {left}"


def _is_placeholder(pane: PaneInfo) -> bool:
    """What is left of a start that was killed while it opened its window; it ends by itself after half a minute."""
    return not pane.agent_tag and pane.current_command == "sleep"


def _listing(folder: Path) -> str:
    """Names, sizes and times of what lies in a folder; lock files are among them."""
    found = [(path, path.lstat()) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    return "\n".join(f"{facts.st_mtime:.3f} {facts.st_size:8} {path.name}" for path, facts in found)


def _outlive(mark: bytes, deadline: float) -> dict[int, str]:
    end = time.monotonic() + deadline
    while (left := dict(_marked(mark))) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def _marked(mark: bytes) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (
                mark in (entry / "environ").read_bytes()
                and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
