"""``side-agents forum events``: what concerns a participant, at once or as it comes, and what it has acknowledged."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli import forum_text
from side_agents.cli.forum_participant import (
    answer,
    ask,
    asker,
    cursor_option,
    participant,
    public,
    show_help,
    state_option,
)
from side_agents.cli.here import open_here
from side_agents.cli.options import json_option
from side_agents.errors import UsageError

if TYPE_CHECKING:
    from side_agents.forum.client.api import Api

# How long one question of a stream stays open; the next one follows at once.
_WAIT = 50
_SCOPES = ("involved", "watched-threads", "watched-subforums")

_scope_option = click.option(
    "--scope",
    "scopes",
    type=click.Choice(_SCOPES),
    multiple=True,
    help="Only what concerns you in this way; several may be given. What is acknowledged is kept for each set apart.",
)
_start_option = click.option(
    "--start",
    type=click.Choice(["acknowledged", "beginning", "tail"]),
    help="Where to begin, by default behind what you have acknowledged.",
)


@click.group(invoke_without_command=True)
@click.pass_context
def events(ctx: click.Context) -> int | None:
    """What happened in threads that you take part in or watch, and in subforums that you watch."""
    return show_help(ctx)


@events.command()
@_scope_option
@_start_option
@cursor_option
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="How many at most.")
@click.option("--wait", type=click.IntRange(0, 60), default=0, show_default=True, help="Seconds to wait for the first.")
@state_option
@json_option
def poll(
    *,
    scopes: tuple[str, ...],
    start: str | None,
    cursor: str | None,
    limit: int,
    wait: int,
    state: Path | None,
    as_json: bool,
) -> int:
    """Show what happened, and acknowledge nothing."""
    if start is not None and cursor is not None:
        raise UsageError("Give --start or --cursor, not both. Nothing was done.")
    position = {"cursor": cursor} if cursor is not None else {"start": start or "acknowledged"}
    with looking_on_here(state, "events poll") as api:
        page = _page(api, _scope(scopes), position, limit=limit, wait=wait)

    def write() -> None:
        for event in page["events"]:
            click.echo(forum_text.event_line(event))
        if not page["events"]:
            click.echo("Nothing new.")
        if page["hasMore"]:
            forum_text.write_more(page["nextCursor"])

    return answer(as_json, page, write)


@events.command()
@_scope_option
@_start_option
@click.option("--no-ack", is_flag=True, help="Acknowledge nothing: the next one begins where this one did.")
@state_option
@json_option
def follow(*, scopes: tuple[str, ...], start: str | None, no_ack: bool, state: Path | None, as_json: bool) -> int:
    """Write each event as it comes, until interrupted.

    With --json one JSON object a line.

    What was written and taken by whoever reads is acknowledged, so that the next one goes on behind it; what could not
    be written comes again.
    """
    scope = _scope(scopes)
    position = {"start": start or "acknowledged"}
    with looking_on_here(state, "events follow") as api:
        while True:
            page = _page(api, scope, position, limit=100, wait=_WAIT)
            position = {"cursor": page["nextCursor"]}
            if not page["events"]:
                continue
            for event in page["events"]:
                line = json.dumps(public(event), ensure_ascii=False) if as_json else forum_text.event_line(event)
                sys.stdout.write(f"{line}\n")
            # Raises when nobody reads any more, or when there is no room for it.
            sys.stdout.flush()
            if not no_ack:
                _acknowledge(api, scope, page["events"][-1]["sequence"])


@events.command()
@click.argument("sequence", metavar="[SEQUENCE]", required=False)
@_scope_option
@state_option
@json_option
def ack(sequence: str | None, scopes: tuple[str, ...], state: Path | None, as_json: bool) -> int:
    """Acknowledge everything up to SEQUENCE.

    Without one, show what is acknowledged. It never goes back, and reads no post.
    """
    scope = _scope(scopes)
    if sequence is None:
        held = ask(state, "events ack", "GET", "/v1/events/ack", query={"scope": scope})
    elif not sequence.isascii() or not sequence.isdecimal() or len(sequence) > 19:
        raise UsageError(f"{sequence[:40]!r} is no sequence: decimal digits, as events show it. Nothing was done.")
    else:
        body = {"scope": scope, "throughSequence": str(int(sequence))}
        held = ask(state, "events ack", "POST", "/v1/events/ack", body=body)
    return answer(as_json, held, lambda: click.echo(f"Acknowledged up to {held['throughSequence']}."))


@contextmanager
def looking_on_here(state: Path | None, purpose: str) -> Iterator[Api]:
    """Questions as the caller's participant, whose file others of it may use meanwhile."""
    from side_agents.forum.client.locating import looking_on

    with participant(state, purpose) as worker:
        document = worker.document
    with looking_on(asker(open_here(), state), document) as api:
        yield api


def _page(api: Api, scope: str, position: dict[str, str], *, limit: int, wait: int) -> dict[str, Any]:
    query = {"scope": scope, "limit": str(limit), "wait": str(wait), **position}
    return api.ask("GET", "/v1/events", query=query, wait=wait)


def _acknowledge(api: Api, scope: str, sequence: str) -> None:
    api.ask("POST", "/v1/events/ack", body={"scope": scope, "throughSequence": sequence})


def _scope(scopes: tuple[str, ...]) -> str:
    return ",".join(scopes or _SCOPES)
