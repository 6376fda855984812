"""``side-agents stop``: end agents, keep their work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agents_argument, json_option, require_confirmation
from side_agents.cli.output import safe, write_json
from side_agents.errors import SideAgentsError, UsageError

if TYPE_CHECKING:
    from side_agents.models import AgentRecord


@click.command()
@agents_argument
@click.option("--quit", "politely", is_flag=True, help="Let the client quit by its own command first.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--tree", is_flag=True, help="Also the agents that they started, and those below.")
@json_option
def stop(agent_ids: tuple[str, ...], politely: bool, yes: bool, tree: bool, as_json: bool) -> int:
    """End agents and clear their records; branch, worktree and uncommitted files are kept.

    A running agent's processes are ended. A failed or crashed one is only taken off the list.
    """
    if not agent_ids:
        raise UsageError("There are no agents to stop.", hint="Give one id or more; `side-agents list` shows them.")
    from side_agents.core import views
    from side_agents.core.stop import stop as stop_agent

    context = open_here()
    below = _below(agent_ids, context.registry.read().agents.values())
    names = (*reversed(below), *agent_ids) if tree else agent_ids
    left = f" {', '.join(below)}, started by them, will go on (--tree stops them too)." if below and not tree else ""
    require_confirmation(f"Stop {', '.join(names)}? The work is kept.{left}", yes=yes, as_json=as_json)
    answers: list[dict[str, object]] = []
    worst = 0
    for name in names:
        try:
            stopped = stop_agent(context, name, quit=politely)
        except SideAgentsError as error:
            # The others are stopped all the same: each is a job of its own.
            if len(names) == 1:
                raise
            worst = worst or error.exit_status
            answers.append(views.failure_view(error) | {"id": name})
            if not as_json:
                click.echo(f"error: {safe(error.message)}", err=True)
            continue
        answers.append(views.stopped_view(stopped))
        worst = worst or int(bool(stopped.survivors))
        if not as_json:
            click.echo(f"{click.style('stopped', fg='green')} {name}  kept: {safe(stopped.kept)}")
            for pid in stopped.survivors:
                click.echo(f"error: process {pid} could not be ended.", err=True)
    if as_json:
        single = answers[0] if len(names) == 1 else {"ok": all(answer["ok"] for answer in answers), "agents": answers}
        write_json(single)
    return worst


def _below(agent_ids: Sequence[str], records: Collection[AgentRecord]) -> list[str]:
    """Ids of all agents that these started, directly or not, nearest first; those given are left out."""
    found: list[str] = []
    level = set(agent_ids)
    while level:
        level = {record.id for record in records if record.parent_agent_id in level} - {*agent_ids, *found}
        found += sorted(level)
    return found
