"""``side-agents send``: a message to an agent, with the truth about what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import json_option, read_text, recipients_argument
from side_agents.cli.output import safe, write_json
from side_agents.errors import NotDeliveredError, SideAgentsError

if TYPE_CHECKING:
    from side_agents.core.context import Context


@click.command(
    epilog="""\b
Examples:
  side-agents send fix-login "use the fake clock instead"
  side-agents send fix-login "!stop that, look at auth.py first"
  side-agents send fix-login /quit
  side-agents send fix-login --file review.md
  side-agents send fix-login,docs,tests "rebase onto main now"
"""
)
@recipients_argument
@click.argument("text", nargs=-1)
@click.option("--file", "-F", metavar="FILE", help="Read the message from a file; - is standard input.")
@json_option
def send(agent_ids: tuple[str, ...], text: tuple[str, ...], file: str | None, as_json: bool) -> int:
    """Send TEXT to agent ID as if you had typed it there, or to several, with a result for each.

    A leading ! interrupts the running turn first; /commands go through as they are. Nothing is sent into a shell, a
    dialog or on top of what somebody is typing. Exit status 9: it is not known to have arrived; of several results the
    highest status counts.
    """
    from side_agents.core import views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.send import MESSAGE_LIMIT_BYTES
    from side_agents.core.send import send as send_message

    advice = "Put it into a file in the agent's worktree and send the path."
    message = read_text(text, file, what="message", limit=MESSAGE_LIMIT_BYTES, hint=advice)
    context = open_here()
    if len(agent_ids) > 1:
        return _send_all(context, agent_ids, message, as_json)
    sent = send_message(context, agent_ids[0], message)
    follow_up(context)
    delivered = sent.state in views.DELIVERED
    if as_json:
        write_json(views.sent_view(sent))
    elif delivered:
        click.echo(safe(views.delivery_message(sent)))
    else:
        raise NotDeliveredError(views.delivery_message(sent), hint=views.undelivered_hint(sent))
    return 0 if delivered else NotDeliveredError.exit_status


def _send_all(context: Context, agent_ids: tuple[str, ...], message: str, as_json: bool) -> int:
    from side_agents.core import parallel, views
    from side_agents.core.aftermath import follow_up
    from side_agents.core.send import send as send_message

    outcomes = parallel.for_each(agent_ids, lambda agent_id: send_message(context, agent_id, message))
    follow_up(context)
    answers: list[dict[str, Any]] = []
    status = parallel.worst_status(outcomes)
    for agent_id, outcome in zip(agent_ids, outcomes, strict=True):
        if isinstance(outcome, SideAgentsError):
            answer = views.send_failure_view(outcome)
        else:
            answer = views.sent_view(outcome)
            status = status if answer["ok"] else max(status, NotDeliveredError.exit_status)
        answers.append({"id": agent_id, **answer})
        if not as_json:
            line = safe(answer["message"] if answer["ok"] else f"error: {agent_id}: {answer['message']}")
            click.echo(line, err=not answer["ok"])
    if as_json:
        write_json({"ok": status == 0, "results": answers})
    return status
