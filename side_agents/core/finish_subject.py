"""Whose work lands, from which slot and onto which branch: everything that has to be sure before git is asked.

An agent that calls ``finish`` itself is known by its environment and has to stand in its own slot (field report 16). From
outside an agent is named, has to be idle, and its own record says where its work goes: the caller's environment is that
of somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from side_agents import names
from side_agents.core import leases, observe
from side_agents.core.context import Context
from side_agents.core.notices import ASKS
from side_agents.core.registry import RegistryState
from side_agents.errors import RefusedError, SideAgentsError, UsageError
from side_agents.infra import clock, git_landing, git_layout, processes, text
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, AgentStatus, Lease, Tombstone, WaitingFor
from side_agents.paths import StatePaths

PARENT_BRANCH = "PI_SIDE_PARENT_BRANCH"
PARENT_REPO = "PI_SIDE_PARENT_REPO"
_ASKED_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One agent's slot and where its work goes.

    ``agent`` is its record, or its tombstone when it has ended. ``parent_checkout`` is set for a nested agent: the merge lock
    is that checkout's (reference/side-agents 4.4). ``target_is_chosen``: somebody named this branch, for this agent.
    """

    agent: AgentRecord | Tombstone
    slot: Git
    branch: str
    target: str
    target_is_chosen: bool
    parent_checkout: Path | None
    state: StatePaths

    @property
    def agent_id(self) -> str:
        """The agent's id."""
        return self.agent.id


@dataclass(frozen=True, slots=True)
class _Target:
    branch: str
    is_chosen: bool
    parent_checkout: Path | None = None
    is_nested: bool = False


def find(context: Context, agent_id: str | None, target: str | None = None) -> Subject:
    """The agent to land: the named one, else the one that asks, else the one whose slot the caller is in.

    Raises UsageError, UnknownAgentError, and RefusedError for an agent that works, for a slot that is not (any more) the
    agent's own, and for a caller that is an agent and stands elsewhere.
    """
    own = context.caller.agent_id
    name = agent_id or own or _agent_here(context)
    is_self = name == own
    if is_self:
        state = context.registry.read()
        agent: AgentRecord | Tombstone | None = state.agents.get(name) or context.registry.tombstone(name)
    else:
        look = observe.refresh(context, (name,))
        state = look.state
        agent = state.agents.get(name) or look.ended.get(name) or context.registry.tombstone(name)
    if agent is None:
        raise context.registry.unknown(name)
    if not is_self and isinstance(agent, AgentRecord):
        _require_idle(agent)
    slot = _own_slot(context, agent, state, is_self=is_self)
    goal = _target(context, agent, slot, state, target, is_self=is_self)
    place = goal.parent_checkout if goal.is_nested else None
    return Subject(
        agent=agent,
        slot=slot,
        branch=agent.branch or names.branch_of(name),
        target=goal.branch,
        target_is_chosen=goal.is_chosen,
        parent_checkout=place,
        state=StatePaths(place) if place is not None else context.paths,
    )


def _agent_here(context: Context) -> str:
    top = None
    with suppress(SideAgentsError):
        top = git_layout.find_layout(context.cwd).worktree_top
    for record in context.registry.read().agents.values():
        if top is not None and record.worktree_path and _is_same(Path(record.worktree_path), top):
            return record.id
    branch = Git(top).current_branch() if top is not None else None
    found = names.id_of_branch(branch) if branch is not None else None
    if found is None:
        raise UsageError(
            "This is not the worktree of an agent, so it is not known whose work to land. Nothing was changed.",
            hint="Name the agent: side-agents finish ID",
        )
    return found


def _require_idle(record: AgentRecord) -> None:
    waits = record.status is AgentStatus.WAITING_USER and record.waiting_for in (None, WaitingFor.PROMPT)
    # Without an exit code a launcher that lives may still run its client; with one it only waits for a key.
    may_run = record.exit_code is None and record.launcher is not None and processes.is_alive(record.launcher)
    if waits or (record.status.is_terminal and not may_run):
        return
    if record.status is AgentStatus.WAITING_USER and record.waiting_for in ASKS:
        asked = text.one_line(record.waiting_text or "", _ASKED_LIMIT)
        raise RefusedError(
            f"Agent {record.id} {_sentence(ASKS[record.waiting_for], asked)} Nothing was changed.",
            hint=f"Answer it in its window: side-agents attach {record.id}",
        )
    if record.status.is_terminal:
        raise RefusedError(
            f"Agent {record.id} has not quite ended: its program may still run. Nothing was changed.",
            hint=f"Look at its window: side-agents attach {record.id}",
        )
    doing = "is still being started" if record.status.is_starting else "is working"
    raise RefusedError(
        f"Agent {record.id} {doing}; its files may change at any moment. Nothing was changed.",
        hint=f"Wait for it (side-agents wait {record.id}), or tell it to finish itself.",
    )


