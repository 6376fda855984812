"""From a reservation to a worktree of its own: id, slot and branch under the registry lock, then the files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from side_agents import names
from side_agents.core import budget, leases, observe, placement, replicate, slots
from side_agents.core.context import Context
from side_agents.core.start_plan import StartPlan, _taken_ids
from side_agents.core.start_row import StartRow, require_row
from side_agents.errors import (
    BudgetError,
    ConflictError,
    GitError,
    RefusedError,
    SideAgentsError,
)
from side_agents.infra import clock, fs, git_changes, git_worktrees, processes
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, AgentStatus, Lease

_SLOT_TRIES = 50


def reserve_within_budget(context: Context, plan: StartPlan) -> AgentRecord:
    try:
        return _reserve(context, plan)
    except BudgetError:
        # Some of those that count may have ended without anybody having looked.
        observe.refresh(context)
        return _reserve(context, plan)


def _reserve(context: Context, plan: StartPlan) -> AgentRecord:
    """Id, slot, branch and owner in one transaction, before the first side effect."""
    pool, caller = context.paths.root, plan.caller
    fs.make_private_dir(context.paths.meta)
    with context.registry.transaction("reserve a new agent") as state:
        budget.require_place(
            state.agents.values(), context.config, caller.agent_id, plan.request.session or caller.session
        )
        agent_id = names.distinct_id(plan.slug, state.ids | plan.taken)
        found = slots.scan(pool, context.layout.common_dir)
        choice = placement.choose_slot(plan.placement, agent_id, pool, found, state.agents.values())
        now = clock.iso()
        record = AgentRecord(
            id=agent_id,
            status=AgentStatus.ALLOCATING_WORKTREE,
            task=plan.request.task,
            parent_session_id=plan.request.session or caller.session,
            parent_agent_id=caller.agent_id,
            depth=caller.depth + 1,
            parent_worktree_path=str(context.checkout) if caller.agent_id is not None else None,
            branch=names.branch_of(agent_id),
            worktree_path=str(choice.path),
            model=plan.request.model or context.config.model,
            client=plan.client.name,
            base_commit=plan.base,
            owner=processes.current(),
            parent_pane_id=plan.pane.pane_id,
            started_at=now,
            updated_at=now,
            warnings=(*plan.warnings, *choice.warnings),
            extra={budget.QUEUED: plan.request.queued} if plan.request.queued else {},
        )
        if plan.placement is not None:
            record = placement.mark(plan.placement, record, plan.request.model)
        state.put(record)
    return record


def occupy(context: Context, plan: StartPlan, row: StartRow) -> None:
    """Make the reserved slot this agent's; where it turns out to be unusable, reserve another."""
    excluded: set[Path] = set()
    for _ in range(_SLOT_TRIES):
        slot = Path(row.record.worktree_path or "")
        try:
            warnings = _enter(context, plan, row.record, slot)
            break
        except _BranchTakenError:
            taken = frozenset((row.record.id,)) | _taken_ids(Git(context.checkout))
            # Whatever fails from here on must not take that branch back: it is not ours.
            row.record = replace(row.record, branch=None)
            _reserve_again(context, plan, row, excluded, taken)
        except (RefusedError, _SlotTakenError) as error:
            if placement.is_in_place(plan.placement, row.record):
                raise ConflictError(f"{slot.name} came to be in use: {error}") from error
            excluded.add(slot)
            _reserve_again(context, plan, row, excluded, frozenset(), f"Slot {slot.name} was passed over: {error}")
    else:
        raise ConflictError(f"No usable slot was found in {_SLOT_TRIES} tries.")
    if plan.changes is not None:
        git_changes.apply_snapshot(Git(slot), plan.changes)
    linked = slots.link_shared(context.paths.shared, slot)
    if not placement.is_in_place(plan.placement, row.record):
        linked += replicate.replicate(context.paths.root, slot).warnings
    row.record = replace(row.record, warnings=(*row.record.warnings, *warnings, *linked))


class _SlotTakenError(Exception):
    """The slot cannot be had after all: its name, its lease or its state came to be somebody else's."""


