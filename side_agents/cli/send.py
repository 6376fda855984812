"""``side-agents send``: a message to an agent, with the truth about what became of it."""

from __future__ import annotations

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agent_argument, json_option, read_text
from side_agents.cli.output import safe, write_json
from side_agents.errors import NotDeliveredError


@click.command(
    epilog="""\b
Examples:
  side-agents send fix-login "use the fake clock instead"
  side-agents send fix-login "!stop that, look at auth.py first"
  side-agents send fix-login /quit
  side-agents send fix-login --file review.md
"""
)
@agent_argument
@click.argument("text", nargs=-1)
@click.option("--file", "-F", metavar="FILE", help="Read the message from a file; - is standard input.")
@json_option
def send(agent_id: str, text: tuple[str, ...], file: str | None, as_json: bool) -> int:
    """Send TEXT to agent ID as if you had typed it there.

    A leading ! interrupts the running turn first; /commands go through as they are. Nothing is sent into a shell, a
    dialog or on top of what somebody is typing. Exit status 9: it is not known to have arrived.
    """
    message = read_text(text, file, what="message")
    from side_agents.core import views
    from side_agents.core.send import send as send_message

    sent = send_message(open_here(), agent_id, message)
    delivered = sent.state in views.DELIVERED
    if as_json:
        write_json(views.sent_view(sent))
    elif delivered:
        click.echo(safe(views.delivery_message(sent)))
    else:
        raise NotDeliveredError(views.delivery_message(sent), hint=views.undelivered_hint(sent))
    return 0 if delivered else NotDeliveredError.exit_status
