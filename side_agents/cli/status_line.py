"""The status line of reference/side-agents 6.7. No click here: status bars ask for it every few seconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from side_agents.cli.here import environment, open_here
from side_agents.core import status_groups
from side_agents.core.routing import Listener
from side_agents.core.status_groups import GroupKind
from side_agents.models import AgentRecord, AgentStatus


class Role(StrEnum):
    """What a piece of the line means; the format decides how that looks."""

    WARNING = "warning"
    MUTED = "muted"
    ACCENT = "accent"
    ERROR = "error"
    DIM = "dim"


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one role."""

    text: str
    role: Role


_ROLES = {
    AgentStatus.ALLOCATING_WORKTREE: Role.WARNING,
    AgentStatus.SPAWNING_TMUX: Role.WARNING,
    AgentStatus.RUNNING: Role.MUTED,
    AgentStatus.DONE: Role.MUTED,
    AgentStatus.WAITING_USER: Role.ACCENT,
    AgentStatus.FAILED: Role.ERROR,
    AgentStatus.CRASHED: Role.ERROR,
}
_TMUX = {Role.WARNING: "yellow", Role.MUTED: "default", Role.ACCENT: "cyan", Role.ERROR: "red", Role.DIM: "brightblack"}
_ANSI = {Role.WARNING: "33", Role.MUTED: "2", Role.ACCENT: "36", Role.ERROR: "31", Role.DIM: "2"}


def read_here(style: str) -> str:
    """The line of the repository that the user is in, as ``plain`` or ``tmux`` text; empty without agents."""
    from side_agents.core.aftermath import follow_up
    from side_agents.core.observe import list_agents

    context = open_here()
    listed = list_agents(context, probe=False)
    follow_up(context, eager=False)
    line = pieces(listed.records, environment().get("PI_SIDE_AGENT_ID") or None, listed.lingering)
    return as_tmux(line) if style == "tmux" else as_plain(line)


def pieces(records: Sequence[AgentRecord], own_id: str | None = None, lingering: Collection[str] = ()) -> list[Piece]:
    """The line for main (``own_id`` None): its agents, and orphans, marked; for an agent: parent, children, siblings.

    Of agents that failed or crashed only those that are ``lingering`` have a window to show.
    """
    line: list[Piece] = []
    for group in status_groups.groups_of(records, Listener(own_id), lingering):
        if line:
            line.append(Piece(status_groups.SEPARATOR, Role.DIM))
        mark = "parent:" if group.kind is GroupKind.PARENT else ""
        line += [Piece(mark + entry.text, _role(entry)) for entry in group.entries]
    return line


def _role(entry: status_groups.Entry) -> Role:
    # A parent that has left has no status.
    return _ROLES[entry.status] if entry.status is not None else Role.ERROR


def as_plain(line: Sequence[Piece]) -> str:
    """The line without any colour."""
    return " ".join(piece.text for piece in line)


def as_ansi(line: Sequence[Piece]) -> str:
    """The line for a terminal."""
    return " ".join(f"\x1b[{_ANSI[piece.role]}m{piece.text}\x1b[0m" for piece in line)


def as_tmux(line: Sequence[Piece]) -> str:
    """The line for ``status-right``; what tmux would expand is doubled."""
    styled = " ".join(f"#[fg={_TMUX[piece.role]}]{piece.text.replace('#', '##')}" for piece in line)
    return f"{styled}#[default]" if styled else ""
