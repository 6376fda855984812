"""A throw-away place for the demo: a repository, a private tmux server, an environment without the user in it.

Everything lies in one new folder, the socket of the server too; ``tear_down`` ends that server and removes that folder
and touches nothing else.
"""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
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
class Part:
    """What one agent of the demo is given; ``answer`` is what we say when it asks."""

    name: str
    task: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """The place: ``folder`` holds all of it, ``repository`` is where the agents are started from."""

    folder: Path
    repository: Path
    tmux: Tmux
    context: Context


@dataclass(frozen=True, slots=True)
class Harvest:
    """What an agent made: commits on its branch, newest first, and how many files are changed but not committed."""

    branch: str
    commits: tuple[str, ...]
    uncommitted: int


def parts() -> tuple[Part, ...]:
    """The three tasks, in the script client's language: one works, one asks, one crashes half way."""
    return (
        Part(
            "add-vat",
            "\n".join(
                (
                    "Add VAT to the shop, with a test",
                    "sleep: 2",
                    "write: test_vat.py import unittest\\n\\nfrom shop import with_vat\\n\\n\\n"
                    "class VatTest(unittest.TestCase):\\n    def test_adds_a_fifth(self):\\n"
                    "        self.assertEqual(with_vat(100), 120)\\n",
                    "sleep: 2",
                    "run: printf '\\n\\ndef with_vat(amount):\\n    return amount * 120 // 100\\n' >> shop.py",
                    f"run: '{sys.executable}' -B -m unittest -q",
                    "sleep: 2",
                    "commit: Add VAT, with a test",
                    "say: with_vat() is there, its test passes, all committed.",
                )
            ),
        ),
        Part(
            "pick-licence",
            "\n".join(
                (
                    "Give the shop a licence",
                    "sleep: 3",
                    "ask: Which licence do you want, MIT or Apache-2.0?",
                    "write: LICENCE This shop is under the {answer} licence.\\n",
                    "sleep: 1.5",
                    "commit: Choose the {answer} licence",
                    "say: The licence is {answer} now.",
                )
            ),
            answer="MIT",
        ),
        Part(
            "speed-up",
            "\n".join(
                (
                    "Make the total faster",
                    "sleep: 1",
                    "write: fast.py from shop import total\\n\\nfast_total = total  # not finished\\n",
                    "sleep: 6.5",
                    "crash",
                )
            ),
        ),
    )


@contextmanager
def stage(environment: Mapping[str, str], *, keep: bool = False) -> Iterator[Stage]:
    """Set everything up; afterwards, whatever happened, throw it all away unless it is to be kept.

    Raises ToolMissingError without git or tmux.
    """
    # A socket path may have some 100 bytes, which macOS nearly uses up for its TMPDIR.
    folder = Path("/tmp", f"side-agents-demo-{secrets.token_hex(4)}")
    tmux = Tmux(folder / "tmux")
    done = False
    try:
        yield _set_up(folder.resolve(), tmux, environment)
        done = True
    finally:
        if not (keep and done):
            tear_down(folder, tmux)


def _set_up(folder: Path, tmux: Tmux, environment: Mapping[str, str]) -> Stage:
    repository, home = folder / "shop", folder / "home"
    for path in (repository, home):
        fs.make_private_dir(path)
    own = {name: environment[name] for name in _KEPT if name in environment}
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
    """What is there of an agent's work, as git says it."""
    base, branch = agent.base_commit or "", agent.branch or ""
    git = Git(context.layout.main_top)
    commits = git.text("log", "--format=%h %s", "--end-of-options", f"{base}..{branch}", "--").splitlines()
    worktree = Path(agent.worktree_path) if agent.worktree_path else None
    kept = 0
    if isinstance(agent, AgentRecord) and worktree is not None and worktree.is_dir():
        kept = git_changes.changed_files(Git(worktree), branch)
    return Harvest(branch, tuple(commits), kept)


def git_graph(stage: Stage) -> list[str]:
    """All branches of the demo's repository as git draws them."""
    shown = ("--graph", "--oneline", "--all", "--decorate=short", "--decorate-refs=refs/heads")
    return Git(stage.repository).text("log", *shown).splitlines()
