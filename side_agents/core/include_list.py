"""The list of ignored files that every slot gets: ``.gitignore`` syntax, a line may begin with ``link:``. Pure.

The rules are git's: the last pattern that matches decides, ``!`` takes back, and what is inside a chosen folder cannot be
taken back. One thing differs: a folder that git ignores as a whole is only looked into for patterns that lead there by name
(``build/secret.key``), never for a bare ``secret.key``; nobody means those inside ``node_modules``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How a slot gets a file."""

    COPY = "copy"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line. ``parts`` are the segments of a pattern that is bound to a place, None for a bare name."""

    regex: re.Pattern[str]
    mode: Mode
    is_negated: bool
    only_folders: bool
    parts: tuple[re.Pattern[str] | None, ...] | None


def parse(text: str) -> tuple[Pattern, ...]:
    """The patterns of a list; blank lines, comments and lines that can match nothing are left out."""
    lines = text.removeprefix("\ufeff").split("\n")
    found = (_pattern(_bytewise(line.removesuffix("\r"))) for line in lines)
    return tuple(pattern for pattern in found if pattern is not None)


def choose(patterns: Sequence[Pattern], path: str) -> Mode | None:
    """Whether and how a path is to be had; ``path`` is relative with ``/``, a folder's ends in one."""
    parts = _bytewise(path).rstrip("/").split("/")
    for count in range(1, len(parts) + 1):
        is_folder = count < len(parts) or path.endswith("/")
        pattern = _last_match(patterns, "/".join(parts[:count]), is_folder)
        if pattern is not None and not pattern.is_negated:
            return pattern.mode
    return None


def leads_into(patterns: Sequence[Pattern], folder: str) -> bool:
    """Whether some pattern names something inside a folder that is not chosen itself."""
    names = _bytewise(folder).rstrip("/").split("/")
    return any(not pattern.is_negated and _leads(pattern.parts, names) for pattern in patterns)


def literal(path: str) -> str:
    """A line that matches exactly this path; a folder's ends in ``/``. A path with a line break cannot be written."""
    escaped = re.sub(r"([\\*?\[\]])", r"\\\1", path)
    # Blanks and a carriage return are taken off the end of a line.
    escaped = f"{escaped[:-1]}[\r]" if escaped.endswith("\r") else escaped
    kept = escaped.rstrip(" ")
    return f"/{kept}" + "\\ " * (len(escaped) - len(kept))


def _bytewise(text: str) -> str:
    # To git a pattern is bytes, and `?` is one of them.
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _leads(parts: tuple[re.Pattern[str] | None, ...] | None, names: Sequence[str]) -> bool:
    if parts is None or parts[0] is None:
        return False
    for number, name in enumerate(names):
        if number >= len(parts):
            return False
        part = parts[number]
        if part is None:
            return True
        if not part.fullmatch(name):
            return False
    return len(parts) > len(names)


def _last_match(patterns: Sequence[Pattern], path: str, is_folder: bool) -> Pattern | None:
    name = path.rpartition("/")[2]
    for pattern in reversed(patterns):
        if pattern.only_folders and not is_folder:
            continue
        if pattern.regex.fullmatch(path if pattern.parts is not None else name):
            return pattern
    return None


def _pattern(line: str) -> Pattern | None:
    if line.startswith("#"):
        return None
    mode = Mode.COPY
    for each in Mode:
        if line.startswith(f"{each}:"):
            line, mode = line[len(each) + 1 :].lstrip(" \t"), each
    line = _without_trailing_blanks(line)
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    only_folders = line.endswith("/") and len(line) > 1
    line = line[:-1] if only_folders else line
    if not line or line == "/" or line.startswith("\\/"):
        return None
    # An escaped slash is a slash.
    line = re.sub(r"(?<!\\)((?:\\\\)*)\\/", r"\1/", line)
    parts = line.removeprefix("/").split("/")
    is_bound = "/" in line
    try:
        regex = _path_regex(parts) if is_bound else re.compile(_segment(line), re.DOTALL)
        segments = tuple(None if part == "**" else re.compile(_segment(part), re.DOTALL) for part in parts)
    except (re.error, ValueError):
        return None
    return Pattern(regex, mode, is_negated, only_folders, segments if is_bound else None)


def _without_trailing_blanks(line: str) -> str:
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if backslashes % 2 and kept != line else kept


def _path_regex(parts: Sequence[str]) -> re.Pattern[str]:
    written: list[str] = []
    last = len(parts) - 1
    for number, part in enumerate(parts):
        if part != "**":
            written.append(_segment(part) + ("/" if number < last else ""))
        elif number == last:
            written.append(".+")
        else:
            written.append("(?:.*/)?")
    return re.compile("".join(written), re.DOTALL)


def _segment(glob: str) -> str:
    """One segment as a regular expression; raises ValueError for what git never matches either."""
    written, at = "", 0
    while at < len(glob):
        character = glob[at]
        at += 1
        if character == "\\":
            if at == len(glob):
                raise ValueError("a backslash at the end")
            written += re.escape(glob[at])
            at += 1
        elif character == "*":
            written += "[^/]*"
        elif character == "?":
            written += "[^/]"
        elif character == "[":
            set_, at = _character_set(glob, at)
            written += f"(?!/){set_}"
        else:
            written += re.escape(character)
    return written


_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \\t", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "punct": "!-/:-@\\[-`{-~", "space": "\\s", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


def _character_set(glob: str, at: int) -> tuple[str, int]:
    negated = glob[at : at + 1] in ("!", "^") and glob[at : at + 1] != ""
    at += negated
    written, is_first = "", True
    while True:
        if at >= len(glob):
            raise ValueError("an open bracket")
        character = glob[at]
        if character == "]" and not is_first:
            return f"[{'^' if negated else ''}{written}]", at + 1
        is_first = False
        named = re.match(r"\[:([a-z]+):\]", glob[at:])
        if named:
            written += _CLASSES.get(named[1], "")
            at += len(named[0])
            continue
        if character == "\\":
            at += 1
            character = glob[at : at + 1]
        is_range = character == "-" and written and glob[at + 1 : at + 2] not in ("", "]") and glob[at - 1] != "\\"
        written += "-" if is_range else re.escape(character)
        at += 1
