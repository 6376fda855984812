"""Checks of agents against what runs: rows without processes, processes and windows without rows, and stuck questions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from side_agents import names
from side_agents.core import discard, journal, observe
from side_agents.core.doctor_site import Site
from side_agents.core.findings import Finding, Severity, some
from side_agents.core.verdicts import Kind, Target
from side_agents.infra import clock, fs_survey, processes, processes_environ
from side_agents.infra.processes_environ import ProcessView
from side_agents.infra.tmux import PaneInfo, Presence
from side_agents.models import AgentRecord, AgentStatus, ProcessRef, WaitingFor

STUCK_SECONDS = 600.0
_MEND = "side-agents doctor --repair"
_DIALOGS = (WaitingFor.PERMISSION, WaitingFor.TRUST)
_ASKING = (*_DIALOGS, WaitingFor.QUESTION)


def rows_are_alive(site: Site) -> Iterator[Finding]:
    """What the registry takes for starting or running does."""
    for record in _rows(site):
        if record.status.is_terminal or observe.stopper(record) is not None or site.has_marker(record.id):
            continue
        if record.launcher is None:
            if record.owner is not None and not processes.is_alive(record.owner) and not _window_of(site, record.id):
                yield _dead_start(record)
            continue
        sweep = site.sweeps.get(Path(record.tmux_socket or ""))
        is_gone = sweep is not None and record.tmux_pane_id is not None and (
            sweep.presence(record.tmux_pane_id, record.tmux_server, record.id) is Presence.ABSENT
        )  # fmt: skip
        if not processes.is_alive(record.launcher) or is_gone:
            yield Finding(
                code="window-gone",
                severity=Severity.WARNING,
                what=f"{record.id} counts as {record.status}, but its {'window' if is_gone else 'process'} is gone.",
                safe="Branch, worktree and conversation are kept.",
                mend=clearing(record.id),
                repair="record that it has crashed",
                subject=record.id,
            )


def clearing(agent_id: str) -> str:
    """How to look at an ended agent that is still on the list, take it off, and go on with it."""
    return (
        f"Look: `side-agents check {agent_id}`, `side-agents log {agent_id}`; then `side-agents stop {agent_id}` clears it "
        f"(its work stays), after that `side-agents resume {agent_id}` goes on."
    )


def _dead_start(record: AgentRecord) -> Finding:
    return Finding(
        code="start-dead",
        severity=Severity.WARNING,
        what=f"The start of {record.id} was cut off: its process {record.owner.pid if record.owner else '?'} has ended.",
        safe="No agent ever ran; what it had made is kept until the entry is cleared.",
        mend=f"side-agents list, then side-agents clean {record.id}",
        repair="record that it has crashed, so that it can be cleared",
        subject=record.id,
    )


def _window_of(site: Site, agent_id: str) -> PaneInfo | None:
    panes = (pane for sweep in site.sweeps.values() for pane in sweep.panes.values() if pane.agent_tag == agent_id)
    return next((pane for pane in panes if agent_id in site.launchers), None)


def ended_agents_are_gone(site: Site) -> Iterator[Finding]:
    """Windows and processes that outlived their agents, and agents that nobody lists."""
    if site.state is None:
        return
    for agent_id, view in site.launchers.items():
        if agent_id not in site.state.ids and not site.has_marker(agent_id):
            yield Finding(
                code="agent-untracked",
                severity=Severity.PROBLEM,
                what=f"{agent_id} runs (process {view.ref.pid}) and is not on the list.",
                safe="It goes on working in its own slot; nothing was taken from it.",
                mend=_MEND,
                repair=f"put {agent_id} back on the list, from its runtime folder and its window",
                subject=agent_id,
                process=view.ref,
            )
    yield from _windows(site)
    yield from _processes(site)


def _windows(site: Site) -> Iterator[Finding]:
    ids = site.state.ids if site.state is not None else set()
    for socket, sweep in site.sweeps.items():
        for pane in sweep.panes.values():
            agent_id = pane.agent_tag
            script = str(site.paths.runtime(agent_id).launcher) if names.is_valid_id(agent_id) else ""
            # Agents of other repositories carry tags of the same kind.
            if not script or agent_id in ids or script not in processes.command_line(pane.pane_pid):
                continue
            if not site.has_marker(agent_id):
                # It lives: see ``agent-untracked``.
                continue
            verdict = discard.prove(site.context, Target(Kind.WINDOW, pane.pane_id, token=agent_id, socket=socket))
            ways = " ".join(dict.fromkeys(reason.way_out for reason in verdict.reasons))
            yield Finding(
                code="window-left",
                severity=Severity.NOTE,
                what=f"The window of {agent_id}, which has ended, is still open (pane {pane.pane_id}).",
                safe="Its output is in its log as well.",
                mend=f"{_MEND}, or side-agents clean --only window" if verdict.is_safe else ways,
                repair=f"close the window {pane.pane_id} of {agent_id}" if verdict.is_safe else None,
                subject=f"{agent_id} {pane.pane_id}",
                place=socket,
            )


def _processes(site: Site) -> Iterator[Finding]:
    spared = spared_pids()
    for view in site.processes:
        agent_id = orphan_of(site, view)
        if agent_id is None or view.ref.pid in spared:
            continue
        command = " ".join(view.argv)[:80]
        yield Finding(
            code="process-left",
            severity=Severity.WARNING,
            what=f"Process {view.ref.pid} ({command}) was started by {agent_id}, which has ended.",
            safe="Ending it touches no file of ours; look at it first if it may be wanted (a server, for example).",
            mend=f"{_MEND}, or end it by its pid",
            repair=f"end the process {view.ref.pid} ({command}) with everything below it",
            subject=f"{agent_id} {view.ref.pid}",
            process=view.ref,
        )


def orphan_of(site: Site, view: ProcessView) -> str | None:
    """The ended agent of this repository that a process was started by; None for any other process.

    Its variables name this state root and that agent's runtime folder, and no launcher of the agent is alive.
    """
    agent_id = view.environment.get("PI_SIDE_AGENT_ID", "")
    named = view.environment.get("PI_SIDE_AGENTS_ROOT"), view.environment.get("PI_SIDE_RUNTIME_DIR")
    if not names.is_valid_id(agent_id) or named != (str(site.paths.root), str(site.paths.runtime(agent_id).directory)):
        return None
    if site.state is None or agent_id in site.state.foreign:
        return None
    record = site.state.agents.get(agent_id)
    is_over = record is None or record.status.is_terminal
    has_launcher = agent_id in site.launchers or (record is not None and _lives(record.launcher))
    return agent_id if is_over and not has_launcher and not _is_in_a_multiplexer(view.ref.pid) else None


def _lives(ref: ProcessRef | None) -> bool:
    return ref is not None and processes.is_alive(ref)


def _is_in_a_multiplexer(pid: int) -> bool:
    """Whether a process is a tmux server or the like, or lives in one: by now it may hold anybody's session."""
    for each in (pid, *processes_environ.ancestors(pid)):
        program = processes.command_line(each).partition(" ")[0].rstrip(":")
        if Path(program).name.lower() in ("tmux", "screen", "zellij"):
            return True
    return False


