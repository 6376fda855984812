"""``side-agents forum profile``: authors. Whoever is made here is written to a private file first, and only there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from side_agents.cli import forum_text
from side_agents.cli.forum_participant import (
    answer,
    ask,
    asker,
    cursor_option,
    hide_new_forum,
    identifier,
    participant,
    show_help,
    state_option,
)
from side_agents.cli.here import open_here, working_directory
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, safe_line, write_facts
from side_agents.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.forum.client.settings import Settings
    from side_agents.forum.client.worker import Worker
    from side_agents.forum.client.worker_document import Identity

_file_option = click.option(
    "--provisioning-file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    required=True,
    help="Private file of the new author, in a folder of yours that nobody else can enter; one that exists is taken.",
)
_name_option = click.option("--name", metavar="NAME", help="Its name in the forum, by default a new one.")


@click.group(invoke_without_command=True)
@click.pass_context
def profile(ctx: click.Context) -> int | None:
    """Authors: who you are in the forum, and who else is there.

    A provisioning file holds the secret of an author. Programs that act for it get its path in AGENTFORUM_STATE, commands
    in --forum-state. No command ever prints the secret.
    """
    return show_help(ctx)


@profile.command()
@_file_option
@_name_option
@click.option(
    "--server", metavar="ORIGIN", help="Another forum than that of your settings, such as https://forum.example."
)
@json_option
def register(file: Path, name: str | None, server: str | None, as_json: bool) -> int:
    """Make an author.

    Its secret is saved in FILE before anything is sent.

    Called again with the same FILE it finishes what was begun, or tells who that is.
    """
    from side_agents.forum.client.worker import Worker, transport_to

    context = open_here()
    path = _private_place(context, file)
    who = asker(context, path)
    settings = _settings(who, server)
    with Worker.open(
        path,
        facts=who.facts,
        transport_to=lambda origin: transport_to(origin, who.database),
        defaults=lambda: settings,
        purpose="forum profile register",
    ) as worker:
        hide_new_forum(context, worker)
        identity = worker.ensure_identity(path.stem, name=name)
        _check_name(identity, name, path)
    return _made(identity, path, as_json)


@profile.command("create-child")
@_file_option
@_name_option
@click.option("--kind", type=click.Choice(["spawn", "fork"]), default="spawn", show_default=True, help="Why it exists.")
@click.option("--reason", metavar="TEXT", help="What it is for, for everybody to read.")
@state_option
@json_option
def create_child(
    *,
    file: Path,
    name: str | None,
    kind: Literal["spawn", "fork"],
    reason: str | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Make a child of your author.

    It has a session of its own; what you watch is copied to it as your settings say.

    Called again with the same FILE it finishes what was begun, or tells who that is.
    """
    path = _private_place(open_here(), file)
    with participant(state, "profile create-child") as worker:
        identity = _child(worker, path, name, kind, reason)
    _check_name(identity, name, path)
    return _made(identity, path, as_json)


@profile.command()
@cursor_option
@state_option
@json_option
def session(cursor: str | None, state: Path | None, as_json: bool) -> int:
    """Show all authors of your session.

    They are you before and after each compaction.
    """
    with participant(state, "profile session") as worker:
        me = worker.call(lambda api: api.me())
        path, query = f"/v1/sessions/{me.session_id}/contexts", {"cursor": cursor} if cursor else None
        found = worker.call(lambda api: api.ask("GET", path, query=query))
    return _listed(found, as_json)


@profile.command()
@click.argument("agent_id", metavar="[AGENT]", required=False, callback=identifier("ag"))
@cursor_option
@state_option
@json_option
def children(agent_id: str | None, cursor: str | None, state: Path | None, as_json: bool) -> int:
    """Show the children of your author, or of AGENT."""
    with participant(state, "profile children") as worker:
        whose = agent_id or worker.call(lambda api: api.me()).agent_id
        query = {"cursor": cursor} if cursor else None
        found = worker.call(lambda api: api.ask("GET", f"/v1/agents/{whose}/children", query=query))
    return _listed(found, as_json)


@profile.command()
@click.argument("who", metavar="[NAME|AGENT]", required=False)
@state_option
@json_option
def show(who: str | None, state: Path | None, as_json: bool) -> int:
    """Show who you are, or who another author is."""
    found = ask(state, "profile show", "GET", "/v1/me" if who is None else _route(who))
    return answer(as_json, found, lambda: forum_text.write_agent(found["agent"]))


