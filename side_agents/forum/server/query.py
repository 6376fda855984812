"""Query parameters: declared by each operation, parsed strictly, and described from the same declaration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import unquote_to_bytes

from side_agents.errors import ForumError
from side_agents.forum.failures import fail

_INTEGER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_TOTAL_LIMIT = 8192
_MOST = 64


class Kind(StrEnum):
    """How the text of a parameter is read."""

    TEXT = "text"
    INTEGER = "integer"
    # A family of parameters: ``meta.colour=red`` for the name ``meta.``; its value is a dict.
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One declared parameter. Absent ones get ``default``; ``low`` and ``high`` bound a number, or the bytes of a text;
    ``code`` is that of a value which is not as declared."""

    name: str
    about: str
    kind: Kind = Kind.TEXT
    default: object = None
    low: int = 0
    high: int = 512
    choices: tuple[str, ...] = ()
    pattern: str = ""
    code: str = "invalid_argument"

    @property
    def attribute(self) -> str:
        """Its name in what ``parse`` returns: ``max_bytes`` for ``maxBytes``."""
        return re.sub(r"(?<!^)([A-Z])", lambda found: "_" + found[1].lower(), self.name.rstrip("."))


def parse(query_string: bytes, declared: Sequence[Parameter]) -> dict[str, Any]:
    """Values by attribute name. Raises ForumError: ``unknown_field`` for a name that is not declared, ``invalid_argument``
    for a repeated one and for a value out of bounds."""
    by_name = {parameter.name: parameter for parameter in declared if parameter.kind is not Kind.PREFIX}
    values: dict[str, Any] = {parameter.attribute: parameter.default for parameter in declared}
    for name, text in split(query_string).items():
        parameter = by_name.get(name) or _family(name, declared)
        if parameter is None:
            raise fail("unknown_field", f"There is no query parameter {_shown(name)} here.", field=_field(name))
        value = checked(parameter, name, text)
        if parameter.kind is Kind.PREFIX:
            family = values[parameter.attribute] or {}
            values[parameter.attribute] = {**family, name.removeprefix(parameter.name): value}
        else:
            values[parameter.attribute] = value
    return values


def split(query_string: bytes) -> dict[str, str]:
    """Decoded names and values. Raises ForumError for what is repeated, too long or no UTF-8."""
    if len(query_string) > _TOTAL_LIMIT or query_string.count(b"&") > _MOST:
        raise fail(
            "invalid_argument", f"The query is longer than {_TOTAL_LIMIT} bytes or {_MOST} parts.", field="query"
        )
    found: dict[str, str] = {}
    for part in query_string.split(b"&") if query_string else ():
        raw_name, equals, raw_value = part.partition(b"=")
        name, value = _decoded(raw_name), _decoded(raw_value)
        if not equals:
            raise fail("invalid_argument", f"The query parameter {_shown(name)} has no value.", field=_field(name))
        if name in found:
            raise fail("invalid_argument", f"The query parameter {_shown(name)} is there twice.", field=_field(name))
        found[name] = value
    return found


def _decoded(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise fail("invalid_argument", "The query is not UTF-8.", field="query") from None


def _family(name: str, declared: Sequence[Parameter]) -> Parameter | None:
    families = [each for each in declared if each.kind is Kind.PREFIX]
    return next((each for each in families if name.startswith(each.name) and name != each.name), None)


def checked(parameter: Parameter, name: str, text: str) -> object:
    """The value of one parameter. Raises ForumError with the parameter's code."""
    if parameter.kind is Kind.INTEGER:
        # The pattern first: int() would take "+1", "1_0" and digits of other scripts.
        if not _INTEGER.fullmatch(text) or not parameter.low <= int(text) <= parameter.high:
            raise _refused(parameter, name, f"must be a whole number from {parameter.low} to {parameter.high}")
        return int(text)
    if parameter.choices and text not in parameter.choices:
        raise _refused(parameter, name, f"must be one of {', '.join(parameter.choices)}")
    if not parameter.low <= len(text.encode()) <= parameter.high:
        raise _refused(parameter, name, f"must be {parameter.low} to {parameter.high} bytes long")
    if parameter.pattern and not re.fullmatch(parameter.pattern, text, re.ASCII):
        raise _refused(parameter, name, "has not the form that it must have")
    return text


def _refused(parameter: Parameter, name: str, rule: str) -> ForumError:
    return fail(parameter.code, f"The query parameter {_shown(name)} {rule}.", field=_field(name))


def _shown(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:64]) or "(empty)"


def _field(name: str) -> str:
    return f"query.{_shown(name)}"
