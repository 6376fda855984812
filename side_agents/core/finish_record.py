"""What a landing leaves behind: the journal's ``landed`` event, and while it moves a checkout, a note of that move.

A process that is killed between moving a branch and bringing its checkout over would leave that checkout looking as if
somebody had undone the landing. The note ``merge.intent`` lets whoever takes the merge lock next complete it; it stays for
as long as anything of that landing is missing there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents.core import journal
from side_agents.core.finish_survey import Job
from side_agents.core.landing_words import shown_files
from side_agents.errors import CommandFailedError, SideAgentsError, StateError
from side_agents.infra import clock, fs, git_lag, git_refs
from side_agents.infra.git import Git
from side_agents.infra.git_lag import Lag
from side_agents.infra.git_worktrees import RESCUE_REFS
from side_agents.models import AgentRecord, json_text
from side_agents.paths import StatePaths

INTENT_FILE = "merge.intent"


def remember(job: Job, commit: str, target: str) -> str | None:
    """Record what landed with the agent, in its journal or, once it has left the registry, in the history.

    Nothing is written twice. A reason is returned, not raised, when it cannot be recorded: the work has landed all the same.
    """
    try:
        if isinstance(job.subject.agent, AgentRecord):
            _journal(job, job.subject.agent, commit, target)
        else:
            _bury_again(job, commit, target)
    except SideAgentsError as error:
        return f"It could not be recorded with the agent: {error.message}"
    return None


def _journal(job: Job, agent: AgentRecord, commit: str, target: str) -> None:
    runtime = job.context.paths.runtime(agent.id)
    if not runtime.directory.is_dir():
        return
    known = journal.fold(agent, journal.read(runtime.journal, agent.journal_offset).events)
    if known.landed_commit != commit:
        event = {"type": "landed", "commit": commit, "target": target, "at": clock.iso()}
        fs.append_line(runtime.journal, json_text(event))


def _bury_again(job: Job, commit: str, target: str) -> None:
    with job.context.registry.transaction("record a landing") as state:
        stone = job.context.registry.tombstone(job.subject.agent_id)
        if stone is not None and stone.landed_commit != commit and stone.id not in state.ids:
            state.bury(replace(stone, landed_commit=commit, landed_target=target))


def landed_before(job: Job) -> str | None:
    """The commit that this agent's last landing left, if it is known."""
    agent = job.subject.agent
    if not isinstance(agent, AgentRecord):
        return agent.landed_commit
    events = journal.read(job.context.paths.runtime(agent.id).journal, agent.journal_offset).events
    return journal.fold(agent, events).landed_commit


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Why a move that was cut off could not be completed, and what a person can do about it."""

    message: str
    hint: str


def adopt(job: Job, head: str, commit: str) -> str | None:
    """After a squash the agent goes on from the one commit: its own, replayed later, would conflict with it.

    The branch's old commits stay reachable through a rescue ref. A reason is returned when it could not be done.
    """
    branch = f"refs/heads/{job.subject.branch}"
    try:
        job.slot.run("update-ref", f"{RESCUE_REFS}{head}", head)
        job.slot.run("update-ref", "-m", "side-agents finish: squashed", branch, commit, head)
    except CommandFailedError as error:
        return f"{job.subject.branch} still holds the single commits: {error.message}"
    return None


@contextmanager
def intent(state: StatePaths, git: Git, checkout: Path, *, target: str, old: str, new: str) -> Iterator[None]:
    """Note the move while it is made; an interruption completes or forgets it before it goes on."""
    note = {"target": target, "old": old, "new": new, "checkout": str(checkout), "at": clock.iso()}
    fs.replace(state.meta / INTENT_FILE, json_text(note) + "\n")
    try:
        yield
    except BaseException:
        with suppress(SideAgentsError):
            settle(state, git)
        raise
    fs.remove_file(state.meta / INTENT_FILE)


def is_unsettled(state: StatePaths) -> bool:
    """Whether a move was begun and its end not noted."""
    return (state.meta / INTENT_FILE).exists()


def settle(state: StatePaths, git: Git) -> Unsettled | None:
    """Complete a move that was cut off; only with the merge lock held. None when nothing of it is left.

    Somebody's own changes are never touched: where they are in the way the rest is brought over and the note stays.
    """
    path = state.meta / INTENT_FILE
    try:
        note = fs.read_json(path)
    except StateError:
        note = None
    left = _complete(git, note) if isinstance(note, dict) else None
    if left is None:
        fs.remove_file(path)
    return left


def _complete(git: Git, note: dict[str, object]) -> Unsettled | None:
    target, old, new, checkout = (note.get(key) for key in ("target", "old", "new", "checkout"))
    if not (isinstance(target, str) and isinstance(checkout, str) and isinstance(old, str) and isinstance(new, str)):
        return None
    held = Git(Path(checkout))
    if not (git_refs.is_commit_id(old) and git_refs.is_commit_id(new)) or not held.directory.is_dir():
        return None
    if held.layout().common_dir != git.layout().common_dir:
        return None
    lag = git_lag.catch_up(held, old, new)
    return None if lag.is_over else _unsettled(held.directory, target, lag)


def _unsettled(checkout: Path, target: str, lag: Lag) -> Unsettled:
    files = lag.blocked or tuple(change.path for change in lag.free)
    where = f"A landing on {target} was cut off. In {checkout} these files are still as before it: {shown_files(files)}"
    if not lag.blocked:
        return Unsettled(
            f"{where}. Git could not bring them over: {lag.words or 'it gave no reason'}",
            f"Once that is put right: side-agents doctor --repair. Until then do not commit in {checkout}, it would undo "
            "what landed.",
        )
    return Unsettled(
        f"{where}, because they have changes of yours, which were not touched.",
        f"Do not commit them as they are: it would undo what landed. Copy your version of them elsewhere, run `git -C "
        f"{shlex.quote(str(checkout))} checkout HEAD -- FILE...`, make your changes again and commit them.",
    )
