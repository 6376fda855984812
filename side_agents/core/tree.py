"""Agents as a tree of who started whom (reference/side-agents 8.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from side_agents.models import AgentRecord


def in_order(records: Iterable[AgentRecord]) -> Iterator[AgentRecord]:
    """Parents before their children, siblings by id; an agent whose parent is gone counts as a root."""
    rows = sorted(records, key=lambda record: record.id)
    present = {record.id for record in rows}
    children: dict[str | None, list[AgentRecord]] = {}
    for record in rows:
        parent = record.parent_agent_id if record.parent_agent_id in present - {record.id} else None
        children.setdefault(parent, []).append(record)
    # Rows that name each other as parents are below no root; each of them is tried as one at the end.
    waiting = [*reversed(rows), *reversed(children.get(None, []))]
    seen: set[str] = set()
    while waiting:
        record = waiting.pop()
        if record.id not in seen:
            seen.add(record.id)
            yield record
            waiting += reversed(children.get(record.id, []))


def below(agent_ids: Iterable[str], records: Iterable[AgentRecord]) -> list[str]:
    """Ids of all agents that these started, directly or not, those furthest down first; these themselves are left out."""
    rows = list(records)
    given = set(agent_ids)
    found: list[str] = []
    level = given
    while level:
        level = {record.id for record in rows if record.parent_agent_id in level} - {*given, *found}
        found += sorted(level)
    return children_first(found, rows)


def children_first(agent_ids: Iterable[str], records: Iterable[AgentRecord]) -> list[str]:
    """The ids so that nobody comes before an agent that it started; unknown ones last."""
    wanted = dict.fromkeys(agent_ids)
    known = [record.id for record in in_order(records) if record.id in wanted]
    return [*reversed(known), *(name for name in wanted if name not in set(known))]


def is_orphan(record: AgentRecord, present: Iterable[str]) -> bool:
    """Whether it was started by an agent that is gone."""
    return record.parent_agent_id is not None and record.parent_agent_id not in present
