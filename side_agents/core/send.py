"""Sending a message to an agent: only into a pane that is known to be the agent's and free to take it.

Refused, with nothing typed: an agent that ended, a pane that is not its, a shell in the foreground, copy mode, a dialog, a
person's half-typed text (reference/side-agents 3.5, reference/field-reports B2).
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from side_agents import names
from side_agents.core import delivery, journal, observe
from side_agents.core.context import Context
from side_agents.core.delivery import Target
from side_agents.core.results import Sent
from side_agents.errors import RefusedError, SideAgentsError, TmuxUnreachableError, UsageError
from side_agents.infra import clock, fs, processes, text
from side_agents.infra.tmux_sweep import PaneInfo, Presence
from side_agents.models import AgentRecord, DeliveryState, EndedBy, WaitingFor

MESSAGE_LIMIT_BYTES = 1024 * 1024
_INTERRUPT_SECONDS = 5.0
_INTERRUPT_PAUSE = 0.3
_BOX_SECONDS = 0.5
_BOX_LOOK = 0.05
_LINE_ENDS = re.compile(r"\r\n?")


@dataclass(frozen=True, slots=True)
class Message:
    """What to send: whether to interrupt first, and the text, which may be empty after an interrupt."""

    interrupt: bool
    text: str


def parse_message(raw: str) -> Message:
    """A leading ``!`` interrupts first; ``/...`` goes through as it is (U34, U35)."""
    if raw.startswith("!"):
        return Message(True, raw[1:].lstrip())
    return Message(False, raw)


def send(context: Context, agent_id: str, message: str, *, sender_timeout: float | None = None) -> Sent:
    """Deliver one message; the result says what is known of it, and nothing is ever typed twice.

    Raises UsageError for an empty or too long message, UnknownAgentError, RefusedError where the pane cannot take it, BusyError
    while another sender has the pane, TmuxUnreachableError when tmux does not answer: nothing was typed in all of these.
    """
    parsed = _checked(message)
    name = names.normalise_id(agent_id)
    _require_launched(_find(context, name))
    timeout = context.config.send_timeout if sender_timeout is None else sender_timeout
    lock = context.paths.send_lock(name)
    with fs.locked(lock, purpose=f"send to {name}", timeout=context.config.lock_timeout + timeout):
        target = _receiver(context, name, timeout)
        if parsed.text:
            # Before the interrupt key, which clears the box of some clients.
            _require_empty_box(target)
        if parsed.interrupt:
            _interrupt(context, target)
            if not parsed.text:
                return Sent(name, DeliveryState.INTERRUPTED, "the interrupt key was pressed")
            target = _receiver_after_interrupt(context, name, timeout)
        sent = delivery.deliver(target, parsed.text, timeout=timeout)
    with suppress(SideAgentsError):
        # What is in the agent's box already must not be reported as failed; whoever looks next sees the same.
        observe.refresh(context, (name,), probe=False)
    return sent


def _checked(message: str) -> Message:
    parsed = parse_message(message)
    # A stray escape sequence would end the bracketed paste and turn the rest into keys.
    cleaned = text.strip_controls(_LINE_ENDS.sub("\n", parsed.text)).strip("\n")
    if not cleaned.strip() and not parsed.interrupt:
        raise UsageError("The message is empty. Nothing was sent.")
    size = len(cleaned.encode("utf-8", "surrogateescape"))
    if size > MESSAGE_LIMIT_BYTES:
        raise UsageError(
            f"The message is {size} bytes long; the limit is {MESSAGE_LIMIT_BYTES}. Nothing was sent.",
            hint="Put it into a file in the agent's worktree and send the path.",
        )
    return Message(parsed.interrupt, cleaned if cleaned.strip() else "")


def _find(context: Context, name: str) -> AgentRecord:
    if not name:
        raise UsageError("No agent id was given. Nothing was sent.")
    record = context.registry.read().agents.get(name)
    if record is not None:
        return record
    stone = context.registry.tombstone(name)
    if stone is None:
        raise context.registry.unknown(name)
    how = "was stopped" if stone.ended_by is EndedBy.STOPPED else f"has ended ({stone.status})"
    raise RefusedError(f"Agent {name} {how}. Nothing was sent.")


def _require_launched(record: AgentRecord) -> None:
    """Before its runtime folder is touched, where the lock is: until then it may be an earlier agent's, or not be there."""
    _require_running(record)
    if record.runtime_dir is None:
        raise RefusedError(
            f"Agent {record.id} is still being started. Nothing was sent.", hint="Try again in a moment."
        )


def _receiver(context: Context, name: str, timeout: float) -> Target:
    """The agent's pane, looked at just now, if it can take a message."""
    target, pane = _look(context, name)
    if target.client.reports_events and not _has_reported(target):
        _await_ready(target, timeout)
        # It may have come up with a dialog.
        target, pane = _look(context, name)
    _require_foreground(target, pane)
    return target


def _receiver_after_interrupt(context: Context, name: str, timeout: float) -> Target:
    try:
        target = _receiver(context, name, timeout)
        _require_empty_box(target)
    except RefusedError as error:
        raise RefusedError(f"The interrupt key was pressed, but then: {error.message}", hint=error.hint) from error
    return target


