"""Getting one message into an agent's input box, and proof that the agent took it (reference/field-reports 23-38).

The text goes in once, as a bracketed paste from a buffer of its own; Enter is a separate key, pressed at most twice. Proof is
the client's own journal entry with the hash of the message; where a client has no journal, the text seen to leave its
input box. No proof is reported as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from side_agents.clients.interface import Client
from side_agents.core import journal
from side_agents.core.results import Sent
from side_agents.errors import TmuxError, TmuxUnreachableError
from side_agents.infra import clock, processes
from side_agents.infra.events import Watcher
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, DeliveryState, ProcessRef
from side_agents.paths import RuntimePaths

# The rule that worked for every measured client is 0.3 s between paste and Enter (reference/clients 1); seeing the text in the
# box is as good and mostly sooner.
_SETTLE_SECONDS = 0.3
_SETTLE_LOOK = 0.03
_SECOND_ENTER_AFTER = 1.0
# Between a client's report that it took a message and that of the turn it begins.
_TURN_SECONDS = 2.0
_MOVES = ("turn_start", "resumed", "turn_end", "waiting", "quit")
# So many characters of our text in the box are no coincidence.
_TELLING_LENGTH = 20
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

    Raises TmuxError when tmux refused the paste itself: then nothing was typed. What fails later is part of the result.
    """
    # What the client makes of it anyway: only this text is sure to arrive as it is and to have the expected hash.
    typed = target.client.normalise(text)
    with Watcher([target.runtime.journal, target.runtime.exit_marker], _processes(target)) as watcher:
        proof = _Proof(target, typed, journal.size(target.runtime.journal))
        try:
            target.tmux.paste(target.pane_id, typed.encode("utf-8", "surrogateescape"))
        except TmuxUnreachableError:
            return proof.unknown("tmux stopped answering while the text was being typed; it may still arrive")
        try:
            proof.settle()
            target.tmux.send_keys(target.pane_id, "Enter")
        except TmuxUnreachableError:
            return proof.unknown("the text was typed; tmux stopped answering before or at the Enter key")
        except TmuxError:
            # The pane is gone: what the agent left behind says whether it went with the text.
            timeout = min(timeout, _SETTLE_SECONDS)
        return proof.look(watcher, clock.monotonic() + timeout)


def _processes(target: Target) -> tuple[ProcessRef, ...]:
    return (target.record.launcher,) if target.record.launcher is not None else ()


class _Proof:
    """Looks for what became of the text ``typed``, which was or will be pasted."""

    def __init__(self, target: Target, typed: str, offset: int) -> None:
        self._target = target
        self._hash = hashlib.sha256(typed.encode("utf-8", "surrogateescape")).hexdigest()
        self._typed = _squeezed(typed)
        self._is_command = typed.startswith("/")
        self._offset = offset
        self._seen_in_box = ""
        self._taken: Sent | None = None
        self._taken_until = 0.0

    def settle(self) -> None:
        """Wait until the text shows in the box, or for the time that suits every client. Raises TmuxError."""
        deadline = clock.monotonic() + _SETTLE_SECONDS
        while clock.monotonic() < deadline:
            draft = self._target.draft()
            if draft:
                self._seen_in_box = draft
                return
            clock.pause(_SETTLE_LOOK)

    def look(self, watcher: Watcher, deadline: float) -> Sent:
        """Return as soon as there is proof; press Enter a second time when the text still sits in the box."""
        second_enter = clock.monotonic() + _SECOND_ENTER_AFTER
        if not self._has_witness():
            deadline = min(deadline, second_enter)
        while clock.monotonic() < deadline:
            found = self._from_journal() or self._from_end() or self._from_box()
            if found is not None:
                return found
            if clock.monotonic() >= second_enter:
                second_enter = deadline
                self._press_again()
            watcher.wait(min(_LOOK_AGAIN, max(0.0, deadline - clock.monotonic())))
        return self._from_journal() or self._from_end() or self._taken or self._unproven()

    def unknown(self, evidence: str) -> Sent:
        """The third answer."""
        return self._sent(DeliveryState.UNKNOWN, evidence)

    def _has_witness(self) -> bool:
        """Whether anything could ever show that the text was taken."""
        return self._target.client.reports_events or self._is_command or bool(self._seen_in_box)

    def _from_journal(self) -> Sent | None:
        tail = journal.read(self._target.runtime.journal, self._offset)
        self._offset = tail.offset
        for event in tail.events:
            if self._taken is not None:
                if event["type"] in _MOVES:
                    return self._taken
            elif event["type"] == "input" and event.get("sha256") == self._hash:
                if event.get("state") == "queued":
                    return self._sent(DeliveryState.QUEUED, "the agent is busy and has it in its queue")
                # Its turn begins a moment later, and who waits next must not meet the stop before it.
                self._taken = self._sent(DeliveryState.SUBMITTED, "the agent reported that it took the message")
                self._taken_until = clock.monotonic() + _TURN_SECONDS
        return self._taken if clock.monotonic() >= self._taken_until else None

    def _from_end(self) -> Sent | None:
        launcher = self._target.record.launcher
        has_died = launcher is not None and not processes.is_alive(launcher)
        if not has_died and not self._target.runtime.exit_marker.exists():
            return None
        if self._taken is not None:
            return self._taken
        if self._is_command:
            return self._sent(DeliveryState.SUBMITTED, "the agent ended")
        return self.unknown("the agent ended while the message was being delivered")

    def _from_box(self) -> Sent | None:
        """A command starts no turn, and some clients have no journal: there the box is the only witness."""
        if self._taken is not None or (self._target.client.reports_events and not self._is_command):
            return None
        if not self._seen_in_box or self._draft() != "":
            return None
        return self._sent(DeliveryState.SUBMITTED, "the text left the input box")

    def _press_again(self) -> None:
        # Only for our own text: somebody may have begun to type after the agent had taken it.
        if self._taken is None and self._is_ours(self._draft()):
            with suppress(TmuxError):
                self._target.tmux.send_keys(self._target.pane_id, "Enter")

    def _is_ours(self, draft: str | None) -> bool:
        shown = _squeezed(draft or "")
        if shown and shown == _squeezed(self._seen_in_box):
            return True
        return len(shown) >= min(len(self._typed), _TELLING_LENGTH) and shown in self._typed

    def _draft(self) -> str | None:
        try:
            return self._target.draft()
        except TmuxError:
            return None

    def _unproven(self) -> Sent:
        draft = self._draft()
        if self._is_ours(draft):
            return self._sent(DeliveryState.TYPED_NOT_SUBMITTED, "the text is in the input box and was not submitted")
        if draft is not None and self._seen_in_box:
            return self.unknown("the text left the input box, but the agent reported no message")
        return self.unknown("the text was typed; the agent gave no sign of having taken it")

    def _sent(self, state: DeliveryState, evidence: str) -> Sent:
        return Sent(self._target.record.id, state, evidence)


def _squeezed(text: str) -> str:
    """Text without blanks, because a box wraps and indents what it shows."""
    return "".join(text.split())


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
