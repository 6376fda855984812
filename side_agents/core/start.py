"""Starting an agent: reserve, make, launch; or take back what was made and say what is left (DESIGN 5 "Start").

Durable steps, in order: the row with id, slot and branch (one transaction); the worktree; its lease; the runtime folder;
the row in ``spawning_tmux``; the window; the row with its ids. A death between two of them leaves a row whose owner is dead,
which the next look turns into ``crashed`` or, when the window is there, into a running agent.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents import names
from side_agents.clients.interface import Client, LaunchPlan, LaunchRequest
from side_agents.core import budget, first_prompt, kickoff, launcher, leases, observe, placement, replicate, slots
from side_agents.core.context import Context
from side_agents.core.identity import Caller, require_start_allowed
from side_agents.core.kickoff import NestedParent
from side_agents.core.placement import Placement
from side_agents.core.registry import RegistryState
from side_agents.core.results import Started, StartRequest
from side_agents.errors import (
    BudgetError,
    ConflictError,
    GitError,
    RefusedError,
    SideAgentsError,
    StartFailedError,
    TmuxUnreachableError,
    UsageError,
)
from side_agents.infra import clock, fs, git_changes, git_worktrees, processes, text
from side_agents.infra.git import Git
from side_agents.infra.tmux import CallerPane, Tmux, WindowRef
from side_agents.models import AgentRecord, AgentStatus, Lease
from side_agents.paths import EXCLUDED

TASK_LIMIT_BYTES = 10 * 1024 * 1024
_SLOT_TRIES = 50


@dataclass(frozen=True, slots=True)
class _Plan:
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


@dataclass(slots=True)
class _Row:
    """The agent's row as this start wrote it last; its id changes when the branch turns out to be taken."""

    record: AgentRecord


@dataclass(frozen=True, slots=True)
class _Launch:
    """A window that runs, and how the client was told to start."""

    window: WindowRef
    plan: LaunchPlan


def start(context: Context, request: StartRequest) -> Started:
    """Start one agent in the background and return as soon as its launcher runs.

    Raises before anything changed: UsageError, NotInTmuxError, NoCommitsError, DepthError, ToolMissingError, RefusedError
    (nested caller on no branch), BudgetError, ConflictError (a branch called ``side-agent``). Raises StartFailedError after a
    reservation: what was made is taken back, and the message says what is left.
    """
    plan = _prepare(context, request)
    row = _Row(_reserve_within_budget(context, plan))
    try:
        _occupy(context, plan, row)
        prompt = _write_runtime(context, plan, row)
        launched = _open_window(context, plan, row.record)
    except TmuxUnreachableError as error:
        raise _leave_undecided(context, row.record, error) from error
    except BaseException as error:
        failed = _roll_back(context, plan, row.record, error)
        if isinstance(error, Exception):
            raise failed from error
        raise
    record = _record_window(context, row.record, launched)
    return Started(first_prompt.deliver(context, plan.client, record, launched.plan, prompt), prompt)


def require_startable(context: Context, request: StartRequest) -> str:
    """Raise what ``start`` would raise before anything changes; returns the commit that it would start from."""
    return _prepare(context, request).base


