"""Getting one message into an agent's input box, and proof that the agent took it (reference/field-reports 23-38).

The text goes in once, as a bracketed paste from a buffer of its own; Enter is a separate key, pressed at most twice. Proof is
the client's own journal entry with the hash of the message; where a client has no journal, the text seen to leave its
input box. No proof is reported as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from side_agents.clients.interface import Client
from side_agents.core import journal
from side_agents.core.results import Sent
from side_agents.infra import clock
from side_agents.infra.events import Watcher
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, DeliveryState, ProcessRef
from side_agents.paths import RuntimePaths

# The rule that worked for every measured client is 0.3 s between paste and Enter (reference/clients 1); seeing the text in the
# box is as good and mostly sooner.
_SETTLE_SECONDS = 0.3
_SETTLE_LOOK = 0.03
_SECOND_ENTER_AFTER = 1.0
_LOOK_AGAIN = 0.25


@dataclass(frozen=True, slots=True)
class Target:
    """A pane that was found to be fit to receive; ``tmux`` is its server."""

    record: AgentRecord
    client: Client
    runtime: RuntimePaths
    tmux: Tmux
    pane_id: str

    def draft(self) -> str | None:
        """What is in the input box now: "" nothing, None cannot be told."""
        return self.client.draft(self.tmux.capture(self.pane_id))


def target_of(record: AgentRecord, client: Client, runtime: RuntimePaths) -> Target:
    """The target of a record whose pane is known to be present."""
    return Target(record, client, runtime, Tmux(Path(record.tmux_socket or "")), record.tmux_pane_id or "")


def deliver(target: Target, text: str, *, timeout: float) -> Sent:
    """Paste the text, press Enter, and look for proof for at most ``timeout`` seconds.

    Raises TmuxError when tmux refused the paste itself: then nothing was typed.
    """
    offset = journal.size(target.runtime.journal)
    with Watcher([target.runtime.journal, target.runtime.exit_marker], _processes(target)) as watcher:
        # What the client makes of it anyway: only this text is sure to arrive as it is and to have the expected hash.
        typed = target.client.normalise(text)
        target.tmux.paste(target.pane_id, typed.encode("utf-8", "surrogateescape"))
        was_in_box = _settle(target)
        target.tmux.send_keys(target.pane_id, "Enter")
        return _Proof(target, text, offset, was_in_box).look(watcher, clock.monotonic() + timeout)


def _processes(target: Target) -> tuple[ProcessRef, ...]:
    return (target.record.launcher,) if target.record.launcher is not None else ()


def _settle(target: Target) -> bool:
    """Wait until the text shows in the box, or for the time that suits every client; True when it was seen."""
    deadline = clock.monotonic() + _SETTLE_SECONDS
    while clock.monotonic() < deadline:
        draft = target.draft()
        if draft:
            return True
        clock.pause(_SETTLE_LOOK)
    return False


class _Proof:
    """Looks for what became of a message after the first Enter."""

    def __init__(self, target: Target, text: str, offset: int, was_in_box: bool) -> None:
        self._target = target
        self._hash = hashlib.sha256(target.client.normalise(text).encode("utf-8", "surrogateescape")).hexdigest()
        self._is_command = text.startswith("/")
        self._offset = offset
        self._was_in_box = was_in_box

    def look(self, watcher: Watcher, deadline: float) -> Sent:
        """Return as soon as there is proof; press Enter a second time when the text still sits in the box."""
        second_enter = clock.monotonic() + _SECOND_ENTER_AFTER
        while clock.monotonic() < deadline:
            found = self._from_journal() or self._from_end() or self._from_box()
            if found is not None:
                return found
            if clock.monotonic() >= second_enter:
                second_enter = deadline
                self._press_again()
            watcher.wait(min(_LOOK_AGAIN, max(0.0, deadline - clock.monotonic())))
        return self._from_journal() or self._from_end() or self._unproven()

    def _from_journal(self) -> Sent | None:
        tail = journal.read(self._target.runtime.journal, self._offset)
        self._offset = tail.offset
        for event in tail.events:
            if event["type"] == "input" and event.get("sha256") == self._hash:
                if event.get("state") == "queued":
                    return self._sent(DeliveryState.QUEUED, "the agent is busy and has it in its queue")
                return self._sent(DeliveryState.SUBMITTED, "the agent reported that it took the message")
        return None

    def _from_end(self) -> Sent | None:
        if not self._target.runtime.exit_marker.exists():
            return None
        if self._is_command:
            return self._sent(DeliveryState.SUBMITTED, "the agent ended")
        return self._sent(DeliveryState.UNKNOWN, "the agent ended while the message was being delivered")

    def _from_box(self) -> Sent | None:
        """A command starts no turn, and some clients have no journal: there the box is the only witness."""
        if self._target.client.reports_events and not self._is_command:
            return None
        if not self._was_in_box or self._target.draft() != "":
            return None
        return self._sent(DeliveryState.SUBMITTED, "the text left the input box")

    def _press_again(self) -> None:
        if self._target.draft():
            self._target.tmux.send_keys(self._target.pane_id, "Enter")

    def _unproven(self) -> Sent:
        draft = self._target.draft()
        if draft:
            return self._sent(DeliveryState.TYPED_NOT_SUBMITTED, "the text is in the input box and was not submitted")
        if draft == "" and self._was_in_box:
            return self._sent(DeliveryState.UNKNOWN, "the text left the input box, but the agent reported no message")
        return self._sent(DeliveryState.UNKNOWN, "the text was typed; the agent gave no sign of having taken it")

    def _sent(self, state: DeliveryState, evidence: str) -> Sent:
        return Sent(self._target.record.id, state, evidence)


def wait_for(target: Target, happened: Callable[[], bool], *, timeout: float) -> bool:
    """Wait on the agent's journal until ``happened``; False when the time is up."""
    deadline = clock.monotonic() + timeout
    with Watcher([target.runtime.journal, target.runtime.exit_marker], _processes(target)) as watcher:
        while not happened():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            watcher.wait(min(_LOOK_AGAIN, left))
    return True
