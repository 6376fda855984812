"""Agents' worktrees with their rows, made without any agent process, and ``finish`` called in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents.core import leases
from side_agents.core.context import Context, open_context
from side_agents.core.finish import FinishOptions, finish
from side_agents.core.finish_survey import Finished
from side_agents.core.registry import Registry
from side_agents.infra import git_worktrees
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, AgentStatus, FinishPolicy, Lease, WaitingFor
from side_agents.paths import EXCLUDED, StatePaths
from tests.support.repositories import Repository

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Worker:
    """One agent: its worktree, and how it looks at the world."""

    id: str
    tree: Repository
    main: Repository
    environment: dict[str, str]

    @property
    def context(self) -> Context:
        return open_context(self.tree.path, self.environment)

    @property
    def branch(self) -> str:
        return f"side-agent/{self.id}"

    def land(self, *, policy: FinishPolicy | None = None, target: str | None = None, dry_run: bool = False) -> Finished:
        """``finish`` as the agent itself calls it, in this process."""
        return finish(self.context, None, FinishOptions(policy, target, dry_run))

    def command(self, *arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """``side-agents finish`` as a process."""
        return subprocess.run(
            [sys.executable, "-m", "side_agents", "finish", *arguments],
            cwd=cwd or self.tree.path,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=110,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "side_agents", "finish", *arguments],
            cwd=self.tree.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def answer(self, *arguments: str) -> dict[str, Any]:
        done = self.command("--json", *arguments)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["exitStatus"] == done.returncode
        return answer


@dataclass(frozen=True)
class Yard:
    """A repository and the agents in it."""

    repo: Repository
    environment: Mapping[str, str]

    @property
    def paths(self) -> StatePaths:
        return StatePaths(self.repo.path)

    @property
    def registry(self) -> Registry:
        return Registry(self.paths)

    def configure(self, text: str) -> None:
        self.paths.meta.mkdir(parents=True, exist_ok=True)
        self.paths.project_config.write_text(text, encoding="utf-8")

    def worker(
        self,
        agent_id: str,
        *,
        parent: Worker | None = None,
        base: str | None = None,
        status: AgentStatus = AgentStatus.RUNNING,
        **more: Any,
    ) -> Worker:
        source = parent.tree if parent is not None else self.repo
        number = len(self.registry.read().ids) + 1
        slot = self.repo.path.with_name(f"{self.repo.path.name}-agent-worktree-{number:04d}")
        start = base or Git(source.path).head_commit()
        git = Git(source.path)
        git.ensure_excludes(EXCLUDED)
        git_worktrees.add(git, slot, f"side-agent/{agent_id}", start)
        git_worktrees.populate(Git(slot), source=source.path)
        runtime = self.paths.runtime(agent_id).directory
        runtime.mkdir(parents=True)
        leases.take(slot, Lease(agent_id=agent_id, branch=f"side-agent/{agent_id}"))
        record = AgentRecord(
            id=agent_id,
            status=status,
            waiting_for=WaitingFor.PROMPT if status is AgentStatus.WAITING_USER else None,
            branch=f"side-agent/{agent_id}",
            worktree_path=str(slot),
            base_commit=start,
            runtime_dir=str(runtime),
            depth=2 if parent is not None else 1,
            parent_agent_id=parent.id if parent is not None else None,
            parent_worktree_path=str(parent.tree.path) if parent is not None else None,
            **more,
        )
        with self.registry.transaction("test") as state:
            state.put(record)
        return Worker(agent_id, Repository(slot), self.repo, self._as_agent(agent_id, parent))

    def _as_agent(self, agent_id: str, parent: Worker | None) -> dict[str, str]:
        return {
            **self.environment,
            "PYTHONPATH": str(CHECKOUT),
            "PI_SIDE_AGENT_ID": agent_id,
            "PI_SIDE_AGENT_DEPTH": "2" if parent is not None else "1",
            "PI_SIDE_AGENTS_ROOT": str(self.repo.path),
            "PI_SIDE_PARENT_REPO": str(parent.tree.path if parent is not None else self.repo.path),
            "PI_SIDE_PARENT_BRANCH": parent.branch if parent is not None else "",
            "PI_SIDE_PARENT_AGENT_ID": parent.id if parent is not None else "",
        }

    def outside(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """``side-agents finish`` as a person calls it."""
        return subprocess.run(
            [sys.executable, "-m", "side_agents", "finish", *arguments],
            cwd=cwd or self.repo.path,
            env={**self.environment, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            timeout=110,
            stdin=subprocess.DEVNULL,
            check=False,
        )


def state_of(repo: Repository) -> dict[str, bytes]:
    """Every file of a checkout but git's own and ours, byte for byte."""
    found = {}
    for folder, folders, files in os.walk(repo.path):
        folders[:] = [name for name in folders if name not in (".git", ".pi")]
        for name in files:
            path = Path(folder, name)
            if path.name != ".git":
                found[str(path.relative_to(repo.path))] = path.read_bytes()
    return found


def subjects(repo: Repository, revision: str = "main") -> list[str]:
    return repo.git("log", "--reverse", "--format=%s", revision, "--").splitlines()


def is_linear(repo: Repository, revision: str = "main") -> bool:
    return repo.git("rev-list", "--min-parents=2", revision, "--") == ""
