"""``side-agents notices``: what became of the agents that this session started, each change told once."""

from __future__ import annotations

import json
import select
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here
from side_agents.cli.interruption import held
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, write_json

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.core.notice_feed import Feed, Told
    from side_agents.models import AgentRecord

_SETTLE = 5.0


@click.command(
    epilog="""\b
Examples:
  side-agents notices                        what is new since you asked last
  side-agents notices --follow               stream, for a person
  side-agents notices --follow --json        stream, one JSON object a line
"""
)
@click.option("--follow", is_flag=True, help="Stream notices until interrupted.")
@click.option("--settle", type=click.FloatRange(0), metavar="SECONDS", help="With --follow: quiet time, by default 5.")
@click.option("--session", metavar="NAME", help="Your own session, if SIDE_AGENTS_SESSION does not name it.")
@json_option
def notices(follow: bool, settle: float | None, session: str | None, as_json: bool) -> int:
    """Tell each change of the agents that this session started, and of orphans that it adopted, once.

    An agent is told of its own children; a main session of its own agents, or of all agents of main where no session is
    named. Bursts are merged; an end is told at once, anything else when it has been quiet for a while.
    """
    from side_agents.core import notice_reader, routing

    context = open_here()
    who = routing.listener_of(context.caller, session)
    if not follow and not context.paths.registry.exists():
        _write_all(context, [], as_json)
        return 0
    if follow:
        _await_first_use(context)
    with notice_reader.locked(context, who, timeout=0 if follow else 10.0):
        feed = notice_reader.open_feed(context, who)
        if follow:
            return _follow(context, feed, timedelta(seconds=_SETTLE if settle is None else settle), as_json)
        _look(context, feed)
        told = _due(feed, timedelta(0))
        _write_all(context, told, as_json)
        feed.confirm(told)
    return 0


def _await_first_use(context: Context) -> None:
    """Reading creates nothing, so before there is any state a stream only waits for it."""
    from side_agents.infra import events

    with events.Watcher([context.paths.registry]) as watcher:
        while not context.paths.registry.exists():
            watcher.wait(None)


def _look(context: Context, feed: Feed) -> tuple[AgentRecord, ...]:
    from side_agents.core import notice_reader
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import list_agents

    records = list_agents(context, probe=False).records
    notice_reader.collect(context, feed)
    follow_up(context)
    return records


def _due(feed: Feed, settle: timedelta) -> list[Told]:
    from side_agents.infra import clock

    return feed.due(clock.now(), settle)


def _follow(context: Context, feed: Feed, settle: timedelta, as_json: bool) -> int:
    from side_agents.core.watching import pause, watch_new
    from side_agents.infra import clock, events

    with events.Watcher([context.paths.registry]) as watcher:
        watched: set[object] = set()
        while True:
            records = _look(context, feed)
            if watch_new(context, watcher, watched, records):
                # What happened before the watch was in place would be missed without a second look.
                continue
            _tell(feed, _due(feed, settle), as_json)
            left = feed.seconds_left(clock.now(), settle)
            longest = pause(context, records)
            watcher.wait(longest if left is None else min(longest, left))


def _tell(feed: Feed, told: list[Told], as_json: bool) -> None:
    """Print what is due and note each as told; a signal between the two would make the next reader tell it again."""
    for each in told:
        # Waiting for a reader that does not read must stay stoppable. What has no descriptor never blocks.
        with suppress(ValueError, OSError):
            select.select([], [sys.stdout], [])
        with held():
            _write_line(each, as_json)
            feed.confirm([each])


def _write_line(told: Told, as_json: bool) -> None:
    from side_agents.core import notice_feed
    from side_agents.infra import clock

    if as_json:
        click.echo(json.dumps(notice_feed.as_json(told, clock.iso()), ensure_ascii=False))
    else:
        click.echo(notice_feed.describe(told))


def _write_all(context: Context, told: list[Told], as_json: bool) -> None:
    from side_agents.core import notice_feed, notice_sinks
    from side_agents.infra import clock

    problems = [safe(problem) for problem in notice_sinks.trouble(context)]
    if as_json:
        found = [notice_feed.as_json(each, clock.iso()) for each in told]
        write_json({"ok": True, "notices": found, "problems": problems})
    else:
        for each in told:
            _write_line(each, as_json=False)
        if not told:
            click.echo("Nothing new.")
        for problem in problems:
            click.echo(f"{click.style('warning:', fg='yellow')} a notice could not be passed on: {problem}", err=True)
    sys.stdout.flush()
