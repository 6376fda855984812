"""What the tools take. Names outside are camelCase; unknown keys are refused; the texts end up in the JSON schemas."""

from __future__ import annotations

from dataclasses import dataclass, field

from side_agents.models import AgentStatus
from side_agents.schemas import BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInput:
    """Input of ``agent-start``."""

    description: str = field(metadata={"description": "The whole task; the new agent sees nothing else."})
    branch_hint: str = field(
        metadata={"description": "Short kebab-case name for agent and branch, at most three words; may be empty."}
    )
    model: str | None = field(default=None, metadata={"description": "Model to use; by default the usual one."})
    client: str | None = field(default=None, metadata={"description": "Coding agent: pi, script or a configured one."})
    base: str | None = field(default=None, metadata={"description": "Revision to start from, by default HEAD."})
    with_changes: bool = field(default=False, metadata={"description": "Carry your uncommitted changes over."})
    parent_session: str | None = field(default=None, metadata={"description": "Your own session file or id."})

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInput:
    """Input of ``agent-check``."""

    id: str = field(metadata={"description": "The agent's id."})
    lines: int = field(default=10, metadata={"description": "How many of the last lines to return."})

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitInput:
    """Input of ``agent-wait-any``."""

    ids: tuple[str, ...] = field(metadata={"description": "Ids of the agents to wait for."})
    after: int | None = field(
        default=None, metadata={"description": "Cursor of an earlier answer: return only for something newer."}
    )
    states: tuple[AgentStatus, ...] | None = field(
        default=None, metadata={"description": "States to wait for; by default waiting_user, failed, crashed, done."}
    )
    timeout_seconds: float | None = field(
        default=None, metadata={"description": "Give up after this time; by default never."}
    )

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class SendInput:
    """Input of ``agent-send``."""

    id: str = field(metadata={"description": "The agent's id."})
    prompt: str = field(metadata={"description": "The message. A leading ! interrupts first; /commands go through."})

    __pydantic_config__ = BORDER
