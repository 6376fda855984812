"""Conversation files, JSON lines, of which only the ends are read: where header, first message and links are (B56).

Shared by all clients that write such files. Two thousand conversations of any length take about half a second, because
bytes are searched and next to no line is parsed or even split off; a whole parse would take minutes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents.errors import StateError
from side_agents.infra import fs

SLICE = 128 * 1024
LINK = "side-agent-link"

_NEEDLE = LINK.encode()


@dataclass(frozen=True, slots=True)
class Ends:
    """The whole lines in the first and the last 128 KiB; of a file that fits into both, everything is in ``head``.

    ``modified`` is seconds since the epoch.
    """

    head: bytes
    tail: bytes
    modified: float


def read_ends(file: Path) -> Ends | None:
    """Read at most 256 KiB of a file; None when it is gone, is no regular file or may not be read."""
    try:
        status = file.stat()
        if not file.is_file():
            return None
        if status.st_size <= 2 * SLICE:
            return Ends(fs.read_slice(file, 0, 2 * SLICE), b"", status.st_mtime)
        head, tail = fs.read_slice(file, 0, SLICE), fs.read_tail(file, SLICE)
    except (OSError, StateError):
        return None
    # The line that the cut goes through is in neither.
    return Ends(head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :], status.st_mtime)


def last_link(data: bytes) -> str | None:
    """The agent id of the last good link in whole lines (N7-N10); others, garbage and ids that are no text are ignored."""
    end = len(data)
    while (found := data.rfind(_NEEDLE, 0, end)) >= 0:
        end = data.rfind(b"\n", 0, found) + 1
        entry = parse(line_at(data, found))
        link = entry.get("data") if entry.get("customType") == LINK else None
        agent_id = link.get("agentId") if isinstance(link, dict) else None
        if isinstance(agent_id, str) and agent_id:
            return agent_id
    return None


def line_at(data: bytes, position: int) -> bytes:
    """The line that holds a position."""
    end = data.find(b"\n", position)
    return data[data.rfind(b"\n", 0, position) + 1 : end if end >= 0 else len(data)]


def linked_agent(file: Path) -> str | None:
    """The last link of the whole file. Raises StateError when it cannot be read."""
    found = None
    try:
        with file.open("rb") as lines:
            for line in lines:
                found = (last_link(line) if _NEEDLE in line else None) or found
    except OSError as error:
        raise StateError(f"The conversation {file} could not be read ({error.strerror}).") from error
    return found


def parse(line: bytes) -> Mapping[str, Any]:
    """One entry; an empty one for a line that is none."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def message_text(entry: Mapping[str, Any]) -> str:
    """The text of a message entry, its blocks of text joined."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))
