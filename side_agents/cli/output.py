"""Helpers of the commands for writing to the terminal. Untrusted text passes through ``safe`` before it gets here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from side_agents.clients.script_text import text_width
from side_agents.infra import text
from side_agents.models import AgentStatus, WaitingFor

ELLIPSIS = "…"
WAITS = {
    WaitingFor.PROMPT: "waiting for you",
    WaitingFor.PERMISSION: "asks permission",
    WaitingFor.QUESTION: "asks a question",
    WaitingFor.TRUST: "asks for trust",
}
_WORDS = {
    AgentStatus.ALLOCATING_WORKTREE: "preparing",
    AgentStatus.SPAWNING_TMUX: "starting",
    AgentStatus.RUNNING: "running",
    AgentStatus.WAITING_USER: "waiting for you",
    AgentStatus.FAILED: "failed",
    AgentStatus.CRASHED: "crashed",
    AgentStatus.DONE: "done",
}
# Roles of reference/side-agents 6.7: warning, muted, accent, error.
STYLES: dict[AgentStatus, dict[str, Any]] = {
    AgentStatus.ALLOCATING_WORKTREE: {"fg": "yellow"},
    AgentStatus.SPAWNING_TMUX: {"fg": "yellow"},
    AgentStatus.RUNNING: {"dim": True},
    AgentStatus.DONE: {"dim": True},
    AgentStatus.WAITING_USER: {"fg": "cyan", "bold": True},
    AgentStatus.FAILED: {"fg": "red"},
    AgentStatus.CRASHED: {"fg": "red"},
}


def write_json(answer: Mapping[str, Any]) -> None:
    """Print one JSON object: compact for programs, indented and pure ASCII for a terminal."""
    if sys.stdout.isatty():
        click.echo(json.dumps(answer, indent=2))
    else:
        click.echo(json.dumps(answer, ensure_ascii=False))


def safe(value: str) -> str:
    """Untrusted text, possibly of several lines, made harmless for a terminal."""
    return text.printable(value)


def safe_line(value: str, limit: int = 220) -> str:
    """Untrusted text on one line of at most ``limit`` characters."""
    return text.printable(text.one_line(value, limit))


def fit(value: str, columns: int) -> str:
    """The text in at most ``columns`` terminal columns, with an ellipsis where it was cut."""
    if text_width(value) <= columns:
        return value
    kept: list[str] = []
    left = columns - 1
    for character in value:
        left -= text_width(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ELLIPSIS if columns > 0 else ""


def pad(value: str, columns: int) -> str:
    """The text filled with blanks to ``columns`` terminal columns."""
    return value + " " * max(0, columns - text_width(value))


def status_words(status: AgentStatus, waiting_for: WaitingFor | None = None, exit_code: int | None = None) -> str:
    """``asks a question``, ``failed (3)``: a status as a person would say it."""
    if status is AgentStatus.WAITING_USER and waiting_for is not None:
        return WAITS[waiting_for]
    if status is AgentStatus.FAILED and exit_code is not None:
        return f"failed ({exit_code})"
    return _WORDS[status]


def write_facts(facts: Iterable[tuple[str, str | None]]) -> None:
    """Print aligned ``name  value`` lines; absent values are left out."""
    shown = [(name, value) for name, value in facts if value]
    widest = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"  {click.style(name.ljust(widest), dim=True)}  {value}")


def write_warnings(warnings: Iterable[str]) -> None:
    """Print warnings to standard error, where they do not disturb what is piped on."""
    for warning in warnings:
        click.echo(f"{click.style('warning:', fg='yellow')} {safe(warning)}", err=True)


def age(seconds: float) -> str:
    """``45s``, ``12m``, ``3h``, ``2d``."""
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{max(0, int(seconds)) // size}{unit}"
    return f"{int(seconds) // 86400}d"


def age_since(iso: str) -> str:
    """Age of an ISO time, empty for one that cannot be read."""
    from side_agents.errors import StateError
    from side_agents.infra import clock

    try:
        return age((clock.now() - clock.parse_iso(iso)).total_seconds())
    except StateError:
        return ""
