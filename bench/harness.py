"""What all groups share: a throw-away world, interleaved rounds, rows of a table."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from side_agents.core.context import Context, open_context

CLI = (sys.executable, "-m", "side_agents")
BARE_PYTHON = (sys.executable, "-c", "pass")

# A client that says when it runs, to the microsecond, and then does nothing. Works as a bare command too.
PROBE = 'printf %s "$EPOCHREALTIME" > "$PI_SIDE_RUNTIME_DIR/up"; exec sleep 86400'

_CLIENTS = """
window_close = "close"

[clients.probe]
argv = ["bash", "-c", '''{probe}''', "probe"]
prompt_args = ["{{prompt_file}}"]
prompt = "file"
status = "journal"

[clients.until-told]
argv = ["bash", "-c", '''mkfifo "$PI_SIDE_RUNTIME_DIR/go"; read -r _ < "$PI_SIDE_RUNTIME_DIR/go"''', "until-told"]
prompt_args = ["{{prompt_file}}"]
prompt = "file"
status = "journal"
"""


class UnavailableError(Exception):
    """What a group measures is not on this machine; the text says what to do."""


@dataclass(frozen=True)
class Row:
    """One line of the table. ``floor`` and ``ours`` in seconds, or free text in ``figure`` for what is no time."""

    what: str
    rounds: int
    floor: float | None = None
    ours: float | None = None
    figure: str = ""
    goal: str = ""


def print_table(rows: list[Row]) -> None:
    """Print the rows as a Markdown table."""
    print("| what | n | floor ms | ours ms | ours / floor | goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        ratio = f"{row.ours / row.floor:.2f}" if row.ours is not None and row.floor else row.figure
        print(f"| {row.what} | {row.rounds} | {_ms(row.floor)} | {_ms(row.ours)} | {ratio} | {row.goal} |")


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.1f}"


def interleave(rounds: int, cases: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Run every case once per round, so that a slow moment of the machine hits all; the medians in seconds.

    Each case returns the time that counts; what it prepares and clears does not. One round before does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            taken = case()
            if number:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def until(ready: Callable[[], bool], what: str, deadline: float = 30.0) -> None:
    """Wait for something that is about to be; TimeoutError names what did not come."""
    end = time.monotonic() + deadline
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {deadline:g} s")
        time.sleep(0.0005)


@dataclass(frozen=True)
class World:
    """A repository, a home and a tmux server of their own. ``environment`` is that of a program in its first pane."""

    base: Path
    repository: Path
    socket: Path
    environment: dict[str, str]

    def context(self) -> Context:
        """The context of a caller in the repository's main checkout."""
        return open_context(self.repository, self.environment)

    def run(self, *argv: str | Path, check: bool = True, **changes: str) -> str:
        """Run a program in the repository; ``changes`` are added to the environment."""
        done = subprocess.run(
            argv, cwd=self.repository, env=self.environment | changes, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise RuntimeError(f"{argv} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def cli(self, *argv: str, check: bool = True, **changes: str) -> str:
        """Run a side-agents command."""
        return self.run(*CLI, *argv, check=check, **changes)

    def git(self, *argv: str | Path) -> str:
        """Run git in the repository."""
        return self.run("git", *argv)

    def tmux(self, *argv: str) -> str:
        """Ask this world's tmux server."""
        return self.run("tmux", "-S", self.socket, *argv)

    def slot(self, name: str) -> Path:
        """A path beside the repository."""
        return self.repository.parent / name

    def remove_slots(self) -> None:
        """Remove every worktree but the main one, and the branches that were on them."""
        for line in self.git("worktree", "list", "--porcelain").splitlines():
            path = line.removeprefix("worktree ")
            if path != line and path != str(self.repository):
                self.git("worktree", "remove", "--force", "--force", path)
        for branch in self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/").split():
            if branch != "main":
                self.git("branch", "-q", "-D", branch)


@contextmanager
def world(*, prompt: str = "$ ", files: int = 20, clients: bool = False) -> Iterator[World]:
    """Make a world, and end everything in it afterwards.

    ``prompt`` is that of the shells in its windows; ``clients`` writes settings with the clients ``probe`` and
    ``until-told``.
    """
    # Directly below /tmp, because a tmux socket's path is at most 100 characters long.
    base = Path(tempfile.mkdtemp(prefix="sa-bench-", dir="/tmp"))
    made = World(base, base / "pool" / "project", base / "tmux.sock", _environment(base))
    try:
        _make_repository(made, files)
        if clients:
            write_settings(made)
        _start_tmux(made, prompt)
        yield made
    finally:
        subprocess.run(["tmux", "-S", str(made.socket), "kill-server"], capture_output=True, check=False, timeout=30)
        shutil.rmtree(base, ignore_errors=True)


def write_settings(made: World) -> None:
    """Give the world's user settings with two clients."""
    settings = made.base / "home" / ".config" / "side-agents"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(_CLIENTS.format(probe=PROBE), encoding="utf-8")


def _environment(base: Path) -> dict[str, str]:
    kept = ("PATH", "LANG", "LC_ALL")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(base / "home"),
        "SHELL": "/bin/sh",
        "TERM": "screen-256color",
        "TMPDIR": str(base),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "Bench" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "bench@localhost" for who in ("AUTHOR", "COMMITTER")},
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        "TMUX": "",
        "TMUX_PANE": "",
    }


def _make_repository(made: World, files: int) -> None:
    made.repository.mkdir(parents=True)
    (made.base / "home").mkdir()
    made.git("init", "-q", "-b", "main")
    for number in range(files):
        path = made.repository / "source" / f"module_{number:03}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"value = {number}\n" * 20, encoding="utf-8")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "begin")


def _start_tmux(made: World, prompt: str) -> None:
    made.tmux("-f", "/dev/null", "new-session", "-d", "-s", "bench", "-x", "160", "-y", "48", "--", "sleep", "86400")
    made.tmux("set-option", "-g", "default-command", f"exec env PS1='{prompt}' sh -i")
    pid, pane = made.tmux("display-message", "-p", "#{pid} #{pane_id}").split()
    made.environment.update(TMUX=f"{made.socket},{pid},0", TMUX_PANE=pane)
