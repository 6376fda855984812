"""Checks of the pool: folders, leases and rows that do not fit each other, and work that nobody holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from side_agents import names
from side_agents.core import claim_proofs, discard, doctor_repository, slot_proof
from side_agents.core.doctor_site import Site
from side_agents.core.findings import Finding, Severity
from side_agents.core.slots import Slot, SlotKind
from side_agents.core.verdicts import Kind, Target
from side_agents.errors import SideAgentsError
from side_agents.infra import git_registration
from side_agents.infra.git import Git, Operation
from side_agents.models import AgentRecord

_MEND = "side-agents doctor --repair"


def rows_have_slots(site: Site) -> Iterator[Finding]:
    """Every live agent has a folder of its own, with its lease in it."""
    live = [record for record in _rows(site) if not record.status.is_terminal and record.worktree_path]
    claimed: dict[str, str] = {}
    for record in live:
        path = Path(record.worktree_path or "")
        other = claimed.setdefault(str(path), record.id)
        if other != record.id:
            yield Finding(
                code="slot-twice",
                severity=Severity.PROBLEM,
                what=f"{other} and {record.id} both have {path.name}.",
                safe="Nothing is taken from either; no start takes the slot.",
                mend=f"Look which one works there, then stop the other: side-agents stop {record.id}",
                subject=path.name,
            )
        if record.status.is_starting and record.launcher is None:
            continue
        if not path.is_dir():
            yield _missing(record, path)
            continue
        lease = next((slot.lease for slot in site.slots if slot.path == path), None)
        if lease is None and path in {slot.path for slot in site.slots}:
            yield Finding(
                code="lease-missing",
                severity=Severity.WARNING,
                what=f"{path.name} has no lease, although {record.id} works in it.",
                safe="No start takes it as long as the agent is on the list.",
                mend=_MEND,
                repair=f"write the lease of {record.id} anew",
                subject=record.id,
                place=path,
            )
        elif lease is not None and lease.agent_id not in (record.id, None):
            yield Finding(
                code="lease-other",
                severity=Severity.PROBLEM,
                what=f"{path.name} is {record.id}'s by the registry and {lease.agent_id}'s by its lease.",
                safe="Both claims keep every start away.",
                mend=f"side-agents check {record.id}; stop the one that does not belong: side-agents stop ID",
                subject=record.id,
            )


def _missing(record: AgentRecord, path: Path) -> Finding:
    return Finding(
        code="slot-missing",
        severity=Severity.PROBLEM,
        what=f"{path.name} of {record.id} is gone from the disk.",
        safe=f"Its branch {record.branch} is kept with everything that was committed.",
        mend=f"side-agents stop {record.id}, then side-agents resume {record.id}",
        subject=record.id,
        place=path,
    )


def slots_are_worktrees(site: Site) -> Iterator[Finding]:
    """Folders with a slot's name are worktrees of this repository."""
    known = {each.worktree for each in site.registrations}
    for slot in site.slots:
        is_broken = (slot.path / ".git").is_file() and not slot.path.is_symlink()
        if is_broken and doctor_repository.is_of_another_repository(site, git_registration.named_by(slot.path)):
            is_broken = False
        if slot.kind is SlotKind.OTHER and not is_broken and slot.path not in known:
            yield Finding(
                code="slot-foreign",
                severity=Severity.WARNING,
                what=f"{slot.path.name} has a slot's name and is no worktree of this repository.",
                safe="It is left alone: no start takes it and nothing is deleted.",
                mend="Move it away if it is not needed, then run `side-agents doctor` again.",
                subject=slot.path.name,
                place=slot.path,
            )


