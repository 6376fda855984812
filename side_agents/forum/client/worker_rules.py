"""Small checks that a schema is composed of: each takes a place and a value, and raises FaultError or returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from side_agents.forum import ids

Check = Callable[[str, Any], None]


class FaultError(Exception):
    """Where and what is wrong; never the value itself, which may be a secret."""


def fail(where: str, fault: str) -> NoReturn:
    raise FaultError(f"{where} {fault}")


def text(limit: int, *, pattern: str | None = None, empty: bool = False) -> Check:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z") if pattern else None

    def check_text(where: str, value: Any) -> None:
        if not isinstance(value, str):
            fail(where, "must be a text")
        if len(value) > limit or not (value or empty):
            fail(where, f"must have {0 if empty else 1} to {limit} characters")
        if compiled and not compiled.match(value):
            fail(where, "has a form that is not allowed")

    return check_text


def identifier(prefix: str) -> Check:
    def check_identifier(where: str, value: Any) -> None:
        if not isinstance(value, str) or not ids.is_ulid(prefix, value):
            fail(where, f"must be an identifier {prefix}_…")

    return check_identifier


def one_of(*words: object) -> Check:
    def check_word(where: str, value: Any) -> None:
        if not any(type(value) is type(word) and value == word for word in words):
            fail(where, f"must be {' or '.join(map(str, words))}")

    return check_word


def number(where: str, value: Any) -> None:
    if type(value) is not int or value < 0:
        fail(where, "must be a whole number from 0")


def optional(inner: Check) -> Check:
    def check_optional(where: str, value: Any) -> None:
        if value is not None:
            inner(where, value)

    return check_optional


def items(inner: Check, limit: int) -> Check:
    def check_items(where: str, value: Any) -> None:
        if not isinstance(value, list):
            fail(where, "must be a list")
        if len(value) > limit:
            fail(where, f"has {len(value)} entries, more than the {limit} allowed")
        for place, item in enumerate(value):
            inner(f"{where}[{place}]", item)

    return check_items


def record(fields: Mapping[str, Check]) -> Check:
    def check_record(where: str, value: Any) -> None:
        if not isinstance(value, dict):
            fail(where, "must be an object")
        for name in fields.keys() - value.keys():
            fail(below(where, name), "is missing")
        for name in value.keys() - fields.keys():
            fail(where or "the file", f"has a field that is not known: {name[:40]!r}")
        for name, inner in fields.items():
            inner(below(where, name), value[name])

    return check_record


def below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