def _look(context: Context, name: str) -> tuple[Target, PaneInfo]:
    look = observe.refresh(context, (name,))
    record = look.state.agents.get(name)
    if record is None:
        raise RefusedError(f"Agent {name} has ended. Nothing was sent.")
    _require_alive(record)
    if record.launcher is None or record.tmux_pane_id is None or record.tmux_socket is None:
        raise RefusedError(f"Agent {name} is still being started. Nothing was sent.", hint="Try again in a moment.")
    sweep = look.sweeps.get(record.tmux_socket)
    presence = sweep.presence(record.tmux_pane_id, record.tmux_server, name) if sweep else Presence.UNKNOWN
    if sweep is None or presence is Presence.UNKNOWN:
        raise TmuxUnreachableError(f"tmux does not answer, so the pane of {name} cannot be checked. Nothing was sent.")
    if presence is Presence.ABSENT:
        raise RefusedError(f"The window of agent {name} is gone. Nothing was sent.")
    client = context.find_client(record.client or "", context.config)
    return delivery.target_of(record, client, context.paths.runtime(name)), sweep.panes[record.tmux_pane_id]


def _require_running(record: AgentRecord) -> None:
    if record.status.is_terminal:
        raise RefusedError(
            f"Agent {record.id} has {record.status}: {record.error or 'it ended'}. Nothing was sent.",
            hint=f"`side-agents log {record.id}` shows its last output; its work is in {record.worktree_path}.",
        )


def _require_alive(record: AgentRecord) -> None:
    _require_running(record)
    if observe.stopper(record) is not None:
        raise RefusedError(f"Agent {record.id} is being stopped. Nothing was sent.")
    if record.suspended:
        raise RefusedError(
            f"Agent {record.id} is suspended and its window shows a shell. Nothing was sent.",
            hint="Type `fg` in that window to bring the agent back.",
        )
    if record.waiting_for in (WaitingFor.PERMISSION, WaitingFor.TRUST):
        raise RefusedError(
            f"Agent {record.id} shows a {record.waiting_for} dialog, which a message would answer. Nothing was sent. "
            f"It asks: {text.one_line(record.waiting_text or '(see its window)', 200)}",
            hint=f"Answer it in its window: `side-agents attach {record.id}`.",
        )


def _await_ready(target: Target, timeout: float) -> None:
    """A client that reports events says when it can take a message; what is typed earlier would be lost."""
    if not delivery.wait_for(target, lambda: _has_reported(target) or _has_ended(target), timeout=timeout):
        raise RefusedError(
            f"Agent {target.record.id} has not come up yet. Nothing was sent.",
            hint=f"`side-agents check {target.record.id}` shows what it does; try again when it runs.",
        )


def _has_ended(target: Target) -> bool:
    launcher = target.record.launcher
    return target.runtime.exit_marker.exists() or (launcher is not None and not processes.is_alive(launcher))


def _has_reported(target: Target) -> bool:
    if target.record.turn or target.record.turn_open:
        return True
    events = journal.read(target.runtime.journal, 0).events
    return any(event["type"] in ("ready", "turn_start") for event in events)


def _require_foreground(target: Target, pane: PaneInfo) -> None:
    record = target.record
    if pane.in_mode:
        raise RefusedError(
            f"The window of {record.id} is in copy mode: somebody is reading there. Nothing was sent.",
            hint="Leave copy mode with q, then send again.",
        )
    pid = record.client_pid or _client_pid(target)
    if pid is None:
        raise RefusedError(f"Agent {record.id} is still being started. Nothing was sent.", hint="Try again shortly.")
    group = processes.group_of(pid)
    if group is None or processes.foreground_group(pid) != group:
        raise RefusedError(
            f"In the window of {record.id} another program has the terminal. Nothing was sent.",
            hint=f"Look at it: `side-agents attach {record.id}`.",
        )


def _client_pid(target: Target) -> int | None:
    for event in journal.read(target.runtime.journal, 0).events:
        pid = event.get("pid")
        if event["type"] == "client" and isinstance(pid, int):
            return pid
    return None


def _require_empty_box(target: Target) -> None:
    # What another sender's message leaves there is gone at the client's next drawing; a person's text is not.
    deadline = clock.monotonic() + _BOX_SECONDS
    while (draft := target.draft()) and clock.monotonic() < deadline:
        clock.pause(_BOX_LOOK)
    if draft:
        raise RefusedError(
            f"Somebody's unfinished text is in the input box of {target.record.id}: "
            f"{text.one_line(draft, 80)!r}. It was left alone and nothing was sent.",
            hint="Submit or clear it in the window, then send again.",
        )


def _interrupt(context: Context, target: Target) -> None:
    """Press the client's interrupt key once; when a turn was running, wait until it has ended."""
    was_busy = bool(target.record.turn_open)
    stops = target.record.stops
    target.tmux.send_keys(target.pane_id, *target.client.interrupt_keys)
    if was_busy:
        delivery.wait_for(
            target, lambda: _stops(context, target) > stops or _has_ended(target), timeout=_INTERRUPT_SECONDS
        )
    else:
        clock.pause(_INTERRUPT_PAUSE)


def _stops(context: Context, target: Target) -> int:
    try:
        record = observe.refresh(context, (target.record.id,), probe=False).state.agents.get(target.record.id)
    except SideAgentsError:
        return target.record.stops
    return record.stops if record is not None else target.record.stops + 1
