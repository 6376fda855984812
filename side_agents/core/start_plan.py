"""What a start checks and knows before anything is recorded: a refusal here has changed nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from side_agents import names
from side_agents.clients.interface import Client
from side_agents.core import placement
from side_agents.core.context import Context
from side_agents.core.identity import Caller, require_start_allowed
from side_agents.core.placement import Placement
from side_agents.core.results import StartRequest
from side_agents.errors import (
    ConflictError,
    RefusedError,
    UsageError,
)
from side_agents.infra import git_changes, text
from side_agents.infra.git import Git
from side_agents.infra.tmux import CallerPane, Tmux
from side_agents.paths import EXCLUDED

TASK_LIMIT_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What is known before anything is recorded."""

    request: StartRequest
    caller: Caller
    pane: CallerPane
    client: Client
    slug: str
    taken: frozenset[str]
    base: str
    changes: str | None
    parent_branch: str | None
    warnings: tuple[str, ...]
    placement: Placement | None = None


def require_startable(context: Context, request: StartRequest) -> str:
    """Raise what ``start`` would raise before anything changes; returns the commit that it would start from."""
    return prepare(context, request).base


def prepare(context: Context, request: StartRequest) -> StartPlan:
    task = _checked_task(request.task)
    caller = context.caller
    require_start_allowed(caller, context.config.max_depth)
    pane = Tmux.current(context.environment)
    client = context.choose_client(request.client, context.environment, context.config)
    client.locate(context.environment)
    git = Git(context.checkout)
    base = _base(git, request.base)
    branch = git.current_branch()
    if caller.agent_id is not None and branch is None:
        raise RefusedError(
            f"{context.checkout} is on no branch, so an agent started from it would have none to merge into. "
            "Nothing was started.",
            hint="Check a branch out first: `git switch -c NAME`.",
        )
    taken = _taken_ids(git)
    if request.with_changes and request.base is not None and base != git.head_commit():
        raise UsageError(
            "Uncommitted changes fit only the commit they were made on, not another base. Nothing was started."
        )
    hint = names.sanitise_slug(text.to_ascii(request.branch_hint))
    # Before the look at what is uncommitted: our own files are neither warned about nor carried over.
    git.ensure_excludes(EXCLUDED)
    changes, warnings = _uncommitted(git, request.with_changes) if request.resume is None else (None, ())
    place = placement.plan(context, request.resume, taken, base) if request.resume is not None else None
    return StartPlan(
        request=replace(request, task=task),
        caller=caller,
        pane=pane,
        client=client,
        slug=place.resume.agent_id if place else hint or names.slug_from_task(text.to_ascii(task[:2000])),
        taken=place.taken if place else taken,
        base=base,
        changes=changes,
        parent_branch=branch if caller.agent_id is not None else None,
        warnings=(*request.warnings, *warnings),
        placement=place,
    )


def _checked_task(task: str) -> str:
    if not task.strip():
        raise UsageError("The task is empty. Nothing was started.", hint='Say what to do: side-agents start "fix ..."')
    if "\0" in task:
        raise UsageError("The task contains a NUL character, which no program can be given. Nothing was started.")
    try:
        size = len(task.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise UsageError("The task contains half a character (a lone surrogate). Nothing was started.") from error
    if size > TASK_LIMIT_BYTES:
        raise UsageError(f"The task is {size} bytes long; the limit is {TASK_LIMIT_BYTES}. Nothing was started.")
    return task


def _base(git: Git, revision: str | None) -> str:
    if revision is None:
        return git.head_commit()
    commit = None if revision.startswith("-") else git.resolve(revision)
    if commit is None:
        raise UsageError(f"{revision!r} is no commit of {git.directory}. Nothing was started.")
    return commit


def _taken_ids(git: Git) -> frozenset[str]:
    refs = [ref.name for ref in git.side_agent_refs()]
    if f"refs/heads/{names.BRANCH_PREFIX.rstrip('/')}" in refs:
        raise ConflictError(
            "A branch is called `side-agent`, so git cannot have branches below that name. Nothing was started.",
            hint="Rename it: `git branch -m side-agent NEW-NAME`.",
        )
    return frozenset(agent_id for ref in refs if (agent_id := names.id_of_branch(ref)) is not None)


def _uncommitted(git: Git, with_changes: bool) -> tuple[str | None, tuple[str, ...]]:
    # A bare repository has no files that could differ.
    entries = git.status_entries() if git.layout().worktree_top is not None else []
    if not entries:
        return None, ()
    if with_changes:
        return git_changes.snapshot(git), ()
    files = "1 file" if len(entries) == 1 else f"{len(entries)} files"
    return None, (
        f"{git.directory} has uncommitted changes in {files}; the agent starts from the last commit and does not see them "
        "(--with-changes carries them over).",
    )
