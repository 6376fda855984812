"""``side-agents install``: put our integration into a program of the user's, look at it, take it out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import environment
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, safe_line, write_facts, write_json
from side_agents.errors import UsageError

if TYPE_CHECKING:
    from side_agents.clients.pi_install import Change, Inspection

TARGETS = ("pi",)
_SAID = {
    "installed": ("installed", "green"),
    "updated": ("updated", "green"),
    "unchanged": ("up to date", "green"),
    "removed": ("removed", "green"),
    "absent": ("not installed", "yellow"),
}
_STATES = {
    "absent": "not installed",
    "current": "installed",
    "outdated": "outdated",
    "elsewhere": "of another installation",
    "broken": "broken",
    "edited": "edited",
    "foreign": "not ours",
}
_NEXT = (
    ("pi", "start Pi inside tmux, or /reload in one that runs"),
    ("/skill:agent-setup", "set a repository up for side agents, once"),
    ("/agent fix the flaky login test", "give a task to a side agent"),
)


@click.command(
    epilog="""\b
Examples:
  side-agents install pi
  side-agents install pi --check
  side-agents install pi --uninstall
"""
)
@click.argument("target", type=click.Choice(TARGETS))
@click.option("--check", is_flag=True, help="Only look: is it there, does it work, is something in its way?")
@click.option("--uninstall", is_flag=True, help="Remove exactly what was installed.")
@json_option
def install(target: str, check: bool, uninstall: bool, as_json: bool) -> int:  # noqa: ARG001 - there is one so far
    """Put side agents into your Pi: /agent, /agents, /agent-resume, the tools, the status line and the skills.

    It is one file in Pi's folder of extensions ($PI_CODING_AGENT_DIR, by default ~/.pi/agent), which loads what came with
    side-agents; no setting is edited. Exit status of --check: 0 all is well, 1 it is missing or something is wrong.
    """
    if check and uninstall:
        raise UsageError("Give one of --check and --uninstall. Nothing was changed.")
    from side_agents.clients import pi_install

    if check:
        found = pi_install.inspect(environment())
        _write_json(found) if as_json else _write_inspection(found)
        return 0 if found.is_sound else 1
    change = pi_install.uninstall(environment()) if uninstall else pi_install.install(environment())
    _write_json(change.after, change) if as_json else _write_change(change)
    return 0


def _write_json(found: Inspection, change: Change | None = None) -> None:
    answer: dict[str, Any] = {"ok": found.is_sound if change is None else True, "target": "pi"}
    if change is not None:
        answer |= {"action": change.action, "backup": str(change.backup) if change.backup else None}
    shown = found.remarks if change is None or found.state is not found.state.ABSENT else ()
    remarks = [{"what": each.what, "mend": each.mend, "fault": each.is_fault} for each in shown]
    write_json(
        answer
        | {
            "state": str(found.state),
            "file": str(found.path),
            "loads": str(found.loads) if found.loads else None,
            "pi": str(found.pi) if found.pi else None,
            "piVersion": found.pi_version,
            "remarks": remarks,
        }
    )


def _write_inspection(found: Inspection) -> None:
    colour = "green" if found.is_sound else "yellow"
    click.echo(f"{click.style(_STATES[found.state], fg=colour)} {safe(str(found.path))}")
    write_facts(
        (
            ("loads", safe(str(found.loads)) if found.loads else None),
            ("pi", f"{safe(str(found.pi))} {safe(found.pi_version or 'of unknown version')}" if found.pi else None),
        )
    )
    _write_remarks(found)


def _write_change(change: Change) -> None:
    word, colour = _SAID[change.action]
    click.echo(f"{click.style(word, fg=colour)} {safe(str(change.after.path))}")
    if change.backup is not None:
        click.echo(f"  your edited version is kept: {safe(str(change.backup))}")
    if change.action == "removed":
        click.echo("A Pi that runs has it until /reload. Agents, branches and worktrees stay as they are.")
    if change.action in ("removed", "absent"):
        return
    _write_remarks(change.after)
    click.echo("next:")
    widest = max(len(command) for command, _ in _NEXT)
    for command, words in _NEXT:
        click.echo(f"  {command.ljust(widest)}  {click.style(words, dim=True)}")


def _write_remarks(found: Inspection) -> None:
    for remark in found.remarks:
        word = click.style("warning", fg="yellow") if remark.is_fault else click.style("note", dim=True)
        click.echo(f"{word}: {safe_line(remark.what, 500)}")
        click.echo(f"  {safe_line(remark.mend, 500)}")
