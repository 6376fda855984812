"""A pane that is to receive a message, and what its screen shows at one moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents.clients.interface import Client
from side_agents.errors import TmuxError
from side_agents.infra import tmux_call
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord
from side_agents.paths import RuntimePaths

# Clocks and spinners change by themselves.
_RESTLESS = re.compile(r"\d+|[⠁-⣿]")


@dataclass(frozen=True, slots=True)
class Target:
    """A pane that was found to be fit to receive; ``tmux`` is its server."""

    record: AgentRecord
    client: Client
    runtime: RuntimePaths
    tmux: Tmux
    pane_id: str

    def draft(self) -> str | None:
        """What is in the input box now: "" nothing, None cannot be told."""
        return self.client.draft(self.tmux.capture(self.pane_id))


@dataclass(frozen=True, slots=True)
class View:
    """The pane at one moment; ``cursor`` is its column and row."""

    lines: Sequence[str]
    cursor: tuple[int, int]
    draft: str | None

    def news(self, before: View) -> list[str]:
        """Lines that were not there before."""
        known = {_RESTLESS.sub("", line).strip() for line in before.lines}
        return [line for line in self.lines if _RESTLESS.sub("", line).strip() not in known | {""}]

    def below_box(self) -> tuple[Sequence[str], int]:
        """What stands below the end of the draft, and how many rows below it the cursor is."""
        end = squeezed((self.draft or "").rpartition("\n")[2])
        row = max((row for row, line in enumerate(self.lines) if end in squeezed(line)), default=len(self.lines))
        return self.lines[row + 1 :], self.cursor[1] - row


def target_of(record: AgentRecord, client: Client, runtime: RuntimePaths) -> Target:
    """The target of a record whose pane is known to be present."""
    return Target(record, client, runtime, Tmux(Path(record.tmux_socket or "")), record.tmux_pane_id or "")


def view_of(target: Target) -> View:
    """Look at the pane now. Raises TmuxError."""
    lines = target.tmux.capture(target.pane_id)
    query = ("display-message", "-p", "-t", tmux_call.target(target.pane_id, "%"), "#{cursor_x} #{cursor_y}")
    column, _, row = tmux_call.checked(tmux_call.raw(target.tmux.socket, *query)).text.partition(" ")
    if not (column.isdigit() and row.isdigit()):
        raise TmuxError(f"tmux named no cursor for pane {target.pane_id}.")
    return View(lines, (int(column), int(row)), target.client.draft(lines))


def has_moved_on(view: View, before: View) -> bool:
    """Tell whether what looks like the input box can be the message in the conversation, with more below it."""
    below, cursor = view.below_box()
    if set(below) & set(view.news(before)):
        return True
    return bool(before.draft) and cursor > before.below_box()[1]


def squeezed(shown: str) -> str:
    """Text without blanks, because a box wraps and indents what it shows."""
    return "".join(shown.split())
