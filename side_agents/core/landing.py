"""Whether an agent's branch can land, and how: facts in, verdict out (reference/side-agents 7.4). Pure.

A dry run and a real run are judged by the same function; the real one asks again inside the merge lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from side_agents.core.landing_words import count_commits, shown_files, update_verb
from side_agents.models import FinishPolicy


class Outcome(StrEnum):
    """How a landing ended, or would end; each has its own exit status, the seed's where the seed has one."""

    LANDED = "landed"
    ALREADY_LANDED = "already-landed"
    REQUESTED = "requested"
    PUSHED = "pushed"
    READY = "ready"
    MISUSE = "misuse"
    CONFLICT = "conflict"
    LOCK_TIMEOUT = "lock-timeout"
    PARENT_MOVED = "parent-moved"
    DIRTY = "dirty"
    UNFINISHED = "unfinished-operation"
    CHECK_FAILED = "check-failed"
    OVERLAP = "overlap"
    NOT_MOVED = "not-moved"
    NOTHING = "nothing-to-land"

    @property
    def exit_status(self) -> int:
        """0 where all is well, else one number for each reason."""
        return _STATUSES.get(self, 0)


_STATUSES = {
    Outcome.MISUSE: 1,
    Outcome.CONFLICT: 2,
    Outcome.LOCK_TIMEOUT: 3,
    Outcome.PARENT_MOVED: 4,
    Outcome.DIRTY: 5,
    Outcome.UNFINISHED: 6,
    Outcome.CHECK_FAILED: 7,
    Outcome.OVERLAP: 8,
    Outcome.NOT_MOVED: 9,
    Outcome.NOTHING: 10,
}


