"""Adapter of the script agent, our interactive program without a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents.clients import script_screen, script_session, script_text
from side_agents.clients.interface import LaunchPlan, LaunchRequest
from side_agents.errors import NotFoundError

_PROGRAM = Path(__file__).with_name("script_agent.py")


@dataclass(frozen=True, slots=True)
class ScriptClient:
    """The ``script`` client: always installed, reports everything it does."""

    name: str = "script"
    interrupt_keys: tuple[str, ...] = ("Escape",)
    quit_text: str | None = "/quit"
    reports_events: bool = True
    quiet_seconds: float = 0.0

    def locate(self, environment: Mapping[str, str]) -> Path:  # noqa: ARG002 - the interface's signature
        """Return our own Python, which runs the program."""
        return Path(sys.executable)

    def launch_plan(self, request: LaunchRequest) -> LaunchPlan:
        """Plan a start, or with ``resume_session`` (a file) its continuation or fork; raises NotFoundError without it.

        The program needs nothing but the standard library, so it is run by its path in isolation (``-I -S``): neither
        the worktree nor PYTHONPATH can put another module in its place, and it starts faster.
        """
        home = script_session.script_home(request.environment)
        options, session_id, session_file = self._session(request)
        argv = [sys.executable, "-IS", str(_PROGRAM), *options]
        if request.model:
            argv += ["--model", request.model]
        if request.has_prompt:
            argv += ["--prompt-file", str(request.prompt_file)]
        return LaunchPlan(
            argv=tuple(argv),
            env={"SIDE_AGENTS_SCRIPT_HOME": home},
            session_id=session_id,
            session_file=session_file,
        )

    def _session(self, request: LaunchRequest) -> tuple[list[str], str, str]:
        source = request.resume_session
        if source and not Path(source).is_file():
            raise NotFoundError(f"The session file {source} does not exist. Nothing was started.")
        if source and not request.fork:
            return ["--session", source], Path(source).stem, source
        worktree = str(request.worktree.resolve())
        path = script_session.session_path(request.environment, worktree, request.session_id)
        return [*(["--fork", source] if source else []), "--session-id", request.session_id], request.session_id, path

    def normalise(self, message: str) -> str:
        """Return the message as the input box hands it over, see ``script_text.take_message``."""
        return script_text.take_message(message)

    def draft(self, screen: Sequence[str]) -> str | None:
        """Return what stands in the input box; None when no box is visible."""
        return script_screen.read_box(screen)

    def is_busy(self, screen: Sequence[str]) -> bool | None:
        """Read the footer: a turn that waits for an answer counts as busy; None without a footer."""
        state = script_screen.footer_state(screen)
        return None if state is None else state != "idle"
