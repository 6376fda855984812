"""Who speaks when a person or a script uses the forum: options, the participant, and what the answers look like."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from side_agents.cli.here import open_here, working_directory
from side_agents.cli.output import write_facts, write_json
from side_agents.errors import UsageError

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.forum.client.host import Origin
    from side_agents.forum.client.locating import Asker
    from side_agents.forum.client.worker import Worker

Command = TypeVar("Command", bound=Callable[..., Any])

_KINDS = {
    "rc": "receipt",
    "th": "thread",
    "po": "post",
    "at": "attachment",
    "pl": "catch-up plan",
    "ag": "agent",
    "pb": "publication",
}


def identifier(prefix: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback that takes only ids of one kind, so that nothing else can get into a request's path."""

    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        from side_agents.forum import ids

        if value is not None and not ids.is_ulid(prefix, value):
            raise UsageError(
                f"{value[:80]!r} is no id of a {_KINDS[prefix]}; one begins with {prefix}_. Nothing was done."
            )
        return value

    return check


def subforum_key(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A callback that takes only what can be the key of a subforum."""
    import re

    from side_agents.forum import limits

    if value is not None and not re.fullmatch(limits.SUBFORUM_KEY_PATTERN.strip("^$"), value):
        raise UsageError(
            f"{value[:80]!r} cannot be the key of a subforum: small letters, digits and hyphens. Nothing was done."
        )
    return value


state_option = click.option(
    "--forum-state",
    "state",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Act as the participant in this private file.",
)
subforum_option = click.option("--subforum", metavar="KEY", callback=subforum_key, help="Only in this subforum.")
term_option = click.option("--meta", "terms", multiple=True, metavar="KEY=VALUE", help="Only with this metadata.")
cursor_option = click.option("--cursor", metavar="CURSOR", help="Go on where an earlier answer ended.")


def thread_argument(command: Command) -> Command:
    """The argument THREAD."""
    return click.argument("thread_id", metavar="THREAD", callback=identifier("th"))(command)


def key_argument(command: Command) -> Command:
    """The argument KEY of a subforum."""
    return click.argument("key", metavar="KEY", callback=subforum_key)(command)


def show_help(ctx: click.Context) -> int | None:
    """What a group does when it is called alone."""
    if ctx.invoked_subcommand is not None:
        return None
    click.echo(ctx.get_help())
    return 0


def asker(context: Context, state: Path | None) -> Asker:
    """Who is asking; with ``state`` whoever that file belongs to, whatever conversation this is."""
    from side_agents.forum.client.locating import Asker
    from side_agents.forum.client.worker_file import STATE_VARIABLE

    caller = context.caller
    if state is not None:
        given = {**context.environment, STATE_VARIABLE: str(working_directory() / state)}
        return Asker(environment=given, state_root=context.paths.root, database=context.paths.forum_db)
    return Asker(
        environment=context.environment,
        state_root=context.paths.root,
        database=context.paths.forum_db,
        agent_id=caller.agent_id,
        session=caller.session,
    )


def speaks_for(context: Context) -> Origin:
    """Whose word a post is: a command that an agent runs is the agent's own doing, and falls under its policy."""
    caller = context.caller
    return "model" if caller.agent_id is not None or caller.session is not None else "user"


@contextmanager
def participant(state: Path | None, purpose: str, *, registered: bool = True) -> Iterator[Worker]:
    """The caller's worker, made and registered on first use, held as long as the body runs."""
    from side_agents.forum.client.locating import open_worker

    context = open_here()
    who = asker(context, state)
    with open_worker(who, purpose=f"forum {purpose}", patience=context.config.lock_timeout) as worker:
        hide_new_forum(context, worker)
        if registered:
            worker.ensure_identity(who.label)
        yield worker


def ask(
    state: Path | None,
    purpose: str,
    method: str,
    path: str,
    *,
    query: Mapping[str, str | None] | None = None,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One question to the forum as the caller's participant; absent parts of the query are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    with participant(state, purpose) as worker:
        return worker.call(lambda api: api.ask(method, path, query=given or None, body=body))


def answer(as_json: bool, data: Mapping[str, Any], write: Callable[[], None]) -> int:
    """Print an answer of the forum as JSON, or by ``write``; nothing that looks like a credential gets out."""
    if as_json:
        write_json(public(data))
    else:
        write()
    return 0


def public(data: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON answer for what the forum said; somebody may have posted a credential."""
    from side_agents.forum.client.projection import without_secrets

    return {"ok": True, **without_secrets(data)}


def set_relation(state: Path | None, as_json: bool, method: str, path: str, words: str) -> int:
    """Set or end a relation to a thread or subforum and say what holds now, or that it did before."""
    done = ask(state, "watch", method, path)

    def write() -> None:
        click.echo(words if done["changed"] else f"Nothing changed. {words}")
        if done.get("baselineSequence"):
            write_facts([("from", f"sequence {done['baselineSequence']}")])

    return answer(as_json, done, write)


def metadata(terms: tuple[str, ...]) -> dict[str, str]:
    """The terms of ``--meta``. Raises UsageError."""
    pairs = [term.partition("=")[::2] for term in terms]
    if not all(name and "=" in term for (name, _), term in zip(pairs, terms, strict=True)):
        raise UsageError("Metadata is given as KEY=VALUE. Nothing was done.")
    return dict(pairs)


def has_terminal() -> bool:
    """Whether there is somebody who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def hide_new_forum(context: Context, worker: Worker) -> None:
    """A forum may be the first thing that a project has of ours; it must not show up as somebody's change."""
    if not worker.is_local or context.paths.forum_db.exists():
        return
    from side_agents.infra.git import Git
    from side_agents.paths import EXCLUDED

    Git(context.checkout).ensure_excludes(EXCLUDED)
