"""The questions of ``side-agents setup``. Each has an answer already; Enter takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from side_agents.cli.output import safe, safe_line, write_warnings
from side_agents.core import include_list
from side_agents.core.replicate import shown_size
from side_agents.core.setup import bootstrap_script, check_shell, include_text
from side_agents.core.setup_files import FilePlan, State
from side_agents.errors import UsageError
from side_agents.models import FinishPolicy

if TYPE_CHECKING:
    from side_agents.core.bootstrap import Step
    from side_agents.core.check_proposals import Check
    from side_agents.core.setup import SetupPlan
    from side_agents.core.setup_survey import Survey

_POLICIES = {
    FinishPolicy.REBASE_FF: "rebase onto the branch, then fast-forward it",
    FinishPolicy.SQUASH: "make one commit of the work",
    FinishPolicy.MERGE: "make a merge commit",
    FinishPolicy.PR: "push and open a pull request",
}


def for_branch(default: str) -> str:
    """Ask for the branch that work lands on."""
    shown = safe_line(default)
    answer = str(click.prompt("Branch that finished work lands on", default=shown or None)).strip()
    return default if answer == shown else answer


def for_policy(default: FinishPolicy) -> FinishPolicy:
    """Ask how work lands."""
    click.echo("How finished work lands:")
    for policy, words in _POLICIES.items():
        click.echo(f"  {policy!s:<10} {words}")
    return FinishPolicy(click.prompt("Policy", default=str(default), type=click.Choice([str(p) for p in FinishPolicy])))


def for_check(default: str | None, offered: Sequence[Check]) -> str | None:
    """Ask for the check command until there is one that a shell can read, or none."""
    for check in offered:
        click.echo(f"  found: {safe_line(check.command)}  {click.style(safe_line(check.reason), dim=True)}")
    while True:
        shown = safe_line(default) if default else "none"
        answer = str(
            click.prompt("Command that must succeed before work lands (none: no check)", default=shown)
        ).strip()
        if answer == "none":
            return None
        command = default if default and answer == shown else answer
        if _is_good(check_shell, command, "sh", "The check"):
            return command


def for_bootstrap(default: tuple[str, ...] | None, offered: Sequence[Step]) -> tuple[str, ...] | None:
    """Ask for the lines of the bootstrap script; None leaves the one that exists."""
    if default is None and not click.confirm("There is a bootstrap script already. Write a new one?", default=False):
        return None
    lines: list[str] = []
    for step in offered:
        click.echo(
            f"  {click.style(safe_line(step.command), bold=True)}  {click.style(safe_line(step.reason), dim=True)}"
        )
        if click.confirm("Run this in every new slot?", default=step.chosen):
            lines.append(step.command)
    while True:
        line = str(
            click.prompt("Another line of shell for every new slot (Enter: no more)", default="", show_default=False)
        )
        if not line.strip():
            return tuple(lines)
        if _is_good(bootstrap_script, [line]):
            lines.append(line)


def for_copies(default: tuple[str, ...] | None, found: Survey) -> tuple[str, ...] | None:
    """Ask which ignored files every slot gets; None leaves the list that exists."""
    for listed in found.listed:
        click.echo(f"  already listed: {safe_line(listed.path)}  {click.style(shown_size(listed.size), dim=True)}")
    if default is None and not click.confirm(
        "There is a list of files to copy already. Write a new one?", default=False
    ):
        return None
    patterns: list[str] = []
    for candidate in found.copies:
        click.echo(f"  {safe_line(candidate.path)}  {click.style(shown_size(candidate.size), dim=True)}")
        if "\n" not in candidate.path and click.confirm("Copy this ignored file into every slot?", default=True):
            patterns.append(include_list.literal(candidate.path))
    while True:
        pattern = str(click.prompt("Another pattern of ignored files (Enter: no more)", default="", show_default=False))
        if not pattern.strip():
            return tuple(patterns)
        if _is_good(include_text, [pattern]):
            patterns.append(pattern)


def for_consent(planned: SetupPlan, *, overwrite: bool) -> frozenset[str]:
    """Ask before anything is written: once for what is new, for each file that would be replaced. Raises click.Abort."""
    write_warnings(planned.warnings)
    fresh = [each.wanted.name for each in planned.files if each.state is State.NEW]
    names = set(fresh)
    if fresh:
        click.echo("To be made:\n" + "\n".join(f"  {name}" for name in fresh))
        click.confirm("Write them?", default=True, abort=True)
    for each in planned.files:
        if each.state in (State.OUTDATED, State.CHANGED) or (each.state is State.YOURS and overwrite):
            _show_difference(each)
            if overwrite or click.confirm(f"Replace {each.wanted.name}?", default=False):
                names.add(each.wanted.name)
    return frozenset(names)


def _show_difference(each: FilePlan) -> None:
    why = "is as it was installed" if each.state is State.OUTDATED else (each.note or "differs")
    click.echo(f"{each.wanted.name}: {safe(why)}")
    click.echo(safe(each.diff))


def _is_good(check: Callable[..., object], *answer: object) -> bool:
    try:
        check(*answer)
    except UsageError as error:
        click.echo(safe(error.message), err=True)
        return False
    return True
