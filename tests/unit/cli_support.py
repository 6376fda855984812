"""Agents to show, and the command line called in this process."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from side_agents.cli import border
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Tombstone


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


@dataclass(frozen=True)
class CommandLine:
    """Calls ``side-agents`` in this process; ``feed`` is what stands on its standard input."""

    capsys: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def __call__(self, *arguments: str, feed: bytes = b"") -> Ran:
        with self.patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(feed)))
            status = border.run(arguments)
        written = self.capsys.readouterr()
        return Ran(status, written.out, written.err)


def record(agent_id: str = "fix-login", status: AgentStatus = AgentStatus.RUNNING, **values: Any) -> AgentRecord:
    defaults: dict[str, Any] = {
        "task": "Fix the login test",
        "branch": f"side-agent/{agent_id}",
        "worktree_path": "/repos/app-agent-worktree-0001",
        "tmux_window_id": "@7",
        "tmux_window_index": 3,
        "started_at": "2026-03-03T02:58:00.000Z",
        "client": "script",
    }
    return AgentRecord(id=agent_id, status=status, **{**defaults, **values})


def tombstone(agent_id: str = "old", **values: Any) -> Tombstone:
    defaults: dict[str, Any] = {
        "status": AgentStatus.DONE,
        "ended_by": EndedBy.EXIT,
        "branch": f"side-agent/{agent_id}",
    }
    return Tombstone(id=agent_id, **{**defaults, **values})