def spared_pids() -> set[int]:
    """This process and those above it: whoever runs the doctor is not to be ended by it."""
    return {os.getpid(), *processes_environ.ancestors(os.getpid())}


def questions_are_answered(site: Site) -> Iterator[Finding]:
    """No agent waits at a dialog or with a question, or has not taken its first prompt for long."""
    for record in _rows(site):
        runtime = site.paths.runtime(record.id)
        tail = journal.read(runtime.journal, record.journal_offset)
        now = journal.fold(record, tail.events)
        written = fs_survey.modified_at(runtime.journal)
        quiet = clock.now().timestamp() - written if written is not None else 0.0
        is_late = quiet >= STUCK_SECONDS
        if now.status is AgentStatus.WAITING_USER and now.waiting_for in _ASKING:
            yield _asking(
                record.id, now.waiting_for, int(quiet // 60), is_stuck=is_late and now.waiting_for in _DIALOGS
            )
        elif is_late and now.status is AgentStatus.RUNNING and now.kickoff_pending:
            yield Finding(
                code="stuck",
                severity=Severity.WARNING,
                what=f"{record.id} has not taken its first prompt for {int(quiet // 60)} minutes: look for a dialog.",
                safe="It loses nothing by waiting.",
                mend=f"Look and answer: side-agents attach {record.id}",
                subject=record.id,
            )


def _asking(agent_id: str, reason: WaitingFor, minutes: int, *, is_stuck: bool) -> Finding:
    where = "with a question" if reason is WaitingFor.QUESTION else f"at a {reason} dialog"
    since = f" for {minutes} minute{'s' if minutes > 1 else ''}" if minutes else ""
    return Finding(
        code="stuck" if is_stuck else "waiting",
        severity=Severity.WARNING if is_stuck else Severity.NOTE,
        what=f"{agent_id} has waited {where}{since}." if since else f"{agent_id} waits {where}.",
        safe="It loses nothing by waiting.",
        mend=f"See what it asks: side-agents check {agent_id}; answer: side-agents attach {agent_id}",
        subject=agent_id,
    )


def ended_rows_are_cleared(site: Site) -> Iterator[Finding]:
    """Failed and crashed agents stay on the list until somebody has looked: no fault."""
    over = [record for record in _rows(site) if record.status in (AgentStatus.FAILED, AgentStatus.CRASHED)]
    for record in over:
        if record.launcher is not None and _lives(record.launcher) and not site.has_marker(record.id):
            yield Finding(
                code="process-outlives",
                severity=Severity.WARNING,
                what=f"{record.id} counts as {record.status}, but its process {record.launcher.pid} is alive.",
                safe="Its work is kept whatever becomes of the process.",
                mend=f"side-agents stop {record.id}",
                subject=record.id,
            )
    if over:
        yield Finding(
            code="ended",
            severity=Severity.NOTE,
            what=f"Failed or crashed, and still on the list: {some([record.id for record in over])}.",
            safe="They keep their slots with everything in them.",
            mend=clearing(over[0].id),
        )


def _rows(site: Site) -> list[AgentRecord]:
    return list(site.state.agents.values()) if site.state is not None else []
