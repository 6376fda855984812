# pathlib would cost the program a quarter of its start.
# ruff: noqa: PTH109
"""The script agent as a program: one wait for keys, signals, output and time; everything else is a reaction."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NamedTuple

from side_agents.clients.script_journal import Journal
from side_agents.clients.script_keys import ESCAPE_WAIT, Key, KeyKind, KeyReader
from side_agents.clients.script_screen import Screen, View
from side_agents.clients.script_session import Session, SessionError
from side_agents.clients.script_text import clean_output, take_message
from side_agents.clients.script_turn import Conversation, Leave, State

_FRAME = 0.05
_DOUBLE_PRESS = 0.5
_MOST_BACKLOG = 65_536
_WATCHED = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_DEADLY = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Settings(NamedTuple):
    """What the command line asks of the program beyond its session."""

    prompt: str
    model: str | None
    reason: str
    version: str
    notice: str = ""


class Killed(Exception):  # noqa: N818 a way out, like Leave
    """A signal, or a terminal that went away, ends the program."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


def run(terminal: int, journal: Journal, session: Session, settings: Settings) -> int:
    """Run the program on a terminal until it ends; returns its exit status.

    A deadly signal ends it by that same signal, so that the status tells the truth.
    """
    program = _Program(terminal, journal, session, settings)
    wake = _watch_signals()
    try:
        program.open()
        while True:
            program.turn(wake)
    except Leave as leave:
        program.close(leave)
        return leave.code
    except Killed as killed:
        program.close(Leave(1, killed.number.name, "aborted"))
        signal.signal(killed.number, signal.SIG_DFL)
        os.kill(os.getpid(), killed.number)
        return 128 + killed.number
    except BaseException as error:
        program.show(f"script agent: {error}")
        program.close(Leave(1, "error", "error"))
        if isinstance(error, (SessionError, OSError)):
            return 1
        raise


