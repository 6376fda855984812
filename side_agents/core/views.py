"""What the product says about agents, as JSON: field names of reference/side-agents 3, plus additions, never renames.

The shapes are dataclasses, so that their schemas come from the same place; the functions give plain objects in which
absent values are left out. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from side_agents.core import tree
from side_agents.core.results import (
    REPORTED_QUEUED,
    REPORTED_TAKEN,
    TASK_PREVIEW,
    Checked,
    Listed,
    Sent,
    Started,
    Stopped,
    Waited,
)
from side_agents.errors import SideAgentsError
from side_agents.infra import text
from side_agents.models import AgentRecord, AgentStatus, DeliveryState, Tombstone, camel_name
from side_agents.schemas import BORDER

# A check shows a little more of the task than a start does (reference/side-agents 3.1, 3.2).
CHECK_TASK_LIMIT = 220
NOT_DELIVERED = "not-delivered"
DELIVERED = frozenset((DeliveryState.SUBMITTED, DeliveryState.QUEUED, DeliveryState.INTERRUPTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """One agent as ``agent-check`` shows it; one that has left the registry is ``done`` and has an ``ended_by``.

    ``final_status`` is set when the agent was stopped or cleared in another status than ``done``.
    """

    id: str
    status: str
    parent_agent_id: str | None = None
    depth: int = 1
    tmux_window_id: str | None = None
    tmux_window_index: int | None = None
    worktree_path: str | None = None
    branch: str | None = None
    task: str = ""
    started_at: str = ""
    finished_at: str | None = None
    exit_code: int | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    client: str | None = None
    model: str | None = None
    turn: int = 0
    last_turn_outcome: str | None = None
    last_turn_text: str | None = None
    last_turn_ended_at: str | None = None
    waiting_for: str | None = None
    waiting_text: str | None = None
    suspended: bool | None = None
    base_commit: str | None = None
    branch_head: str | None = None
    ended_by: str | None = None
    final_status: str | None = None
    landed_commit: str | None = None
    landed_target: str | None = None
    forum_name: str | None = None
    forum_agent_id: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnswer:
    """Answer of ``agent-start``."""

    ok: bool
    id: str | None = None
    parent_agent_id: str | None = None
    depth: int | None = None
    task: str | None = None
    tmux_window_id: str | None = None
    tmux_window_index: int | None = None
    worktree_path: str | None = None
    branch: str | None = None
    warnings: tuple[str, ...] | None = None
    client: str | None = None
    forum_name: str | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """Answer of ``agent-check``; ``backlog`` is what the agent showed last, as data."""

    ok: bool
    agent: AgentView | None = None
    backlog: tuple[str, ...] | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAnswer:
    """Answer of ``agent-wait-any``: a check, why this agent was returned, and the cursor for the next wait."""

    ok: bool
    agent: AgentView | None = None
    backlog: tuple[str, ...] | None = None
    reason: str | None = None
    cursor: int | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswer:
    """Answer of ``agent-send``: one shape, delivered or not. ``delivery`` is absent when nothing was typed at all."""

    ok: bool
    message: str
    delivery: str | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


def as_json(value: Any) -> Any:
    """A view as plain JSON values: camelCase keys in a fixed order, nothing that is absent."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {camel_name(name): as_json(item) for name, item in pairs if item is not None}
    if isinstance(value, StrEnum):
        return str(value)
    return [as_json(item) for item in value] if isinstance(value, tuple) else value


def agent_view(agent: Checked | AgentRecord | Tombstone) -> dict[str, Any]:
    """One agent, live or gone."""
    if isinstance(agent, Checked):
        found = agent.record or agent.tombstone
        if found is None:
            raise ValueError("a check without an agent")
        agent = found
    shape = _of_record(agent) if isinstance(agent, AgentRecord) else _of_tombstone(agent)
    view: dict[str, Any] = as_json(shape)
    return view


def started_view(started: Started) -> dict[str, Any]:
    """The answer to a start (U19-U22): the first 200 characters of the task, an ellipsis if there are more."""
    record = started.record
    return _answer(
        StartAnswer(
            ok=True,
            id=record.id,
            parent_agent_id=record.parent_agent_id,
            depth=record.depth,
            task=text.preview(record.task, TASK_PREVIEW),
            tmux_window_id=record.tmux_window_id,
            tmux_window_index=record.tmux_window_index,
            worktree_path=record.worktree_path,
            branch=record.branch,
            warnings=record.warnings,
            client=record.client,
            forum_name=record.forum.name if record.forum else None,
        )
    )


def checked_view(checked: Checked) -> dict[str, Any]:
    """The answer to a check (U24); ``done`` for an agent that has left the registry."""
    return {"ok": True, "agent": agent_view(checked), "backlog": list(checked.backlog)}


def waited_view(waited: Waited) -> dict[str, Any]:
    """The answer to a wait (U30, U31): a check, and where to go on."""
    return checked_view(waited.checked) | {"reason": waited.reason, "cursor": waited.cursor}


def sent_view(sent: Sent) -> dict[str, Any]:
    """The answer to a send (U25); ``ok`` only where the agent was seen to take the message."""
    message = delivery_message(sent)
    if sent.state in DELIVERED:
        return _answer(SendAnswer(ok=True, message=message, delivery=sent.state))
    return _answer(
        SendAnswer(
            ok=False,
            message=message,
            delivery=sent.state,
            error=message,
            code=NOT_DELIVERED,
            hint=undelivered_hint(sent),
        )
    )


