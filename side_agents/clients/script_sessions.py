"""The conversations of the script agent, as ``resume`` finds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from side_agents.clients import script_session, session_files
from side_agents.clients.interface import SessionSummary

# As our writer puts it; the header is the first line, so that a line break precedes every message.
_MESSAGE = b'\n{"type": "message"'
_SAID = re.compile(rb'\n\{"type": "message"[^\n]*?"role": "user"')


@dataclass(frozen=True, slots=True)
class ScriptSessions:
    """The store of the ``script`` client, see ``SessionStore``."""

    def files(self, environment: Mapping[str, str], prefix: str) -> list[Path]:
        """Files below the sessions folder, whose subfolders are named after directories with "-" for each "/"."""
        root = Path(script_session.script_home(environment), "sessions")
        return session_files.files_below(root, prefix.strip("/").replace("/", "-"))

    def summarise(self, file: Path) -> SessionSummary | None:
        """See the interface; a conversation begins with a header that names its directory."""
        ends = session_files.read_ends(file)
        header = session_files.parse(ends.head.partition(b"\n")[0]) if ends is not None else {}
        cwd, session_id = header.get("cwd"), header.get("id")
        is_whole = header.get("type") == "session" and isinstance(cwd, str) and isinstance(session_id, str)
        if ends is None or not is_whole:
            return None
        said = _SAID.search(ends.head)
        first = session_files.parse(session_files.line_at(ends.head, said.start() + 1)) if said else {}
        return SessionSummary(
            client="script",
            session_id=str(session_id),
            file=file,
            cwd=str(cwd),
            agent_id=session_files.last_link(ends.tail) or session_files.last_link(ends.head),
            title=session_files.message_text(first),
            is_named=False,
            modified=ends.modified,
            messages=ends.head.count(_MESSAGE) + ends.tail.count(_MESSAGE) + ends.tail.startswith(_MESSAGE[1:]),
        )

    def linked_agent(self, file: Path) -> str | None:
        """See the interface."""
        return session_files.linked_agent(file)
