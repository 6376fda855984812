"""JSON as the forum takes it: UTF-8, one object, no key twice, no number that is none (reference/forum 5.2)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from side_agents.forum.failures import fail


def parse_object(raw: bytes) -> dict[str, Any]:
    """The object in a request body. Raises ForumError ``malformed_json`` or, for halves of characters, ``invalid_argument``."""
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite
        )
    except _RepeatedKeyError as error:
        raise fail("malformed_json", f"The body has the key {error} twice in one object.") from None
    except (ValueError, RecursionError):
        # Their own words may quote the body, and the body may hold a credential.
        raise fail("malformed_json", "The body is no valid JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise fail("malformed_json", "The body is JSON, but not an object.")
    # Only an escape can bring one in: the bytes are valid UTF-8.
    if (b"\\ud" in raw or b"\\uD" in raw) and not _is_whole(value):
        raise fail("invalid_argument", "A text in the body holds half of a surrogate pair.", field="body")
    return value


class _RepeatedKeyError(ValueError):
    """Its text is the key, shortened, as JSON."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RepeatedKeyError(json.dumps(twice[:64]))
    return found


def _constant(_word: str) -> NoReturn:
    raise ValueError("not finite")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _is_whole(value: object) -> bool:
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                return False
        elif isinstance(item, dict):
            stack += _parts(item.items())
        elif isinstance(item, list):
            stack += item
    return True


def _parts(items: Iterable[tuple[str, object]]) -> list[object]:
    return [part for pair in items for part in pair]