class _BranchTakenError(Exception):
    """A branch of the reserved name was made after the names were looked at."""


def _enter(context: Context, plan: StartPlan, record: AgentRecord, slot: Path) -> list[str]:
    """Lease the slot and put it on the agent's branch; returns warnings."""
    branch = record.branch or ""
    lease = Lease(
        agent_id=record.id,
        session_id=record.parent_session_id,
        parent_session_id=record.parent_session_id,
        branch=branch,
        started_at=record.started_at,
    )
    if (slot / ".git").exists():
        if not leases.take(slot, lease):
            raise _SlotTakenError("another lease appeared on it.")
        if record.branch_existed and Git(slot).current_branch() == branch:
            # Resumed in place: there may be uncommitted work, and nothing is touched, submodules neither.
            return []
        warnings = _enter_used(context, plan, record, slot)
    else:
        warnings = []
        _add_worktree(Git(context.checkout), slot, branch, None if record.branch_existed else plan.base)
        if not leases.take(slot, lease):
            raise ConflictError(f"A lease appeared on {slot.name} while it was being made.")
        git_worktrees.populate(Git(slot), source=context.checkout)
    empty = git_worktrees.init_submodules(Git(slot), context.checkout)
    where = f"because they are not checked out in {context.checkout}"
    return [*warnings, *([f"Submodules left empty, {where}: {', '.join(empty)}."] if empty else [])]


def _add_worktree(git: Git, slot: Path, branch: str, base: str | None) -> None:
    try:
        git_worktrees.add(git, slot, branch, base)
    except ConflictError as error:
        is_taken = base is not None and git.branch_exists(branch)
        raise _BranchTakenError if is_taken else _SlotTakenError(error.message) from error
    except GitError as error:
        if any(entry.locked and entry.path == slot for entry in git.worktrees()):
            raise _SlotTakenError("its folder is missing and it is locked by `git worktree lock`.") from error
        raise


def _enter_used(context: Context, plan: StartPlan, record: AgentRecord, slot: Path) -> list[str]:
    git = Git(slot)
    previous = git.current_branch()
    base = None if record.branch_existed else plan.base
    try:
        kept = git_worktrees.reuse(git, record.branch or "", base, source=context.checkout, changes=plan.changes)
    except SideAgentsError as error:
        if isinstance(error, GitError):
            slots.leave(slot, record.branch or "", base)
        leases.release(slot, record.id)
        if isinstance(error, ConflictError):
            raise _BranchTakenError from error
        if isinstance(error, GitError):
            # A broken index, say: the next start would meet it again, so it is passed over like a dirty one.
            raise _SlotTakenError(error.message) from error
        raise
    if previous is not None and names.id_of_branch(previous) is not None:
        _drop_merged(context, previous)
    return [f"Slot {slot.name} was on commits that no branch has; they are kept as {kept}."] if kept else []


def _drop_merged(context: Context, branch: str) -> None:
    # Tidying up is no reason for a start to fail.
    with suppress(SideAgentsError):
        if names.id_of_branch(branch) not in context.registry.read().ids:
            Git(context.checkout).delete_merged_branch(branch)


def _reserve_again(
    context: Context, plan: StartPlan, row: StartRow, excluded: set[Path], taken: frozenset[str], *why: str
) -> None:
    """Move the reservation to another slot, and to another name if its own is among ``taken``."""
    pool, record = context.paths.root, row.record
    with context.registry.transaction("reserve another slot") as state:
        require_row(state, record)
        others = [other for other in state.agents.values() if other.id != record.id]
        choice = slots.choose(pool, slots.scan(pool, context.layout.common_dir), others, excluded=excluded)
        agent_id = names.distinct_id(plan.slug, state.ids | plan.taken | taken) if record.id in taken else record.id
        if agent_id != record.id:
            del state.agents[record.id]
            state.removed.add(record.id)
        moved = replace(
            record,
            id=agent_id,
            branch=names.branch_of(agent_id),
            worktree_path=str(choice.path),
            warnings=tuple(dict.fromkeys((*record.warnings, *why, *choice.warnings))),
        )
        state.put(moved)
    row.record = moved
