"""The last lines that an agent showed, cleaned and bounded (reference/side-agents 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from side_agents.core.results import BACKLOG_LINES
from side_agents.infra import fs, text

LOG_TAIL_BYTES = 64 * 1024


def from_screen(screen: Sequence[str], lines: int = BACKLOG_LINES) -> list[str]:
    """The last lines of real content in a visible pane, without dividers."""
    return text.sanitise_backlog(text.select_backlog(list(screen), lines))


def from_log(path: Path, lines: int = BACKLOG_LINES) -> list[str]:
    """The last lines of the log file, for a window that is gone; a full-screen program leaves little there (B29)."""
    tail = fs.read_tail(path, LOG_TAIL_BYTES).decode("utf-8", errors="replace")
    return text.sanitise_backlog(text.select_backlog(tail.splitlines(), lines))
