"""What went wrong, as words for a person, as JSON for a program, and as a report file when it is our own fault."""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from side_agents import __version__
from side_agents.errors import ForumError, SideAgentsError
from side_agents.infra import text

INTERNAL_ERROR = 70
HELP_HINT = "`side-agents --help` lists the commands."


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, ready to be shown."""

    message: str
    code: str
    exit_status: int
    hint: str | None = None
    forum_code: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The answer under ``--json``."""
        answer = {"ok": False, "error": self.message, "code": self.code}
        answer |= {"forumCode": self.forum_code} if self.forum_code else {}
        return answer | ({"hint": self.hint} if self.hint else {})

    def as_text(self) -> str:
        """``error: ...`` and, where there is advice, ``hint: ...``."""
        lines = [f"error: {text.printable(self.message)}"]
        return "\n".join([*lines, f"hint: {text.printable(self.hint)}"] if self.hint else lines)


def describe(error: Exception, arguments: Sequence[str]) -> Failure:
    """The failure behind an exception; an unexpected one is written to a report file first."""
    if isinstance(error, ForumError):
        return Failure(error.message, error.code, error.exit_status, error.hint, error.forum_code)
    if isinstance(error, SideAgentsError):
        return Failure(error.message, error.code, error.exit_status, error.hint)
    if isinstance(error, click.Abort):
        return Failure("Nothing was done: the question was not answered.", "aborted", 1)
    if isinstance(error, click.ClickException):
        return Failure(error.format_message(), "usage", 2, _usage_hint(error))
    return _unexpected(error, arguments)


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return HELP_HINT
    advice = f"`{context.command_path} --help` shows what it takes."
    if isinstance(error, click.NoSuchOption):
        return f"{advice} Text that begins with a dash goes after `--`."
    return advice


def _unexpected(error: Exception, arguments: Sequence[str]) -> Failure:
    summary = text.one_line(f"{type(error).__name__}: {error}", 300)
    message = f"side-agents has hit a fault of its own ({summary}). It does not know how far it got."
    where = _save(_report(error, arguments))
    if where is None:
        advice = "The report could not be saved; `side-agents list` shows the state."
        return Failure(message, "internal", INTERNAL_ERROR, advice)
    hint = f"Details for a bug report are in {where}; `side-agents list` shows the state."
    return Failure(message, "internal", INTERNAL_ERROR, hint)


def _report(error: Exception, arguments: Sequence[str]) -> str:
    # Only the command's name: the rest of the line may be somebody's task or message.
    command = arguments[0] if arguments else "(none)"
    lines = [
        "# side-agents report",
        f"side-agents: {__version__}",
        f"python: {sys.version}",
        f"system: {platform.platform()}",
        f"command: {command} (and {max(0, len(arguments) - 1)} more arguments)",
        "",
        "".join(traceback.format_exception(error)),
    ]
    return "\n".join(lines)


def _save(report: str) -> Path | None:
    from side_agents.infra import clock, fs

    try:
        import platformdirs

        folder = platformdirs.user_cache_path("side-agents") / "reports"
        fs.make_private_dir(folder)
        path = folder / f"{clock.stamp()}.txt"
        fs.replace(path, report, mode=0o600)
    except Exception:  # noqa: BLE001 - a fault while reporting a fault must not hide the first one
        return None
    return path
