"""Loading what the hot calls need before they come (DESIGN 10: an agent-start answers within 80 ms)."""

from __future__ import annotations

from importlib import import_module

from side_agents.companion.inputs import StartByHand
from side_agents.core.context import Context
from side_agents.errors import SideAgentsError
from side_agents.infra import fs
from side_agents.schemas import prepare
from side_agents.tools.table import TOOLS

# What the tools import when they are called; the rest of the commands may take its time.
_MODULES = (
    "core.start", "core.observe", "core.wait", "core.send", "core.backlog", "core.aftermath", "core.views",
)  # fmt: skip


def warm(context: Context) -> None:
    """Load everything that a tool call would load, and have git asked for its version. Changes nothing, never fails."""
    for name in _MODULES:
        import_module(f"side_agents.{name}")
    prepare(StartByHand)
    for tool in TOOLS.values():
        prepare(tool.input)
    fs.load_locks()
    from side_agents.infra.git import Git
    from side_agents.infra.tmux_call import load_changes

    load_changes()
    try:
        Git(context.checkout).status_entries()
    except SideAgentsError:
        # Whatever is wrong with the repository, the call that needs it will say.
        return
