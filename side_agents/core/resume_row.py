"""One conversation as a line to choose from, and what a person made of that line when renaming it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from side_agents import names
from side_agents.core.resume import Claim, Resumable
from side_agents.infra import clock, text

SEPARATOR = " · "
TITLE_LIMIT = 80
_WHOLE_TITLE = 220


@dataclass(frozen=True, slots=True)
class Row:
    """Id, branch note, title: the note comes before the title, because rows are cut on the right."""

    agent_id: str
    note: str
    title: str

    @property
    def text(self) -> str:
        """The whole line; also what a rename begins with."""
        return SEPARATOR.join(part for part in (self.agent_id, self.note, self.title) if part)


def row_of(resumable: Resumable) -> Row:
    """The line of one conversation; its title or first message on one line of at most 80 characters, made harmless."""
    session = resumable.session
    title = text.printable(text.one_line(session.title, TITLE_LIMIT))
    return Row(session.agent_id or "", resumable.note, title)


def modified_at(resumable: Resumable) -> str:
    """When the conversation was used last, as an ISO time."""
    return clock.iso(datetime.fromtimestamp(resumable.session.modified, UTC))


def view_of(resumable: Resumable) -> dict[str, Any]:
    """One conversation for programs; ``text`` is its line, texts are clean and on one line."""
    session = resumable.session
    return {
        "agentId": session.agent_id,
        "client": session.client,
        "sessionId": session.session_id,
        "file": str(session.file),
        "cwd": session.cwd,
        "branch": names.branch_of(session.agent_id or "") if resumable.claim is Claim.OWN else None,
        "note": resumable.note,
        "title": text.printable(text.one_line(session.title, _WHOLE_TITLE)),
        "isNamed": session.is_named,
        "modified": modified_at(resumable),
        "messages": session.messages,
        "text": row_of(resumable).text,
    }


def sanitise_title(typed: str, row: Row) -> str | None:
    """The new title in an edited line, without what the line had been decorated with, wherever that stands now.

    None when nothing was really changed (N13-N17): blanks, the bare id, the title as it was.
    """
    title = typed
    for decoration in (row.agent_id, row.note):
        if decoration:
            title = title.replace(decoration + SEPARATOR, "", 1)
    title = title.strip().removesuffix(SEPARATOR.rstrip()).rstrip()
    return None if title in ("", row.agent_id, row.note, row.title) else title