def send_failure_view(error: SideAgentsError) -> dict[str, Any]:
    """The answer to a send that failed before anything was typed (U26): the same shape."""
    return _answer(SendAnswer(ok=False, message=error.message, error=error.message, code=error.code, hint=error.hint))


def failure_view(error: SideAgentsError) -> dict[str, Any]:
    """The answer to everything else that failed (U23)."""
    answer = {"ok": False, "error": error.message, "code": error.code}
    return answer | ({"hint": error.hint} if error.hint else {})


def listed_view(listed: Listed) -> dict[str, Any]:
    """All agents in tree order; those that have left only when they were asked for."""
    present = {record.id for record in listed.records} | set(listed.unreadable)
    answer: dict[str, Any] = {
        "ok": True,
        "agents": [
            agent_view(record) | ({"orphaned": True} if tree.is_orphan(record, present) else {})
            for record in listed.records
        ],
    }
    if listed.tombstones:
        answer["finished"] = [
            agent_view(stone) | ({"paused": True} if stone.id in listed.paused else {}) for stone in listed.tombstones
        ]
    if listed.unreadable:
        answer["unreadable"] = list(listed.unreadable)
    return answer | {"notes": list(listed.notes)}


def stopped_view(stopped: Stopped) -> dict[str, Any]:
    """What a stop ended and kept."""
    answer: dict[str, Any] = {
        "ok": not stopped.survivors,
        "agent": agent_view(stopped.tombstone),
        "endedProcesses": stopped.ended_processes,
        "kept": stopped.kept,
    }
    return answer | ({"survivors": list(stopped.survivors)} if stopped.survivors else {})


def delivery_message(sent: Sent) -> str:
    """One sentence about what became of a message."""
    who = sent.agent_id
    words = {
        DeliveryState.SUBMITTED: f"Sent: {who} has taken the message",
        DeliveryState.QUEUED: f"Queued: {who} is busy and takes the message when its turn ends",
        DeliveryState.INTERRUPTED: f"Interrupted: {who} was told to stop its turn",
        DeliveryState.TYPED_NOT_SUBMITTED: f"Not sent: the text was typed to {who}, but not submitted",
        DeliveryState.UNKNOWN: f"Unknown: the text was typed to {who}, but nothing shows that it was taken",
    }
    says_more = sent.evidence and sent.evidence not in (REPORTED_TAKEN, REPORTED_QUEUED)
    return f"{words[sent.state]} ({sent.evidence})." if says_more else f"{words[sent.state]}."


def undelivered_hint(sent: Sent) -> str:
    """What to do about a message that may not have arrived."""
    look = f"Look before you send it again: side-agents check {sent.agent_id}"
    if sent.state is DeliveryState.TYPED_NOT_SUBMITTED:
        return f"{look}, or go to its window and decide there: side-agents attach {sent.agent_id}"
    return look


def _answer(shape: Any) -> dict[str, Any]:
    answer: dict[str, Any] = as_json(shape)
    return answer


def _of_record(record: AgentRecord) -> AgentView:
    return AgentView(
        id=record.id,
        status=record.status,
        parent_agent_id=record.parent_agent_id,
        depth=record.depth,
        tmux_window_id=record.tmux_window_id,
        tmux_window_index=record.tmux_window_index,
        worktree_path=record.worktree_path,
        branch=record.branch,
        task=text.one_line(record.task, CHECK_TASK_LIMIT),
        started_at=record.started_at,
        finished_at=record.finished_at,
        exit_code=record.exit_code,
        error=record.error,
        warnings=record.warnings,
        client=record.client,
        model=record.model,
        turn=record.turn,
        last_turn_outcome=record.last_turn_outcome,
        last_turn_text=record.last_turn_text,
        last_turn_ended_at=record.last_turn_ended_at,
        waiting_for=record.waiting_for,
        waiting_text=record.waiting_text,
        suspended=record.suspended,
        base_commit=record.base_commit,
        landed_commit=record.landed_commit,
        landed_target=record.landed_target,
        forum_name=record.forum.name if record.forum else None,
        forum_agent_id=record.forum.agent_id if record.forum else None,
    )


def _of_tombstone(stone: Tombstone) -> AgentView:
    return AgentView(
        id=stone.id,
        status=AgentStatus.DONE,
        parent_agent_id=stone.parent_agent_id,
        depth=stone.depth,
        worktree_path=stone.worktree_path,
        branch=stone.branch,
        task=text.one_line(stone.task, CHECK_TASK_LIMIT),
        started_at=stone.started_at,
        finished_at=stone.finished_at or None,
        exit_code=stone.exit_code,
        error=stone.error,
        client=stone.client,
        turn=stone.turn,
        base_commit=stone.base_commit,
        branch_head=stone.branch_head,
        ended_by=stone.ended_by,
        final_status=None if stone.status is AgentStatus.DONE else stone.status,
        landed_commit=stone.landed_commit,
        landed_target=stone.landed_target,
        forum_name=stone.forum.name if stone.forum else None,
        forum_agent_id=stone.forum.agent_id if stone.forum else None,
    )
