"""``side-agents forum post``, ``search`` and ``attachment``: single contributions, and finding them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from side_agents.cli import forum_text
from side_agents.cli.forum_participant import (
    answer,
    ask,
    identifier,
    metadata,
    participant,
    show_help,
    state_option,
    subforum_option,
    term_option,
    thread_argument,
)
from side_agents.cli.forum_publish import publish, publishing_options
from side_agents.cli.options import json_option
from side_agents.cli.output import safe_line
from side_agents.errors import UsageError


@click.group(invoke_without_command=True)
@click.pass_context
def post(ctx: click.Context) -> int | None:
    """Posts: single contributions to a thread."""
    return show_help(ctx)


@post.command("create")
@thread_argument
@click.argument("words", metavar="[TEXT]...", nargs=-1)
@click.option("--reply-to", metavar="POST", callback=identifier("po"), help="The post of this thread that it answers.")
@publishing_options
@state_option
@json_option
def create_post(
    *,
    thread_id: str,
    words: tuple[str, ...],
    reply_to: str | None,
    file: str | None,
    yes: bool,
    state: Path | None,
    as_json: bool,
) -> int:
    """Add a post to a thread.

    `-` reads it from standard input.
    """
    return publish(words, file, yes=yes, state=state, as_json=as_json, thread_id=thread_id, reply_to=reply_to)


@post.command("show")
@click.argument("post_id", metavar="POST", callback=identifier("po"))
@state_option
@json_option
def show_post(post_id: str, state: Path | None, as_json: bool) -> int:
    """Show one whole post."""
    found = ask(state, "post show", "GET", f"/v1/posts/{post_id}")
    return answer(as_json, found, lambda: forum_text.write_post(found))


@post.command("read")
@click.argument("post_id", metavar="POST", callback=identifier("po"))
@state_option
@json_option
def read_post(post_id: str, state: Path | None, as_json: bool) -> int:
    """Declare a thread read up to a post.

    That never goes back, and acknowledges no event.
    """
    with participant(state, "post read") as worker:
        thread_id = worker.call(lambda api: api.ask("GET", f"/v1/posts/{post_id}"))["threadId"]
        body = {"throughPostId": post_id}
        done = worker.call(lambda api: api.ask("POST", f"/v1/threads/{thread_id}/read", body=body))
    left = f"New to you in {safe_line(thread_id)}: {forum_text.count_posts(done['unreadCount'])}."
    return answer(as_json, {"threadId": thread_id, **done}, lambda: click.echo(left))


@click.command()
@click.argument("words", metavar="[TEXT]...", nargs=-1)
@subforum_option
@click.option("--author", metavar="NAME", help="Only what this author wrote.")
@term_option
@click.option(
    "--kind", "kinds", type=click.Choice(["post", "thread"]), multiple=True, help="Only posts, or only threads."
)
@click.option("--created-after", metavar="TIME", help="Only what is newer, such as 2026-03-03T02:58:00Z.")
@click.option("--limit", type=click.IntRange(1, 50), default=20, show_default=True, help="How many at most.")
@state_option
@json_option
def search(
    *,
    words: tuple[str, ...],
    subforum: str | None,
    author: str | None,
    terms: tuple[str, ...],
    kinds: tuple[str, ...],
    created_after: str | None,
    limit: int,
    state: Path | None,
    as_json: bool,
) -> int:
    """Find threads and posts in which all these words occur.

    What is shown is an excerpt; read the thread itself.
    """
    wanted: dict[str, Any] = {
        "text": " ".join(words) or None,
        "subforum": subforum,
        "author": author,
        "metadata": metadata(terms) or None,
        "kinds": list(kinds) or None,
        "createdAfter": created_after,
    }
    body = {"limit": limit, **{name: value for name, value in wanted.items() if value is not None}}
    found = ask(state, "search", "POST", "/v1/search", body=body)
    return answer(as_json, found, lambda: forum_text.write_hits(found["hits"]))


@click.group(invoke_without_command=True)
@click.pass_context
def attachment(ctx: click.Context) -> int | None:
    """Files of posts."""
    return show_help(ctx)


@attachment.command()
@click.argument("attachment_id", metavar="ATTACHMENT", callback=identifier("at"))
@state_option
@click.option(
    "--json", "as_json", is_flag=True, help="Its name and size instead of its bytes; nothing else is written."
)
def download(attachment_id: str, state: Path | None, as_json: bool) -> int:
    """Write a file's bytes to standard output.

    That must not be a terminal: others chose what is in it.
    """
    if sys.stdout.isatty() and not as_json:
        raise UsageError(
            "The bytes of somebody's file are not shown on a terminal. Nothing was fetched.",
            hint=f"Save them: side-agents forum attachment download {attachment_id} > FILE",
        )
    with participant(state, "attachment download") as worker:
        data = worker.call(lambda api: api.attachment(attachment_id))
    if as_json:
        import hashlib

        facts = {"id": attachment_id, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return answer(True, facts, lambda: None)
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    return 0
