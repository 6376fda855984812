"""The registry row of an agent that is being started, written by its starter alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from side_agents.core.context import Context
from side_agents.core.registry import RegistryState
from side_agents.errors import (
    ConflictError,
)
from side_agents.infra import clock
from side_agents.models import AgentRecord


@dataclass(slots=True)
class StartRow:
    """The agent's row as this start wrote it last; its id changes when the branch turns out to be taken."""

    record: AgentRecord


def write_row(context: Context, record: AgentRecord, purpose: str) -> AgentRecord:
    changed = replace(record, updated_at=clock.iso())
    with context.registry.transaction(purpose) as state:
        require_row(state, record)
        state.put(changed)
    return changed


def require_row(state: RegistryState, record: AgentRecord) -> None:
    row = state.agents.get(record.id)
    if row is None or not is_same(row, record):
        raise ConflictError(f"The entry of {record.id} was cleared while it was being started.")


def is_same(row: AgentRecord, record: AgentRecord) -> bool:
    return (row.started_at, row.owner) == (record.started_at, record.owner)
