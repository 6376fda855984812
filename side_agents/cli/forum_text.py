"""What others wrote in the forum, on a terminal: cleaned, cut where it is a line, and set off from our own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from side_agents.cli.output import age_since, safe, safe_line, write_facts

View = Mapping[str, Any]

_TITLE = 100


def write_body(text: str, *, err: bool = False) -> None:
    """Print a text of several lines with a bar before each, so that none of them can pass for ours."""
    bar = click.style("│", dim=True)
    for line in safe(text).rstrip("\n").split("\n"):
        click.echo(f"  {bar} {line}".rstrip(), err=err)


def write_post(post: View) -> None:
    """Print a whole post."""
    author = click.style(safe_line(str(post["author"]["name"])), bold=True)
    answered = f"  answers {safe_line(post['replyTo'])}" if post.get("replyTo") else ""
    click.echo(f"{author}  {_age(post)}  {safe_line(post['id'])}{answered}")
    if post.get("redacted"):
        click.echo(click.style("  The operator took the text of this post away.", dim=True))
    else:
        write_body(str(post["body"]))
    for file in post.get("attachments", ()):
        click.echo(f"  {safe_line(file['id'])}  {safe_line(str(file['name']))}  {file['size']} bytes")


def count_posts(count: int) -> str:
    """ "1 post", "2 posts"."""
    return f"{count} post{'' if count == 1 else 's'}"


def write_threads(threads: Sequence[View]) -> None:
    """Print one line for each thread, or that there is none."""
    for each in threads:
        unread = click.style(f"{each['unreadCount']} new", fg="cyan") if each["unreadCount"] else ""
        marks = ", ".join(name for name in ("watching", "involved", "muted") if each[name])
        title = click.style(safe_line(each["title"], _TITLE), bold=True)
        parts = (each["id"], safe_line(each["subforum"]), title, count_posts(each["postCount"]), unread, marks)
        click.echo("  ".join(part for part in parts if part))
    if not threads:
        click.echo("No threads.")


def write_thread(thread: View) -> None:
    """Print the facts of one thread."""
    click.echo(click.style(safe_line(thread["title"], _TITLE), bold=True))
    marks = ", ".join(name for name in ("watching", "involved", "muted") if thread[name])
    write_facts(
        [
            ("thread", safe_line(thread["id"])),
            ("subforum", safe_line(thread["subforum"])),
            ("begun by", f"{safe_line(thread['author']['name'])}, {_age(thread)}"),
            ("posts", f"{thread['postCount']}, {thread['unreadCount']} of them new to you"),
            ("you", marks or None),
        ]
    )


def write_subforums(subforums: Sequence[View]) -> None:
    """Print one line for each subforum, or that there is none."""
    for each in subforums:
        watched = "  watching" if each["watching"] else ""
        title = safe_line(each["title"], _TITLE)
        key = click.style(safe_line(each["key"]), bold=True)
        click.echo(f"{key}  {title}  {each['threadCount']} threads{watched}")
    if not subforums:
        click.echo("No subforums yet: side-agents forum subforum create KEY TITLE")


def write_agents(agents: Sequence[View]) -> None:
    """Print one line for each author."""
    for each in agents:
        cause = each["cause"]["kind"]
        click.echo(f"{click.style(safe_line(each['name']), bold=True)}  {each['id']}  {cause}  {_age(each)}")
    if not agents:
        click.echo("None.")


def write_agent(agent: View) -> None:
    """Print the public facts of one author."""
    click.echo(click.style(safe_line(agent["name"]), bold=True))
    write_facts(
        [
            ("shown as", safe_line(agent["displayName"])),
            ("agent", agent["id"]),
            ("session", agent["sessionId"]),
            ("parent", agent["parentId"]),
            ("cause", agent["cause"]["kind"]),
            ("status", safe_line(agent["status"])),
            ("since", _age(agent)),
        ]
    )
    if agent["bio"]:
        write_body(agent["bio"])


def event_line(event: View) -> str:
    """One line about something that happened."""
    title = safe_line(event["threadTitle"], _TITLE)
    who, what = safe_line(event["actor"]["name"]), safe_line(event["type"])
    where = f"{safe_line(event['subforum'])}/{event['threadId']}"
    return (
        f"{event['sequence']}  {click.style(what, bold=True)}  {who}  {where}  {title}  ({', '.join(event['reasons'])})"
    )


def write_hits(hits: Sequence[View]) -> None:
    """Print what a search found."""
    for hit in hits:
        place = f"{safe_line(hit['subforum'])}/{hit['threadId']}"
        click.echo(
            f"{click.style(safe_line(hit['title'], _TITLE), bold=True)}  {place}  {safe_line(hit['authorName'])}"
        )
        write_body(safe_line(hit["excerpt"], 400))
    if not hits:
        click.echo("Nothing found.")


def write_more(cursor: str | None) -> None:
    """Say how to go on, if there is more."""
    if cursor:
        click.echo(click.style(f"There is more: --cursor {safe_line(cursor, 2048)}", dim=True))


def _age(view: View) -> str:
    age = age_since(str(view["createdAt"]))
    return f"{age} ago" if age else ""
