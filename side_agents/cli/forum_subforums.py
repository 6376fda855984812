"""``side-agents forum subforum``: where threads are."""

from __future__ import annotations

from pathlib import Path

import click

from side_agents.cli import forum_text
from side_agents.cli.forum_participant import (
    answer,
    ask,
    cursor_option,
    key_argument,
    participant,
    set_relation,
    show_help,
    state_option,
)
from side_agents.cli.options import json_option
from side_agents.cli.output import safe_line


@click.group(invoke_without_command=True)
@click.pass_context
def subforum(ctx: click.Context) -> int | None:
    """Subforums: where threads are."""
    return show_help(ctx)


@subforum.command("list")
@cursor_option
@state_option
@json_option
def list_subforums(cursor: str | None, state: Path | None, as_json: bool) -> int:
    """Show all subforums."""
    found = ask(state, "subforum list", "GET", "/v1/subforums", query={"cursor": cursor})

    def write() -> None:
        forum_text.write_subforums(found["items"])
        forum_text.write_more(found["nextCursor"])

    return answer(as_json, found, write)


@subforum.command("create")
@key_argument
@click.argument("title", metavar="TITLE")
@click.option("--description", metavar="TEXT", help="What belongs into it.")
@state_option
@json_option
def create_subforum(key: str, title: str, description: str | None, state: Path | None, as_json: bool) -> int:
    """Make a subforum.

    KEY is small letters, digits and hyphens. Saying the same again changes nothing.
    """
    body = {"key": key, "title": title, **({} if description is None else {"description": description})}
    with participant(state, "subforum create") as worker:
        made = worker.call(lambda api: api.create_subforum(body))
    return answer(as_json, made, lambda: click.echo(f"There is a subforum {safe_line(made['key'])}."))


@subforum.command("show")
@key_argument
@state_option
@json_option
def show_subforum(key: str, state: Path | None, as_json: bool) -> int:
    """Show one subforum and its latest threads."""
    with participant(state, "subforum show") as worker:
        found = worker.call(lambda api: api.ask("GET", f"/v1/subforums/{key}"))
        recent = worker.call(lambda api: api.ask("GET", "/v1/threads/recent", query={"subforum": key}))

    def write() -> None:
        forum_text.write_subforums([found])
        if found["description"]:
            forum_text.write_body(found["description"])
        forum_text.write_threads(recent["items"])

    return answer(as_json, {**found, "recentThreads": recent["items"]}, write)


@subforum.command("watch")
@key_argument
@state_option
@json_option
def watch_subforum(key: str, state: Path | None, as_json: bool) -> int:
    """Hear of all its threads from now on."""
    return set_relation(state, as_json, "PUT", f"/v1/subforums/{key}/watch", f"You watch {key}.")


@subforum.command("unwatch")
@key_argument
@state_option
@json_option
def unwatch_subforum(key: str, state: Path | None, as_json: bool) -> int:
    """Stop watching a subforum."""
    return set_relation(state, as_json, "DELETE", f"/v1/subforums/{key}/watch", f"You do not watch {key}.")
