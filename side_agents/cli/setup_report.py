"""What ``side-agents setup`` says at its end: what was made, updated and skipped, and how to go on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from side_agents.cli.output import safe, safe_line, write_facts, write_json, write_warnings
from side_agents.core.replicate import shown_size
from side_agents.core.setup import BOOTSTRAP, INCLUDE, SETTINGS, Answers, SetupPlan
from side_agents.core.setup_files import Action, Done, FilePlan, State
from side_agents.core.setup_survey import Survey

_COLOURS = {Action.MADE: "green", Action.UPDATED: "green", Action.SKIPPED: "yellow"}
_NEXT = (
    ('side-agents start "..."', "give a task to an agent; it starts with this setup"),
    ("side-agents list", "who is doing what"),
    ("side-agents finish ID --dry-run", "whether an agent's work could land"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """All that there is to say; ``done`` is empty after a dry run."""

    root: Path
    planned: SetupPlan
    done: tuple[Done, ...]
    consented: frozenset[str]
    found: Survey | None
    answers: Answers | None
    dry_run: bool
    upgrade: bool


def write_as_json(report: Report) -> None:
    """Print the report as one object."""
    done = {each.name: each for each in report.done}
    answer: dict[str, Any] = {"ok": True, "dryRun": report.dry_run, "root": str(report.root)}
    if report.answers is not None:
        answer["answers"] = {**asdict(report.answers), "policy": str(report.answers.policy)}
    if report.found is not None:
        answer["found"] = _found(report.found)
    answer["files"] = [_file(report, each, done.get(each.wanted.name)) for each in report.planned.files]
    answer["warnings"] = list(report.planned.warnings)
    write_json(answer)


def _found(found: Survey) -> dict[str, Any]:
    return {
        "branch": found.branch,
        "steps": [asdict(each) for each in found.steps],
        "checks": [asdict(each) for each in found.checks],
        "copies": [asdict(each) for each in found.copies],
        "listed": [{**asdict(each), "mode": str(each.mode)} for each in found.listed],
    }


def _file(report: Report, each: FilePlan, done: Done | None) -> dict[str, Any]:
    name = each.wanted.name
    action = done.action if done is not None else _expected(report, each)
    view: dict[str, Any] = {"name": name, "state": str(each.state), "action": str(action)}
    note = done.note if done is not None else each.note
    view |= {"note": note} if note else {}
    view |= {"backup": done.backup} if done is not None and done.backup else {}
    if each.state in (State.OUTDATED, State.CHANGED, State.YOURS):
        view["diff"] = each.diff
        view |= {"shippedDiff": each.shipped_diff} if each.shipped_diff else {}
    if each.state is State.NEW and report.dry_run:
        view["text"] = each.wanted.text
    return view


def _expected(report: Report, each: FilePlan) -> Action:
    if each.state is State.SAME:
        return Action.SAME
    if each.wanted.name not in report.consented or each.state is State.BLOCKED:
        return Action.SKIPPED
    return Action.MADE if each.state is State.NEW else Action.UPDATED


def write_as_text(report: Report) -> None:
    """Print the report for a person."""
    write_warnings(report.planned.warnings)
    if report.dry_run and report.found is not None and report.answers is not None:
        _write_answers(report.answers, report.found)
    done = {each.name: each for each in report.done}
    for each in report.planned.files:
        result = done.get(each.wanted.name)
        action = result.action if result is not None else _expected(report, each)
        _write_file(each, action, result)
        if _is_worth_showing(each, action, dry_run=report.dry_run):
            click.echo(safe(each.diff), nl=False)
    if report.dry_run:
        click.echo("Nothing was changed (dry run).")
        return
    _write_end(report)


def _is_worth_showing(each: FilePlan, action: Action, *, dry_run: bool) -> bool:
    if each.state in (State.OUTDATED, State.CHANGED):
        return dry_run or action is Action.SKIPPED
    # What ships is known; what was put together from the answers is not.
    return dry_run and each.wanted.name in (BOOTSTRAP, INCLUDE, SETTINGS)


def _write_answers(answers: Answers, found: Survey) -> None:
    write_facts(
        (
            ("branch", safe_line(answers.branch)),
            ("policy", str(answers.policy)),
            ("check", safe_line(answers.check or "none")),
            ("bootstrap", _listed(answers.bootstrap)),
            ("copy", _listed(answers.copy)),
        )
    )
    for each in found.copies:
        click.echo(f"  found     {safe_line(each.path)} ({shown_size(each.size)})")
    for listed in found.listed:
        click.echo(f"  listed    {safe_line(listed.path)} ({shown_size(listed.size)}, {listed.mode})")
    for step in found.steps:
        mark = "found" if step.chosen else "could be"
        click.echo(f"  {mark:<9} {safe_line(step.command)}  {click.style(safe_line(step.reason), dim=True)}")


def _listed(values: tuple[str, ...] | None) -> str:
    if values is None:
        return "left as it is"
    return safe_line(" ; ".join(values)) if values else "nothing"


def _write_file(each: FilePlan, action: Action, result: Done | None) -> None:
    note = result.note if result is not None else each.note
    would = "would be " if result is None and action is not Action.SAME else ""
    line = f"{click.style(f'{would}{action}'.ljust(8), fg=_COLOURS.get(action))} {safe(each.wanted.name)}"
    click.echo(line + (f"  {click.style(safe(note), dim=True)}" if note else ""))
    if result is not None and result.backup:
        click.echo(f"         the old one is kept in {safe(result.backup)}")


def _write_end(report: Report) -> None:
    kept = {each.name for each in report.done if each.action is Action.SKIPPED}
    if any(each.wanted.name in kept and each.state is not State.YOURS for each in report.planned.files):
        click.echo("Skipped files are as they were. Edit them by hand, or add --overwrite to have them replaced.")
    if report.upgrade:
        return
    click.echo("All of these are untracked and stay out of `git status`; change them as you like.")
    click.echo("next:")
    for command, words in _NEXT:
        click.echo(f"  {command}  {click.style(words, dim=True)}")
