"""Ending an agent and clearing its record. Work is never touched: branch, commits and files stay (DESIGN 5 "Stop")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from side_agents import names
from side_agents.core import delivery, leases, observe, send, slots
from side_agents.core.context import Context
from side_agents.core.results import Stopped
from side_agents.errors import NotDeliveredError, RefusedError, SideAgentsError, TmuxError, UsageError
from side_agents.infra import clock, processes
from side_agents.infra.events import Watcher
from side_agents.infra.git import Git
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, AgentStatus, EndedBy, ProcessRef, Tombstone

STOPPED = "stopped on request"
# The launcher gives its client TERM, then KILL, within five seconds.
_LAUNCHER_SECONDS = 7.0


def stop(context: Context, agent_id: str, *, quit: bool = False, timeout: float = 10.0) -> Stopped:  # noqa: A002 - its name in the interface
    """End a live agent's whole process tree, or clear the record of one that failed or crashed; the work stays.

    ``quit`` asks politely, by the client's own quit command, and kills nothing. Raises UnknownAgentError, RefusedError for an
    agent whose start is under way in a live process, NotDeliveredError when a polite quit had no effect in ``timeout`` seconds,
    SideAgentsError when processes survive: the record and its lease are kept then.
    """
    name = names.normalise_id(agent_id)
    if not name:
        raise UsageError("No agent id was given. Nothing was stopped.")
    look = observe.refresh(context, (name,))
    record = look.state.agents.get(name)
    if record is None:
        stone = look.ended.get(name) or context.registry.tombstone(name)
        if stone is None:
            raise context.registry.unknown(name)
        return Stopped(stone, 0, "it had ended before; " + kept_by(stone))
    if record.status.is_starting and record.launcher is None:
        raise RefusedError(
            f"Agent {name} is being started by process {record.owner.pid if record.owner else '?'}. Nothing was stopped.",
            hint="Wait until it runs, or end that process; then stop it.",
        )
    if quit and not record.status.is_terminal:
        return _quit(context, record, timeout)
    return _end(context, record)


def _quit(context: Context, record: AgentRecord, timeout: float) -> Stopped:
    client = context.find_client(record.client or "", context.config)
    if client.quit_text is None:
        raise RefusedError(
            f"The client {client.name} has no quit command. Nothing was stopped.",
            hint=f"`side-agents stop {record.id}` ends its processes and keeps the work.",
        )
    send.send(context, record.id, client.quit_text)
    target = delivery.target_of(record, client, context.paths.runtime(record.id))
    if not delivery.wait_for(target, target.runtime.exit_marker.exists, timeout=timeout):
        raise NotDeliveredError(
            f"Agent {record.id} was told {client.quit_text!r} and still runs after {timeout:.0f} s. Nothing was killed.",
            hint=f"`side-agents stop {record.id}` ends its processes and keeps the work.",
        )
    look = observe.refresh(context, (record.id,))
    stone = look.ended.get(record.id) or context.registry.tombstone(record.id)
    ended = look.state.agents.get(record.id)
    if stone is None or (ended is not None and ended.started_at == record.started_at):
        return _end(context, ended or record)
    return Stopped(stone, 1, kept_by(stone))


def _end(context: Context, record: AgentRecord) -> Stopped:
    with _marked(context, record):
        below = _below_launcher(record)
        _ask_launcher(context, record)
        survivors = processes.end_tree(below)
        # The launcher now shows how the client ended and waits for a key: closing its window ends it at once.
        close_window(record)
        launcher = [record.launcher] if record.launcher is not None else []
        survivors += processes.end_tree(launcher)
        if survivors:
            pids = ",".join(str(ref.pid) for ref in survivors)
            raise SideAgentsError(
                f"Processes {pids} of agent {record.id} could not be ended. Its record and its worktree's lease are kept.",
                hint=f"Look at them with `ps -fp {pids}`, end them, and stop the agent again.",
            )
        row = context.registry.read().agents.get(record.id)
        note = release_slot(record) if row is not None and observe.is_same_start(row, record) else ""
        stone = _bury(context, record)
    if stone is None:
        stone = context.registry.tombstone(record.id)
        if stone is None:
            raise context.registry.unknown(record.id)
    return Stopped(stone, len(below), note or kept_by(stone))


@contextmanager
def _marked(context: Context, record: AgentRecord) -> Iterator[None]:
    """Say in the record that this process is ending the agent, so that nobody takes its last moments for a crash."""
    me = processes.current()
    mark = {"pid": me.pid, "started": me.started}
    _set_mark(context, record, mark)
    try:
        yield
    finally:
        _set_mark(context, record, None)


def _set_mark(context: Context, record: AgentRecord, mark: dict[str, object] | None) -> None:
    row = context.registry.read().agents.get(record.id)
    if row is None or not observe.is_same_start(row, record):
        return
    with context.registry.transaction("mark an agent that is being stopped") as state:
        row = state.agents.get(record.id)
        if row is None or not observe.is_same_start(row, record):
            return
        extra = {key: value for key, value in row.extra.items() if key != observe.STOPPER}
        state.put(replace(row, extra={**extra, observe.STOPPER: mark} if mark else extra))


def _ask_launcher(context: Context, record: AgentRecord) -> None:
    """Let the launcher end what it runs: a client that answers TERM with exit 0 must not count as having finished."""
    if record.status.is_terminal or record.launcher is None or not processes.is_alive(record.launcher):
        return
    marker = context.paths.runtime(record.id).exit_marker
    deadline = clock.monotonic() + _LAUNCHER_SECONDS
    with Watcher([marker], [record.launcher]) as watcher:
        processes.terminate(record.launcher)
        while not marker.exists() and processes.is_alive(record.launcher) and clock.monotonic() < deadline:
            watcher.wait(max(0.0, deadline - clock.monotonic()))


def _below_launcher(record: AgentRecord) -> list[ProcessRef]:
    """All that the launcher runs, taken before anything is signalled: what is orphaned later cannot be found."""
    if record.launcher is None or not processes.is_alive(record.launcher):
        return []
    return processes.descendants(record.launcher.pid)


def close_window(record: AgentRecord) -> None:
    """Close the agent's own pane, in whatever window it is by now; nothing happens where it is gone or somebody else's."""
    if not (record.tmux_socket and record.tmux_pane_id and record.tmux_server):
        return
    tmux = Tmux(Path(record.tmux_socket))
    sweep = tmux.sweep()
    pane = sweep.panes.get(record.tmux_pane_id)
    if sweep.server != record.tmux_server or pane is None:
        return
    try:
        # Not the recorded window: people join panes into other ones.
        tmux.kill_window(pane.window_id, expect_pane=record.tmux_pane_id, expect_tag=record.id)
    except (TmuxError, RefusedError):
        # A window that closed itself meanwhile, or now is somebody else's, needs nothing from us.
        return


def release_slot(record: AgentRecord) -> str:
    """Give up the agent's lease; says what is left where its start was cut off, else nothing."""
    slot = record.worktree_path
    if slot is None:
        return "nothing was left to keep"
    note = ""
    if record.launcher is None and record.branch and record.base_commit:
        # No agent ever ran there, so the slot and the empty branch can be given back.
        note = slots.leave(Path(slot), record.branch, None if record.branch_existed else record.base_commit)
    leases.release(Path(slot), record.id)
    return note