def _sentence(asks: str, asked: str) -> str:
    words = f"{asks}: {asked}" if asked else asks
    return words if words.endswith((".", "?", "!", "…")) else f"{words}."


def _own_slot(context: Context, agent: AgentRecord | Tombstone, state: RegistryState, *, is_self: bool) -> Git:
    if agent.worktree_path is None:
        raise RefusedError(f"Agent {agent.id} has no worktree. Nothing was changed.")
    slot = Path(agent.worktree_path)
    held = leases.read(slot)
    other = next((r.id for r in state.agents.values() if r.id != agent.id and _holds(r, slot)), None)
    other = other or (held.agent_id or "somebody" if held is not None and held.agent_id != agent.id else None)
    if other is not None:
        raise RefusedError(
            f"{slot} is not the worktree of {agent.id} any more: {other} has it. Nothing was changed.",
            hint=f"The work is on {agent.branch}; land it with git, or resume {agent.id}.",
        )
    git = Git(slot)
    git_landing.require_own(git, context.layout.common_dir)
    if is_self:
        _require_inside(context, slot, agent.id)
    if isinstance(agent, Tombstone) and git.current_branch() not in (None, agent.branch):
        raise RefusedError(
            f"{agent.id} has ended and {slot} is on another branch by now. Nothing was changed.",
            hint=f"The work is on {agent.branch}; land it with git, or resume {agent.id}.",
        )
    return git


def _holds(record: AgentRecord, slot: Path) -> bool:
    return record.holds_slot and record.worktree_path is not None and Path(record.worktree_path) == slot


def _require_inside(context: Context, slot: Path, agent_id: str) -> None:
    here = None
    with suppress(SideAgentsError):
        here = git_layout.find_layout(context.cwd).worktree_top
    if here is None or not _is_same(here, slot):
        raise RefusedError(
            f"{context.cwd} is not in the worktree of {agent_id}, which is {slot}. Nothing was changed.",
            hint=f"cd {slot}",
        )


def _target(
    context: Context,
    agent: AgentRecord | Tombstone,
    slot: Git,
    state: RegistryState,
    chosen: str | None,
    *,
    is_self: bool,
) -> _Target:
    if chosen:
        return _Target(chosen, True)
    parent_branch = context.environment.get(PARENT_BRANCH) if is_self else None
    if parent_branch or agent.parent_agent_id is not None:
        return _nested(context, agent, state, parent_branch)
    if context.config.finish_target:
        return _Target(context.config.finish_target, False)
    found = git_landing.default_branch(slot, context.layout.main_top)
    if found is None:
        raise UsageError(
            "It is not clear which branch work lands on. Nothing was changed.",
            hint="Name it with --target BRANCH, or set finish_target.",
        )
    return _Target(found, False)


def _nested(
    context: Context, agent: AgentRecord | Tombstone, state: RegistryState, parent_branch: str | None
) -> _Target:
    named = context.environment.get(PARENT_REPO) if parent_branch else None
    recorded = agent.parent_worktree_path if isinstance(agent, AgentRecord) else None
    parent_id = agent.parent_agent_id or ""
    parent = state.agents.get(parent_id) or context.registry.tombstone(parent_id)
    place = named or recorded or (parent.worktree_path if parent is not None else None)
    branch = parent_branch or (parent.branch if parent is not None else None)
    if branch is None or place is None:
        raise RefusedError(
            f"{agent.id} was started by {parent_id or 'another agent'}, of which nothing is known any more. "
            "Nothing was changed.",
            hint="Name the branch that its work is to land on: --target BRANCH",
        )
    return _Target(branch, True, Path(place), True)


def _is_same(first: Path, second: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


@contextmanager
def reserved(context: Context, subject: Subject) -> Iterator[None]:
    """Hold the slot of an agent that has ended, so that no new agent is given it meanwhile; a live one has its lease.

    Raises RefusedError when somebody has got it already.
    """
    if isinstance(subject.agent, AgentRecord):
        yield
        return
    slot = subject.slot.directory
    lease = Lease(agent_id=subject.agent_id, branch=subject.branch, pid=processes.current().pid, started_at=clock.iso())
    # In a transaction, because a start chooses its slot in one.
    with context.registry.transaction("hold a slot to land its branch") as state:
        is_free = not any(_holds(record, slot) for record in state.agents.values())
        taken = is_free and leases.take(slot, lease)
    if not taken:
        raise RefusedError(f"{slot} is being given to another agent, or landed by somebody. Nothing was changed.")
    try:
        yield
    finally:
        leases.release(slot, subject.agent_id)
