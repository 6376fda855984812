"""What one session sees of the agents: its status line, and the tree of ``/agents``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from side_agents.core import routing, status_groups, transitions, tree, windows
from side_agents.core.context import Context
from side_agents.core.results import TASK_PREVIEW, Listed
from side_agents.core.routing import Listener
from side_agents.core.status_groups import Group
from side_agents.infra import text
from side_agents.models import AgentRecord, AgentStatus

_SAID_LIMIT = 300
# A line with more siblings than this says nothing any more, and a file with everybody's lines must stay small.
_PUBLISHED_SIBLINGS = 24


def ancestors_of(context: Context, records: Sequence[AgentRecord]) -> Mapping[str, str | None]:
    """The main sessions that orphans descend from; the history is read only where there is an orphan."""
    present = {record.id: record for record in records}
    return transitions.main_sessions(present, context.registry.tombstone)


def groups_of(context: Context, who: Listener, listed: Listed) -> tuple[Group, ...]:
    """The session's status line."""
    ancestors = ancestors_of(context, listed.records) if who.agent_id is None else None
    return status_groups.groups_of(listed.records, who, listed.lingering, ancestors)


def status_view(groups: Sequence[Group]) -> dict[str, Any]:
    """Groups and the whole line as plain text."""
    return {"groups": [group.as_json() for group in groups], "text": status_groups.line_of(groups)}


def published_facts(listed: Listed) -> tuple[object, ...]:
    """All that the published lines depend on, cheap to compare."""
    facts = (
        (record.id, record.parent_agent_id, record.status, record.waiting_for, record.tmux_window_index)
        for record in listed.records
    )
    return (listed.lingering, *facts)


def published_lines(listed: Listed) -> dict[str, Any]:
    """The status line of each agent, for those whose session has no companion."""
    by_id = {record.id: record for record in listed.records}
    by_parent: dict[str | None, list[AgentRecord]] = {}
    for record in listed.records:
        by_parent.setdefault(record.parent_agent_id, []).append(record)
    lines = {}
    for record in listed.records:
        siblings = by_parent[record.parent_agent_id][: _PUBLISHED_SIBLINGS + 1]
        family = [*siblings, *by_parent.get(record.id, ()), by_id.get(record.parent_agent_id or "")]
        shown = {member.id: member for member in (record, *family) if member is not None}
        found = status_groups.groups_of(list(shown.values()), Listener(record.id), listed.lingering)
        lines[record.id] = status_view(found)
    return lines


def rows_of(context: Context, who: Listener, listed: Listed) -> list[dict[str, Any]]:
    """All agents in tree order (reference/side-agents 8.2); texts are clean and on one line."""
    ancestors = ancestors_of(context, listed.records)
    mine = {record.id for record in routing.heard(who, listed.records, ancestors)}
    present = {record.id for record in listed.records}
    levels: dict[str, int] = {}
    rows = []
    for record in listed.records:
        levels[record.id] = levels.get(record.parent_agent_id or "", -1) + 1
        row = _row(record, levels[record.id], windows.shown_index(record, listed.lingering))
        flags = {
            "mine": record.id in mine,
            "orphan": tree.is_orphan(record, present),
            "thisSession": record.id == who.agent_id,
        }
        rows.append(row | flags)
    return rows


def _row(record: AgentRecord, level: int, window: int | None) -> dict[str, Any]:
    waits = record.status is AgentStatus.WAITING_USER
    pairs: tuple[tuple[str, Any], ...] = (
        ("id", record.id),
        ("parentAgentId", record.parent_agent_id),
        ("depth", record.depth),
        ("level", level),
        ("status", str(record.status)),
        ("short", record.status.short),
        ("waitingFor", str(record.waiting_for) if waits and record.waiting_for else None),
        ("window", window),
        ("worktreeName", PurePath(record.worktree_path).name if record.worktree_path else None),
        ("worktreePath", record.worktree_path),
        ("branch", record.branch),
        ("client", record.client),
        ("model", record.model),
        ("startedAt", record.started_at),
        ("task", text.printable(text.one_line(record.task, TASK_PREVIEW))),
        ("error", _said(record.error)),
        ("text", _said(record.waiting_text if waits and record.waiting_text else record.last_turn_text)),
    )
    return {key: value for key, value in pairs if value is not None}


def _said(value: str | None) -> str | None:
    return text.printable(text.one_line(value, _SAID_LIMIT)) if value else None
