"""``side-agents stop``: end agents, keep their work."""

from __future__ import annotations

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agents_argument, json_option, require_confirmation
from side_agents.cli.output import safe, write_json
from side_agents.errors import SideAgentsError, UsageError


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
    from side_agents.core import stop_many, views
    from side_agents.core.aftermath import follow_up

    context = open_here()
    names, below = stop_many.chosen(context, agent_ids, tree=tree)
    left = f" {', '.join(below)}, started by them, will go on (--tree stops them too)." if below and not tree else ""
    require_confirmation(f"Stop {', '.join(names)}? The work is kept.{left}", yes=yes, as_json=as_json)
    answers: list[dict[str, object]] = []
    worst = 0
    # While their children end, agents may start more.
    for name, stopped in stop_many.stop_each(context, names, tree=tree, quit=politely):
        if isinstance(stopped, SideAgentsError):
            # The others are stopped all the same: each is a job of its own.
            if len(names) == 1 and not answers:
                raise stopped
            worst = worst or stopped.exit_status
            answers.append(views.failure_view(stopped) | {"id": name})
            if not as_json:
                click.echo(f"error: {safe(stopped.message)}", err=True)
            continue
        answers.append(views.stopped_view(stopped))
        worst = worst or int(bool(stopped.survivors))
        if not as_json:
            click.echo(f"{click.style('stopped', fg='green')} {name}  {safe(_left(stopped.kept))}")
            for pid in stopped.survivors:
                click.echo(f"error: process {pid} could not be ended.", err=True)
    follow_up(context)
    if as_json:
        single = answers[0] if len(answers) == 1 else {"ok": all(answer["ok"] for answer in answers), "agents": answers}
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
