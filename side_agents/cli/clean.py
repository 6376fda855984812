"""``side-agents clean``: clear what agents left behind, after proof and question."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agents_argument, json_option, require_confirmation
from side_agents.cli.output import safe, write_json, write_warnings
from side_agents.errors import UsageError

if TYPE_CHECKING:
    from side_agents.core.clean import CleanRequest, Outcome, Plan
    from side_agents.core.context import Context
    from side_agents.core.verdicts import Verdict

_KINDS = ("record", "window", "lease", "slot", "branch")
_TITLES = {
    "record": "Failed and crashed agents",
    "window": "Windows of ended agents",
    "lease": "Orphan leases",
    "slot": "Idle slots over the number kept",
    "branch": "Branches whose work has landed",
    "trash": "In the trash",
}
_QUESTIONS = {
    "record": "Clear {n} from the list? Branches, worktrees and files are kept.",
    "window": "Close {n}?",
    "lease": "Reclaim {n}? Only the lease files go.",
    "slot": "Move {n} to the trash? `side-agents clean --undo` brings them back.",
    "branch": "Delete {n}? `side-agents clean --undo` brings them back.",
    "trash": "Remove {n} from the trash for good?",
}
_LAST = ""


@click.command()
@agents_argument
@click.option("--all", "-a", "everyone", is_flag=True, help="Also the agents that other parents started.")
@click.option("--only", multiple=True, type=click.Choice(_KINDS), help="Only this kind of thing; may be repeated.")
@click.option("--keep-slots", type=click.IntRange(min=0), metavar="N", help="Leave N idle slots (setting: slots_kept).")
@click.option("--dry-run", "-n", is_flag=True, help="Show what would be done and why not the rest.")
@click.option(
    "--yes", "-y", "--force", "-f", is_flag=True, help="Do not ask. What is not proven safe stays all the same."
)
@click.option("--undo", is_flag=False, flag_value=_LAST, metavar="[STAMP]", help="Bring the last discards back.")
@click.option("--trash", "show_trash", is_flag=True, help="Show what is in the trash.")
@click.option("--empty-trash", is_flag=True, help="Remove what is in the trash for good.")
@json_option
def clean(
    *,
    agent_ids: tuple[str, ...],
    everyone: bool,
    only: tuple[str, ...],
    keep_slots: int | None,
    dry_run: bool,
    yes: bool,
    undo: str | None,
    show_trash: bool,
    empty_trash: bool,
    as_json: bool,
) -> int:
    """Clear what agents left behind: records, windows, leases, slots and merged branches.

    Nothing goes that is not proven to be safe; each refusal names the reason and the way out. With IDs, only the records
    of these agents are cleared. Slots and branches can be brought back with --undo.
    """
    if sum((undo is not None, show_trash, empty_trash)) > 1:
        raise UsageError("--undo, --trash and --empty-trash exclude each other. Nothing was done.")
    from side_agents.core import clean as core
    from side_agents.core.verdicts import Kind

    context = open_here()
    if undo is not None:
        return _bring_back(context, undo or None, as_json=as_json)
    if show_trash:
        return _show_trash(context, as_json=as_json)
    if empty_trash:
        return _run(context, core.survey_trash(context), dry_run=dry_run, yes=yes, as_json=as_json)
    request: CleanRequest = core.CleanRequest(
        kinds=[Kind(name) for name in only] or core.KINDS,
        everyone=everyone,
        agent_ids=agent_ids,
        slots_kept=keep_slots,
    )
    plan = core.survey(context, core.with_slots_kept(request, context))
    return _run(context, plan, dry_run=dry_run, yes=yes, as_json=as_json)


def _run(context: Context, plan: Plan, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    if dry_run:
        if as_json:
            write_json(_answer(plan, [], dry_run=True))
        else:
            _write_plan(plan)
        return 0
    if not as_json:
        _write_plan(plan)
    chosen = _ask(plan.safe, yes=yes, as_json=as_json)
    from side_agents.core.clean import carry_out

    outcomes: list[Outcome] = []
    for outcome in carry_out(context, chosen) if chosen else ():
        outcomes.append(outcome)
        if not as_json:
            _write_outcome(outcome)
    if as_json:
        write_json(_answer(plan, outcomes, dry_run=False))
    elif any(outcome.discarded and outcome.discarded.entry for outcome in outcomes):
        click.echo(click.style("`side-agents clean --undo` brings slots and branches back.", dim=True))
    return next((outcome.error.exit_status for outcome in outcomes if outcome.error is not None), 0)


def _ask(verdicts: Sequence[Verdict], *, yes: bool, as_json: bool) -> list[Verdict]:
    """What the user agrees to, one question for each kind; all or nothing where nobody can be asked."""
    if not verdicts or yes:
        return list(verdicts)
    if as_json or not _can_ask():
        require_confirmation("", yes=False, as_json=as_json)
    chosen: list[Verdict] = []
    for kind in dict.fromkeys(verdict.target.kind for verdict in verdicts):
        same = [verdict for verdict in verdicts if verdict.target.kind == kind]
        named = ", ".join(safe(_name(verdict)) for verdict in same[:6])
        listed = named if len(same) <= 6 else f"{named} and {len(same) - 6} more"
        if click.confirm(_QUESTIONS[kind].format(n=listed), err=True):
            chosen += same
    return chosen


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _name(verdict: Verdict) -> str:
    target = verdict.target
    return f"{target.token} ({target.name})" if target.kind == "window" else target.name


def _write_plan(plan: Plan) -> None:
    if not plan.verdicts:
        click.echo("There is nothing to clean.")
    for kind in dict.fromkeys(verdict.target.kind for verdict in plan.verdicts):
        click.echo(click.style(_TITLES[kind], bold=True))
        for verdict in plan.verdicts:
            if verdict.target.kind == kind:
                _write_verdict(verdict)
    write_warnings(plan.notes)


def _write_verdict(verdict: Verdict) -> None:
    if verdict.is_safe:
        keeps = click.style(f"  ({safe(verdict.keeps)})", dim=True) if verdict.keeps else ""
        click.echo(f"  {click.style('can go', fg='green')}  {safe(_name(verdict))}{keeps}")
        return
    click.echo(f"  {click.style('stays', fg='yellow')}   {safe(_name(verdict))}")
    for reason in verdict.reasons:
        click.echo(f"            {safe(reason.text)}")
        click.echo(click.style(f"            {safe(reason.way_out)}", dim=True))


def _write_outcome(outcome: Outcome) -> None:
    if outcome.discarded is not None:
        done = click.style("done", fg="green")
        click.echo(f"{done} {outcome.target.kind} {safe(outcome.target.name)}  kept: {safe(outcome.discarded.keeps)}")
    elif outcome.error is not None:
        click.echo(f"error: {safe(outcome.error.message)}", err=True)
        if outcome.error.hint:
            click.echo(f"hint: {safe(outcome.error.hint)}", err=True)


def _answer(plan: Plan, outcomes: Sequence[Outcome], *, dry_run: bool) -> dict[str, Any]:
    done = {(outcome.target.kind, outcome.target.name): outcome for outcome in outcomes}
    items = [
        _item(verdict, done.get((verdict.target.kind, verdict.target.name)), dry_run=dry_run)
        for verdict in plan.verdicts
    ]
    return {
        "ok": all(outcome.error is None for outcome in outcomes),
        "dryRun": dry_run,
        "items": items,
        "notes": list(plan.notes),
    }


def _item(verdict: Verdict, outcome: Outcome | None, *, dry_run: bool) -> dict[str, Any]:
    """One thing; ``result`` is would-go, stays, done, failed or left (nobody said yes)."""
    from side_agents.core import views

    target = verdict.target
    item: dict[str, Any] = {"kind": str(target.kind), "name": target.name}
    if target.kind == "window":
        item["agentId"] = target.token
    if target.path is not None:
        item["path"] = str(target.path)
    if not verdict.is_safe:
        reasons = [{"code": each.code, "text": each.text, "wayOut": each.way_out} for each in verdict.reasons]
        return item | {"result": "stays", "reasons": reasons}
    if outcome is None:
        return item | {"result": "would-go" if dry_run else "left", "keeps": verdict.keeps}
    if outcome.error is not None:
        failure = views.failure_view(outcome.error)
        failure.pop("ok")
        return item | {"result": "failed", **failure}
    keeps, entry = (outcome.discarded.keeps, outcome.discarded.entry) if outcome.discarded else ("", None)
    return item | {"result": "done", "keeps": keeps} | ({"trash": entry} if entry else {})


def _bring_back(context: Context, stamp: str | None, *, as_json: bool) -> int:
    from side_agents.core import views
    from side_agents.core.undo import undo

    results = undo(context, stamp)
    if as_json:
        items = [
            {"name": entry.label, "kind": entry.kind}
            | (
                {"result": "restored", "restored": said}
                if error is None
                else {"result": "failed"} | views.failure_view(error)
            )
            for entry, said, error in results
        ]
        write_json({"ok": all(error is None for *_, error in results), "stamp": results[0][0].stamp, "items": items})
    else:
        _write_restored((said, error) for _, said, error in results)
    return next((error.exit_status for *_, error in results if error is not None), 0)


def _write_restored(results: Iterable[tuple[str, Any]]) -> None:
    for said, error in results:
        if error is None:
            click.echo(f"{click.style('restored', fg='green')} {safe(said)}")
            continue
        click.echo(f"error: {safe(error.message)}", err=True)
        if error.hint:
            click.echo(f"hint: {safe(error.hint)}", err=True)


def _show_trash(context: Context, *, as_json: bool) -> int:
    from side_agents.core.clean import list_trash

    runs = list_trash(context)
    if as_json:
        write_json(
            {"ok": True, "runs": [{"stamp": run.stamp, "names": list(run.labels), "bytes": run.size} for run in runs]}
        )
        return 0
    for run in runs:
        click.echo(f"{run.stamp}  {run.size / 1_000_000:8.1f} MB  {safe(', '.join(run.labels))}")
    if not runs:
        click.echo("The trash is empty.")
    return 0
