"""What a parent is told of its agents: bursts merged, and only while it is idle (reference/side-agents 6.6, B42, B43). Pure.

A buffer holds at most one notice for each agent. Its owner merges every transition it sees, drains what is due whenever
it may speak, and keeps what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from side_agents.core.status import Transition
from side_agents.models import AgentStatus, WaitingFor

SETTLE = timedelta(seconds=5)
PATH_LIMIT = 6
ASKS = {
    WaitingFor.PERMISSION: "asks permission",
    WaitingFor.QUESTION: "asks a question",
    WaitingFor.TRUST: "asks for trust",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One agent's changes since its last notice.

    ``path`` holds the statuses that it went through after ``from_status``, at most six: the first five and the latest.
    Equal ends are news as well: waiting, running, waiting is one more round. Times are those of the first and of the
    latest observation. ``adopted``: its parent left, and who is told now has not started it.
    """

    agent_id: str
    from_status: AgentStatus
    to_status: AgentStatus
    window_index: int | None
    path: tuple[AgentStatus, ...]
    count: int
    first_observed_at: datetime
    observed_at: datetime
    adopted: bool = False

    @property
    def is_start(self) -> bool:
        """Whether the agent was started and is at work, and nothing else: whoever started it knows."""
        steps = (self.from_status, *self.path)
        only_starts = all(step.is_starting or step is AgentStatus.RUNNING for step in steps)
        return self.from_status.is_starting and only_starts and not self.adopted


Buffer = Mapping[str, Notice]


def merge(buffer: Buffer, transitions: Iterable[Transition], now: datetime) -> dict[str, Notice]:
    """The buffer with transitions that were observed at ``now``, in their order; the given one is left as it is."""
    merged = dict(buffer)
    for transition in transitions:
        merged[transition.agent_id] = _joined(merged.get(transition.agent_id), transition, now)
    return merged


def _joined(before: Notice | None, transition: Transition, now: datetime) -> Notice:
    if before is None:
        return Notice(
            agent_id=transition.agent_id,
            from_status=transition.from_status,
            to_status=transition.to_status,
            window_index=transition.window_index,
            path=(transition.to_status,),
            count=1,
            first_observed_at=now,
            observed_at=now,
            adopted=transition.adopted,
        )
    if transition.adopted and transition.from_status is transition.to_status:
        # Changing hands is no step on the agent's way.
        return replace(before, adopted=True, observed_at=now)
    return replace(
        before,
        to_status=transition.to_status,
        window_index=transition.window_index if transition.window_index is not None else before.window_index,
        path=(*before.path[: PATH_LIMIT - 1], transition.to_status),
        count=before.count + 1,
        observed_at=now,
        adopted=before.adopted or transition.adopted,
    )


def drain(
    buffer: Buffer, now: datetime, *, idle: bool, settle: timedelta = SETTLE
) -> tuple[list[Notice], dict[str, Notice]]:
    """The notices that are due, sorted by id, and the buffer without them.

    Nothing is due while the parent is not ``idle``. An end and an adoption are due at once, anything else after
    ``settle`` without a further change; zero is for the parent's own end.
    """
    due = [notice for notice in buffer.values() if idle and _is_due(notice, now, settle)]
    told = {notice.agent_id for notice in due}
    kept = {agent_id: notice for agent_id, notice in buffer.items() if agent_id not in told}
    return sorted(due, key=lambda notice: notice.agent_id), kept


def _is_due(notice: Notice, now: datetime, settle: timedelta) -> bool:
    # A clock that was set back must not hold a notice for as long as it went back.
    age = now - notice.observed_at
    return notice.to_status.is_terminal or notice.adopted or age >= settle or age < timedelta(0)
