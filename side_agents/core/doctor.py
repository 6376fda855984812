"""``doctor``: every check as one row of a table, and one look at them all. Examining writes nothing, anywhere.

A check is a small function from what there is to findings; one without findings is in order. Checks that fail themselves are
findings, too: what could not be looked at is not in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from side_agents import config as settings
from side_agents.config import Config
from side_agents.core import (
    doctor_agents,
    doctor_disk,
    doctor_machine,
    doctor_repository,
    doctor_slots,
    doctor_state,
)
from side_agents.core.context import open_context
from side_agents.core.doctor_site import Machine, Site
from side_agents.core.findings import Finding, Severity
from side_agents.errors import NotARepositoryError, SideAgentsError, UsageError
from side_agents.paths import user_config

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One check: its name, what is said when it finds nothing, and the function."""

    name: str
    in_order: str
    look: Callable[[T], Iterable[Finding]]


MACHINE: tuple[Check[Machine], ...] = (
    Check("tmux", "It is new enough and answers.", doctor_machine.tmux_works),
    Check("git", "It is new enough.", doctor_machine.git_works),
    Check("settings", "They are valid.", doctor_machine.settings_are_valid),
    Check("clients", "They are installed.", doctor_machine.clients_are_there),
    Check("extension", "If it is installed in Pi, it is up to date.", doctor_machine.extension_is_current),
)
REPOSITORY: tuple[Check[Site], ...] = (
    Check("repository", "It has commits to start from.", doctor_repository.has_commits),
    Check("permissions", "The state folder is yours alone.", doctor_state.folder_is_private),
    Check("registry", "It can be read, and so can its backup.", doctor_state.registry_holds),
    Check("history", "It can be read.", doctor_state.history_holds),
    Check("locks", "Nobody holds one for long.", doctor_state.locks_are_free),
    Check("left over", "No write was cut off.", doctor_state.nothing_is_left_over),
    Check("exclude", "Our files are kept out of git status.", doctor_repository.excludes_are_there),
    Check("worktrees", "Git's list fits what is on disk.", doctor_repository.registrations_hold),
    Check("pointers", "Slots and git name each other.", doctor_repository.pointers_agree),
    Check("slots", "They are worktrees of this repository.", doctor_slots.slots_are_worktrees),
    Check("agents' slots", "Every live agent has its own.", doctor_slots.rows_have_slots),
    Check("leases", "Each belongs to an agent on the list.", doctor_slots.leases_are_held),
    Check("work", "None lies in a slot that nobody has.", doctor_slots.no_work_is_forgotten),
    Check("agents", "Those that count as live are.", doctor_agents.rows_are_alive),
    Check("ended agents", "Nothing of them still runs.", doctor_agents.ended_agents_are_gone),
    Check("list", "No failed or crashed agent waits to be cleared.", doctor_agents.ended_rows_are_cleared),
    Check("questions", "No agent waits at a dialog or with a question.", doctor_agents.questions_are_answered),
    Check("branches", "No parked work.", doctor_repository.branches_are_known),
    Check("rescue", "No rescue refs.", doctor_repository.rescue_refs_are_known),
    Check("disk", "Nothing is used.", doctor_disk.disk_is_used_well),
)


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings in the order of the checks; ``site`` is None outside of a repository."""

    findings: tuple[Finding, ...]
    site: Site | None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is a warning or a problem."""
        return not any(finding.severity.is_fault for finding in self.findings)

    @property
    def repairable(self) -> tuple[Finding, ...]:
        """What ``--repair`` can mend."""
        return tuple(finding for finding in self.findings if finding.repairable)


def examine(cwd: Path, environment: Mapping[str, str], *, exact: bool = False) -> Examination:
    """Look at everything once. Raises nothing expected: what is wrong is a finding."""
    machine, site = _open(cwd, environment, exact=exact)
    findings = list(_run(MACHINE, machine))
    if site is not None:
        words = _absent(site)
        findings += _run((replace(check, in_order=words.get(check.name, check.in_order)) for check in REPOSITORY), site)
    elif machine.outside is not None:
        findings.append(
            Finding(
                code="not-a-repository",
                severity=Severity.PROBLEM,
                what=machine.outside.message,
                safe="Only tmux, git, settings, clients and Pi's extension were looked at.",
                mend=machine.outside.hint or "Change to a repository and run `side-agents doctor` again.",
                check="repository",
            )
        )
    return Examination(tuple(findings), site)


def _open(cwd: Path, environment: Mapping[str, str], *, exact: bool) -> tuple[Machine, Site | None]:
    """The site, with the defaults where the settings cannot be read."""
    try:
        context = open_context(cwd, environment)
        return Machine(environment, context.config), Site(context, exact=exact)
    except UsageError as error:
        context = open_context(cwd, environment, config=Config())
        return Machine(environment, Config(), error), Site(context, exact=exact)
    except NotARepositoryError as error:
        try:
            home = Path(environment.get("HOME") or "/")
            return Machine(environment, settings.load((user_config(environment, home),)), None, error), None
        except UsageError as fault:
            return Machine(environment, Config(), fault, error), None


def _absent(site: Site) -> dict[str, str]:
    """What is said of checks that find nothing because there is nothing yet."""
    paths = site.paths
    words: dict[str, str] = {}
    if not site.is_used:
        words["permissions"] = "There is no state folder yet."
        words["exclude"] = "There is nothing of ours to keep out of git status yet."
    if not paths.registry.exists():
        words["registry"] = "There is none yet."
    elif not paths.registry_backup.exists():
        words["registry"] = "It can be read; there is no backup yet."
    if not paths.history.exists():
        words["history"] = "There is none yet."
    if not site.slots:
        words |= {"slots": "There are none.", "leases": "There are none.", "pointers": "There are no slots."}
    return words


def _run(checks: Iterable[Check[T]], subject: T) -> Iterator[Finding]:
    for check in checks:
        count = 0
        try:
            for finding in check.look(subject):
                count += 1
                yield replace(finding, check=check.name)
        except (SideAgentsError, OSError) as error:
            count += 1
            yield Finding(
                code="not-looked-at",
                severity=Severity.PROBLEM,
                what=f"This could not be looked at: {error}",
                safe="Nothing was changed.",
                mend=getattr(error, "hint", None) or "Mend that, then run `side-agents doctor` again.",
                subject=check.name,
                check=check.name,
            )
        if count == 0:
            yield Finding(code="in-order", severity=Severity.OK, what=check.in_order, check=check.name)
