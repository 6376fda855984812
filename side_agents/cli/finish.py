"""``side-agents finish``: land an agent's branch. Its exit statuses are its own table, the seed's where the seed has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import complete_ids, json_option
from side_agents.cli.output import safe, safe_line, write_facts, write_json
from side_agents.errors import SideAgentsError, UsageError
from side_agents.models import FinishPolicy
from side_agents.names import normalise_id

if TYPE_CHECKING:
    from side_agents.core.finish_survey import Finished

MISUSE = 1


class _FinishCommand(click.Command):
    """A command whose every status of its table means one thing: what else goes wrong is status 1, misuse."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _misuse(
                UsageError(error.format_message(), hint="`side-agents finish --help` shows what it takes.")
            ) from error


def _misuse(error: SideAgentsError) -> SideAgentsError:
    error.exit_status = MISUSE
    return error


@click.command(cls=_FinishCommand)
@click.argument("agent_id", metavar="[ID]", required=False, shell_complete=complete_ids)
@click.option("--policy", type=click.Choice([str(policy) for policy in FinishPolicy]), help="How to land it.")
@click.option("--target", metavar="BRANCH", help="Land on this branch.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@json_option
def finish(agent_id: str | None, policy: str | None, target: str | None, dry_run: bool, as_json: bool) -> int:
    """Land an agent's branch on its target: bring it up to date, run the check, move the target.

    Without ID: your own work, in your own worktree. With ID: that of an idle agent.

    \b
    Exit status: 0 landed, or nothing had to be done     6 a rebase, merge, ... is in progress
                 1 misuse, or something else             7 the check failed
                 2 conflict, left to be resolved         8 uncommitted files are in the way
                 3 the merge lock stayed taken           9 the target could not be moved
                 4 nested: the parent has left its branch
                 5 uncommitted work                     10 nothing to land
    """
    from side_agents.core.finish import FinishOptions
    from side_agents.core.finish import finish as land

    options = FinishOptions(FinishPolicy(policy) if policy else None, target, dry_run)
    try:
        finished = land(open_here(), normalise_id(agent_id or "") or None, options, _say)
    except SideAgentsError as error:
        raise _misuse(error) from error
    if as_json:
        write_json(as_answer(finished))
    else:
        _write(finished)
    return finished.verdict.outcome.exit_status


def _say(line: str) -> None:
    click.echo(click.style(safe_line(line, 300), dim=True), err=True)


def as_answer(finished: Finished) -> dict[str, Any]:
    """The verdict as one JSON object; ``error``, ``code`` and ``hint`` as with every other failure."""
    from side_agents.core.views import as_json

    verdict = finished.verdict
    ok = verdict.outcome.exit_status == 0
    answer: dict[str, Any] = {"ok": ok, "exitStatus": verdict.outcome.exit_status, "dryRun": finished.is_dry_run}
    answer |= as_json(verdict)
    answer |= {
        "landedCommit": finished.commit,
        "url": finished.url,
        "output": list(finished.output) or None,
        "notes": list(finished.notes) or None,
    }
    answer |= {} if ok else {"error": verdict.message, "code": str(verdict.outcome)}
    return {key: value for key, value in answer.items() if value is not None}


def _write(finished: Finished) -> None:
    verdict = finished.verdict
    for line in finished.output:
        click.echo(f"  {click.style('│', dim=True)} {safe(line)}", err=True)
    for note in finished.notes:
        click.echo(f"{click.style('note:', fg='yellow')} {safe(note)}", err=True)
    if verdict.outcome.exit_status != 0:
        click.echo(f"error: {safe(verdict.message)}", err=True)
        if verdict.hint:
            click.echo(f"hint: {safe(verdict.hint)}", err=True)
        return
    click.echo(f"{click.style(str(verdict.outcome), fg='green')}  {safe(verdict.message)}")
    if verdict.hint and not finished.is_dry_run:
        click.echo(safe(verdict.hint))
    facts = (
        ("request", safe(finished.url or "")),
        ("plan", safe("; ".join(verdict.plan)) if finished.is_dry_run else ""),
    )
    write_facts(facts)
