"""A launcher in a tmux server of its own, for tests: a fresh repository, tiny clients, and what a person types and sees."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from side_agents.core import launcher
from side_agents.core.launcher import LaunchSpec
from side_agents.infra.tmux_call import pipe_command

T = TypeVar("T")


def eventually(predicate: Callable[[], T | None], *, deadline: float = 30.0, what: str = "condition") -> T:
    """The first true value of ``predicate``; fails after ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while not (value := predicate()):
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.01)
    return value


# Tells its argv and environment byte for byte, then exits with the first line typed.
TELLER = """
import json, os, sys
told = {"argv": [os.fsencode(a).hex() for a in sys.argv[1:]], "env": {os.fsencode(k).hex(): os.fsencode(v).hex()
        for k, v in os.environ.items()}, "cwd": os.getcwd(), "pid": os.getpid(), "tty": os.isatty(0)}
open("told.tmp", "w").write(json.dumps(told)); os.rename("told.tmp", "told")
sys.exit(int(sys.stdin.readline()))
"""


def stat_fields(pid: int) -> list[str]:
    """State, parent, group, session, terminal, the terminal's foreground group...; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def is_running(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def is_stopped(pid: int) -> bool:
    return stat_fields(pid)[:1] == ["T"]


def in_foreground(pid: int) -> bool:
    fields = stat_fields(pid)
    return is_running(pid) and fields[0] != "T" and fields[2] == fields[5]


class Bench:
    """One repository, one runtime folder and one tmux server; ``folder`` may have any name that a file system allows."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self.folder = folder
        self.socket = socket
        self.mark = f"bench-{uuid.uuid4().hex}"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.worktree = folder / "work tree"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TERM": "screen-256color",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONCOERCECLOCALE": "0",
            "BENCH_MARK": self.mark,
        }
        self.git("init", "-q", "-b", "side-agent/fix", str(self.worktree), cwd=folder)
        who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        self.git(*who, "commit", "-q", "--allow-empty", "-m", "first")
        self.spec = LaunchSpec(
            agent_id="fix",
            root=folder,
            worktree=self.worktree,
            runtime_dir=folder / "runtime" / "fix",
            branch="side-agent/fix",
            client="script",
            argv=("true",),
            launch_token="token-1",
            parent_session="/parent session",
            parent_repo=str(folder),
            depth=1,
        )
        self.runtime = self.spec.runtime_dir

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tmux("kill-server", check=False)
        self.socket.unlink(missing_ok=True)
        try:
            eventually(lambda: not self.processes(), deadline=30, what=f"all ended: {self.processes()}")
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)

    def git(self, *args: str, cwd: Path | None = None) -> str:
        command = ("git", *args)
        done = subprocess.run(
            command, cwd=cwd or self.worktree, env=self.environment, capture_output=True, check=True, timeout=20
        )
        return done.stdout.decode().strip()

    def tmux(self, *args: str, check: bool = True) -> str:
        command = ("tmux", "-u", "-f", os.devnull, "-S", str(self.socket), *args)
        done = subprocess.run(command, env=self.environment, capture_output=True, check=check, timeout=10)
        return done.stdout.decode("utf-8", "replace").strip()

    def processes(self) -> dict[int, str]:
        """Every living process that inherited this bench's environment, the tmux server included."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes() and is_running(int(entry.name)):
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
            except OSError:
                continue
        return found

    def client(self, text: str, interpreter: str = "bash") -> tuple[str, ...]:
        """The argv of a client with this program text."""
        path = self.folder / f"client-{uuid.uuid4().hex[:6]}"
        path.write_text(text)
        return (interpreter, str(path))

    def start_script(self, text: str, mode: int = 0o755) -> None:
        path = self.worktree / ".pi" / "side-agent-start.sh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def launch(self, argv: Sequence[str], *, cap: int = launcher.BACKLOG_CAP, **changes: Any) -> None:
        """Start the agent in a new window; a first window keeps the server alive when the agent's ends."""
        spec = replace(self.spec, argv=tuple(argv), **changes)
        launcher.prepare_runtime(self.runtime, self.folder / "archive")
        script = launcher.write(spec)
        if not self.socket.exists():
            self.tmux("new-session", "-d", "-s", "main", "-x", "120", "-y", "30", "cat")
            self.server = int(self.tmux("display-message", "-p", "#{pid}"))
        command = launcher.window_argv(script)
        piped = pipe_command(launcher.backlog_argv(self.runtime, cap_bytes=cap))
        # fmt: off
        self.pane = self.tmux(
            "new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "main:", "--", *command,
            ";", "pipe-pane", "-t", "main:{end}", "-o", piped,
        )
        # fmt: on

    @property
    def exports(self) -> Path:
        return Path(self.runtime, "launcher.env")

    def journal(self) -> list[dict[str, Any]]:
        try:
            lines = (self.runtime / "events.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines]

    def event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait until the journal has the ``count``-th event of this type."""

        def find() -> dict[str, Any] | None:
            found = [event for event in self.journal() if event["type"] == kind]
            return found[count - 1] if len(found) >= count else None

        return eventually(find, what=f"event {kind} {count}, journal {self.journal()}, screen:\n{self.screen()}")

    def marker(self, deadline: float = 30.0) -> dict[str, Any]:
        """Wait for ``exit.json``."""
        path = self.runtime / "exit.json"
        eventually(path.exists, deadline=deadline, what=f"exit.json, screen:\n{self.screen()}")
        value: dict[str, Any] = json.loads(path.read_bytes())
        return value

    def told(self, name: str, deadline: float = 30.0) -> str:
        """Wait for a file in the worktree that a client wrote and renamed into place."""
        path = self.worktree / name
        eventually(path.exists, deadline=deadline, what=f"{name}, screen:\n{self.screen()}")
        return path.read_text(errors="surrogateescape")

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-t", self.pane, check=False)

    def shows(self, text: str) -> str:
        eventually(lambda: text in self.screen(), what=f"{text!r} on:\n{self.screen()}")
        return self.screen()

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", self.pane, *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", self.pane, "-l", text)

    def paste(self, text: str) -> None:
        self.tmux("set-buffer", "-b", "p", "--", text, ";", "paste-buffer", "-d", "-b", "p", "-t", self.pane)

    def window_exists(self) -> bool:
        return self.pane in self.tmux("list-panes", "-a", "-F", "#{pane_id}", check=False).split()

    def window_closes(self) -> None:
        eventually(lambda: not self.window_exists(), what=f"window closes, screen:\n{self.screen()}")

    def only_the_server_is_left(self) -> None:
        """Nothing of the agent survives: the server, its first window and nothing else."""
        allowed = ("tmux", "cat")

        def rest() -> dict[int, str]:
            return {pid: name for pid, name in self.processes().items() if not name.startswith(allowed)}

        eventually(lambda: not rest(), what=f"leftover processes: {rest()}")


@contextmanager
def opened_bench(folder: Path) -> Iterator[Bench]:
    """A bench whose socket has a short path (the limit is about 100 bytes), ended with all that it started."""
    private = tempfile.mkdtemp(prefix="sa-")
    try:
        with Bench(folder, Path(private, uuid.uuid4().hex[:8])) as made:
            yield made
    finally:
        shutil.rmtree(private)


def env_of(bench: Bench) -> dict[str, str]:
    """The environment that a ``TELLER`` client found."""
    told = json.loads(bench.told("told"))
    return {
        bytes.fromhex(name).decode(): bytes.fromhex(value).decode("utf-8", "surrogateescape")
        for name, value in told["env"].items()
    }


def ends_cleanly(bench: Bench) -> None:
    """A key closes the window that says how the agent ended, and nothing of it is left."""
    bench.shows("Press any key")
    bench.press("x")
    bench.window_closes()
    bench.only_the_server_is_left()
