"""The status line of reference/side-agents 6.7. No click here: status bars ask for it every few seconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from side_agents.cli.here import environment, open_here
from side_agents.core import routing, windows
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
    seen = routing.scope(records, own_id)
    children = [
        _entry(record, lingering, orphan=own_id is None and record.parent_agent_id is not None)
        for record in seen.children
    ]
    line: list[Piece] = []
    for group in (_parent(seen, lingering), children, [_entry(record, lingering) for record in seen.siblings]):
        if line and group:
            line.append(Piece("|", Role.DIM))
        line += group
    return line


def _parent(seen: routing.Scope, lingering: Collection[str]) -> list[Piece]:
    if seen.parent is None:
        return [Piece(f"parent:{seen.parent_gone}:gone", Role.ERROR)] if seen.parent_gone else []
    entry = _entry(seen.parent, lingering)
    return [Piece(f"parent:{entry.text}", entry.role)]


def _entry(record: AgentRecord, lingering: Collection[str], *, orphan: bool = False) -> Piece:
    index = windows.shown_index(record, lingering)
    window = f"@{index}" if index is not None else ""
    mark = "[orphan]" if orphan else ""
    return Piece(f"{record.id}:{record.status.short}{window}{mark}", _ROLES[record.status])


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
