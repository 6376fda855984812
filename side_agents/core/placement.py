"""Where a resumed agent goes, and what it has to be told about that (seed 001 5.3b, reference/side-agents 8.4).

Its branch still stands in an idle slot: there, and nothing is touched. Its branch exists but stands nowhere: a slot as
for any start, its old directory first, and the branch is checked out as it is. Its branch is gone: made anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents import names
from side_agents.core import slots
from side_agents.core.context import Context
from side_agents.core.results import Resume
from side_agents.core.slots import Choice, Slot
from side_agents.errors import ConflictError, RefusedError
from side_agents.infra import fs, git_worktrees
from side_agents.infra.git import Git, WorktreeEntry
from side_agents.models import AgentRecord, json_text

NOTICE_FILE = "resume-notice.json"


@dataclass(frozen=True, slots=True)
class Placement:
    """What is known before anything is recorded. ``base`` is where the agent's branch begins or had begun.

    ``taken`` are the ids that this agent may not have; its own parked branch does not count.
    """

    resume: Resume
    branch_exists: bool
    in_place: Path | None
    preferred: Path | None
    base: str
    taken: frozenset[str]


def plan(context: Context, resume: Resume, taken: frozenset[str], base: str) -> Placement:
    """Find out where the branch is. Raises RefusedError when it stands where no agent may be; nothing was changed then.

    ``taken`` are the ids that have a branch, ``base`` is the commit for a branch that has to be made.
    """
    preferred = slot_of(context.paths.root, resume.directory)
    if not resume.takes_branch:
        return Placement(resume, False, None, preferred, base, taken | {resume.agent_id})
    git = Git(context.layout.main_top)
    branch = names.branch_of(resume.agent_id)
    mine = taken - {resume.agent_id}
    if not git.branch_exists(branch):
        return Placement(resume, False, None, preferred, base, mine)
    in_place = _slot_with(context, git, branch)
    return Placement(resume, True, in_place, preferred, _begin_of(git, resume, branch), mine)


def slot_of(pool: Path, directory: str) -> Path | None:
    """The slot of the pool that a directory is or lies in, whether it exists or not."""
    here = Path(directory)
    return next((path for path in (here, *here.parents) if names.slot_number(pool, path) is not None), None)


def _slot_with(context: Context, git: Git, branch: str) -> Path | None:
    """The slot that has the branch checked out; None when it is checked out nowhere."""
    holder = _holder(git, branch)
    if holder is not None and holder.prunable:
        # Its folder was deleted by hand; git would still count the branch as being in use there.
        git_worktrees.prune(git)
        holder = _holder(git, branch)
    if holder is None:
        _refuse_rebase(context, branch)
        return None
    if names.slot_number(context.paths.root, holder.path) is not None and not holder.prunable:
        return holder.path
    is_main = holder.path == context.layout.main_top
    where = f"in {'the main worktree' if is_main else 'a worktree that is no slot'}, {holder.path}"
    raise RefusedError(
        f"The branch {branch} is checked out {where}. Nothing was started.",
        hint=f"Check another branch out there (`git -C {holder.path} switch ...`), then resume again.",
    )


def _holder(git: Git, branch: str) -> WorktreeEntry | None:
    return next((entry for entry in git.worktrees() if entry.branch == branch), None)


def _refuse_rebase(context: Context, branch: str) -> None:
    """A branch in the middle of a rebase is checked out nowhere, and git gives it to nobody else."""
    common = context.layout.common_dir
    for name in ("rebase-merge/head-name", "rebase-apply/head-name"):
        for head in (common / name, *common.glob(f"worktrees/*/{name}")):
            if _line(head) == f"refs/heads/{branch}":
                top = Path(_line(head.parents[1] / "gitdir")).parent if "worktrees" in head.parts else common.parent
                raise RefusedError(
                    f"The branch {branch} is in the middle of a rebase in {top}. Nothing was started.",
                    hint=f"Finish it or give it up: `git -C {top} rebase --continue` or `--abort`.",
                )


def _line(path: Path) -> str:
    return fs.read_slice(path, 0, 4096).decode("utf-8", "surrogateescape").strip()


def _begin_of(git: Git, resume: Resume, branch: str) -> str:
    known = git.resolve(resume.base_commit) if resume.base_commit else None
    if known is not None:
        return known
    done = git.run("merge-base", "--end-of-options", "HEAD", f"refs/heads/{branch}", check=False)
    return done.text or git.resolve(f"refs/heads/{branch}") or ""


def choose_slot(
    placement: Placement | None, agent_id: str, pool: Path, found: Sequence[Slot], records: Iterable[AgentRecord]
) -> Choice:
    """The slot for a start, under the registry lock. Without a placement, and with a fresh branch, as for any start.

    Raises RefusedError when the branch stands in a slot that is locked or claimed, ConflictError when the conversation is
    being resumed by somebody else.
    """
    others = list(records)
    if placement is None:
        return slots.choose(pool, found, others)
    _refuse_second(placement.resume, others)
    if placement.in_place is None or agent_id != placement.resume.agent_id:
        return slots.choose(pool, found, others, preferred=placement.preferred)
    slot = next((slot for slot in found if slot.path == placement.in_place), None)
    reason = slots.obstacle(slot, others) if slot is not None else "it is gone"
    if slot is None or reason is not None:
        raise RefusedError(
            f"The branch {names.branch_of(agent_id)} is checked out in {placement.in_place.name}, which cannot be used: "
            f"{reason}. Nothing was started.",
            hint="`side-agents list` shows who is there.",
        )
    return Choice(slot.path, slot.number, False)


def _refuse_second(resume: Resume, others: Sequence[AgentRecord]) -> None:
    for record in others:
        is_starting = record.status.is_starting and record.resumed_from == resume.session_file
        if is_starting or (record.child_session_file == resume.session_file and not record.status.is_terminal):
            raise ConflictError(
                f"The conversation {resume.session_file} is in use by agent {record.id}. Nothing was started.",
                hint=f"Go to it: `side-agents attach {record.id}`.",
            )


def is_in_place(placement: Placement | None, record: AgentRecord) -> bool:
    """Whether its branch stands in its slot already, so that no other slot will do and nothing in it may be touched."""
    in_place = placement.in_place if placement is not None else None
    return in_place is not None and bool(record.branch_existed) and in_place == Path(record.worktree_path or "")


def mark(placement: Placement, record: AgentRecord, model: str | None) -> AgentRecord:
    """The reservation of a resumed agent; a fresh or new branch is a warning."""
    existed = _is_own(placement, record) and placement.branch_exists
    return replace(
        record,
        resumed_from=placement.resume.session_file,
        branch_existed=True if existed else None,
        base_commit=placement.base if existed else record.base_commit,
        model=model or placement.resume.model,
        warnings=(*record.warnings, *_branch_news(placement, record)),
    )


def _is_own(placement: Placement, record: AgentRecord) -> bool:
    return placement.resume.takes_branch and record.id == placement.resume.agent_id


def _branch_news(placement: Placement, record: AgentRecord) -> tuple[str, ...]:
    old = names.branch_of(placement.resume.agent_id)
    if not _is_own(placement, record):
        return (f"This conversation goes on on the fresh branch {record.branch}: {old} belongs to another one.",)
    if placement.branch_exists:
        return ()
    base = (record.base_commit or "")[:10]
    return (f"The branch {old} is gone (agents' branches are removed once they are merged); made anew from {base}.",)


def conversation(placement: Placement | None, worktree: Path) -> tuple[str | None, bool]:
    """The session to go on with, and whether to copy it: clients return to the directory of a session otherwise."""
    if placement is None:
        return None, False
    return placement.resume.session_file, placement.resume.fork or Path(placement.resume.directory) != worktree


def write_notice(placement: Placement, record: AgentRecord, runtime: Path, parent_branch: str | None) -> None:
    """Leave the client a notice of what changed for the conversation, if anything did (B54)."""
    content = notice(placement, record, parent_branch)
    if content:
        data = {
            "noticeId": str(uuid.uuid4()),
            "targetCwd": record.worktree_path,
            "sourceSessionPath": placement.resume.session_file,
            "content": content,
        }
        fs.replace(runtime / NOTICE_FILE, json_text(data, indent=2) + "\n")


def notice(placement: Placement, record: AgentRecord, parent_branch: str | None) -> str:
    """What the resumed agent has to know: another directory, another tree, another parent; empty for none of them."""
    resume = placement.resume
    parts: list[str] = []
    if Path(resume.directory) != Path(record.worktree_path or ""):
        parts.append(
            f"Your working directory has changed: this conversation was held in {resume.directory}, and you now work in "
            f"{record.worktree_path}. Paths from before are stale; never write to the old directory."
        )
    if not record.branch_existed:
        parts.append(
            f"The files were reset: you are on the branch {record.branch}, begun at {(record.base_commit or '')[:10]}. "
            "What you changed before is only there if it was merged."
        )
    new = (record.parent_agent_id, record.depth)
    if new != ((resume.parent_agent_id, resume.depth) if resume.depth is not None else (None, 1)):
        who = f"the side agent {record.parent_agent_id}" if record.parent_agent_id else "the main session"
        target = f" Your work is to be merged into its branch {parent_branch}." if parent_branch else ""
        parts.append(f"You now belong to {who} (depth {record.depth}): report there.{target}")
    return "\n".join(parts)
