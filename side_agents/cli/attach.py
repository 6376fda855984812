"""``side-agents attach``: go to an agent's window."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import environment, open_here
from side_agents.cli.options import agent_argument, json_option
from side_agents.cli.output import write_json
from side_agents.errors import NotFoundError, NotInTmuxError, RefusedError, TmuxUnreachableError

if TYPE_CHECKING:
    from side_agents.infra.tmux import PaneInfo, Tmux
    from side_agents.models import AgentRecord


@click.command()
@agent_argument
@json_option
def attach(agent_id: str, as_json: bool) -> int:
    """Go to the window of agent ID: switches the terminal inside tmux, attaches to tmux outside.

    With --json the window is only selected, for whoever looks at that session.
    """
    from side_agents.infra.tmux import Tmux

    context = open_here()
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
    pane = _present_pane(tmux, record)
    if as_json:
        tmux.select_window(pane.window_id)
        write_json({"ok": True, "id": agent_id, "tmuxWindowId": pane.window_id, "tmuxWindowIndex": pane.window_index})
        return 0
    variables = environment()
    try:
        caller = Tmux.current(variables)
    except NotInTmuxError:
        outside = {name: value for name, value in variables.items() if name not in ("TMUX", "TMUX_PANE")}
        tmux.attach(pane.pane_id, pane.session_id, env=outside)
    if caller.server != record.tmux_server:
        raise RefusedError(
            f"{agent_id} lives in another tmux server than this terminal. Nothing was changed.",
            hint=f"From a terminal outside of tmux: side-agents attach {agent_id}",
        )
    tmux.select_window(pane.window_id)
    tmux.show_pane(pane.pane_id)
    return 0


def _present_pane(tmux: Tmux, record: AgentRecord) -> PaneInfo:
    from side_agents.infra.tmux import Presence

    sweep = tmux.sweep()
    pane_id = record.tmux_pane_id or ""
    presence = sweep.presence(pane_id, record.tmux_server, record.id)
    if presence is Presence.UNKNOWN:
        raise TmuxUnreachableError(
            f"tmux does not answer, so the window of {record.id} cannot be shown. {sweep.detail}"
        )
    if presence is Presence.ABSENT:
        raise NotFoundError(
            f"The window of {record.id} is gone.", hint=f"`side-agents check {record.id}` says what happened to it."
        )
    return sweep.panes[pane_id]