class _Program:
    def __init__(self, terminal: int, journal: Journal, session: Session, settings: Settings) -> None:
        self._journal = journal
        self._session = session
        self._settings = settings
        self._terminal = terminal
        self._screen = Screen(terminal)
        self._keys = KeyReader()
        self._talk = Conversation(journal, session, self.show, lambda: self._draw(time.monotonic()))
        self._draft = ""
        self._stale = True
        self._footer_drawn = ""
        self._next_frame = 0.0
        self._escape_at: float | None = None
        self._last_interrupt = float("-inf")

    def show(self, text: str) -> None:
        self._screen.show(text)
        self._stale = True

    def open(self) -> None:
        """Take the terminal, report the session, draw, and only then say that messages are welcome."""
        self._screen.open()
        self._journal.write(
            "session",
            sessionId=self._session.session_id,
            sessionFile=self._session.path,
            pid=os.getpid(),
            reason=self._settings.reason,
            version=self._settings.version,
        )
        self.show(f"script agent · {os.getcwd()}")
        if self._settings.reason != "startup":
            self.show(f"session {self._session.session_id} ({self._settings.reason})")
        if self._settings.notice:
            self.show(clean_output(self._settings.notice))
        self._draw(time.monotonic())
        self._journal.write("ready")
        if self._settings.prompt.strip():
            self._talk.queued.append(self._settings.prompt)
            self._talk.advance()

    def close(self, leave: Leave) -> None:
        try:
            self._talk.close(leave)
        except (SessionError, OSError) as error:
            self.show(f"script agent: {error}")
        try:
            self._screen.close()
        except OSError:
            return  # the terminal is gone, nobody is left to see it

    def turn(self, wake: int) -> None:
        """Wait once, react once."""
        now = time.monotonic()
        if now >= self._next_frame and (self._stale or self._footer(now) != self._footer_drawn):
            self._draw(now)
        command = self._talk.command
        sources = [self._terminal, wake]
        if command and command.readable and self._screen.backlog < _MOST_BACKLOG:
            sources.append(command.output)
        ready = select.select(sources, [], [], self._timeout(now))[0]
        if wake in ready:
            self._take_signals(wake)
        if self._terminal in ready:
            self._take_input()
        elif self._escape_at is not None and time.monotonic() >= self._escape_at:
            self._take_keys(self._keys.flush())
        if command and command.output in ready:
            self._talk.read_output()
        self._talk.advance()

    def _timeout(self, now: float) -> float | None:
        times = [moment for moment in (self._escape_at, self._talk.deadline) if moment is not None]
        if self._stale or self._footer(now) != self._footer_drawn:
            times.append(self._next_frame)
        if self._talk.state is State.BUSY:
            # The footer counts whole seconds.
            times.append(now + 1 - (now - self._talk.started) % 1)
        return max(0.0, min(times) - now) if times else None

    def _draw(self, now: float) -> None:
        state = self._talk.state
        self._screen.draw(
            View(
                draft=self._draft,
                dialog=self._talk.dialog if state is State.PERMISSION else None,
                footer=self._footer(now),
            )
        )
        self._stale = False
        self._footer_drawn = self._footer(now)
        self._next_frame = now + _FRAME

    def _footer(self, now: float) -> str:
        talk = self._talk
        parts = ["script", f"busy {int(now - talk.started)}s" if talk.state is State.BUSY else talk.state.value]
        if talk.state in (State.BUSY, State.QUESTION):
            parts.append("esc to interrupt")
        if talk.queued:
            parts.append(f"{len(talk.queued)} queued")
        if self._settings.model:
            parts.append(self._settings.model)
        return " · ".join(parts)

    def _take_signals(self, wake: int) -> None:
        for number in os.read(wake, 512):
            if number in _DEADLY:
                raise Killed(signal.Signals(number))
            if number == signal.SIGCONT:
                self._screen.reopen()
            if number in (signal.SIGWINCH, signal.SIGCONT):
                self._stale = True

    def _take_input(self) -> None:
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:
            data = b""
        if not data:
            raise Killed(signal.SIGHUP)
        self._take_keys(self._keys.feed(data))

    def _take_keys(self, keys: list[Key]) -> None:
        self._escape_at = time.monotonic() + ESCAPE_WAIT if self._keys.undecided else None
        for key in keys:
            self._stale = True
            if self._talk.state is State.PERMISSION:
                self._decide(key)
            else:
                self._edit(key)
            self._talk.advance()

    def _decide(self, key: Key) -> None:
        # Several characters at once were not typed by somebody who read the dialog.
        if key.kind is KeyKind.TEXT and key.text in ("y", "n"):
            self._talk.decide(key.text == "y")

    def _edit(self, key: Key) -> None:
        match key.kind:
            case KeyKind.TEXT | KeyKind.PASTE:
                self._draft += key.text
            case KeyKind.NEWLINE:
                self._draft += "\n"
            case KeyKind.BACKSPACE:
                self._draft = self._draft[:-1]
            case KeyKind.DELETE_LINE:
                self._draft = ""
            case KeyKind.DELETE_WORD:
                self._draft = self._draft.rstrip()[: -len(self._draft.split()[-1])] if self._draft.split() else ""
            case _:
                self._command_key(key.kind)

    def _command_key(self, kind: KeyKind) -> None:
        if kind is KeyKind.ENTER:
            self._submit()
        elif kind is KeyKind.ESCAPE:
            self._talk.interrupt()
        elif kind is KeyKind.INTERRUPT:
            now = time.monotonic()
            if now - self._last_interrupt <= _DOUBLE_PRESS:
                raise Leave(0, "interrupt", "aborted")
            self._last_interrupt = now
            self._draft = ""
        elif kind is KeyKind.END and not self._draft:
            raise Leave(0, "end of input", "aborted")
        elif kind is KeyKind.SUSPEND:
            self._suspend()

    def _submit(self) -> None:
        message = take_message(self._draft)
        self._draft = ""
        if message.strip():
            self._talk.take(message)

    def _suspend(self) -> None:
        """Stop the whole job as a cooked program would; without job control the signal is ignored and we go on."""
        self._screen.close()
        os.kill(0, signal.SIGTSTP)
        self._screen.open()
        self._stale = True


def _watch_signals() -> int:
    """Let the watched signals be bytes in a pipe; returns its reading end."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in _WATCHED:
        signal.signal(number, lambda _number, _frame: None)
    return read_end
