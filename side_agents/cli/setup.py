"""``side-agents setup``: the scripts and settings of a project, after a short interview or without one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import json_option
from side_agents.errors import UsageError
from side_agents.models import FinishPolicy

if TYPE_CHECKING:
    from side_agents.core.setup import Answers, SetupPlan
    from side_agents.core.setup_survey import Survey


@click.command(
    epilog="""\b
Examples:
  side-agents setup                          asks, with what it found out as defaults
  side-agents setup --dry-run --json         what it found out and would write
  side-agents setup --yes --policy squash --check "make test" --copy .env
  side-agents setup --upgrade                compare the installed scripts with the shipped ones
"""
)
@click.option("--branch", metavar="BRANCH", help="Branch that finished work lands on.")
@click.option("--policy", type=click.Choice([str(each) for each in FinishPolicy]), help="How finished work lands.")
@click.option("--check", metavar="COMMAND", help='Shell command that must succeed before work lands; "" for none.')
@click.option(
    "--bootstrap", metavar="LINE", multiple=True, help='Line of shell for every new slot; may be repeated; "" for none.'
)
@click.option(
    "--copy",
    "copies",
    metavar="PATTERN",
    multiple=True,
    help='Ignored files for every slot; may be repeated; "" for none.',
)
@click.option(
    "--overwrite", is_flag=True, help="Also replace files that you have changed; the old ones are kept aside."
)
@click.option("--upgrade", is_flag=True, help="Only compare the installed scripts with the shipped ones.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask: take the defaults for what is not given.")
@json_option
def setup(  # noqa: PLR0917 - click passes them by name
    branch: str | None,
    policy: str | None,
    check: str | None,
    bootstrap: tuple[str, ...],
    copies: tuple[str, ...],
    overwrite: bool,
    upgrade: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Set this project up: how a slot is prepared and how finished work lands.

    Nothing of this is needed to use side agents. It writes a start script, a finish script and a finish skill for the agents,
    where wanted a bootstrap script and a list of ignored files to copy, all of them untracked below .pi/ and yours to change,
    and the finish settings. A file that exists and differs is never replaced without your consent.
    """
    from side_agents.cli import setup_report
    from side_agents.core import setup as use_case
    from side_agents.core.setup_survey import survey

    is_asking = not (yes or dry_run)
    if is_asking and (as_json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError(
            "There is no terminal to ask on. Nothing was changed.",
            hint="Add --yes to take the defaults for what is not given, or --dry-run to see them.",
        )
    named = _named(branch=branch, policy=policy, check=check, bootstrap=bootstrap or None, copy=copies or None)
    if upgrade and named:
        raise UsageError("--upgrade only compares the installed scripts; it takes no answers. Nothing was changed.")
    context = open_here()
    found, answers = None, None
    if upgrade:
        planned = use_case.upgrade_plan(context)
    else:
        found = survey(context)
        answers = _with_options(use_case.default_answers(context, found), branch, policy, check)
        answers = _with_lists(answers, bootstrap, copies)
        if is_asking:
            answers = _interview(answers, found, named)
        planned = use_case.plan(context, answers, found)
    consented = _consented(planned, overwrite=overwrite, is_asking=is_asking)
    done = () if dry_run else use_case.apply(context, planned, consented)
    report = setup_report.Report(context.paths.root, planned, done, consented, found, answers, dry_run, upgrade)
    if as_json:
        setup_report.write_as_json(report)
    else:
        setup_report.write_as_text(report)
    return 0


def _named(**values: object) -> frozenset[str]:
    return frozenset(name for name, value in values.items() if value is not None)


def _with_options(answers: Answers, branch: str | None, policy: str | None, check: str | None) -> Answers:
    from dataclasses import replace

    answers = replace(answers, branch=answers.branch if branch is None else branch)
    answers = replace(answers, policy=answers.policy if policy is None else FinishPolicy(policy))
    return answers if check is None else replace(answers, check=check or None)


def _with_lists(answers: Answers, bootstrap: tuple[str, ...], copies: tuple[str, ...]) -> Answers:
    from dataclasses import replace

    if bootstrap:
        answers = replace(answers, bootstrap=() if bootstrap == ("",) else bootstrap)
    return replace(answers, copy=() if copies == ("",) else copies) if copies else answers


def _interview(answers: Answers, found: Survey, named: frozenset[str]) -> Answers:
    from dataclasses import replace

    from side_agents.cli import setup_interview as ask

    if "branch" not in named:
        answers = replace(answers, branch=ask.for_branch(answers.branch))
    if "policy" not in named:
        answers = replace(answers, policy=ask.for_policy(answers.policy))
    if "check" not in named:
        answers = replace(answers, check=ask.for_check(answers.check, found.checks))
    if "bootstrap" not in named:
        answers = replace(answers, bootstrap=ask.for_bootstrap(answers.bootstrap, found.steps))
    if "copy" not in named:
        answers = replace(answers, copy=ask.for_copies(answers.copy, found))
    return answers


def _consented(planned: SetupPlan, *, overwrite: bool, is_asking: bool) -> frozenset[str]:
    from side_agents.core.setup_files import is_covered

    if is_asking:
        from side_agents.cli import setup_interview

        return setup_interview.for_consent(planned, overwrite=overwrite)
    # Without questions there was a --yes, or it is a dry run, which shows what one would do.
    return frozenset(each.wanted.name for each in planned.files if is_covered(each, overwrite=overwrite))
