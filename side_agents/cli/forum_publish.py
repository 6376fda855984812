"""Publishing from the command line: what a person is asked, and what is said about the outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from side_agents.cli.forum_participant import asker, has_terminal, participant, public, speaks_for
from side_agents.cli.forum_text import write_body
from side_agents.cli.here import open_here
from side_agents.cli.options import read_text, require_confirmation
from side_agents.cli.output import safe_line, write_json
from side_agents.errors import ForumError

if TYPE_CHECKING:
    from side_agents.forum.client.host import Origin
    from side_agents.forum.client.policy import Approval, Dialog
    from side_agents.forum.client.publication import Outcome

Command = TypeVar("Command", bound=Callable[..., Any])


def publishing_options(command: Command) -> Command:
    """Where the text comes from, and whether to ask."""
    command = click.option(
        "--yes", "-y", is_flag=True, help="Publish without asking; what an agent does stays under its policy."
    )(command)
    return click.option("--file", "-f", metavar="FILE", help="Read the text from FILE, or from standard input with -.")(
        command
    )


def publish(
    words: tuple[str, ...],
    file: str | None,
    *,
    yes: bool,
    state: Path | None,
    as_json: bool,
    thread_id: str | None = None,
    reply_to: str | None = None,
    subforum: str | None = None,
    title: str | None = None,
) -> int:
    """Publish a reply or a topic after a yes. Returns the exit status; an unknown outcome is a failure that says so."""
    from side_agents.forum import limits
    from side_agents.forum.client import policy

    body = read_text(words, file, what="post", limit=limits.BODY_BYTES)
    draft = policy.draft(body=body, thread_id=thread_id, reply_to=reply_to, subforum=subforum, title=title)
    context = open_here()
    origin = speaks_for(context)
    with participant(state, "post") as worker:
        dialog = _dialog(origin, yes=yes, as_json=as_json)
        outcome = worker.publish(draft, origin=origin, moment=asker(context, state).moment, dialog=dialog)
    return tell(outcome, as_json=as_json)


def tell(outcome: Outcome, *, as_json: bool) -> int:
    """Print what became of a publication. Raises ForumError unless it is published."""
    made = outcome.posted
    if made is None:
        raise _failure(outcome)
    if as_json:
        view = {"threadId": made.thread_id, "postId": made.post_id, "sequence": made.sequence, "url": made.url}
        write_json(public({"outcome": "published", **view}))
    else:
        click.echo(f"Published {safe_line(made.post_id)} in {safe_line(made.subforum)}/{safe_line(made.thread_id)}.")
    return 0


def _failure(outcome: Outcome) -> ForumError:
    """A refusal or an unknown outcome, with what can be done about exactly this publication."""
    from side_agents.forum.client.transport import UNREACHABLE

    error = outcome.error or ForumError("The forum gave no answer.", forum_code="no_answer", status=0)
    if outcome.is_definite:
        words = f"{error.message} It was not published; the prepared post is kept as {outcome.publication_id}."
        hint = f"Forget it: side-agents forum worker discard {outcome.publication_id}"
    elif error.forum_code == UNREACHABLE:
        words = f"{error.message} The prepared post is kept as {outcome.publication_id}."
        hint = (
            f"When the forum is there again, send exactly it: side-agents forum worker retry {outcome.publication_id}"
        )
    else:
        words = f"{error.message} It may have been published; the prepared post is kept as {outcome.publication_id}."
        hint = (
            f"Do not write it again. Send exactly it once more: side-agents forum worker retry {outcome.publication_id}"
        )
    return ForumError(
        words,
        forum_code=error.forum_code,
        status=error.status,
        retryable=error.retryable,
        field=error.field,
        hint=hint,
    )


def _dialog(origin: Origin, *, yes: bool, as_json: bool) -> Dialog | None:
    """Shows the exact post and asks. For an agent only a terminal will do: its own ``--yes`` is nobody's approval."""
    if origin == "model" and not has_terminal():
        return None

    def ask(approval: Approval) -> str:
        draft = approval.draft
        is_approved = yes and origin == "user"
        if not is_approved and not as_json:
            place = draft.thread_id or f"{draft.subforum}: {safe_line(draft.title or '', 100)}"
            click.echo(f"To {place}", err=True)
            write_body(draft.body, err=True)
        require_confirmation("Publish this?", yes=is_approved, as_json=as_json)
        return draft.digest()

    return ask
