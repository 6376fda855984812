"""From a worktree to a running client: the runtime folder, the launcher, the window and its ids in the row."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents.clients.interface import LaunchPlan, LaunchRequest
from side_agents.core import kickoff, launcher, leases, placement
from side_agents.core.context import Context
from side_agents.core.forum_join import STATE_VARIABLE
from side_agents.core.kickoff import NestedParent
from side_agents.core.start_plan import StartPlan
from side_agents.core.start_row import StartRow, is_same, write_row
from side_agents.errors import (
    SideAgentsError,
)
from side_agents.infra import clock, fs, processes
from side_agents.infra.tmux import Tmux, WindowRef
from side_agents.models import AgentRecord, AgentStatus


@dataclass(frozen=True, slots=True)
class Launch:
    """A window that runs, and how the client was told to start."""

    window: WindowRef
    plan: LaunchPlan


def write_runtime(context: Context, plan: StartPlan, row: StartRow) -> str:
    """Make the runtime folder with the first prompt, which is returned, and record it."""
    record = row.record
    runtime = context.paths.runtime(record.id)
    archived = launcher.prepare_runtime(runtime.directory, context.paths.archive(record.id))
    if plan.placement is not None and plan.placement.resume.agent_id == record.id:
        # It is no stranger's: the agent goes on under its own name.
        archived = None
    prompt, unsaid = _first_prompt(context, plan, record) if plan.placement is None else ("", ())
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
        warnings=(*record.warnings, *unsaid, *((archived,) if archived else ())),
    )
    row.record = write_row(context, ready, "record the runtime folder")
    return prompt


def _first_prompt(context: Context, plan: StartPlan, record: AgentRecord) -> tuple[str, tuple[str, ...]]:
    config, handover = context.config, plan.request.handover
    passed_on = kickoff.passed_on(handover, config.handoff) if handover is not None else kickoff.TOOL_START
    prompt = kickoff.kickoff_prompt(
        plan.request.task,
        record.parent_session_id,
        _nested_parent(context, plan),
        summary=passed_on.summary,
        names_session=passed_on.names_session and config.parent_session_in_prompt,
        boundary=config.context_boundary,
    )
    return prompt, passed_on.warnings


def _nested_parent(context: Context, plan: StartPlan) -> NestedParent | None:
    if plan.caller.agent_id is None:
        return None
    return NestedParent(plan.caller.agent_id, plan.caller.depth, plan.parent_branch or "", str(context.checkout))


def open_window(context: Context, plan: StartPlan, record: AgentRecord) -> Launch:
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
    return Launch(window, launch)


def _launch_spec(
    context: Context, plan: StartPlan, record: AgentRecord, launch: LaunchPlan, token: str
) -> launcher.LaunchSpec:
    # The pane inherits the tmux server's environment, not the caller's; the search path is what decides most.
    forum = {STATE_VARIABLE: record.forum.state} if record.forum is not None else {}
    environment = {"PATH": context.environment.get("PATH", ""), **launch.env, **forum}
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


def record_window(context: Context, record: AgentRecord, launched: Launch) -> AgentRecord:
    """Record what runs already: whatever fails here is a warning, the next look finds the window by its tag."""
    try:
        return _write_window(context, record, launched)
    except SideAgentsError as error:
        note = f"Its window runs but could not be recorded yet: {error.message}"
        return replace(_with_window(record, launched), warnings=(*record.warnings, note))


def _write_window(context: Context, record: AgentRecord, launched: Launch) -> AgentRecord:
    with context.registry.transaction("record the new window") as state:
        # Another command may have seen the agent's first events already: keep what it wrote.
        row = state.agents.get(record.id)
        if row is None or not is_same(row, record):
            # It has ended already, or was stopped, and is in the history.
            return replace(_with_window(record, launched), status=AgentStatus.DONE)
        row = _with_window(row, launched)
        state.put(row)
    slot, window = Path(row.worktree_path or ""), launched.window
    held = leases.read(slot)
    if held is not None:
        session = row.child_session_file or held.session_id
        here = replace(held, session_id=session, tmux_window_id=window.window_id, tmux_window_index=window.window_index)
        leases.update(slot, replace(here, pid=window.pane_pid))
    now = context.registry.read()
    current = now.agents.get(record.id)
    if current is not None and current.child_session_file:
        leases.name_session(slot, record.id, current.child_session_file)
    if record.id not in now.ids:
        # It ended meanwhile, and the lease may have been given up just before we wrote it again.
        leases.release(slot, record.id)
    return row


def _with_window(row: AgentRecord, launched: Launch) -> AgentRecord:
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
