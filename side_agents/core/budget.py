"""How many agents may run at a time. Pure; asked inside the registry lock, so that two starts cannot share a place."""

from __future__ import annotations

from collections.abc import Iterable

from side_agents.config import Config
from side_agents.errors import BudgetError
from side_agents.models import AgentRecord

# Key of a record's ``extra``: the token of the queue's entry that it was started from.
QUEUED = "queueToken"


def obstacle(records: Iterable[AgentRecord], config: Config, agent_id: str | None, session: str | None) -> str | None:
    """Why a session may start no agent now, None where it may; agents that have ended take no place."""
    if config.max_agents is None and config.max_agents_per_parent is None:
        return None
    running = [record for record in records if not record.status.is_terminal]
    if config.max_agents is not None and len(running) >= config.max_agents:
        return f"{len(running)} agents run, and max_agents is {config.max_agents}"
    own = [record for record in running if _is_own(record, agent_id, session)]
    if config.max_agents_per_parent is not None and len(own) >= config.max_agents_per_parent:
        return f"{len(own)} agents of this session run, and max_agents_per_parent is {config.max_agents_per_parent}"
    return None


def _is_own(record: AgentRecord, agent_id: str | None, session: str | None) -> bool:
    if record.parent_agent_id != agent_id:
        return False
    return agent_id is not None or session is None or record.parent_session_id in (None, session)


def require_place(records: Iterable[AgentRecord], config: Config, agent_id: str | None, session: str | None) -> None:
    """Raise BudgetError, with the way out, where there is no place."""
    why = obstacle(records, config, agent_id, session)
    if why is not None:
        raise BudgetError(
            f"{why}. Nothing was started.",
            hint="Add --queue to start it when there is a place, end an agent (side-agents stop ID), or raise the setting.",
        )
