"""Landing an agent's work on its target branch (reference/side-agents 7.4; DESIGN 5 "Finish").

The branch is brought up to date in the agent's own worktree, outside the merge lock: a conflict stays there to be resolved
and holds nobody up. Inside the lock everything is looked at again, the check is run on exactly what lands, and the target
moves by compare-and-swap. A lock belongs to its holder: nothing here ever removes one. The slot's lease is kept, although
the seed's script gave it up here: the agent still lives in the slot, which is free when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents.core import finish_check, finish_record, finish_request, finish_subject
from side_agents.core.context import Context
from side_agents.core.finish_survey import Finished, Job, stopped, survey, update
from side_agents.core.landing import (
    Facts,
    Outcome,
    Reason,
    judge,
    overlapping,
    verdict,
)
from side_agents.core.landing_words import (
    count_commits,
    merge_message,
    shown_files,
    squash_message,
    update_verb,
    worktree_words,
)
from side_agents.errors import BusyError, CommandFailedError
from side_agents.infra import fs, git_landing, git_target
from side_agents.infra.git import Git
from side_agents.infra.git_landing import Change, UpdateState
from side_agents.infra.git_target import Move, MoveState
from side_agents.models import FinishPolicy
from side_agents.paths import EXCLUDED


@dataclass(frozen=True, slots=True)
class FinishOptions:
    """What the caller decides; None leaves it to the configuration. ``dry_run`` changes nothing."""

    policy: FinishPolicy | None = None
    target: str | None = None
    dry_run: bool = False


def finish(
    context: Context,
    agent_id: str | None = None,
    options: FinishOptions | None = None,
    notify: Callable[[str], None] = lambda _line: None,
) -> Finished:
    """Land the work of an agent, by default of the one that asks; however it ends, the answer says so.

    Raises what ``finish_subject.find`` raises, before anything was changed, and StateError.
    """
    options = options or FinishOptions()
    subject = finish_subject.find(context, agent_id, options.target)
    job = Job(context, subject, options.policy or context.config.finish_policy, notify)
    if options.dry_run:
        return Finished(judge(survey(job, look_ahead=True)), is_dry_run=True)
    with finish_subject.reserved(context, subject), ExitStack() as stack:
        # Two of them in one worktree would rebase each other's rebase.
        own = job.slot.layout().git_dir / "side-agents-finish.lock"
        try:
            stack.enter_context(fs.locked(own, purpose=f"landing {subject.branch}", timeout=0))
        except BusyError as error:
            return stopped(survey(job), Reason(Outcome.LOCK_TIMEOUT, error.message, error.hint))
        # Our own files must not count as the agent's uncommitted work.
        job.slot.ensure_excludes(EXCLUDED)
        return _finish(job)


def _finish(job: Job) -> Finished:
    facts = survey(job)
    if finish_record.is_unsettled(job.subject.state):
        with ExitStack() as stack:
            if _take_lock(job, stack) is None:
                facts = survey(job)
    judged = judge(facts)
    if judged.outcome is not Outcome.READY:
        return _ended(job, facts)
    if job.policy is FinishPolicy.PR:
        return finish_request.open_request(job, facts)
    conflict = _bring_up_to_date(job, facts)
    if conflict is not None:
        return conflict
    with ExitStack() as stack:
        reason = _take_lock(job, stack)
        if reason is not None:
            return stopped(facts, reason)
        return _land(job)


def _ended(job: Job, facts: Facts) -> Finished:
    """The answer where nothing is left to do, with what an earlier run that was cut off may not have recorded."""
    judged = judge(facts)
    if judged.outcome is not Outcome.ALREADY_LANDED:
        return Finished(judged)
    commit = finish_record.landed_before(job)
    if commit is None:
        commit = facts.head if facts.ahead == 0 else facts.target_head or facts.head
        finish_record.remember(job, commit, facts.target)
    return Finished(judged, commit=commit)


def _take_lock(job: Job, stack: ExitStack) -> Reason | None:
    """Hold the merge lock until the stack ends, and complete what an earlier holder that died has left half done.

    The reason why nothing can land: the lock is not to be had, or somebody's changes stand in the way of that.
    """
    state, purpose = job.subject.state, f"landing {job.subject.branch} on {job.subject.target}"
    fs.make_private_dir(state.meta)
    try:
        stack.enter_context(fs.locked(state.merge_lock, purpose=purpose, timeout=0))
    except BusyError:
        holder = fs.lock_holder(state.merge_lock) or {}
        who = f"process {holder['pid']} ({holder.get('purpose')})" if "pid" in holder else "another process"
        job.notify(f"waiting for the merge lock, which {who} holds")
        try:
            wait = job.context.config.finish_lock_timeout
            stack.enter_context(fs.locked(state.merge_lock, purpose=purpose, timeout=wait))
        except BusyError as error:
            return Reason(Outcome.LOCK_TIMEOUT, error.message, error.hint)
    left = finish_record.settle(state, job.slot) if finish_record.is_unsettled(state) else None
    if left is not None:
        return Reason(Outcome.OVERLAP, f"{left.message} Nothing of {job.subject.branch} landed.", left.hint)
    return None


def _bring_up_to_date(job: Job, facts: Facts) -> Finished | None:
    """Rebase or merge where the target has moved on; None when the branch is ready to land."""
    if not facts.behind:
        return None
    done = update(job, facts, merge_message(facts.target, facts.own_branch))
    if done.state is UpdateState.DONE:
        return None
    verb = update_verb(job.policy)
    if done.state is UpdateState.FAILED:
        why = f"The {verb} of {facts.own_branch} failed and was undone; nothing landed. Git says: {done.words}"
        hint = (
            f"No {verb} is in progress any more, whatever git says of going on. Put that right, then run finish again."
        )
        return stopped(facts, Reason(Outcome.NOT_MOVED, why, hint))
    go_on = "git commit --no-edit" if verb == "merge" else "GIT_EDITOR=true git rebase --continue"
    reason = Reason(
        Outcome.CONFLICT,
        f"{facts.own_branch} conflicts with {facts.target} in {shown_files(done.conflicts)}. The {verb} is left in progress in "
        f"{facts.slot}; {facts.target} is untouched and no lock is held.",
        f"Resolve the files, git add them, {go_on}, then run finish again. To give up: git {verb} --abort",
    )
    return stopped(replace(facts, conflicts=done.conflicts), reason)


def _land(job: Job) -> Finished:
    """With the lock held: look again, check, move; once more for each time that the target moves meanwhile."""
    tries = job.context.config.finish_tries
    seen = _Seen()
    for _ in range(tries):
        step = _prepare(job, seen)
        if isinstance(step, Finished):
            return step
        move = _move(job, step) if step is not None else None
        if step is not None and move is not None and move.state is not MoveState.CHANGED:
            return _answer(job, step, move)
        job.notify(f"{job.subject.target} has moved meanwhile; once more")
    return stopped(
        survey(job, tolerated=seen.tolerated),
        Reason(
            Outcome.NOT_MOVED,
            f"{job.subject.target} moved {tries} times while {job.subject.branch} was about to land. Nothing landed.",
            "Run finish again when it is quieter there.",
        ),
    )


@dataclass(slots=True)
class _Seen:
    """What the tries of one landing know of each other: the tree that passed the check, and what the check left behind."""

    checked: str | None = None
    tolerated: frozenset[str] = frozenset()


def _prepare(job: Job, seen: _Seen) -> _Step | Finished | None:
    """What to move the target to, with everything in order for it; None when the target has moved during the check."""
    facts = survey(job, tolerated=seen.tolerated)
    if judge(facts).outcome is not Outcome.READY:
        return _ended(job, facts)
    conflict = _bring_up_to_date(job, facts)
    if conflict is not None:
        return conflict
    facts = survey(job, tolerated=seen.tolerated) if facts.behind else facts
    if judge(facts).outcome is not Outcome.READY:
        return _ended(job, facts)
    step = _Step.of(job, facts)
    if isinstance(step, Finished) or facts.check is None or seen.checked == step.tree:
        return step
    return _checked(job, step, seen)


def _checked(job: Job, step: _Step, seen: _Seen) -> _Step | Finished | None:
    failed = _check(job, step)
    if failed is not None:
        return failed
    seen.checked, seen.tolerated = step.tree, _untracked(job)
    # A check may take minutes, in which people go on working.
    facts = survey(job, tolerated=seen.tolerated)
    if judge(facts).outcome is not Outcome.READY:
        return _ended(job, facts)
    return step if facts.target_head == step.facts.target_head else None


@dataclass(frozen=True, slots=True)
class _Step:
    """What one try would land: the commit that becomes the target's head, its tree, and what that changes there."""

    facts: Facts
    commit: str
    tree: str
    changed: tuple[Change, ...]

    @staticmethod
    def of(job: Job, facts: Facts) -> _Step | Finished:
        """Make the commit; an answer instead when git cannot, or files are in the way."""
        old = facts.target_head or ""
        try:
            commit = _candidate(job, facts)
        except CommandFailedError as error:
            why = f"The commit to land could not be made; nothing landed. {error.message}"
            return stopped(facts, Reason(Outcome.NOT_MOVED, why))
        changed = git_landing.changes(job.slot, old, commit)
        if facts.checkout is not None:
            files = git_target.overlap(Git(Path(facts.checkout)), changed)
            if files:
                facts = replace(facts, overlap=files)
                return stopped(facts, overlapping(facts.own_branch, facts.checkout, files))
        return _Step(facts, commit, job.slot.text("rev-parse", f"{commit}^{{tree}}"), changed)


