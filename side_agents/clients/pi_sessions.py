"""The conversations of Pi, as ``resume`` finds them: 0.73 and newer write the same files.

``AGENT_DIR/sessions/--<cwd, "/", "\\" and ":" as "-">--/<time>_<id>.jsonl``. Conversations kept elsewhere (``--session-dir``,
``sessionDir`` in Pi's settings) are known by their agents' tombstones only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from side_agents import paths
from side_agents.clients import session_files
from side_agents.clients.interface import SessionSummary
from side_agents.infra.fs_ends import Ends

# As JSON.stringify puts it; the header is the first line, so that a line break precedes every message.
_MESSAGE = b'\n{"type":"message"'
_NAME = b'"type":"session_info"'
_USER = b'"role":"user"'
_ROLES = (_USER, b'"role":"assistant"')
# Where a user's message begins whose line is longer than what was read.
_CUT_MESSAGE = re.compile(rb'\{"type":"message",.{0,400}?"role":"user","content":', re.DOTALL)
_CUT_TEXT = re.compile(rb'"(?:text|content)":"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u]){0,2000})')


@dataclass(frozen=True, slots=True)
class PiSessions:
    """The store of the ``pi`` client, see ``SessionStore``."""

    def files(self, environment: Mapping[str, str], prefix: str) -> list[Path]:
        """See the interface; Pi's folder is that of the caller."""
        encoded = re.sub(r"[/\\:]", "-", prefix.removeprefix("/"))
        return session_files.files_below(paths.pi_folder(environment) / "sessions", encoded)

    def summarise(self, file: Path) -> SessionSummary | None:
        """See the interface; a conversation begins with a header that names its directory."""
        ends = session_files.read_ends(file)
        header = session_files.parse(ends.head.partition(b"\n")[0]) if ends is not None else {}
        cwd, session_id = header.get("cwd"), header.get("id")
        is_whole = header.get("type") == "session" and isinstance(cwd, str) and isinstance(session_id, str)
        if ends is None or not is_whole:
            return None
        name = _name(ends)
        return SessionSummary(
            client="pi",
            session_id=str(session_id),
            file=file,
            cwd=str(cwd),
            agent_id=session_files.last_link(ends.tail) or session_files.last_link(ends.head),
            title=name or _first_message(ends),
            is_named=bool(name),
            modified=ends.modified,
            messages=_messages(ends),
        )

    def linked_agent(self, file: Path) -> str | None:
        """See the interface."""
        return session_files.linked_agent(file)


def _name(ends: Ends) -> str:
    """The name that was given last; an empty one takes a name away (reference/side-agents 8.4)."""
    for data in (ends.tail, ends.head):
        end = len(data)
        while (found := data.rfind(_NAME, 0, end)) >= 0:
            end = data.rfind(b"\n", 0, found) + 1
            entry = session_files.parse(session_files.line_at(data, found))
            if entry.get("type") == "session_info":
                name = entry.get("name")
                return name.strip() if isinstance(name, str) else ""
    return ""


def _first_message(ends: Ends) -> str:
    """What the user said first, empty when that is not in the part that was read."""
    for line in _lines_with(ends.head, _USER):
        entry = session_files.parse(line)
        message = entry.get("message")
        if entry.get("type") == "message" and isinstance(message, dict) and message.get("role") == "user":
            return session_files.message_text(entry)
    begin = _CUT_MESSAGE.match(ends.cut)
    said = _CUT_TEXT.search(ends.cut, begin.end() - len(b'"content":')) if begin else None
    if said is None:
        return ""
    try:
        return str(json.loads(b'"' + said[1].decode("utf-8", "ignore").encode() + b'"'))
    except ValueError:
        return ""


def _lines_with(data: bytes, needle: bytes) -> Iterator[bytes]:
    begin = 0
    while (found := data.find(needle, begin)) >= 0:
        line = session_files.line_at(data, found)
        begin = data.rfind(b"\n", 0, found) + 1 + len(line)
        yield line


def _messages(ends: Ends) -> int:
    """Messages seen, 0 unless somebody said something: newer Pi stores its system prompt as a message, too."""
    if not any(role in part for part in (ends.head, ends.cut, ends.tail) for role in _ROLES):
        return 0
    first_lines = (ends.cut.startswith(_MESSAGE[1:]), ends.tail.startswith(_MESSAGE[1:]))
    return ends.head.count(_MESSAGE) + ends.tail.count(_MESSAGE) + sum(first_lines)
