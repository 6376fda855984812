"""Gathering the facts of a landing; the same for a dry run, for the first look, and for the one inside the merge lock."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from side_agents.core.context import Context
from side_agents.core.finish_subject import Subject
from side_agents.core.landing import Facts, Reason, TargetState, Verdict, verdict
from side_agents.errors import SideAgentsError
from side_agents.infra import git_equivalence, git_landing, git_target
from side_agents.infra.git import Git
from side_agents.infra.git_landing import UpdateState
from side_agents.models import FinishPolicy


@dataclass(frozen=True, slots=True)
class Job:
    """One landing; ``notify`` is told what is being waited for."""

    context: Context
    subject: Subject
    policy: FinishPolicy
    notify: Callable[[str], None]

    @property
    def slot(self) -> Git:
        """The agent's worktree."""
        return self.subject.slot


@dataclass(frozen=True, slots=True)
class Finished:
    """How a landing ended. ``commit`` is what landed, ``output`` the end of what a failed check said."""

    verdict: Verdict
    is_dry_run: bool = False
    commit: str | None = None
    url: str | None = None
    output: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def stopped(facts: Facts, reason: Reason, *, output: tuple[str, ...] = ()) -> Finished:
    """A landing that ended early."""
    return Finished(verdict(facts, reason), output=output)


def survey(job: Job, *, look_ahead: bool = False, tolerated: Collection[str] = ()) -> Facts:
    """Look at slot, branch and target. ``look_ahead`` also finds conflicts and files in the way, without touching anything.

    ``tolerated`` are untracked files that our own check has left. Raises RefusedError when the slot is not the agent's own.
    """
    subject, slot = job.subject, job.slot
    git_landing.require_own(slot, job.context.layout.common_dir)
    facts = Facts(
        agent_id=subject.agent_id,
        slot=str(slot.directory),
        own_branch=subject.branch,
        branch=slot.current_branch(),
        target=subject.target,
        target_is_chosen=subject.target_is_chosen,
        policy=job.policy,
        operation=slot.unfinished_operation(),
        dirty=tuple(entry.path for entry in slot.status_entries() if entry.path not in tolerated),
        base=subject.agent.base_commit,
        is_nested=subject.parent_checkout is not None,
        parent_checkout=str(subject.parent_checkout) if subject.parent_checkout is not None else None,
        parent_branch=_branch_of_parent(job),
        check=job.context.config.finish_check,
    )
    target_head = slot.resolve(f"refs/heads/{facts.target}") if slot.branch_exists(facts.target) else None
    if target_head is None:
        return facts
    facts = _towards(job, facts, slot.head_commit(), target_head, tolerated)
    return _ahead(job, facts) if look_ahead else facts


def _branch_of_parent(job: Job) -> str | None:
    place = job.subject.parent_checkout
    if place is None:
        return None
    with suppress(SideAgentsError):
        layout = Git(place).layout()
        if layout.common_dir == job.context.layout.common_dir and layout.worktree_top == place.resolve():
            return Git(place).current_branch()
    return None


def _towards(job: Job, facts: Facts, head: str, target_head: str, tolerated: Collection[str]) -> Facts:
    slot = job.slot
    ahead, behind = git_landing.divergence(slot, target_head, head)
    held = git_target.holder(slot, facts.target)
    state = TargetState.NOT_CHECKED_OUT
    if held is not None:
        state = TargetState.BUSY if held.obstacle else TargetState.CHECKED_OUT
    return replace(
        facts,
        head=head,
        target_head=target_head,
        ahead=ahead,
        behind=behind,
        target_state=state,
        checkout=str(held.path) if held is not None else None,
        obstacle=held.obstacle if held is not None else None,
        contained=bool(ahead and behind) and git_equivalence.is_contained(slot, target_head, head),
        covered=_covered(slot, head, target_head, tolerated) if behind else (),
        foreign=git_equivalence.count_foreign(slot, facts.base, target_head) if facts.base and ahead else 0,
    )


def _covered(slot: Git, head: str, target_head: str, tolerated: Collection[str]) -> tuple[str, ...]:
    """Ignored files of the slot that the target has come to track: a rebase would silently write over them."""
    named = git_target.overlap(slot, git_landing.changes(slot, head, target_head))
    dirty = {entry.path for entry in slot.status_entries(every_file=True)}
    return tuple(name for name in named if name not in dirty and name not in tolerated)


def _ahead(job: Job, facts: Facts) -> Facts:
    """With the conflicts and the files in the way that a real run would meet."""
    is_clear = facts.branch == facts.own_branch and not (facts.dirty or facts.operation or facts.contained)
    target_head = facts.target_head or ""
    if not facts.ahead or not is_clear or job.policy is FinishPolicy.PR:
        return facts
    replay = job.policy is not FinishPolicy.MERGE
    kept = replay and bool(facts.behind) and git_equivalence.has_lookalikes(job.slot, target_head, facts.head)
    seen = git_landing.forecast(job.slot, target_head, facts.head, replay=replay, keep_lookalikes=kept)
    in_the_way: tuple[str, ...] = ()
    if facts.checkout is not None and not facts.obstacle and not seen.conflicts:
        in_the_way = git_target.overlap(Git(Path(facts.checkout)), seen.changes)
    return replace(facts, conflicts=seen.conflicts, overlap=in_the_way)


def update(job: Job, facts: Facts, message: str) -> git_landing.Update:
    """Bring the agent's branch up to date with the target in its own worktree, by the way of its policy."""
    config, onto = job.context.config, facts.target_head or ""
    git_landing.require_own(job.slot, job.context.layout.common_dir)
    if job.policy is not FinishPolicy.MERGE:
        kept = git_equivalence.has_lookalikes(job.slot, onto, facts.head)
        deadline = config.git_timeout
        return git_landing.rebase(job.slot, onto, hooks=config.git_hooks, deadline=deadline, keep_lookalikes=kept)
    if config.finish_check is None:
        # Nothing has to be run on the merged files, so a clean merge needs none.
        merged = git_landing.merge(job.slot, onto, facts.head)
        if merged is not None and not merged.conflicts:
            return git_landing.Update(UpdateState.DONE)
    return git_landing.merge_in(job.slot, onto, message, hooks=config.git_hooks, deadline=config.git_timeout)
