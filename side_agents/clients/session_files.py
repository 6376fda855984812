"""Conversation files, JSON lines, of which only the ends are read: where header, first message and links are (B56).

Shared by all clients that write such files. Two thousand conversations of any length take about half a second, because
bytes are searched and next to no line is parsed or even split off; a whole parse would take minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from side_agents.errors import StateError
from side_agents.infra import fs_ends
from side_agents.infra.fs_ends import Ends

SLICE = 128 * 1024
LINK = "side-agent-link"

_NEEDLE = LINK.encode()


def files_below(root: Path, encoded: str) -> list[Path]:
    """Conversations in the folders ``--<encoded><number>--`` and ``--<encoded><number>-<more>--`` of ``root``.

    Clients name the folder of a directory so, with "-" for each "/"; whose it really is, only a header tells.
    """
    wanted = re.compile(rf"--{re.escape(encoded)}[0-9]{{4,9}}(-.*)?--", re.DOTALL)
    found: list[Path] = []
    for folder in _listed(root):
        if wanted.fullmatch(folder.name):
            found += [file for file in _listed(folder) if file.name.endswith(".jsonl")]
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def read_ends(file: Path) -> Ends | None:
    """The whole lines in the first and the last 128 KiB; None when it is gone, is no regular file or may not be read."""
    return fs_ends.read_ends(file, SLICE)


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
