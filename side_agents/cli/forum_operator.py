"""What the one who runs a forum does with its database: ``doctor``, ``backup``, ``restore``, ``redact``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from side_agents.cli.forum_place import database_option, database_path, operating
from side_agents.cli.here import working_directory
from side_agents.cli.options import json_option, require_confirmation
from side_agents.cli.output import safe, safe_line, write_facts, write_json

_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@database_option
@json_option
def doctor(chosen: Path | None, as_json: bool) -> int:
    """Check everything that must hold in a forum's database. It only reads, and others may go on meanwhile.

    Exit status: 0 all is well, 1 something is wrong.
    """
    with operating(chosen) as forum:
        found = forum.operator.check()
        facts = {**forum.operator.health(), "path": str(forum.database.path), "epoch": forum.installation.epoch}
    if as_json:
        write_json({**facts, **found})
    else:
        _show_health(facts, found)
    return 0 if found["ok"] else 1


def _show_health(facts: dict[str, Any], found: dict[str, Any]) -> None:
    counts = ", ".join(f"{number} {name}" for name, number in facts["counts"].items())
    write_facts(
        [
            ("database", f"{safe(facts['path'])}, epoch {facts['epoch']}"),
            ("holds", counts),
            ("last sequence", facts["lastSequence"]),
            ("SQLite", facts["sqliteVersion"]),
            ("log", f"{facts['walBytes']} bytes"),
        ]
    )
    for problem in found["problems"]:
        rows = ", ".join(map(str, problem["rows"]))
        click.echo(f"{click.style('problem', fg='red', bold=True)}  It does not hold that {problem['rule']}.")
        click.echo(f"         {safe_line(rows, 500)}")
    if found["ok"]:
        click.echo(click.style(f"All {found['rulesChecked']} rules hold.", fg="green"))
    else:
        click.echo("Nothing was changed. A backup from before it can be put back with `side-agents forum restore`.")


@click.command()
@click.argument("target", metavar="FILE", type=_file)
@database_option
@json_option
def backup(target: Path, chosen: Path | None, as_json: bool) -> int:
    """Copy a forum as it is at this moment into a new FILE; agents and servers go on meanwhile.

    The copy holds everything that was written, so keep it as private as the forum.
    """
    with operating(chosen) as forum:
        made = forum.operator.backup(working_directory() / target)
    if as_json:
        write_json({"ok": True, **made})
    else:
        click.echo(f"Copied the forum to {safe(made['path'])} ({made['bytes']} bytes, up to {made['lastSequence']}).")
    return 0


@click.command()
@click.argument("source", metavar="FILE", type=_file)
@click.option(
    "--replace", is_flag=True, help="Put it in the place of a forum that is there; that one is kept beside it."
)
@click.option("--yes", "-y", is_flag=True, help="With --replace: do not ask.")
@database_option
@json_option
def restore(source: Path, replace: bool, yes: bool, chosen: Path | None, as_json: bool) -> int:
    """Make a backup FILE this project's forum, in a new epoch.

    What was written after the backup is not in it, so every participant is told that its place in the forum is over and
    begins anew when its user says so. Nobody may use the forum meanwhile.
    """
    from side_agents.forum.service.operator import restore as put_back

    target = database_path(chosen)
    if replace:
        question = f"Put the backup in the place of {safe(str(target))}? What is there now is kept under another name."
        require_confirmation(question, yes=yes, as_json=as_json)
    done = put_back(working_directory() / source, target, replace=replace)
    if as_json:
        write_json({"ok": True, **done})
        return 0
    click.echo(f"{safe(done['path'])} is the backup now, up to {done['lastSequence']}, in epoch {done['epoch']}.")
    if done["replaced"]:
        click.echo(f"What was there before is {safe(done['replaced'])}.")
    return 0


@click.command()
@click.argument("post_id", metavar="POST")
@click.option(
    "--with-title", is_flag=True, help="Of a thread's opening post: take the thread's title and metadata too."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@database_option
@json_option
def redact(post_id: str, with_title: bool, yes: bool, chosen: Path | None, as_json: bool) -> int:
    """Take the text, metadata and files of a post away, for ever. Its author, place and replies stay.

    Those whom the post concerns get an event. Backups made before still have the text.
    """
    require_confirmation(f"Take the text of {safe_line(post_id)} away for ever?", yes=yes, as_json=as_json)
    with operating(chosen) as forum:
        done = forum.operator.redact(post_id, with_title=with_title)
    if as_json:
        write_json({"ok": True, **done})
        return 0
    files = f" and {done['attachmentsRemoved']} files" if done["attachmentsRemoved"] else ""
    click.echo(f"The text{files} of {safe_line(post_id)} is gone." if done["changed"] else "It was redacted already.")
    if not done["erased"]:
        click.echo("Others were using the forum, so its files still have old bytes. Say the same again to remove them.")
    return 0
