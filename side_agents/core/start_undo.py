"""Taking a failed start back in reverse order, and saying what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from side_agents.core import leases, observe, slots
from side_agents.core.context import Context
from side_agents.core.start_plan import StartPlan
from side_agents.core.start_row import is_same, require_row
from side_agents.errors import (
    SideAgentsError,
    StartFailedError,
    TmuxUnreachableError,
)
from side_agents.infra import clock, processes
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, AgentStatus


def leave_undecided(context: Context, record: AgentRecord, error: TmuxUnreachableError) -> StartFailedError:
    """tmux may open the window once it wakes up: nothing is taken back, and the next look finds out.

    The row loses its owner, so that this look need not wait for the end of the present process.
    """
    with context.registry.transaction("record a start without an answer") as state:
        require_row(state, record)
        state.put(replace(record, owner=processes.ended(record.owner.pid if record.owner else 0)))
    return StartFailedError(
        f"tmux did not answer while the window of {record.id} was being opened, so it is not known whether it runs. "
        f"Its worktree and branch are kept. {error.message}",
        hint="`side-agents list` shows what became of it as soon as tmux answers.",
    )


def roll_back(context: Context, plan: StartPlan, record: AgentRecord, error: BaseException) -> StartFailedError:
    """Take back in reverse order; the row stays as ``failed`` with the reason and claims nothing (F-A5).

    Each part is tried whatever became of the others; the error says what is left.
    """
    reason = error.message if isinstance(error, SideAgentsError) else f"{type(error).__name__}: {error}"
    left = [
        _attempt("its window", lambda: _close_window(plan, record)),
        _attempt("its slot", lambda: _give_slot_back(record)),
        _attempt("its entry", lambda: _record_failure(context, record, reason)),
    ]
    hint = error.hint if isinstance(error, SideAgentsError) else None
    return StartFailedError(
        f"Agent {record.id} could not be started: {_sentence(reason)} It was taken back: {'; '.join(filter(None, left))}.",
        hint=hint or f"`side-agents stop {record.id}` clears its entry from the list.",
    )


def _sentence(text: str) -> str:
    """The text so that another sentence can follow."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _attempt(what: str, step: Callable[[], str]) -> str:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other parts have to be tried
        return f"{what} is left as it is ({error})"


def _close_window(plan: StartPlan, record: AgentRecord) -> str:
    if record.status is not AgentStatus.SPAWNING_TMUX:
        return ""
    tmux = Tmux(plan.pane.socket)
    for pane in tmux.sweep().panes.values():
        if pane.agent_tag == record.id:
            launched = processes.identify(pane.pane_pid)
            processes.end_tree([*processes.descendants(pane.pane_pid), *((launched,) if launched else ())])
            tmux.kill_window(pane.window_id, expect_pane=pane.pane_id, expect_tag=record.id)
    return ""


def _give_slot_back(record: AgentRecord) -> str:
    slot = Path(record.worktree_path or "")
    left = slots.leave(slot, record.branch or "", None if record.branch_existed else record.base_commit)
    leases.release(slot, record.id)
    return left


def _record_failure(context: Context, record: AgentRecord, reason: str) -> str:
    with context.registry.transaction("record a failed start") as state:
        row = state.agents.get(record.id)
        if row is None or not is_same(row, record):
            return "its entry had been cleared"
        failed = replace(
            row, status=AgentStatus.FAILED, error=reason, finished_at=clock.iso(), worktree_path=None, forum=None
        )
        state.put(observe.count_stop(state, row, failed))
    return ""