def _prepare(context: Context, request: StartRequest) -> _Plan:
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
    return _Plan(
        request=replace(request, task=task),
        caller=caller,
        pane=pane,
        client=client,
        slug=place.resume.agent_id if place else hint or names.slug_from_task(text.to_ascii(task[:2000])),
        taken=place.taken if place else taken,
        base=base,
        changes=changes,
        parent_branch=branch if caller.agent_id is not None else None,
        warnings=warnings,
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


def _reserve_within_budget(context: Context, plan: _Plan) -> AgentRecord:
    try:
        return _reserve(context, plan)
    except BudgetError:
        # Some of those that count may have ended without anybody having looked.
        observe.refresh(context)
        return _reserve(context, plan)


def _reserve(context: Context, plan: _Plan) -> AgentRecord:
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


def _occupy(context: Context, plan: _Plan, row: _Row) -> None:
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


def _enter(context: Context, plan: _Plan, record: AgentRecord, slot: Path) -> list[str]:
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
        _enter_used(context, plan, record, slot)
    else:
        _add_worktree(Git(context.checkout), slot, branch, None if record.branch_existed else plan.base)
        if not leases.take(slot, lease):
            raise ConflictError(f"A lease appeared on {slot.name} while it was being made.")
        git_worktrees.populate(Git(slot), source=context.checkout)
    empty = git_worktrees.init_submodules(Git(slot), context.checkout)
    where = f"because they are not checked out in {context.checkout}"
    return [f"Submodules left empty, {where}: {', '.join(empty)}."] if empty else []


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


def _enter_used(context: Context, plan: _Plan, record: AgentRecord, slot: Path) -> None:
    git = Git(slot)
    previous = git.current_branch()
    base = None if record.branch_existed else plan.base
    try:
        git_worktrees.reuse(git, record.branch or "", base, source=context.checkout)
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


def _drop_merged(context: Context, branch: str) -> None:
    # Tidying up is no reason for a start to fail.
    with suppress(SideAgentsError):
        if names.id_of_branch(branch) not in context.registry.read().ids:
            Git(context.checkout).delete_merged_branch(branch)


def _reserve_again(
    context: Context, plan: _Plan, row: _Row, excluded: set[Path], taken: frozenset[str], *why: str
) -> None:
    """Move the reservation to another slot, and to another name if its own is among ``taken``."""
    pool, record = context.paths.root, row.record
    with context.registry.transaction("reserve another slot") as state:
        _require_row(state, record)
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


def _write_runtime(context: Context, plan: _Plan, row: _Row) -> str:
    """Make the runtime folder with the first prompt, which is returned, and record it."""
    record = row.record
    runtime = context.paths.runtime(record.id)
    archived = launcher.prepare_runtime(runtime.directory, context.paths.archive(record.id))
    nested = _nested_parent(context, plan)
    session = record.parent_session_id if context.config.parent_session_in_prompt else None
    prompt = kickoff.kickoff_prompt(plan.request.task, session, nested) if plan.placement is None else ""
    log_entry = kickoff.as_log_entry(prompt, record.id, record.started_at) if prompt else ""
    for path, content in ((runtime.kickoff, prompt), (runtime.backlog, log_entry)):
        fs.replace(path, content.encode("utf-8", "surrogateescape"), durable=False)
    if plan.placement is not None:
        placement.write_notice(plan.placement, record, runtime.directory, plan.parent_branch)
    ready = replace(
        record,
        status=AgentStatus.SPAWNING_TMUX,
        runtime_dir=str(runtime.directory),
        log_path=str(runtime.backlog),
        prompt_path=str(runtime.kickoff),
        exit_file=str(runtime.exit_marker),
        tmux_socket=str(plan.pane.socket),
        tmux_server=plan.pane.server,
        kickoff_pending=True if prompt else None,
        warnings=(*record.warnings, *((archived,) if archived else ())),
    )
    row.record = _write_row(context, ready, "record the runtime folder")
    return prompt


def _nested_parent(context: Context, plan: _Plan) -> NestedParent | None:
    if plan.caller.agent_id is None:
        return None
    return NestedParent(plan.caller.agent_id, plan.caller.depth, plan.parent_branch or "", str(context.checkout))


def _open_window(context: Context, plan: _Plan, record: AgentRecord) -> _Launch:
    runtime = context.paths.runtime(record.id)
    worktree = Path(record.worktree_path or "")
    skills = worktree / ".pi" / "side-agent-skills"
    token = secrets.token_hex(16)
    resumed, fork = placement.conversation(plan.placement, worktree)
    launch = plan.client.launch_plan(
        LaunchRequest(
            agent_id=record.id,
            prompt_file=runtime.kickoff,
            has_prompt=resumed is None,
            worktree=worktree,
            runtime_dir=runtime.directory,
            # A conversation brings its own model back.
            model=record.model if resumed is None else plan.request.model,
            session_id=str(uuid.uuid4()),
            skills_dir=skills if skills.is_dir() else None,
            environment=context.environment,
            resume_session=resumed,
            fork=fork,
        )
    )
    script = launcher.write(_launch_spec(context, plan, record, launch, token))
    window = Tmux(plan.pane.socket).new_window(
        session_id=plan.pane.session_id,
        name=f"agent-{record.id}",
        cwd=worktree,
        argv=launcher.window_argv(script),
        tag=record.id,
        pipe_to=launcher.backlog_argv(runtime.directory, cap_bytes=context.config.backlog_max_bytes),
    )
    return _Launch(window, launch)


def _launch_spec(
    context: Context, plan: _Plan, record: AgentRecord, launch: LaunchPlan, token: str
) -> launcher.LaunchSpec:
    # The pane inherits the tmux server's environment, not the caller's; the search path is what decides most.
    environment = {"PATH": context.environment.get("PATH", ""), **launch.env}
    return launcher.LaunchSpec(
        agent_id=record.id,
        root=context.paths.root,
        worktree=Path(record.worktree_path or ""),
        runtime_dir=context.paths.runtime(record.id).directory,
        branch=record.branch or "",
        parent_session=record.parent_session_id or "",
        parent_repo=str(context.checkout),
        parent_branch=plan.parent_branch or "",
        parent_agent_id=plan.caller.agent_id or "",
        depth=record.depth,
        client=plan.client.name,
        argv=launch.argv,
        client_env={key: value for key, value in environment.items() if value},
        window_close=context.config.window_close,
        launch_token=token,
        stdin_file=launch.stdin_file,
    )


def _record_window(context: Context, record: AgentRecord, launched: _Launch) -> AgentRecord:
    """Record what runs already: whatever fails here is a warning, the next look finds the window by its tag."""
    try:
        return _write_window(context, record, launched)
    except SideAgentsError as error:
        note = f"Its window runs but could not be recorded yet: {error.message}"
        return replace(_with_window(record, launched), warnings=(*record.warnings, note))


def _write_window(context: Context, record: AgentRecord, launched: _Launch) -> AgentRecord:
    with context.registry.transaction("record the new window") as state:
        # Another command may have seen the agent's first events already: keep what it wrote.
        row = state.agents.get(record.id)
        if row is None or not _is_same(row, record):
            # It has ended already, or was stopped, and is in the history.
            return replace(_with_window(record, launched), status=AgentStatus.DONE)
        row = _with_window(row, launched)
        state.put(row)
    slot, window = Path(row.worktree_path or ""), launched.window
    held = leases.read(slot)
    if held is not None:
        here = replace(held, tmux_window_id=window.window_id, tmux_window_index=window.window_index)
        leases.update(slot, replace(here, pid=window.pane_pid))
    if record.id not in context.registry.read().ids:
        # It ended meanwhile, and the lease may have been given up just before we wrote it again.
        leases.release(slot, record.id)
    return row


def _with_window(row: AgentRecord, launched: _Launch) -> AgentRecord:
    window, plan = launched.window, launched.plan
    return replace(
        row,
        status=AgentStatus.RUNNING if row.status.is_starting else row.status,
        launcher=processes.identify(window.pane_pid) or processes.ended(window.pane_pid),
        tmux_session=window.session_name,
        tmux_window_id=window.window_id,
        tmux_window_index=window.window_index,
        tmux_pane_id=window.pane_id,
        child_session_id=row.child_session_id or plan.session_id,
        child_session_file=row.child_session_file or plan.session_file,
        updated_at=clock.iso(),
    )


def _write_row(context: Context, record: AgentRecord, purpose: str) -> AgentRecord:
    changed = replace(record, updated_at=clock.iso())
    with context.registry.transaction(purpose) as state:
        _require_row(state, record)
        state.put(changed)
    return changed


def _require_row(state: RegistryState, record: AgentRecord) -> None:
    row = state.agents.get(record.id)
    if row is None or not _is_same(row, record):
        raise ConflictError(f"The entry of {record.id} was cleared while it was being started.")


def _is_same(row: AgentRecord, record: AgentRecord) -> bool:
    return (row.started_at, row.owner) == (record.started_at, record.owner)


def _leave_undecided(context: Context, record: AgentRecord, error: TmuxUnreachableError) -> StartFailedError:
    """tmux may open the window once it wakes up: nothing is taken back, and the next look finds out.

    The row loses its owner, so that this look need not wait for the end of the present process.
    """
    with context.registry.transaction("record a start without an answer") as state:
        _require_row(state, record)
        state.put(replace(record, owner=processes.ended(record.owner.pid if record.owner else 0)))
    return StartFailedError(
        f"tmux did not answer while the window of {record.id} was being opened, so it is not known whether it runs. "
        f"Its worktree and branch are kept. {error.message}",
        hint="`side-agents list` shows what became of it as soon as tmux answers.",
    )


def _roll_back(context: Context, plan: _Plan, record: AgentRecord, error: BaseException) -> StartFailedError:
    """Take back in reverse order; the row stays as ``failed`` with the reason and claims nothing (F-A5).

    Each part is tried whatever became of the others; the error says what is left.
    """
    reason = error.message if isinstance(error, SideAgentsError) else f"{type(error).__name__}: {error}"
    left = [
        _attempt("its window", lambda: _close_window(plan, record)),
        _attempt("its slot", lambda: _give_slot_back(record)),
        _attempt("its entry", lambda: _record_failure(context, record, reason)),
    ]
    hint = error.hint if isinstance(error, SideAgentsError) else None
    return StartFailedError(
        f"Agent {record.id} could not be started: {reason} It was taken back: {'; '.join(filter(None, left))}.",
        hint=hint or f"`side-agents stop {record.id}` clears its entry from the list.",
    )


def _attempt(what: str, step: Callable[[], str]) -> str:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other parts have to be tried
        return f"{what} is left as it is ({error})"


def _close_window(plan: _Plan, record: AgentRecord) -> str:
    if record.status is not AgentStatus.SPAWNING_TMUX:
        return ""
    tmux = Tmux(plan.pane.socket)
    for pane in tmux.sweep().panes.values():
        if pane.agent_tag == record.id:
            launched = processes.identify(pane.pane_pid)
            processes.end_tree([*processes.descendants(pane.pane_pid), *((launched,) if launched else ())])
            tmux.kill_window(pane.window_id, expect_pane=pane.pane_id, expect_tag=record.id)
    return ""


def _give_slot_back(record: AgentRecord) -> str:
    slot = Path(record.worktree_path or "")
    left = slots.leave(slot, record.branch or "", None if record.branch_existed else record.base_commit)
    leases.release(slot, record.id)
    return left


def _record_failure(context: Context, record: AgentRecord, reason: str) -> str:
    with context.registry.transaction("record a failed start") as state:
        row = state.agents.get(record.id)
        if row is None or not _is_same(row, record):
            return "its entry had been cleared"
        failed = replace(row, status=AgentStatus.FAILED, error=reason, finished_at=clock.iso(), worktree_path=None)
        state.put(observe.count_stop(state, row, failed))
    return ""
