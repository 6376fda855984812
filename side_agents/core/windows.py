"""Which windows are still their agents': numbers are given anew, so that an old one leads to somebody else's window."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from side_agents.infra import processes
from side_agents.models import AgentRecord


def has_pane(record: AgentRecord) -> bool:
    """Whether its pane surely is its own: its launcher is the pane's process, and its server still is the same one."""
    refs = (record.launcher, record.tmux_server)
    return record.tmux_pane_id is not None and all(ref is not None and processes.is_alive(ref) for ref in refs)


def lingers(record: AgentRecord) -> bool:
    """Whether an agent that failed or crashed still has its window, which shows the end and waits for a key."""
    # Without an exit code nothing waits there: the launcher is one that outlives a window that was closed.
    return record.status.is_terminal and record.exit_code is not None and has_pane(record)


def lingering(records: Iterable[AgentRecord]) -> frozenset[str]:
    """The ids of those that linger."""
    return frozenset(record.id for record in records if lingers(record))


def shown_index(record: AgentRecord, lingering_ids: Collection[str]) -> int | None:
    """The number of the agent's window; None where there is none, or none any more. Pure."""
    return record.tmux_window_index if not record.status.is_terminal or record.id in lingering_ids else None
