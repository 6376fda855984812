"""What the core needs to know of a coding agent, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One start, as the core wants it.

    ``prompt_file`` holds the first prompt byte for byte; ``has_prompt`` is False when it is empty (a resume).
    ``session_id`` is fresh, for clients that let us choose. ``environment`` is the caller's. ``resume_session`` names
    the session file to go on with (or its id, for clients without files); ``fork`` copies it instead of continuing it.
    """

    agent_id: str
    prompt_file: Path
    has_prompt: bool
    worktree: Path
    runtime_dir: Path
    model: str | None
    session_id: str
    skills_dir: Path | None
    environment: Mapping[str, str]
    resume_session: str | None = None
    fork: bool = False


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How to start a client: exact arguments, extra variables, and what is known of its session beforehand.

    ``paste_prompt``: the client takes no prompt at start, the core pastes it once the client is ready.
    ``stdin_file``: the launcher opens this file as the client's standard input.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    paste_prompt: bool = False
    session_id: str | None = None
    session_file: str | None = None
    stdin_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """What the two ends of a conversation's file tell.

    ``agent_id`` is that of the last link seen, None without one. ``title`` is the conversation's name, else its first
    message as it was typed; ``is_named`` tells which. ``modified`` is seconds since the epoch, ``messages`` the number
    of messages seen: of a long file a lower bound.
    """

    client: str
    session_id: str
    file: Path
    cwd: str
    agent_id: str | None
    title: str
    is_named: bool
    modified: float
    messages: int


class SessionStore(Protocol):
    """The conversations that one client keeps as files (seed 001 5.3b)."""

    def files(self, environment: Mapping[str, str], prefix: str) -> list[Path]:
        """Conversation files of all directories whose path is ``prefix`` and a number, or that lie below such a one.

        The directories need not exist any more. Names may be ambiguous: only ``SessionSummary.cwd`` decides.
        """
        ...

    def summarise(self, file: Path) -> SessionSummary | None:
        """Look at the first and the last 128 KiB of a file and nowhere else; None when it is no conversation."""
        ...

    def linked_agent(self, file: Path) -> str | None:
        """The agent id of the last link, from the whole file. Raises StateError when it cannot be read."""
        ...


class Client(Protocol):
    """A coding agent that runs in a tmux pane.

    ``interrupt_keys`` are tmux key names that stop the running turn and nothing else. ``quit_text`` typed as a message
    ends the client, None when it has no such command. A client that ``reports_events`` journals its turns and the
    messages it takes; any other is judged by a screen that stays the same for ``quiet_seconds``.
    """

    @property
    def name(self) -> str: ...
    @property
    def interrupt_keys(self) -> tuple[str, ...]: ...
    @property
    def quit_text(self) -> str | None: ...
    @property
    def reports_events(self) -> bool: ...
    @property
    def quiet_seconds(self) -> float: ...

    def locate(self, environment: Mapping[str, str]) -> Path:
        """Return the program's path; raises ToolMissingError with a way to install it as its hint."""
        ...

    def launch_plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return how to start it; raises UsageError for a request that this client cannot carry out."""
        ...

    def normalise(self, message: str) -> str:
        """Return the text that the client will have taken when ``message`` is pasted, whose sha256 it journals."""
        ...

    def draft(self, screen: Sequence[str]) -> str | None:
        """Return what a human left in the input box of the visible pane: "" surely nothing, None cannot tell."""
        ...

    def is_busy(self, screen: Sequence[str]) -> bool | None:
        """Tell from the visible pane whether a turn is running; None cannot tell."""
        ...