class TargetState(StrEnum):
    """Where the target branch is checked out."""

    MISSING = "missing"
    NOT_CHECKED_OUT = "not-checked-out"
    CHECKED_OUT = "checked-out"
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was seen of one branch and its target.

    ``branch`` is what the slot is on (None: detached), ``own_branch`` the agent's. ``conflicts`` and ``overlap`` are files;
    None means that nobody has looked. ``contained``: the target has the work already, under other commits. ``covered`` are
    ignored files of the slot that the target has come to track. ``foreign``
    counts commits that the agent was started from and the target does not have. ``parent_branch`` is what the parent's
    checkout is on.
    """

    agent_id: str
    slot: str
    own_branch: str
    branch: str | None
    target: str
    policy: FinishPolicy
    operation: str | None = None
    dirty: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()
    head: str = ""
    target_head: str | None = None
    ahead: int = 0
    behind: int = 0
    base: str | None = None
    contained: bool = False
    foreign: int = 0
    target_is_chosen: bool = False
    target_state: TargetState = TargetState.MISSING
    checkout: str | None = None
    obstacle: str | None = None
    is_nested: bool = False
    parent_checkout: str | None = None
    parent_branch: str | None = None
    conflicts: tuple[str, ...] | None = None
    overlap: tuple[str, ...] | None = None
    check: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the facts allow. ``plan`` says in order what would be, or was, done; ``overlap`` and ``conflicts`` are files."""

    outcome: Outcome
    message: str
    hint: str | None = None
    agent_id: str
    branch: str | None
    target: str
    policy: FinishPolicy
    head: str = ""
    target_head: str | None = None
    target_state: TargetState = TargetState.MISSING
    checkout: str | None = None
    dirty: tuple[str, ...] = ()
    ahead: int = 0
    behind: int = 0
    conflicts: tuple[str, ...] = ()
    overlap: tuple[str, ...] = ()
    already_landed: bool = False
    plan: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a landing ends as it does, and what to do about it."""

    outcome: Outcome
    message: str
    hint: str | None = None


def judge(facts: Facts) -> Verdict:
    """The verdict: READY with a plan, or the first reason why not, in the order in which a real run would meet them."""
    reason = _own_side(facts) or _nothing_to_do(facts) or _target_side(facts)
    return verdict(facts, reason or Reason(Outcome.READY, f"{facts.own_branch} can land on {facts.target}."))


def verdict(facts: Facts, reason: Reason) -> Verdict:
    """The facts together with how it ended, or will."""
    has_plan = reason.outcome in (Outcome.READY, Outcome.LANDED, Outcome.REQUESTED, Outcome.PUSHED)
    return Verdict(
        outcome=reason.outcome,
        message=reason.message,
        hint=reason.hint,
        agent_id=facts.agent_id,
        branch=facts.branch,
        target=facts.target,
        policy=facts.policy,
        head=facts.head,
        target_head=facts.target_head,
        target_state=facts.target_state,
        checkout=facts.checkout,
        dirty=facts.dirty,
        ahead=facts.ahead,
        behind=facts.behind,
        conflicts=facts.conflicts or (),
        overlap=facts.overlap or (),
        already_landed=reason.outcome is Outcome.ALREADY_LANDED,
        plan=plan(facts) if has_plan else (),
    )


def _own_side(facts: Facts) -> Reason | None:
    if facts.operation is not None:
        return Reason(
            Outcome.UNFINISHED,
            f"A {facts.operation} is in progress in {facts.slot}. Nothing was changed.",
            _way_on(facts.operation),
        )
    if facts.branch is None:
        return Reason(
            Outcome.MISUSE,
            f"{facts.slot} is on no branch, so it cannot be told what is to land. Nothing was changed.",
            f"Go back to the agent's branch: git switch {facts.own_branch}",
        )
    if facts.target in (facts.branch, facts.own_branch):
        return Reason(
            Outcome.MISUSE,
            f"{facts.slot} is on {facts.target} itself, the branch that work lands on. Nothing was changed.",
        )
    if facts.branch != facts.own_branch:
        return Reason(
            Outcome.MISUSE,
            f"{facts.slot} is on {facts.branch}, not on the branch of {facts.agent_id}, {facts.own_branch}. "
            "Nothing was changed.",
            f"git switch {facts.own_branch}, then bring the work over: git merge --ff-only {facts.branch}",
        )
    if facts.dirty:
        return Reason(
            Outcome.DIRTY,
            f"{facts.slot} has uncommitted work: {shown_files(facts.dirty)}. Nothing was changed.",
            "Commit what belongs to the task, remove or ignore the rest, and run finish again.",
        )
    return None


def _way_on(operation: str) -> str:
    if operation == "bisect":
        return "End it: git bisect reset. Then run finish again."
    if operation == "merge":
        return "Resolve and commit it (git commit --no-edit), or give it up (git merge --abort); then run finish again."
    return (
        f"Resolve the files, git add them, and go on: GIT_EDITOR=true git {operation} --continue. Or give it up: "
        f"git {operation} --abort. Then run finish again."
    )


def _nothing_to_do(facts: Facts) -> Reason | None:
    if facts.target_state is TargetState.MISSING:
        outcome = Outcome.PARENT_MOVED if facts.is_nested else Outcome.MISUSE
        hint = "Name another with --target BRANCH" + ("." if facts.is_nested else ", or set finish_target.")
        return Reason(outcome, f"There is no local branch {facts.target} to land on. Nothing was changed.", hint)
    if facts.ahead == 0 and facts.head == facts.base:
        return Reason(
            Outcome.NOTHING,
            f"{facts.own_branch} has no commit of its own, so there is nothing to land.",
            "Commit the work first.",
        )
    if facts.ahead == 0:
        return Reason(Outcome.ALREADY_LANDED, f"{facts.target} contains {facts.own_branch} already.")
    if facts.contained:
        return Reason(
            Outcome.ALREADY_LANDED, f"{facts.target} has all changes of {facts.own_branch} already, as other commits."
        )
    return None


def _target_side(facts: Facts) -> Reason | None:
    if facts.foreign and not facts.target_is_chosen:
        return Reason(
            Outcome.MISUSE,
            f"{facts.agent_id} was started from {count_commits(facts.foreign)} that {facts.target} does not have; "
            "they would land with its work. Nothing was changed.",
            f"Land them first; or name the branch yourself: --target {facts.target} lands them too.",
        )
    if facts.policy is FinishPolicy.PR:
        return None
    if facts.covered:
        return _covering(facts)
    if facts.is_nested and facts.parent_branch != facts.target:
        where = f"on {facts.parent_branch}" if facts.parent_branch else "on no branch or is gone"
        return Reason(
            Outcome.PARENT_MOVED,
            f"The parent's checkout {facts.parent_checkout or ''} is {where}, not on {facts.target}. Nothing was changed.",
            "Do not force it: report that the work has to be integrated by hand. It is committed on "
            f"{facts.own_branch}.",
        )
    if facts.target_state is TargetState.BUSY:
        return Reason(
            Outcome.NOT_MOVED,
            f"{facts.target} cannot be moved: {facts.obstacle}. Nothing was changed.",
            "Finish or give up what is in progress there, then run finish again.",
        )
    return _conflict(facts) if facts.conflicts else _overlap(facts)


def _covering(facts: Facts) -> Reason:
    return Reason(
        Outcome.DIRTY,
        f"{facts.target} has come to track files that are ignored in {facts.slot}: {shown_files(facts.covered)}. Bringing "
        "the branch up to date would write over them. Nothing was changed.",
        "Move them away, then run finish again.",
    )


def _overlap(facts: Facts) -> Reason | None:
    return overlapping(facts.own_branch, facts.checkout, facts.overlap) if facts.overlap else None


def _conflict(facts: Facts) -> Reason:
    return Reason(
        Outcome.CONFLICT,
        f"{facts.own_branch} conflicts with {facts.target} in {shown_files(facts.conflicts or ())}.",
        f"A real run leaves the {update_verb(facts.policy)} in progress in the agent's worktree, to be resolved there.",
    )


def overlapping(branch: str, checkout: str | None, files: Sequence[str]) -> Reason:
    """Uncommitted files of the checkout that holds the target stand in the way."""
    return Reason(
        Outcome.OVERLAP,
        f"{checkout} has uncommitted files that {branch} changes too: {shown_files(files)}. They were not touched, and "
        "nothing landed.",
        "Commit, stash or move them there, then run finish again.",
    )


def plan(facts: Facts) -> tuple[str, ...]:
    """The steps of a landing, in words."""
    check = [f"run the check: {facts.check}"] if facts.check else []
    if facts.policy is FinishPolicy.PR:
        parent = [f"push {facts.target}"] if facts.is_nested else []
        return (*check, *parent, f"push {facts.own_branch}", f"open a pull request against {facts.target}")
    steps: list[str] = []
    if facts.behind and facts.policy is not FinishPolicy.MERGE:
        steps.append(f"rebase {facts.own_branch} onto {facts.target} ({count_commits(facts.behind)} ahead of it)")
    elif facts.behind and check:
        steps.append(f"merge {facts.target} into {facts.own_branch}")
    steps.append("take the merge lock")
    steps += check
    made = {
        FinishPolicy.SQUASH: f"make one commit of {count_commits(facts.ahead)}",
        FinishPolicy.MERGE: f"make a merge commit of {facts.target} and {facts.own_branch}",
    }
    steps += [made[facts.policy]] if facts.policy in made else []
    where = f"in {facts.checkout}" if facts.checkout else "without a checkout"
    return (*steps, f"fast-forward {facts.target} {where}")
