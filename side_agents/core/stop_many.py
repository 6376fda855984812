"""Stopping several agents, and on request those that they started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from side_agents.core import stop as ending
from side_agents.core import tree as family
from side_agents.core.context import Context
from side_agents.core.results import Stopped
from side_agents.errors import SideAgentsError


def chosen(context: Context, agent_ids: Sequence[str], *, tree: bool) -> tuple[list[str], list[str]]:
    """Who would be stopped, in order, children first; and who was started below those that are named."""
    records = context.registry.read().agents.values()
    below = family.below(agent_ids, records)
    return (family.children_first((*below, *agent_ids), records) if tree else list(agent_ids)), below


def stop_each(
    context: Context,
    names: Sequence[str],
    *,
    tree: bool = False,
    quit: bool = False,  # noqa: A002 - as for stop
) -> Iterator[tuple[str, Stopped | SideAgentsError]]:
    """Stop one after the other; the failure of one hinders no other. ``tree`` includes what they start meanwhile."""
    for name in _with_newcomers(context, list(names)) if tree else names:
        try:
            yield name, ending.stop(context, name, quit=quit)
        except SideAgentsError as error:
            yield name, error


def _with_newcomers(context: Context, names: list[str]) -> Iterator[str]:
    """The names in their order, and at the end what was started below them meanwhile."""
    done = 0
    while done < len(names):
        yield names[done]
        done += 1
        if done == len(names):
            names += [
                name for name in family.below(names, context.registry.read().agents.values()) if name not in names
            ]
