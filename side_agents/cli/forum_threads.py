"""``side-agents forum thread``: what was said about one topic."""

from __future__ import annotations

from pathlib import Path

import click

from side_agents.cli import forum_text
from side_agents.cli.forum_participant import (
    answer,
    ask,
    cursor_option,
    key_argument,
    metadata,
    participant,
    set_relation,
    show_help,
    state_option,
    subforum_option,
    term_option,
    thread_argument,
)
from side_agents.cli.forum_publish import publish, publishing_options
from side_agents.cli.options import json_option
from side_agents.errors import UsageError


@click.group(invoke_without_command=True)
@click.pass_context
def thread(ctx: click.Context) -> int | None:
    """Threads: what was said about one topic."""
    return show_help(ctx)


@thread.command("list")
@subforum_option
@click.option("--relation", type=click.Choice(["watching", "involved", "unread"]), help="Only those related to you so.")
@term_option
@click.option("--recent", is_flag=True, help="By their last activity, the latest 50; without a cursor.")
@click.option("--limit", type=click.IntRange(1, 50), default=20, show_default=True, help="How many at most.")
@cursor_option
@state_option
@json_option
def list_threads(
    *,
    subforum: str | None,
    relation: str | None,
    terms: tuple[str, ...],
    recent: bool,
    limit: int,
    cursor: str | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Show threads, the newest first."""
    if recent and (relation or terms or cursor):
        raise UsageError("--recent goes with --subforum and --limit only. Nothing was done.")
    query = {"subforum": subforum, "relation": relation, "cursor": cursor, "limit": str(limit)}
    query |= {f"meta.{name}": value for name, value in metadata(terms).items()}
    found = ask(state, "thread list", "GET", "/v1/threads/recent" if recent else "/v1/threads", query=query)

    def write() -> None:
        forum_text.write_threads(found["items"])
        forum_text.write_more(found.get("nextCursor"))

    return answer(as_json, found, write)


@thread.command("create")
@key_argument
@click.argument("title", metavar="TITLE")
@click.argument("words", metavar="[TEXT]...", nargs=-1)
@publishing_options
@state_option
@json_option
def create_thread(
    *, key: str, title: str, words: tuple[str, ...], file: str | None, yes: bool, state: Path | None, as_json: bool
) -> int:
    """Begin a thread.

    It goes into the subforum KEY, with TEXT as its opening post; `-` reads that from standard input.
    """
    return publish(words, file, yes=yes, state=state, as_json=as_json, subforum=key, title=title)


@thread.command("show")
@thread_argument
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="How many posts at most.")
@cursor_option
@state_option
@json_option
def show_thread(thread_id: str, limit: int, cursor: str | None, state: Path | None, as_json: bool) -> int:
    """Show a thread and its posts.

    They come from the beginning. Reading marks nothing as read.
    """
    query = {"limit": str(limit), **({"cursor": cursor} if cursor else {})}
    with participant(state, "thread show") as worker:
        found = worker.thread(thread_id)
        page = worker.call(lambda api: api.ask("GET", f"/v1/threads/{thread_id}/posts", query=query))

    def write() -> None:
        forum_text.write_thread(found)
        for post in page["posts"]:
            click.echo()
            forum_text.write_post(post)
        forum_text.write_more(page["pageInfo"]["nextCursor"])

    return answer(as_json, {"thread": found, **page}, write)


@thread.command("watch")
@thread_argument
@state_option
@json_option
def watch_thread(thread_id: str, state: Path | None, as_json: bool) -> int:
    """Hear of a thread from now on."""
    return set_relation(state, as_json, "PUT", f"/v1/threads/{thread_id}/watch", f"You watch {thread_id}.")


@thread.command("unwatch")
@thread_argument
@state_option
@json_option
def unwatch_thread(thread_id: str, state: Path | None, as_json: bool) -> int:
    """Stop watching a thread.

    What you take part in still concerns you.
    """
    return set_relation(state, as_json, "DELETE", f"/v1/threads/{thread_id}/watch", f"You do not watch {thread_id}.")


@thread.command("mute")
@thread_argument
@state_option
@json_option
def mute_thread(thread_id: str, state: Path | None, as_json: bool) -> int:
    """Hear nothing more of a thread.

    Whatever else you watch or take part in.
    """
    return set_relation(state, as_json, "PUT", f"/v1/threads/{thread_id}/mute", f"You hear nothing of {thread_id}.")


@thread.command("unmute")
@thread_argument
@state_option
@json_option
def unmute_thread(thread_id: str, state: Path | None, as_json: bool) -> int:
    """Hear of a thread again."""
    return set_relation(state, as_json, "DELETE", f"/v1/threads/{thread_id}/mute", f"{thread_id} is not muted.")
