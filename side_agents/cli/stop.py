"""``side-agents stop``: end agents, keep their work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agents_argument, json_option, require_confirmation
from side_agents.cli.output import safe, write_json
from side_agents.errors import SideAgentsError, UsageError

if TYPE_CHECKING:
    from side_agents.core.context import Context


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
    from side_agents.core import tree as children
    from side_agents.core import views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.stop import stop as stop_agent

    context = open_here()
    records = context.registry.read().agents.values()
    below = children.below(agent_ids, records)
    names = children.children_first((*below, *agent_ids), records) if tree else list(agent_ids)
    left = f" {', '.join(below)}, started by them, will go on (--tree stops them too)." if below and not tree else ""
    require_confirmation(f"Stop {', '.join(names)}? The work is kept.{left}", yes=yes, as_json=as_json)
    answers: list[dict[str, object]] = []
    worst = 0
    # While their children end, agents may start more.
    for name in _with_newcomers(context, names) if tree else names:
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
            click.echo(f"{click.style('stopped', fg='green')} {name}  {safe(_left(stopped.kept))}")
            for pid in stopped.survivors:
                click.echo(f"error: process {pid} could not be ended.", err=True)
    follow_up(context)
    if as_json:
        single = answers[0] if len(names) == 1 else {"ok": all(answer["ok"] for answer in answers), "agents": answers}
        write_json(single)
    return worst


def _left(kept: str) -> str:
    """What is left of an agent: a list of things, or a sentence where it had ended before or never ran."""
    before = "it had ended before; "
    if kept.startswith(before):
        return f"It had ended before; kept: {kept.removeprefix(before)}"
    # Words about its slot are there only where the start did not get as far as the agent.
    if kept.startswith(("the slot ", "nothing ", "/")):
        return f"Its start had been cut off: {kept}."
    return f"kept: {kept}"


def _with_newcomers(context: Context, names: list[str]) -> Iterator[str]:
    """The names in their order, and at the end what was started below them meanwhile, which is added to them."""
    from side_agents.core.tree import below

    done = 0
    while done < len(names):
        yield names[done]
        done += 1
        if done == len(names):
            names += [name for name in below(names, context.registry.read().agents.values()) if name not in names]
