"""``side-agents doctor``: look at everything, say what is wrong and how to mend it, and mend what can be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import environment, working_directory
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, safe_line, write_json
from side_agents.errors import UsageError

if TYPE_CHECKING:
    from side_agents.core.doctor import Examination
    from side_agents.core.findings import Finding
    from side_agents.core.repair import Repaired

_STYLES: dict[str, dict[str, Any]] = {
    "ok": {"fg": "green"},
    "note": {"dim": True},
    "warning": {"fg": "yellow"},
    "problem": {"fg": "red", "bold": True},
}
# What ends or closes something is asked for by itself.
_APART = {
    "process-left": "End {n}?",
    "window-left": "Close {n}?",
}
_ROUNDS = 4


@click.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended: shows what it will do, asks, then does it.")
@click.option("--yes", "-y", is_flag=True, help="With --repair: do not ask.")
@click.option("--disk", "exact", is_flag=True, help="Measure what everything takes on disk, however long that takes.")
@json_option
def doctor(repair: bool, yes: bool, exact: bool, as_json: bool) -> int:
    """Examine tmux, git, the clients, the settings and this repository's side agents.

    Looking changes nothing. --repair never takes anything from a worktree, and what it removes elsewhere it proves first to be
    nobody's. Exit status: 0 all is well, 1 there are warnings or problems.
    """
    if yes and not repair:
        raise UsageError("--yes answers the questions of --repair. Nothing was done.")
    from side_agents.core.doctor import examine

    def look() -> Examination:
        return examine(working_directory(), environment(), exact=exact)

    found = look()
    done: list[Repaired] = []
    if repair:
        if as_json and not yes and found.repairable:
            raise UsageError(
                "This needs a yes, and there is no terminal to ask on. Nothing was done.", hint="Add --yes."
            )
        found = _repair(found, look, done, yes=yes, as_json=as_json)
    if as_json:
        write_json(_answer(found, done))
    elif not repair or done or not found.is_clean:
        _write(found, is_after_repair=bool(done))
    else:
        _write(found, is_after_repair=False)
    return 0 if found.is_clean and all(each.error is None for each in done) else 1


def _repair(
    found: Examination, look: Callable[[], Examination], done: list[Repaired], *, yes: bool, as_json: bool
) -> Examination:
    """Mend in rounds: with the registry mended first, more can be seen. Returns the last examination."""
    tried: set[tuple[str, str, str]] = set()
    for _ in range(_ROUNDS):
        todo = _next(found, tried)
        if not todo or found.site is None:
            break
        tried |= {finding.key for finding in todo}
        chosen = _ask(todo, yes=yes, as_json=as_json)
        if not chosen:
            break
        from side_agents.core.repair import repair

        for finding in chosen:
            outcome = repair(found.site, finding)
            done.append(outcome)
            if not as_json:
                _write_outcome(outcome)
        found = look()
    return found


def _next(found: Examination, tried: set[tuple[str, str, str]]) -> list[Finding]:
    from side_agents.core.repair import FIRST

    left = [finding for finding in found.repairable if finding.key not in tried]
    return [finding for finding in left if finding.code in FIRST] or left


def _ask(todo: Sequence[Finding], *, yes: bool, as_json: bool) -> list[Finding]:
    if not as_json:
        click.echo(click.style("To be mended", bold=True))
        for finding in todo:
            click.echo(f"  {safe_line(finding.what, 300)}")
            click.echo(f"    {click.style('will', dim=True)} {safe_line(finding.repair or '', 300)}")
    if yes:
        return list(todo)
    if not _can_ask():
        raise UsageError("This needs a yes, and there is no terminal to ask on. Nothing was done.", hint="Add --yes.")
    plain = [finding for finding in todo if finding.code not in _APART]
    chosen = (
        plain if plain and click.confirm("Do this?" if len(plain) == len(todo) else _count(plain), err=True) else []
    )
    for code, question in _APART.items():
        same = [finding for finding in todo if finding.code == code]
        if same and click.confirm(question.format(n=safe(", ".join(each.subject for each in same))), err=True):
            chosen += same
    return chosen


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _count(plain: Sequence[Finding]) -> str:
    return f"Do the {len(plain)} that end and close nothing?" if len(plain) > 1 else "Do the one that ends nothing?"


def _write_outcome(outcome: Repaired) -> None:
    if outcome.error is None:
        click.echo(f"{click.style('done', fg='green')} {safe_line(outcome.said, 300)}")
        return
    click.echo(f"error: {safe(outcome.error.message)}", err=True)
    if outcome.error.hint:
        click.echo(f"hint: {safe(outcome.error.hint)}", err=True)


def _write(found: Examination, *, is_after_repair: bool) -> None:
    widest = max(len(finding.check) for finding in found.findings)
    if is_after_repair:
        click.echo(click.style("After that", bold=True))
    shown = [finding for finding in found.findings if not is_after_repair or finding.severity.is_fault]
    for finding in shown:
        word = click.style(str(finding.severity).ljust(7), **_STYLES[finding.severity])
        click.echo(f"{word}  {finding.check.ljust(widest)}  {safe_line(finding.what, 500)}")
        for label, text in (("safe", finding.safe), ("mend", finding.mend)):
            if text and (finding.severity != "ok" or label == "mend"):
                click.echo(f"{' ' * (widest + 11)}{click.style(label, dim=True)}  {safe_line(text, 500)}")
    faults = [finding for finding in found.findings if finding.severity.is_fault]
    if not faults:
        click.echo(click.style("All is well.", fg="green"))
    else:
        can = sum(finding.repairable for finding in faults)
        some = f"; `side-agents doctor --repair` can mend {can}" if can else ""
        click.echo(
            f"{len(faults)} warning{'s' if len(faults) > 1 else ''} or problem{'s' if len(faults) > 1 else ''}{some}."
        )


def _answer(found: Examination, done: Sequence[Repaired]) -> dict[str, Any]:
    """``ok`` is that of the exit status; ``repaired`` only holds what was tried."""
    findings = [_view(finding) for finding in found.findings]
    return {"ok": found.is_clean and all(each.error is None for each in done), "findings": findings} | (
        {"repaired": [_outcome_view(outcome) for outcome in done]} if done else {}
    )


def _view(finding: Finding) -> dict[str, Any]:
    view: dict[str, Any] = {
        "check": finding.check,
        "code": finding.code,
        "severity": str(finding.severity),
        "what": finding.what,
        "safe": finding.safe,
        "mend": finding.mend,
        "repairable": finding.repairable,
    }
    more = {"repair": finding.repair, "subject": finding.subject, "path": str(finding.place) if finding.place else None}
    return view | {key: value for key, value in more.items() if value}


def _outcome_view(outcome: Repaired) -> dict[str, Any]:
    from side_agents.core import views

    base = {"code": outcome.finding.code, "subject": outcome.finding.subject}
    if outcome.error is None:
        return base | {"result": "done", "said": outcome.said}
    failure = views.failure_view(outcome.error)
    failure.pop("ok", None)
    return base | {"result": "failed"} | failure
