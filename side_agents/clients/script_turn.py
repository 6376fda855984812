"""The turns of the script agent: messages in, directives carried out one after another, events and session out."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from side_agents.clients import script_actions, script_directives
from side_agents.clients.script_actions import ActionRefusedError
from side_agents.clients.script_command import Command
from side_agents.clients.script_directives import Directive, Verb
from side_agents.clients.script_journal import TEXT_LIMIT, Journal
from side_agents.clients.script_session import Session
from side_agents.clients.script_text import clean_output

# How much of a command's output the conversation keeps.
_OUTPUT_KEPT = 20_000


class State(StrEnum):
    """What the agent is doing, as the footer says it."""

    IDLE = "idle"
    BUSY = "busy"
    QUESTION = "question"
    PERMISSION = "permission"


class Leave(Exception):  # noqa: N818 not an error, the way out of the program
    """The agent ends with ``code``."""

    def __init__(self, code: int, reason: str, outcome: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.outcome = outcome


class _Tool(NamedTuple):
    call_id: str
    name: str


class Conversation:
    """Holds at most one running turn and a queue of messages.

    ``advance`` must be called after every change and when ``deadline`` is reached; it raises Leave when the agent
    ends. ``show`` gets text for the transcript.
    """

    def __init__(
        self,
        journal: Journal,
        session: Session,
        show: Callable[[str], None],
        redraw: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = State.IDLE
        self.started = 0.0
        self.dialog = ""
        self.command: Command | None = None
        self.queued: deque[str] = deque()
        self._journal = journal
        self._session = session
        self._show = show
        # Called before a stop is journalled: whoever is woken by it looks at the screen at once.
        self._redraw = redraw
        self._lines: deque[Directive] = deque()
        self._after_turn: list[Directive] = []
        self._sleep_until: float | None = None
        self._aborting = False
        self._answer: str | None = None
        self._said: list[str] = []
        self._last_text = ""
        self._tool: _Tool | None = None
        self._output = ""

    @property
    def deadline(self) -> float | None:
        """Monotonic time at which ``advance`` has something to do, None when only an event can bring that."""
        return self.command.deadline if self.command else self._sleep_until

    def take(self, message: str) -> None:
        """Take a message from the input box: an answer, a new turn, or one for later."""
        waiting = self.state in (State.IDLE, State.QUESTION)
        self._journal.write_input(message, "started" if waiting or message.strip() == "/quit" else "queued")
        if message.strip() == "/quit":
            raise Leave(0, "command", "aborted")
        if self.state is State.QUESTION:
            self._show(_quoted(message))
            self._session.add("user", _text_blocks(message))
            self._answer = message
            self._resume()
        else:
            self.queued.append(message)

    def decide(self, allowed: bool) -> None:
        """Answer the permission dialog."""
        self._finish_tool("allowed" if allowed else "denied", failed=not allowed)
        self._resume()
        if not allowed:
            self._end_turn("aborted")

    def interrupt(self) -> None:
        """Stop the running turn; a running command's process group is ended first."""
        if self.state is State.QUESTION:
            self._resume()
            self._end_turn("aborted")
        elif self.state is State.BUSY:
            self._aborting = True
            self._sleep_until = None
            if self.command:
                self.command.interrupt()

    def close(self, leave: Leave) -> None:
        """End what runs and write the last events."""
        if self.command:
            self.command.end()
            self.command = None
        if self._tool:
            self._finish_tool("ended with the agent", failed=True)
        if self.state is not State.IDLE:
            self._end_turn(leave.outcome)
        self._journal.write("quit", reason=leave.reason)

    def read_output(self) -> None:
        """Take what the running command has written."""
        if self.command:
            self._add_output(self.command.read())

    def advance(self) -> None:
        """Go on until something must be waited for; raises Leave."""
        while True:
            if self.state is State.IDLE and self.queued:
                self._begin(self.queued.popleft())
            elif self.state is not State.BUSY or self._is_blocked():
                return
            elif self._aborting:
                self._show("Interrupted")
                self._end_turn("aborted")
            elif self._lines:
                self._perform(self._lines.popleft())
            else:
                self._end_turn("completed")

    def _is_blocked(self) -> bool:
        if self.command:
            code = self.command.poll()
            if code is None:
                return True
            self._add_output(self.command.drain())
            self.command = None
            self._finish_tool(f"exit {code}" if code else "", failed=code != 0)
        if self._sleep_until is None:
            return False
        if time.monotonic() < self._sleep_until:
            return True
        self._sleep_until = None
        return False

    def _begin(self, message: str) -> None:
        self.state = State.BUSY
        self.started = time.monotonic()
        self._aborting = False
        self._last_text = ""
        self._journal.write("turn_start")
        self._session.add("user", _text_blocks(message))
        self._show(_quoted(message))
        self._lines = deque([*self._after_turn, *script_directives.parse(message)])
        self._after_turn = []

    def _end_turn(self, outcome: str) -> None:
        self._lines.clear()
        self._say_to_session([], {"completed": "stop"}.get(outcome, outcome))
        fields = {"text": self._last_text[:TEXT_LIMIT]} if self._last_text else {}
        self.state = State.IDLE
        self._redraw()
        self._journal.write("turn_end", outcome=outcome, **fields)

    def _perform(self, line: Directive) -> None:
        argument = line.argument
        if line.verb in (Verb.SAY, Verb.COMMIT) and self._answer is not None:
            argument = argument.replace("{answer}", self._answer)
        handlers: dict[Verb, Callable[[str], None]] = {
            Verb.SAY: self._say,
            Verb.ECHO: lambda text: self._say(f"echo: {text}"),
            Verb.RUN: lambda text: self._start("bash", text, lambda: script_actions.run_shell(text, self._answer)),
            Verb.COMMIT: lambda text: self._start("commit", text, lambda: script_actions.commit(text)),
            Verb.WRITE: self._write,
            Verb.SLEEP: self._sleep,
            Verb.ASK: self._ask,
            Verb.PERMIT: self._permit,
            Verb.TURN: lambda _: self._stop_here(),
            Verb.FAIL: _fail,
            Verb.CRASH: lambda _: os.kill(os.getpid(), signal.SIGKILL),
            Verb.QUIT: _quit,
        }
        handlers[line.verb](argument)

    def _say(self, text: str) -> None:
        self._said.append(text)
        self._show(text)

    def _write(self, argument: str) -> None:
        path, text = script_directives.split_write(argument)
        if self._answer is not None:
            path, text = (part.replace("{answer}", self._answer) for part in (path, text))
        self._open_tool("write", {"path": path, "content": text})
        try:
            written = script_actions.write(path, text)
        except ActionRefusedError as error:
            self._finish_tool(f"refused: {error}", failed=True)
        else:
            self._finish_tool(f"written: {written}", failed=False)

    def _start(self, name: str, argument: str, start: Callable[[], Command]) -> None:
        self._open_tool(name, {"command" if name == "bash" else "message": argument})
        try:
            self.command = start()
        except ActionRefusedError as error:
            self._finish_tool(f"refused: {error}", failed=True)

    def _sleep(self, argument: str) -> None:
        seconds = script_directives.seconds(argument)
        if seconds is None:
            self._say(f"sleep: {argument} is not a number of seconds")
        else:
            self._sleep_until = time.monotonic() + seconds

    def _ask(self, text: str) -> None:
        self._said.append(text)
        self._say_to_session([], "toolUse")
        self._show(f"? {text}")
        self._wait(State.QUESTION, text)

    def _permit(self, text: str) -> None:
        self._open_tool("permission", {"question": text})
        self._wait(State.PERMISSION, text)

    def _wait(self, state: State, text: str) -> None:
        self.state = state
        self.dialog = text
        self._redraw()
        self._journal.write("waiting", **{"for": state.value, "text": text[:TEXT_LIMIT]})

    def _resume(self) -> None:
        self.state = State.BUSY
        self._journal.write("resumed")

    def _stop_here(self) -> None:
        self._after_turn = list(self._lines)
        self._end_turn("completed")

    def _open_tool(self, name: str, arguments: dict[str, str]) -> None:
        self._tool = _Tool(os.urandom(6).hex(), name)
        self._output = ""
        call: dict[str, object] = {"type": "toolCall", "id": self._tool.call_id, "name": name, "arguments": arguments}
        self._say_to_session([call], "toolUse")
        self._show(f"$ {name}: {next(iter(arguments.values()))}")

    def _add_output(self, output: str) -> None:
        text = clean_output(output)
        if text:
            self._output = (self._output + text)[:_OUTPUT_KEPT]
            self._show(text.removesuffix("\n"))

    def _finish_tool(self, note: str, *, failed: bool) -> None:
        if note:
            self._show(note)
        if self._tool:
            text = "\n".join(part for part in (self._output.rstrip("\n"), note) if part)
            self._session.add(
                "toolResult",
                _text_blocks(text),
                toolCallId=self._tool.call_id,
                toolName=self._tool.name,
                isError=failed,
            )
        self._tool = None

    def _say_to_session(self, calls: list[dict[str, object]], stop_reason: str) -> None:
        text = "\n".join(self._said)
        self._said = []
        self._last_text = text or self._last_text
        self._session.add("assistant", [*(_text_blocks(text) if text else []), *calls], stopReason=stop_reason)


def _text_blocks(text: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text}]


def _quoted(message: str) -> str:
    return "› " + clean_output(message).rstrip("\n").replace("\n", "\n  ")


def _fail(argument: str) -> None:
    raise Leave(script_directives.exit_code(argument), "fail", "error")


def _quit(_argument: str) -> None:
    raise Leave(0, "quit", "completed")