def leases_are_held(site: Site) -> Iterator[Finding]:
    """Every lease belongs to an agent on the list."""
    if site.state is None:
        return
    rows = {record.worktree_path for record in _rows(site)}
    for slot in site.slots:
        if slot.lease is None or slot.lease.agent_id in site.state.ids or str(slot.path) in rows:
            continue
        if slot_proof.is_left_over(slot.lease):
            what, claimant = f"{slot.path.name} is kept by a discard that was cut off.", "that discard"
        else:
            claimant = slot.lease.agent_id or "somebody who left no name"
            what = f"{slot.path.name} is leased to {claimant}, which is not on the list."
        verdict = discard.prove(site.context, lease_target(slot))
        why = " ".join(reason.text for reason in verdict.reasons)
        ways = " ".join(dict.fromkeys(reason.way_out for reason in verdict.reasons))
        yield Finding(
            code="lease-orphan",
            severity=Severity.WARNING,
            what=what if verdict.is_safe else f"{what} {why}",
            safe="The slot's files and branch stay in either case.",
            mend=f"{_MEND}, or side-agents clean --only lease" if verdict.is_safe else ways,
            repair=f"remove the lease of {claimant} (only that file)" if verdict.is_safe else None,
            subject=slot.path.name,
            place=slot.path,
        )


def lease_target(slot: Slot) -> Target:
    """The lease of a slot, as it stands now."""
    return Target(Kind.LEASE, slot.path.name, slot.path, claim_proofs.lease_text(slot.path))


def no_work_is_forgotten(site: Site) -> Iterator[Finding]:
    """No uncommitted work and no unfinished rebase lies in a slot that nobody has."""
    rows = {record.worktree_path: record for record in _rows(site)}
    late: list[str] = []
    for slot in site.slots:
        if slot.kind not in (SlotKind.WORKTREE, SlotKind.LOCKED_WORKTREE):
            continue
        record = rows.get(str(slot.path))
        try:
            operation = Git(slot.path).unfinished_operation()
            if operation is not None:
                yield _unfinished(slot, record, operation)
            # What is uncommitted in the middle of a rebase or merge is its conflict, and not to be committed as it is.
            if slot.lease is not None or record is not None or operation not in (None, "bisect"):
                continue
            if not site.has_time:
                late.append(slot.path.name)
                continue
            changed = Git(slot.path).status_entries()
        except SideAgentsError as error:
            yield Finding(
                code="slot-unreadable",
                severity=Severity.WARNING,
                what=f"git cannot look into {slot.path.name}: {error.message}",
                safe="It is left alone and no start takes it.",
                mend=f"git -C {slot.path} status",
                subject=slot.path.name,
            )
            continue
        if changed:
            yield Finding(
                code="slot-dirty",
                severity=Severity.WARNING,
                what=f"{slot.path.name} has {len(changed)} uncommitted file{'s' if len(changed) > 1 else ''} and no agent.",
                safe="They are kept: such a slot is never reused, moved or reset.",
                mend=f"Go on with `side-agents resume`, or commit them: {_commit(slot.path)}",
                subject=slot.path.name,
                place=slot.path,
            )
    if late:
        yield Finding(
            code="slots-not-seen",
            severity=Severity.NOTE,
            what=f"There was no time to look for uncommitted work in {len(late)} slots.",
            mend="side-agents doctor --disk",
        )


def _commit(slot: Path) -> str:
    """The command that commits everything in a slot."""
    owner = names.id_of_branch(Git(slot).current_branch() or "") or slot.name
    git = f"git -C {shlex.quote(str(slot))}"
    return f"{git} add -A && {git} commit -m {shlex.quote(f'Work of {owner}')}"


def _unfinished(slot: Slot, record: AgentRecord | None, operation: Operation) -> Finding:
    is_at_work = record is not None and not record.status.is_terminal
    who = f"{record.id} ({record.status})" if record is not None else "nobody on the list"
    return Finding(
        code="slot-unfinished",
        severity=Severity.NOTE if is_at_work else Severity.WARNING,
        what=f"{slot.path.name}, which belongs to {who}, is in the middle of a {operation}.",
        safe="It is left as it is; `finish` and new starts refuse such a slot.",
        mend=f"side-agents send {record.id} 'finish the {operation}, then land your work'"
        if is_at_work and record is not None
        else _completion(slot.path, operation),
        subject=slot.path.name,
        place=slot.path,
    )


def _completion(slot: Path, operation: Operation) -> str:
    git = f"git -C {shlex.quote(str(slot))}"
    if operation == "bisect":
        return f"End it: `{git} bisect reset`."
    return f"Resolve the conflicts, then `{git} {operation} --continue`, or give it up: `{git} {operation} --abort`."


def _rows(site: Site) -> list[AgentRecord]:
    return list(site.state.agents.values()) if site.state is not None else []
