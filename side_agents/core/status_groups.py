"""The status line of one session as data: who is in it, in which group (reference/side-agents 6.7, N21). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from side_agents.core import routing, windows
from side_agents.models import AgentRecord, AgentStatus, WaitingFor

SEPARATOR = "|"
ORPHAN_MARK = "[orphan]"


class GroupKind(StrEnum):
    """Groups in the order in which a line shows them."""

    PARENT = "parent"
    CHILDREN = "children"
    SIBLINGS = "siblings"
    OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One agent. ``window`` is None where it has none (any more); ``gone``: a parent that has left, with no status."""

    agent_id: str
    short: str
    status: AgentStatus | None = None
    window: int | None = None
    waiting_for: WaitingFor | None = None
    orphan: bool = False
    gone: bool = False

    @property
    def text(self) -> str:
        """``id:wait@3``, with a mark for an orphan."""
        window = f"@{self.window}" if self.window is not None else ""
        return f"{self.agent_id}:{self.short}{window}{ORPHAN_MARK if self.orphan else ''}"

    def as_json(self) -> dict[str, Any]:
        """For programs; what does not apply is left out."""
        pairs: tuple[tuple[str, Any], ...] = (
            ("id", self.agent_id),
            ("short", self.short),
            ("window", self.window),
            ("status", self.status and str(self.status)),
            ("waitingFor", self.waiting_for and str(self.waiting_for)),
            ("orphan", self.orphan or None),
            ("gone", self.gone or None),
        )
        return {key: value for key, value in pairs if value is not None}


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that stand together; there is no empty group."""

    kind: GroupKind
    entries: tuple[Entry, ...]

    @property
    def text(self) -> str:
        """The entries in one line."""
        mark = "parent:" if self.kind is GroupKind.PARENT else ""
        return " ".join(mark + entry.text for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"kind": str(self.kind), "entries": [entry.as_json() for entry in self.entries]}


def groups_of(
    records: Sequence[AgentRecord],
    who: routing.Listener,
    lingering: Collection[str] = (),
    ancestors: Mapping[str, str | None] | None = None,
) -> tuple[Group, ...]:
    """What one session is shown. Main has its own agents and the orphans that it adopted, then those of other main sessions.

    An agent has its parent, if that is an agent, its children and its siblings. Of agents that failed or crashed only those
    that are ``lingering`` have a window to show; ``ancestors`` names the main sessions of orphans.
    """
    seen = routing.scope(records, who, ancestors)
    is_main = who.agent_id is None

    def entries(members: Sequence[AgentRecord]) -> tuple[Entry, ...]:
        return tuple(
            _entry(record, lingering, orphan=is_main and record.parent_agent_id is not None) for record in members
        )

    parent = entries([seen.parent] if seen.parent is not None else [])
    if seen.parent_gone is not None:
        parent = (Entry(agent_id=seen.parent_gone, short="gone", gone=True),)
    members = (
        (GroupKind.PARENT, parent),
        (GroupKind.CHILDREN, entries(seen.children)),
        (GroupKind.SIBLINGS, entries(seen.siblings)),
        (GroupKind.OTHERS, entries(seen.others)),
    )
    return tuple(Group(kind, found) for kind, found in members if found)


def _entry(record: AgentRecord, lingering: Collection[str], *, orphan: bool) -> Entry:
    waits = record.status is AgentStatus.WAITING_USER
    return Entry(
        agent_id=record.id,
        short=record.status.short,
        status=record.status,
        window=windows.shown_index(record, lingering),
        waiting_for=record.waiting_for if waits else None,
        orphan=orphan,
    )


def line_of(groups: Sequence[Group]) -> str:
    """All groups as one plain line; empty without agents."""
    return f" {SEPARATOR} ".join(group.text for group in groups)
