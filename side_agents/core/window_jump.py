"""Finding an agent's window and taking somebody there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from side_agents.core.context import Context
from side_agents.errors import NotFoundError, RefusedError, TmuxUnreachableError
from side_agents.infra.tmux import PaneInfo, Presence, Tmux
from side_agents.models import AgentRecord


@dataclass(frozen=True, slots=True)
class AgentPane:
    """The pane of an agent as it is now."""

    tmux: Tmux
    record: AgentRecord
    pane: PaneInfo


def find(context: Context, agent_id: str) -> AgentPane:
    """The pane of an agent. Raises UnknownAgentError, NotFoundError for one without a window, TmuxUnreachableError."""
    record = context.registry.read().agents.get(agent_id)
    if record is None:
        if context.registry.tombstone(agent_id) is not None:
            raise NotFoundError(
                f"{agent_id} has ended and has no window any more.", hint=f"Its work: side-agents diff {agent_id}"
            )
        raise context.registry.unknown(agent_id)
    if record.tmux_socket is None or record.tmux_pane_id is None:
        raise NotFoundError(f"{agent_id} has no window.", hint=f"`side-agents check {agent_id}` says why.")
    tmux = Tmux(Path(record.tmux_socket))
    sweep = tmux.sweep()
    presence = sweep.presence(record.tmux_pane_id, record.tmux_server, record.id)
    if presence is Presence.UNKNOWN:
        raise TmuxUnreachableError(
            f"tmux does not answer, so the window of {record.id} cannot be shown. {sweep.detail}"
        )
    if presence is Presence.ABSENT:
        raise NotFoundError(
            f"The window of {record.id} is gone.", hint=f"`side-agents check {record.id}` says what happened to it."
        )
    return AgentPane(tmux, record, sweep.panes[record.tmux_pane_id])


def show(found: AgentPane, environment: Mapping[str, str]) -> None:
    """Take the terminal that ``environment`` is in to the pane.

    Raises NotInTmuxError outside of tmux, RefusedError in another tmux server than the agent's; nothing was changed.
    """
    caller = Tmux.current(environment)
    if caller.server != found.record.tmux_server:
        raise RefusedError(
            f"{found.record.id} lives in another tmux server than this terminal. Nothing was changed.",
            hint=f"From a terminal outside of tmux: side-agents attach {found.record.id}",
        )
    found.tmux.select_window(found.pane.window_id)
    found.tmux.show_pane(found.pane.pane_id)
