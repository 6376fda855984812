"""The first prompt of clients that take none at their start: pasted once they show that they are ready."""

from __future__ import annotations

from dataclasses import replace

from side_agents.clients.interface import Client, LaunchPlan
from side_agents.core import delivery, observe
from side_agents.core.context import Context
from side_agents.core.delivery import Target
from side_agents.errors import SideAgentsError
from side_agents.infra import clock, fs, text
from side_agents.models import AgentRecord, AgentStatus, DeliveryState, WaitingFor

_READY_SECONDS = 20.0
_LOOK = 0.1


def deliver(context: Context, client: Client, record: AgentRecord, plan: LaunchPlan, prompt: str) -> AgentRecord:
    """Paste the prompt if the client needs that; a warning in the record says when it could not be proved to arrive."""
    if not plan.paste_prompt:
        return record
    target = delivery.target_of(record, client, context.paths.runtime(record.id))
    try:
        with fs.locked(context.paths.send_lock(record.id), purpose=f"first prompt of {record.id}"):
            problem = _deliver(context, target, prompt)
    except SideAgentsError as error:
        problem = error.message
    if problem is None and client.reports_events:
        # Its turn_start says that the prompt has arrived.
        return record
    return _record(context, client, record, problem)


def _deliver(context: Context, target: Target, prompt: str) -> str | None:
    if not _wait_until_ready(target):
        return (
            f"{target.client.name} did not show in {_READY_SECONDS:.0f} s that it is ready, so its first prompt was not "
            f"typed; it is in {target.runtime.kickoff}."
        )
    sent = delivery.deliver(target, text.strip_controls(prompt).strip("\n"), timeout=context.config.send_timeout)
    if sent.state in (DeliveryState.SUBMITTED, DeliveryState.QUEUED):
        return None
    return f"The first prompt was typed, but it is {sent.state}: {sent.evidence}."


def _wait_until_ready(target: Target) -> bool:
    """Ready is what the client's patterns say; without patterns, a screen that shows something and then stays still."""
    deadline = clock.monotonic() + _READY_SECONDS
    before: list[str] = []
    while clock.monotonic() < deadline and not target.runtime.exit_marker.exists():
        screen = target.tmux.capture(target.pane_id)
        busy = target.client.is_busy(screen)
        if busy is False or (busy is None and any(line.strip() for line in screen) and screen == before):
            return True
        before = screen
        clock.pause(_LOOK if busy is not None else target.client.quiet_seconds / 2)
    return False


def _record(context: Context, client: Client, record: AgentRecord, problem: str | None) -> AgentRecord:
    """Note that the first prompt is no longer on its way; without it the agent is up and waits for one."""
    try:
        with context.registry.transaction("record the first prompt") as state:
            row = state.agents.get(record.id)
            if row is None or not observe.is_same_start(row, record):
                return _warned(record, problem)
            after = _warned(row, problem)
            # A client without events shows by its screen whether it waits.
            if problem and client.reports_events and row.status is AgentStatus.RUNNING and row.kickoff_pending:
                waiting = replace(
                    after, status=AgentStatus.WAITING_USER, waiting_for=WaitingFor.PROMPT, stops=row.stops + 1
                )
                after = observe.count_stop(state, row, waiting)
            after = replace(after, kickoff_pending=None)
            state.put(after)
    except SideAgentsError as error:
        # The agent runs, whatever cannot be written about it.
        return _warned(record, problem or error.message)
    return after


def _warned(record: AgentRecord, problem: str | None) -> AgentRecord:
    return replace(record, warnings=(*record.warnings, problem)) if problem else record
