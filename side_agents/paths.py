"""Where every file of a repository's side agents lives (DESIGN 4). Nothing here touches the disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

META_DIR = ".pi/side-agents"
LEASE_FILE = ".pi/active.lock"
# What ``infra.fs`` calls a lease while it is being written, and for ever when its writer was killed.
_LEASE_DRAFT = re.compile(r"\.pi/\.active\.lock\.[0-9]+-[0-9a-f]{12}\.tmp")
SHARED_PREFIX = "side-agent-"

# Kept out of ``git status`` through the repository's shared info/exclude, which every worktree obeys.
EXCLUDED = ("/.pi/side-agents/", "/.pi/side-agent-*", "/.pi/active.lock", "/.pi/.active.lock.*.tmp")


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """The files of one agent's runtime folder."""

    directory: Path

    @property
    def kickoff(self) -> Path:
        """The first prompt, byte for byte."""
        return self.directory / "kickoff.md"

    @property
    def backlog(self) -> Path:
        """The pane's output, capped."""
        return self.directory / "backlog.log"

    @property
    def exit_marker(self) -> Path:
        """Written by the launcher when the client has ended."""
        return self.directory / "exit.json"

    @property
    def launcher(self) -> Path:
        """The script that the window runs."""
        return self.directory / "launch.sh"

    @property
    def journal(self) -> Path:
        """Events appended by launcher and client."""
        return self.directory / "events.jsonl"

    @property
    def claim(self) -> Path:
        """Which process owns the launch token."""
        return self.directory / "claim.json"


@dataclass(frozen=True, slots=True)
class StatePaths:
    """The state files below one state root (the main repository's top level)."""

    root: Path

    @property
    def meta(self) -> Path:
        """The folder of everything below."""
        return self.root / META_DIR

    @property
    def registry(self) -> Path:
        """All live agents."""
        return self.meta / "registry.json"

    @property
    def registry_backup(self) -> Path:
        """The registry before its last change."""
        return self.meta / "registry.json.bak"

    @property
    def registry_lock(self) -> Path:
        """Held for memory work only: never while git or tmux runs."""
        return self.meta / "registry.lock"

    @property
    def history(self) -> Path:
        """Tombstones of agents that left the registry."""
        return self.meta / "history.jsonl"

    @property
    def transitions(self) -> Path:
        """The latest changes of agents, source of all notices."""
        return self.meta / "transitions.jsonl"

    @property
    def status_lines(self) -> Path:
        """The status line of each agent, for sessions that have no companion."""
        return self.meta / "status.json"

    def session(self, key: str) -> Path:
        """The folder of one session that is told of its agents."""
        return self.meta / "sessions" / key

    def wait_lock(self, key: str) -> Path:
        """Held by a caller while one of its tools blocks its turn."""
        return self.meta / "waits" / f"{key}.lock"

    @property
    def forum_db(self) -> Path:
        """The database of the project's own forum; its helper files lie beside it."""
        return self.meta / "forum" / "forum.db"

    @property
    def queue(self) -> Path:
        """Starts that wait for a free place."""
        return self.meta / "queue"

    @property
    def prompts(self) -> Path:
        """Templates of tasks."""
        return self.meta / "prompts"

    @property
    def merge_lock(self) -> Path:
        """Held while a target branch moves."""
        return self.meta / "merge.lock"

    @property
    def project_config(self) -> Path:
        """The project's own settings."""
        return self.meta / "config.toml"

    @property
    def shared(self) -> Path:
        """Folder whose ``side-agent-*`` entries every slot links to."""
        return self.root / ".pi"

    def runtime(self, agent_id: str) -> RuntimePaths:
        """The runtime folder of one agent."""
        return RuntimePaths(self.meta / "runtime" / agent_id)

    def archive(self, agent_id: str) -> Path:
        """Where earlier runtime folders of the same id go."""
        return self.meta / "runtime-archive" / agent_id

    def send_lock(self, agent_id: str) -> Path:
        """One sender at a time for each pane."""
        return self.meta / "runtime" / agent_id / "send.lock"


def lease_path(worktree: Path) -> Path:
    """The lease file of a slot."""
    return worktree / LEASE_FILE


def is_lease(name: str) -> bool:
    """Whether a path inside a checkout is that of its lease, finished or not."""
    return name == LEASE_FILE or _LEASE_DRAFT.fullmatch(name) is not None


def user_config(environment: Mapping[str, str], home: Path) -> Path:
    """The user's settings: ``$XDG_CONFIG_HOME/side-agents/config.toml``, by default below ``~/.config``."""
    base = environment.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else home / ".config") / "side-agents" / "config.toml"


def pi_folder(environment: Mapping[str, str]) -> Path:
    """Pi's own folder: settings, extensions, conversations. ``$PI_CODING_AGENT_DIR``, by default ``~/.pi/agent``."""
    home = Path(environment.get("HOME") or "/")
    chosen = environment.get("PI_CODING_AGENT_DIR", "")
    if chosen == "~" or chosen.startswith("~/"):
        return home / chosen[2:]
    return Path(chosen) if chosen else home / ".pi" / "agent"
