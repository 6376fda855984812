"""``side-agents forum catchup``: everything unread, written once, and declared read only when it was written."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli import forum_text
from side_agents.cli.forum_events import looking_on_here
from side_agents.cli.forum_participant import answer, ask, identifier, public, state_option, subforum_key
from side_agents.cli.options import json_option
from side_agents.cli.output import safe_line
from side_agents.errors import ForumError

if TYPE_CHECKING:
    from side_agents.forum.client.api import Api

_plan_argument = click.argument("plan_id", metavar="PLAN", callback=identifier("pl"))


@click.group(invoke_without_command=True)
@click.option(
    "--scope",
    type=click.Choice(["all", "visited", "subscriptions"]),
    default="all",
    show_default=True,
    help="What concerns you at all, or only what you visited or watch.",
)
@click.option("--subforum", metavar="KEY", callback=subforum_key, help="Only in this subforum.")
@click.option("--no-ack", is_flag=True, help="Declare nothing read; the plan stays for a day, for `ack` and `close`.")
@state_option
@json_option
@click.pass_context
def catchup(
    ctx: click.Context, *, scope: str, subforum: str | None, no_ack: bool, state: Path | None, as_json: bool
) -> int | None:
    """Write every post that is new to you, thread by thread.

    With --json one JSON object a line.

    When everything was written and taken by whoever reads, all of it counts as read. Otherwise nothing does.
    """
    if ctx.invoked_subcommand is not None:
        return None
    with looking_on_here(state, "catchup") as api:
        body = {"scope": scope, **({} if subforum is None else {"subforum": subforum})}
        plan = api.ask("POST", "/v1/catchup/plans", body=body)
        try:
            receipts = _write_all(api, plan, as_json=as_json)
            if not no_ack:
                for receipt in receipts:
                    _acknowledge(api, plan["planId"], receipt)
        finally:
            if not no_ack:
                # A plan that stays ends by itself after a day.
                with suppress(ForumError):
                    api.ask("DELETE", f"/v1/catchup/plans/{plan['planId']}")
        _write_end(plan, receipts, is_kept=no_ack, as_json=as_json)
    return 0


@catchup.command()
@_plan_argument
@click.argument("receipt", metavar="RECEIPT", callback=identifier("rc"))
@state_option
@json_option
def ack(plan_id: str, receipt: str, state: Path | None, as_json: bool) -> int:
    """Declare read what a page showed.

    Receipts go in the order of their pages.
    """
    body = {"receiptId": receipt}
    done = ask(state, "catchup ack", "POST", f"/v1/catchup/plans/{plan_id}/ack", body=body)
    return answer(as_json, done, lambda: click.echo(f"{len(done['threads'])} threads are read so far."))


@catchup.command()
@_plan_argument
@state_option
@json_option
def close(plan_id: str, state: Path | None, as_json: bool) -> int:
    """Give a plan up.

    What was declared read stays so.
    """
    done = ask(state, "catchup close", "DELETE", f"/v1/catchup/plans/{plan_id}")
    return answer(as_json, done, lambda: click.echo(f"{plan_id} is closed."))


def _write_all(api: Api, plan: dict[str, Any], *, as_json: bool) -> list[str]:
    """Write all pages and return their receipts; raises when one of them was not taken."""
    receipts: list[str] = []
    cursor: str | None = None
    while True:
        query = {"cursor": cursor} if cursor else None
        page = api.ask("GET", f"/v1/catchup/plans/{plan['planId']}/pages", query=query)
        _write_page(page, as_json=as_json)
        if page["receiptId"] is not None:
            receipts.append(page["receiptId"])
        cursor = page["pageInfo"]["nextCursor"]
        if cursor is None:
            break
    sys.stdout.flush()
    return receipts


def _write_page(page: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _write_line({"type": "page", **page})
        return
    titles = {thread["threadId"]: thread for thread in page["threads"]}
    shown = None
    for post in page["posts"]:
        if post["threadId"] != shown:
            shown = post["threadId"]
            thread = titles[shown]
            title = click.style(safe_line(thread["title"], 100), bold=True)
            click.echo(f"\n{title}  {safe_line(thread['subforum'])}/{shown}")
        forum_text.write_post(post)


def _write_end(plan: dict[str, Any], receipts: list[str], *, is_kept: bool, as_json: bool) -> None:
    if as_json:
        _write_line({"type": "end", **plan, "acknowledged": not is_kept, "receiptIds": receipts})
    elif is_kept:
        click.echo(
            f"{forum_text.count_posts(plan['postCount'])}; nothing counts as read. The plan is {plan['planId']}."
        )
        for receipt in receipts:
            click.echo(f"  side-agents forum catchup ack {plan['planId']} {receipt}")
    else:
        click.echo(
            f"Read: {forum_text.count_posts(plan['postCount'])}." if plan["postCount"] else "Nothing is new to you."
        )


def _acknowledge(api: Api, plan_id: str, receipt: str) -> None:
    api.ask("POST", f"/v1/catchup/plans/{plan_id}/ack", body={"receiptId": receipt})


def _write_line(data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(public(data), ensure_ascii=False) + "\n")
