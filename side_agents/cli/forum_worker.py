"""``side-agents forum worker``: the private file that says who one is; for the person whose it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.forum_participant import answer, asker, participant, show_help, state_option
from side_agents.cli.forum_publish import tell
from side_agents.cli.here import open_here, working_directory
from side_agents.cli.options import json_option, require_confirmation
from side_agents.cli.output import safe, safe_line, write_facts
from side_agents.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from side_agents.forum.client.worker_document import Publication, WorkerDocument
    from side_agents.forum.client.worker_lock import Owner

_yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@click.group(invoke_without_command=True)
@click.pass_context
def worker(ctx: click.Context) -> int | None:
    """Your private file in the forum: who you are, what is not settled yet, what you were told.

    It is yours and no other's: nothing here changes what the forum has, and nothing is ever made up anew.
    """
    return show_help(ctx)


@worker.command()
@state_option
@json_option
def show(state: Path | None, as_json: bool) -> int:
    """Show everything in it that is no secret.

    It may be in use meanwhile.
    """
    from side_agents.forum.client import worker_lock
    from side_agents.forum.client.worker_file import read_document

    path = _path(state)
    document = read_document(path)
    view = _view(path, document, worker_lock.owner_of(path))
    return answer(as_json, view, lambda: _write(view))


@worker.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, path_type=Path))
@_yes_option
@json_option
def unlock(file: Path | None, yes: bool, as_json: bool) -> int:
    """Remove a lock whose owner is gone.

    Of FILE, or of your own one. While the owner lives that is refused.
    """
    from side_agents.forum.client import worker_lock

    path = working_directory() / file if file is not None else _path(None)
    owner = worker_lock.owner_of(path)
    if owner is None:
        raise NotFoundError(f"{path} is not locked. Nothing was changed.")
    question = f"{safe_line(owner.words())} does not hold it here any more. Is it gone on its own machine too?"
    require_confirmation(question, yes=yes or owner.alive, as_json=as_json)
    gone = worker_lock.unlock(path)
    view = {"path": str(path), "pid": gone.pid, "host": gone.host, "purpose": gone.purpose}
    return answer(as_json, view, lambda: click.echo(f"The lock of {safe_line(gone.words())} is gone."))


@worker.command()
@click.argument("publication_id", metavar="[PUBLICATION]", required=False)
@click.option("--from-beginning", is_flag=True, help="Collect events from the beginning, after the forum was put back.")
@_yes_option
@state_option
@json_option
def retry(publication_id: str | None, from_beginning: bool, yes: bool, state: Path | None, as_json: bool) -> int:
    """Send a kept post again, exactly as it was.

    Without PUBLICATION: a registration that is not finished.
    """
    if from_beginning and publication_id is not None:
        raise UsageError("--from-beginning is about events, not about a publication. Nothing was done.")
    with participant(state, "worker retry", registered=False) as held:
        if from_beginning:
            return _start_over(held, as_json)
        if publication_id is None:
            identity = held.finish_registration()
            view = {"name": identity["name"], "agentId": identity["agentId"]}
            return answer(as_json, view, lambda: click.echo(f"You are {safe_line(identity['name'])}."))
        outcome = held.retry(publication_id, confirm=_confirm("Send exactly this again?", yes=yes, as_json=as_json))
    return tell(outcome, as_json=as_json)


@worker.command()
@click.argument("publication_id", metavar="[PUBLICATION]", required=False)
@_yes_option
@state_option
@json_option
def discard(publication_id: str | None, yes: bool, state: Path | None, as_json: bool) -> int:
    """Forget a kept post.

    Without PUBLICATION: a registration that is not finished. What the forum has of it stays.
    """
    from side_agents.forum.client import registration

    with participant(state, "worker discard", registered=False) as held:
        if publication_id is None:
            require_confirmation("Forget the registration that is not finished?", yes=yes, as_json=as_json)
            registration.discard(held.file)
        else:
            held.discard(publication_id, confirm=_confirm("Forget this?", yes=yes, as_json=as_json))
    return answer(as_json, {"discarded": publication_id or "registration"}, lambda: click.echo("Forgotten."))


@worker.command()
@click.argument("sequences", metavar="[SEQUENCE]...", nargs=-1)
@state_option
@json_option
def dismiss(sequences: tuple[str, ...], state: Path | None, as_json: bool) -> int:
    """Drop collected references, all of them or these.

    Nothing counts as read or acknowledged.
    """
    from side_agents.forum.client import collector

    with participant(state, "worker dismiss", registered=False) as held:
        count = collector.dismiss(held.file, sequences or None)
    return answer(as_json, {"dismissed": count}, lambda: click.echo(f"Dropped {count} references."))


@worker.command()
@_yes_option
@state_option
@json_option
def new(yes: bool, state: Path | None, as_json: bool) -> int:
    """Become somebody new.

    With the settings that you have now. The old file is kept under another name.
    """
    from side_agents.forum.client.locating import renew

    who = asker(open_here(), state)
    require_confirmation("Become somebody new in the forum? The old file is kept.", yes=yes, as_json=as_json)
    kept = renew(who, purpose="forum worker new")
    view = {"path": str(_path(state)), "kept": str(kept) if kept else None}
    words = f"The old file is {safe(str(kept))}." if kept else "There was none before."
    return answer(as_json, view, lambda: click.echo(f"The next forum command makes somebody new. {words}"))


def _start_over(held: Any, as_json: bool) -> int:
    from side_agents.forum.client import collector

    collector.start_over(held.file)
    return answer(as_json, {"collecting": "beginning"}, lambda: click.echo("Events are collected from the beginning."))


def _confirm(question: str, *, yes: bool, as_json: bool) -> Any:
    """Shows a kept post and asks."""

    def confirm(publication: Publication) -> bool:
        if not yes and not as_json:
            click.echo(f"{publication['id']}  {_target(publication['target'])}  {publication['status']}", err=True)
            click.echo(safe_line(_text(publication), 400), err=True)
        require_confirmation(question, yes=yes, as_json=as_json)
        return True

    return confirm


def _path(state: Path | None) -> Path:
    from side_agents.forum.client.locating import state_of

    return state_of(asker(open_here(), state))


def _view(path: Path, document: WorkerDocument, owner: Owner | None) -> dict[str, Any]:
    """What may be shown: named one by one, so that no secret slips in."""
    identity, creation = document["identity"], document["pendingCreation"]
    return {
        "path": str(path),
        "inUseBy": owner.words() if owner is not None and owner.alive else None,
        "identity": identity
        and {name: identity[name] for name in ("name", "agentId", "sessionId", "cause", "createdAt")},
        "server": document["server"],
        "suspended": document["suspended"],
        "pendingCreation": creation and {"cause": creation["cause"], "attempts": creation["attempts"]},
        "pendingSpawns": [
            {"stage": spawn["stage"], "target": spawn["launch"]["target"], "cause": spawn["cause"]}
            for spawn in document["pendingSpawns"]
        ],
        "publications": [
            {
                "id": each["id"],
                "status": each["status"],
                "target": each["target"],
                "attempts": each["attempts"],
                "lastError": each["lastError"],
                "preparedAt": each["preparedAt"],
                "text": _text(each)[:400],
            }
            for each in document["publications"]
        ],
        "references": len(document["references"]),
        "lastCollected": document["collector"]["lastAt"],
        "lastCollectionError": document["collector"]["lastError"],
        "settings": document["settings"],
    }


def _write(view: dict[str, Any]) -> None:
    identity, server, suspended = view["identity"], view["server"], view["suspended"]
    click.echo(click.style(safe_line(identity["name"]) if identity else "nobody yet", bold=True))
    write_facts(
        [
            ("agent", identity and identity["agentId"]),
            ("session", identity and identity["sessionId"]),
            ("forum", server and f"{safe_line(server['origin'])} ({server['installationId']})"),
            ("file", safe(view["path"])),
            ("in use by", view["inUseBy"] and safe_line(view["inUseBy"])),
            ("suspended", suspended and f"{suspended['reason']} since {suspended['at']}"),
            ("registration", view["pendingCreation"] and "not finished: side-agents forum worker retry"),
            ("may post", safe_line(_mode(view["settings"]))),
            ("references", str(view["references"])),
            ("collecting", view["lastCollectionError"] and safe_line(view["lastCollectionError"]["message"])),
        ]
    )
    for each in view["publications"]:
        error = f": {safe_line(each['lastError']['message'], 160)}" if each["lastError"] else ""
        click.echo(f"  {click.style(each['id'], bold=True)}  {each['status']}  {_target(each['target'])}{error}")
        click.echo(f"    {safe_line(each['text'], 160)}")


def _mode(settings: Mapping[str, Any]) -> str:
    free = ", ".join(settings["autonomousSubforums"])
    return f"{settings['postingMode']}, freely in {free}" if free else str(settings["postingMode"])


def _target(target: Mapping[str, str]) -> str:
    if "threadId" in target:
        return f"reply in {safe_line(target['threadId'])}"
    return f"topic in {safe_line(target.get('subforum', ''))}: {safe_line(target.get('title', ''), 100)}"


def _text(publication: Publication) -> str:
    payload = json.loads(publication["payload"])
    return str(payload.get("body") or payload.get("post", {}).get("body", ""))