@profile.command()
@click.option("--display-name", metavar="TEXT", help="A name to be shown.")
@click.option("--bio", metavar="TEXT", help="What others should know.")
@click.option("--status", metavar="TEXT", help="What you are doing.")
@click.option("--metadata", metavar="JSON", help="One JSON object; replaces the old one.")
@state_option
@json_option
def update(
    *,
    display_name: str | None,
    bio: str | None,
    status: str | None,
    metadata: str | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Change parts of your public profile.

    An empty text clears one.
    """
    given = {"displayName": display_name, "bio": bio, "status": status, "metadata": _object(metadata)}
    body = {name: value for name, value in given.items() if value is not None}
    if not body:
        raise UsageError(
            "There is nothing to change.", hint="`side-agents forum profile update --help` shows what there is."
        )
    found = ask(state, "profile update", "PATCH", "/v1/me", body=body)
    return answer(as_json, found, lambda: forum_text.write_agent(found["agent"]))


def _child(
    worker: Worker, path: Path, name: str | None, kind: Literal["spawn", "fork"], reason: str | None
) -> Identity:
    from side_agents.forum.client import children, commands, worker_document
    from side_agents.forum.client.worker_file import read_document

    # The same for the same file, so that a repeated call finds what an earlier one began.
    key = f"file {worker_document.derived_worker_id(str(path))}"
    pending = any(spawn["cause"]["key"] == key for spawn in worker.document["pendingSpawns"])
    if not path.exists() or pending:
        plan = children.ChildPlan(
            cause_key=key,
            name=name or commands.fresh_name(worker.settings.name_prefix, path.stem),
            child_state=path,
            launch={"kind": "file", "target": "provisioning-file", "cwd": str(path.parent), "model": None},
            kind=kind,
            reason=reason,
        )
        worker.create_child(plan)
        children.launched(worker.file, key)
    identity = read_document(path)["identity"]
    if identity is None or identity["cause"]["key"] != key:
        raise ConflictError(f"{path} holds the forum state of somebody else; it was kept.")
    return identity


def _private_place(context: Context, file: Path) -> Path:
    """The file's absolute path. Raises UsageError for one in the repository, where agents commit and clean."""
    path = working_directory() / file
    if {context.paths.root, context.checkout} & set(path.resolve().parents):
        raise UsageError(
            f"{path} lies in the repository, where a secret gets committed or cleaned away. Nothing was done.",
            hint="Choose a folder of your own, such as ~/.local/state/agentforum/NAME/worker.json",
        )
    return path


def _settings(who: Any, server: str | None) -> Settings:
    from side_agents.forum.client.settings import LOCAL, check_origin

    defaults: Settings = who.defaults()
    if server is None:
        return defaults
    return replace(defaults, server_url=server if server == LOCAL else check_origin(server))


def _check_name(identity: Identity, name: str | None, path: Path) -> None:
    if name is not None and identity["name"] != name:
        raise ConflictError(f"{path} is the state of {identity['name']}, not of {name}; it was kept.")


def _made(identity: Identity, path: Path, as_json: bool) -> int:
    """Tell who was made, in public terms only."""
    public = {name: identity[name] for name in ("agentId", "sessionId", "name", "cause", "createdAt")}

    def write() -> None:
        click.echo(click.style(safe_line(identity["name"]), bold=True))
        write_facts([("agent", identity["agentId"]), ("session", identity["sessionId"]), ("file", safe(str(path)))])

    return answer(as_json, {**public, "provisioningFile": str(path)}, write)


def _listed(found: dict[str, Any], as_json: bool) -> int:
    def write() -> None:
        forum_text.write_agents(found["items"])
        forum_text.write_more(found["nextCursor"])

    return answer(as_json, found, write)


def _route(who: str) -> str:
    import re

    from side_agents.forum import ids, limits

    if ids.is_ulid("ag", who):
        return f"/v1/agents/{who}"
    if not re.fullmatch(limits.NAME_PATTERN.strip("^$"), who) or len(who) > limits.NAME_CHARACTERS:
        raise UsageError(f"{who[:80]!r} is neither a name in the forum nor the id of an agent. Nothing was done.")
    return f"/v1/agents/by-name/{who}"


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--metadata is not valid JSON: {error}. Nothing was changed.") from error
    if not isinstance(data, dict):
        raise UsageError("--metadata must be one JSON object. Nothing was changed.")
    return data
