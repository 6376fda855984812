"""Setting a few values in the text of a settings file, everything else in it staying as it is. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping

from side_agents.errors import UsageError


def with_values(text: str, values: Mapping[str, str | None]) -> str:
    """The text with these top-level strings set, and those that are None taken out.

    A value takes the place of the one that is there, or of the comment that ``config init`` wrote for it. Raises
    UsageError when that cannot be done without touching anything else.
    """
    lines = text.split("\n")
    before = _parsed(text)
    for name, value in values.items():
        if before.get(name) != value:
            _set(lines, name, None if value is None else f"{name} = {json.dumps(value, ensure_ascii=False)}")
    wanted = {name: value for name, value in {**before, **values}.items() if value is not None}
    changed = "\n".join(lines)
    try:
        is_right = _parsed(changed) == wanted
        changed.encode()
    except (UsageError, UnicodeEncodeError):
        is_right = False
    if not is_right:
        raise UsageError(
            f"{' and '.join(values)} cannot be set in this file without changing more. Nothing was changed.",
            hint="Set them in it by hand: `side-agents config path` names it.",
        )
    return changed


def differing(text: str, values: Mapping[str, str | None]) -> tuple[str, ...]:
    """Names that have another value in this text. Raises UsageError for a text that is not TOML."""
    present = _parsed(text)
    return tuple(name for name, value in values.items() if name in present and present[name] != value)


def _parsed(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"The settings are not valid TOML: {error}. Nothing was changed.") from error


def _set(lines: list[str], name: str, line: str | None) -> None:
    end = next((number for number, each in enumerate(lines) if each.lstrip().startswith("[")), len(lines))
    for pattern in (rf"\s*{name}\s*=", *([] if line is None else [rf"#\s*{name}\s*="])):
        for number in range(end):
            if re.match(pattern, lines[number]):
                lines[number : number + 1] = [] if line is None else [line]
                return
    while end > 0 and not lines[end - 1].strip():
        end -= 1
    if line is not None:
        lines[end:end] = [line, ""] if end == len(lines) else [line]
