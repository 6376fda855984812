"""Getting one message into an agent's input box, and proof that the agent took it (reference/field-reports 23-38).

The text goes in once, as a bracketed paste from a buffer of its own. Enter is a separate key, pressed at most twice, and not
where it could answer a dialog. Proof is the client's own journal entry with the hash of the message; where a client has no
journal, the text seen to leave its input box. No proof is reported as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress

from side_agents.core import journal, observe
from side_agents.core.pane_view import Target, View, has_moved_on, squeezed, target_of, view_of
from side_agents.core.results import REPORTED_QUEUED, REPORTED_TAKEN, Sent
from side_agents.errors import RefusedError, TmuxError, TmuxUnreachableError
from side_agents.infra import clock, processes, text
from side_agents.infra.events import Watcher
from side_agents.models import DeliveryState, ProcessRef, WaitingFor

__all__ = ["Target", "deliver", "target_of", "wait_for"]

# The rule that worked for every measured client is 0.3 s between paste and Enter (reference/clients 1); seeing the text in the
# box is as good and mostly sooner.
_SETTLE_SECONDS = 0.3
_SETTLE_LOOK = 0.03
# A box that is being drawn anew is back by then; a dialog in its place is not.
_GONE_SECONDS = 1.0
_SECOND_ENTER_AFTER = 1.0
# Between a client's report that it took a message and that of the turn it begins.
_TURN_SECONDS = 2.0
_MOVES = ("turn_start", "resumed", "turn_end", "waiting", "quit")
# So many characters of our text in the box are no coincidence.
_TELLING_LENGTH = 20
_LOOK_AGAIN = 0.25


def deliver(target: Target, message: str, *, timeout: float) -> Sent:
    """Paste the text, press Enter, and look for proof for at most ``timeout`` seconds.

    Raises TmuxError when tmux refused the paste itself, and RefusedError when the agent has begun to ask something since
    its record was read: then nothing was typed. What fails later is part of the result.
    """
    # What the client makes of it anyway: only this text is sure to arrive as it is and to have the expected hash.
    typed = target.client.normalise(message)
    with Watcher([target.runtime.journal, target.runtime.exit_marker], _processes(target)) as watcher:
        tail = journal.read(target.runtime.journal, target.record.journal_offset)
        _require_no_dialog(target, tail.events)
        proof = _Proof(target, typed, tail.offset, has_box=target.draft() is not None)
        try:
            target.tmux.paste(target.pane_id, typed.encode("utf-8", "surrogateescape"))
        except TmuxUnreachableError:
            return proof.unknown("tmux stopped answering while the text was being typed; it may still arrive")
        try:
            early = proof.settle()
            if early is not None:
                return early
            proof.press()
        except TmuxUnreachableError:
            return proof.unknown("the text was typed; tmux stopped answering before or at the Enter key")
        except TmuxError:
            # The pane is gone: what the agent left behind says whether it went with the text.
            timeout = min(timeout, _SETTLE_SECONDS)
        return proof.look(watcher, clock.monotonic() + timeout)


def _require_no_dialog(target: Target, events: Iterable[journal.Event]) -> None:
    asked: journal.Event | None = None
    for event in events:
        if _is_dialog(event):
            asked = event
        elif event["type"] in ("resumed", "turn_start", "turn_end"):
            asked = None
    if asked is not None:
        raise RefusedError(
            f"Agent {target.record.id} has just opened a {_named(asked)}. Nothing was sent.",
            hint=f"Answer it in its window: `side-agents attach {target.record.id}`.",
        )


def _is_dialog(event: journal.Event) -> bool:
    return event["type"] == "waiting" and event.get("for") != WaitingFor.PROMPT


def _named(event: journal.Event) -> str:
    kind = event.get("for")
    kind = kind if kind in tuple(WaitingFor) else WaitingFor.QUESTION
    asks = text.one_line(text.printable(str(event.get("text") or "see its window")), 200)
    return f"{kind} dialog ({asks})"


def _processes(target: Target) -> tuple[ProcessRef, ...]:
    return (target.record.launcher,) if target.record.launcher is not None else ()


class _Proof:
    """Looks for what became of the text ``typed``, which was or will be pasted."""

    def __init__(self, target: Target, typed: str, offset: int, *, has_box: bool) -> None:
        self._target = target
        self._hash = hashlib.sha256(typed.encode("utf-8", "surrogateescape")).hexdigest()
        self._typed = squeezed(typed)
        self._is_command = typed.startswith("/")
        self._is_quit = typed == target.client.quit_text
        self._offset = offset
        self._has_box = has_box
        self._seen_in_box = ""
        self._before_enter: View | None = None
        self._asked: journal.Event | None = None
        self._taken: Sent | None = None
        self._taken_until = 0.0

    def settle(self) -> Sent | None:
        """Wait until the text shows in the box, or for the time that suits every client. Raises TmuxError.

        The result, if any, is final: Enter must not be pressed.
        """
        start = clock.monotonic()
        while True:
            view = view_of(self._target)
            seen = view.draft or self._grown_box(view)
            # Last, because an agent tells of a dialog about when it draws it.
            found = self._from_journal() or self._from_end() or self._from_dialog()
            if found is not None:
                return found
            is_gone = self._has_box and view.draft is None and not seen
            waited = clock.monotonic() - start
            if seen or waited >= (_GONE_SECONDS if is_gone else _SETTLE_SECONDS):
                self._seen_in_box, self._before_enter = seen, view
                return self._not_pressed("its input box is gone from the screen") if is_gone else None
            clock.pause(_SETTLE_LOOK)

    def press(self) -> None:
        """Press Enter, unless the agent took the text without. Raises TmuxError."""
        if self._taken is None:
            self._target.tmux.send_keys(self._target.pane_id, "Enter")

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
            if _is_dialog(event):
                self._asked = event
            if self._taken is not None:
                if event["type"] in _MOVES:
                    return self._taken
            elif event["type"] == "input" and event.get("sha256") == self._hash:
                if event.get("state") == "queued":
                    return self._sent(DeliveryState.QUEUED, REPORTED_QUEUED)
                # Its turn begins a moment later, and who waits next must not meet the stop before it.
                self._taken = self._sent(DeliveryState.SUBMITTED, REPORTED_TAKEN)
                self._taken_until = clock.monotonic() + _TURN_SECONDS
        return self._taken if clock.monotonic() >= self._taken_until else None

    def _from_end(self) -> Sent | None:
        launcher = self._target.record.launcher
        has_died = launcher is not None and not processes.is_alive(launcher)
        if not has_died and not self._target.runtime.exit_marker.exists():
            return None
        if self._taken is not None:
            return self._taken
        marker = observe.read_marker(self._target.runtime.exit_marker)
        if marker is None:
            return self.unknown("the agent ended while the message was being delivered, and left no word of how")
        if self._is_quit and marker.exit_code == 0 and not marker.signal:
            return self._sent(DeliveryState.SUBMITTED, "the agent ended as it was told")
        how = f"by signal {marker.signal}" if marker.signal else f"with exit code {marker.exit_code}"
        return self.unknown(f"the agent ended {how} while the message was being delivered")

    def _from_dialog(self) -> Sent | None:
        return None if self._asked is None else self._not_pressed(f"it opened a {_named(self._asked)}")

    def _not_pressed(self, why: str) -> Sent:
        return self._sent(
            DeliveryState.TYPED_NOT_SUBMITTED, f"the text was typed, then {why}; Enter was not pressed, see its window"
        )

    def _from_box(self) -> Sent | None:
        """A command starts no turn, and some clients have no journal: there the box is the only witness."""
        if self._taken is not None or (self._target.client.reports_events and not self._is_command):
            return None
        if not self._seen_in_box or self._draft() != "":
            return None
        return self._sent(DeliveryState.SUBMITTED, "the text left the input box")

    def _press_again(self) -> None:
        """Only into what is surely the box with our own text, and only if the first Enter had no effect at all.

        Somebody may have begun to type, and what looks like the box may be the message in the conversation above a dialog.
        """
        before = self._before_enter
        if self._taken is not None or self._asked is not None or before is None:
            return
        with suppress(TmuxError):
            view = view_of(self._target)
            is_same = view.cursor == before.cursor and not view.news(before)
            if is_same and self._is_ours(view.draft) and self._target.client.is_busy(view.lines) is not True:
                self._target.tmux.send_keys(self._target.pane_id, "Enter")

    def _grown_box(self, view: View) -> str:
        """The text, if it made the box so tall that the client's rules no longer find it at the bottom; else nothing."""
        if not self._has_box or view.draft is not None:
            return ""
        for end in range(len(view.lines) - 1, 0, -1):
            top = squeezed(self._target.client.draft(view.lines[:end]) or "")
            if top and self._typed.startswith(top):
                rest = squeezed("".join(view.lines[end:]))
                return self._typed if self._typed[-_TELLING_LENGTH:] in rest else ""
        return ""

    def _is_ours(self, draft: str | None) -> bool:
        shown = squeezed(draft or "")
        if shown and shown == squeezed(self._seen_in_box):
            return True
        return len(shown) >= min(len(self._typed), _TELLING_LENGTH) and shown in self._typed

    def _draft(self) -> str | None:
        try:
            return self._target.draft()
        except TmuxError:
            return None

    def _unproven(self) -> Sent:
        if self._asked is not None:
            return self.unknown(f"Enter was pressed once, and the agent opened a {_named(self._asked)}; see its window")
        try:
            view = view_of(self._target)
        except TmuxError:
            return self.unknown("the text was typed; tmux no longer shows what became of it")
        if self._is_ours(view.draft):
            if self._before_enter is not None and has_moved_on(view, self._before_enter):
                return self.unknown("the text is on the screen and something new below it; see its window")
            return self._sent(DeliveryState.TYPED_NOT_SUBMITTED, "the text is in the input box and was not submitted")
        if view.draft is not None and self._seen_in_box:
            return self.unknown("the text left the input box, but the agent reported no message")
        return self.unknown("the text was typed; the agent gave no sign of having taken it")

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
