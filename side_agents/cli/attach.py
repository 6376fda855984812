"""``side-agents attach``: go to an agent's window."""

from __future__ import annotations

import click

from side_agents.cli.here import environment, open_here
from side_agents.cli.options import agent_argument, json_option
from side_agents.cli.output import write_json
from side_agents.errors import NotInTmuxError


@click.command()
@agent_argument
@json_option
def attach(agent_id: str, as_json: bool) -> int:
    """Go to the window of agent ID: switches the terminal inside tmux, attaches to tmux outside.

    With --json the window is only selected, for whoever looks at that session.
    """
    from side_agents.core import window_jump

    found = window_jump.find(open_here(), agent_id)
    pane = found.pane
    if as_json:
        found.tmux.select_window(pane.window_id)
        write_json({"ok": True, "id": agent_id, "tmuxWindowId": pane.window_id, "tmuxWindowIndex": pane.window_index})
        return 0
    variables = environment()
    try:
        window_jump.show(found, variables)
    except NotInTmuxError:
        outside = {name: value for name, value in variables.items() if name not in ("TMUX", "TMUX_PANE")}
        found.tmux.attach(pane.pane_id, pane.session_id, env=outside)
    return 0
