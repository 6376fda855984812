"""A throw-away place for the demo: a repository, a private tmux server, an environment without the user in it.

Everything lies in one new folder, the socket of the server too; ``tear_down`` ends that server and removes that folder
and touches nothing else.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from side_agents.core.context import Context, open_context
from side_agents.infra import fs, git_changes, proc, processes
from side_agents.infra.git import Git
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, Tombstone

_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME")
_SHOP = '''"""A very small shop."""


def total(prices):
    """Sum of all prices."""
    return sum(prices)
'''


@dataclass(frozen=True, slots=True)
class Stage:
    """The place: ``folder`` holds all of it, ``repository`` is where the agents are started from."""

    folder: Path
    repository: Path
    tmux: Tmux
    context: Context

    def head(self) -> str:
        """The commit that main is at."""
        return Git(self.repository).head_commit()


@dataclass(frozen=True, slots=True)
class Harvest:
    """What an agent made: commits, newest first, and how many files are changed but not committed."""

    commits: tuple[str, ...]
    uncommitted: int


@contextmanager
def stage(
    environment: Mapping[str, str], *, keep: bool = False, closing: Callable[[], None] = lambda: None
) -> Iterator[Stage]:
    """Set everything up; afterwards, whatever happened, throw it all away unless it is to be kept.

    ``closing`` is told before that begins, to keep interrupts away from it. Raises ToolMissingError without git or tmux.
    """
    # A socket path may have some 100 bytes, which macOS nearly uses up for its TMPDIR.
    folder = Path("/tmp", f"side-agents-demo-{secrets.token_hex(4)}")
    tmux = Tmux(folder / "tmux")
    done = False
    try:
        try:
            yield _set_up(folder.resolve(), tmux, environment)
            done = True
        finally:
            # An interrupt right here still meets the outer clean-up, and is the last one that counts.
            closing()
    finally:
        if not (keep and done):
            tear_down(folder, tmux)


def _set_up(folder: Path, tmux: Tmux, environment: Mapping[str, str]) -> Stage:
    repository, home, programs = folder / "shop", folder / "home", folder / "bin"
    for path in (repository, home, programs):
        fs.make_private_dir(path)
    fs.replace(programs / "side-agents", _own_command(), mode=0o700)
    own = {name: environment[name] for name in _KEPT if name in environment}
    own["PATH"] = f"{programs}:{own.get('PATH', os.defpath)}"
    # tmux before 3.5 runs its panes in TERM=screen, whatever our own terminal is.
    own |= {"HOME": str(home), "SHELL": "/bin/sh", "TERM": "xterm-256color", "GIT_CONFIG_NOSYSTEM": "1"}
    (repository / "shop.py").write_text(_SHOP, encoding="utf-8")
    (repository / "README.md").write_text("# Shop\n\nMade by `side-agents demo`.\n", encoding="utf-8")
    for command in (
        ("init", "-q"),
        ("symbolic-ref", "HEAD", "refs/heads/main"),
        ("config", "user.name", "Demo"),
        ("config", "user.email", "demo@localhost"),
        ("config", "commit.gpgsign", "false"),
        ("add", "--all"),
        ("commit", "-q", "-m", "A very small shop"),
    ):
        proc.run(("git", *command), cwd=repository, env=own)
    pane = tmux.start_server("demo", cwd=repository, env=own, config=Path("/dev/null"))
    own |= {"TMUX": f"{tmux.socket},{pane.server.pid},{pane.session_id.lstrip('$')}", "TMUX_PANE": pane.pane_id}
    return Stage(folder, repository, tmux, open_context(repository, own))


def _own_command() -> str:
    """The ``side-agents`` that the agents call: this very one, also from a checkout that is not installed."""
    path = os.pathsep.join(entry for entry in sys.path if Path(entry).is_absolute())
    command = shlex.join((sys.executable, "-P", "-m", "side_agents"))
    return f'#!/bin/sh\nexport PYTHONPATH={shlex.quote(path)}\nexec {command} "$@"\n'


def tear_down(folder: Path, tmux: Tmux) -> None:
    """End the server on the demo's own socket with everything in it, then remove the demo's folder."""
    server = tmux.sweep().server
    if server is not None:
        refs = [*processes.descendants(server.pid), server]
        tmux.kill_server()
        # Launchers write their last words into the folder; it can only be removed once they are gone.
        processes.end_tree(refs, term_wait=2.0)
    shutil.rmtree(folder, ignore_errors=True)


def harvest(context: Context, agent: AgentRecord | Tombstone) -> Harvest:
    """What is there of an agent's work that has not been rebased, as git says it."""
    made = commits(context, f"{agent.base_commit or ''}..{agent.branch or ''}")
    worktree = Path(agent.worktree_path) if agent.worktree_path else None
    kept = 0
    if isinstance(agent, AgentRecord) and worktree is not None and worktree.is_dir():
        kept = git_changes.changed_files(Git(worktree), agent.branch or "")
    return Harvest(made, kept)


def commits(context: Context, revisions: str = "main") -> tuple[str, ...]:
    """Short id and subject of each commit, newest first."""
    git = Git(context.layout.main_top)
    return tuple(git.text("log", "--format=%h %s", "--end-of-options", revisions, "--").splitlines())


def keep_work(worktree: Path, message: str) -> None:
    """Commit what somebody left in a worktree, as a person would by hand."""
    git = Git(worktree)
    git.run("add", "--all")
    git.run("commit", "--quiet", f"--message={message}")


def git_graph(stage: Stage) -> list[str]:
    """All branches of the demo's repository as git draws them."""
    shown = ("--graph", "--oneline", "--branches", "--decorate=short", "--decorate-refs=refs/heads")
    lines = Git(stage.repository).text("log", *shown).splitlines()
    return [line.rstrip() for line in lines]
