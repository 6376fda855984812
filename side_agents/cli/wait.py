"""``side-agents wait``: sleep until an agent needs somebody."""

from __future__ import annotations

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agents_argument, json_option
from side_agents.cli.output import write_json
from side_agents.errors import UsageError
from side_agents.models import AgentStatus

STATES = tuple(str(status) for status in AgentStatus if not status.is_starting)


@click.command(
    epilog="""\b
Examples:
  side-agents wait fix-login docs
  side-agents wait fix-login --after 17 --timeout 600
  side-agents wait fix-login docs --all --state done --state failed --state crashed
"""
)
@agents_argument
@click.option("--after", type=click.IntRange(0), metavar="CURSOR", help="Only for something newer than this cursor.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after it (exit status 10).")
@click.option("--all", "everyone", is_flag=True, help="Wait for all of them instead of the first.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Wait for this; repeatable.")
@json_option
def wait(  # noqa: PLR0917 - click passes them by name
    agent_ids: tuple[str, ...],
    after: int | None,
    timeout: float | None,
    everyone: bool,
    states: tuple[str, ...],
    as_json: bool,
) -> int:
    """Wait until one of the agents waits for you, has ended, failed or crashed.

    Prints that agent and a cursor. With --after CURSOR the next wait answers only for something newer, so that a loop
    never sees the same stop twice.
    """
    if not agent_ids:
        raise UsageError("There are no agents to wait for.", hint="Give one id or more; `side-agents list` shows them.")
    if everyone and after is not None:
        raise UsageError("--after goes with the first agent, not with --all.")
    from side_agents.core import views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.wait import DEFAULT_STATES, wait_all, wait_any

    wanted = frozenset(map(AgentStatus, states)) or DEFAULT_STATES
    context = open_here()
    if everyone:
        found = wait_all(context, agent_ids, states=wanted, timeout=timeout)
    else:
        found = [wait_any(context, agent_ids, after=after, states=wanted, timeout=timeout)]
    follow_up(context)
    if as_json and everyone:
        cursor = max((waited.cursor for waited in found), default=0)
        write_json({"ok": True, "agents": [views.waited_view(waited) for waited in found], "cursor": cursor})
    elif as_json:
        write_json(views.waited_view(found[0]))
    else:
        from side_agents.cli.check import write_agent

        for waited in found:
            write_agent(waited.checked)
        click.echo(f"cursor {max(waited.cursor for waited in found)}")
    return 0