def _bury(context: Context, record: AgentRecord) -> Tombstone | None:
    """Move the record to the history; None when another process has done so meanwhile."""
    with context.registry.transaction("clear an agent's record") as state:
        row = state.agents.get(record.id)
        if row is None or not observe.is_same_start(row, record):
            return None
        ended_by = EndedBy.CLEARED if record.status.is_terminal else EndedBy.STOPPED
        if not record.status.is_terminal:
            row = replace(row, status=AgentStatus.FAILED, error=STOPPED, finished_at=clock.iso(), exit_code=None)
            row = observe.count_stop(state, record, row)
        stone = observe.entomb(context, row, ended_by)
        state.bury(stone)
    return stone


def kept_by(stone: Tombstone) -> str:
    """What an agent that left the registry leaves behind: branch, worktree, uncommitted files."""
    parts = [
        f"branch {stone.branch}" + (f" at {stone.branch_head[:10]}" if stone.branch_head else " (already deleted)")
    ]
    if stone.worktree_path and Path(stone.worktree_path).is_dir():
        parts.append(f"worktree {stone.worktree_path}")
        try:
            changed = len(Git(Path(stone.worktree_path)).status_entries())
        except SideAgentsError:
            changed = 0
        if changed:
            parts.append(f"{changed} uncommitted file{'s' if changed > 1 else ''} in it")
    return ", ".join(parts)