def _candidate(job: Job, facts: Facts) -> str:
    old, head, slot = facts.target_head or "", facts.head, job.slot
    if job.policy is FinishPolicy.SQUASH:
        message = squash_message(git_landing.messages(slot, old, head))
        return git_landing.commit_tree(slot, head, (old,), message, author_of=head)
    if job.policy is FinishPolicy.MERGE:
        merged = git_landing.merge(slot, old, head) if facts.behind else None
        message = merge_message(facts.own_branch, facts.target)
        return git_landing.commit_tree(slot, merged.tree if merged is not None else head, (old, head), message)
    return head


def _check(job: Job, step: _Step) -> Finished | None:
    command = step.facts.check or ""
    reason, output = finish_check.run(job, command)
    if reason is None and job.slot.resolve("HEAD") != step.facts.head:
        why = f"The check `{command}` changed what is checked out, so it has not checked what was to land. Nothing landed."
        reason = Reason(Outcome.CHECK_FAILED, why, "A check must not commit or switch branches.")
    return stopped(step.facts, reason, output=output) if reason is not None else None


def _untracked(job: Job) -> frozenset[str]:
    return frozenset(entry.path for entry in job.slot.status_entries() if entry.code == "??")


def _move(job: Job, step: _Step) -> Move:
    facts, old = step.facts, step.facts.target_head or ""
    reason = f"side-agents finish: {facts.own_branch}"
    held = git_target.holder(job.slot, facts.target)
    if held is not None and held.obstacle:
        return Move(MoveState.REFUSED, (), held.obstacle)
    if held is None:
        return git_target.move_ref(job.slot, facts.target, step.commit, old, reason=reason)
    state, checkout = job.subject.state, held.path
    with finish_record.intent(state, job.slot, checkout, target=facts.target, old=old, new=step.commit):
        return git_target.fast_forward(Git(held.path), facts.target, step.commit, old, step.changed, reason=reason)


def _answer(job: Job, step: _Step, move: Move) -> Finished:
    facts = step.facts
    if move.state is MoveState.OVERLAP:
        files = move.files or (move.words,)
        return stopped(replace(facts, overlap=files), overlapping(facts.own_branch, facts.checkout, files))
    if move.state is MoveState.REFUSED:
        why = f"{facts.target} could not be moved; it is where it was. Git says: {move.words}"
        return stopped(
            facts,
            Reason(Outcome.NOT_MOVED, why, "A hook or permissions stand in the way; trying again alone will not help."),
        )
    notes = [f"{facts.checkout} does not show it fully yet: {move.words}"] if move.words else []
    notes += filter(None, [finish_record.remember(job, step.commit, facts.target)])
    if job.policy is FinishPolicy.SQUASH:
        notes += filter(None, [finish_record.adopt(job, step.facts.head, step.commit)])
    done = Reason(
        Outcome.LANDED,
        f"{facts.own_branch} has landed on {facts.target} ({count_commits(facts.ahead)}, {step.commit[:10]}).",
        worktree_words(job.subject.agent),
    )
    return Finished(verdict(facts, done), commit=step.commit, notes=tuple(notes))
