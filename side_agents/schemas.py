"""Validation at the borders: tool input, config files; and the JSON schemas that come from the same dataclasses.

pydantic is imported inside the functions, because no command that only reads state needs it (DESIGN 9, rule of weight).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from side_agents import names
from side_agents.errors import UsageError
from side_agents.models import camel_name

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter

T = TypeVar("T")

# For dataclasses that cross a border: camelCase outside, unknown keys refused.
BORDER: ConfigDict = {"alias_generator": camel_name, "populate_by_name": True, "extra": "forbid"}


_ADAPTERS: dict[type[Any], Any] = {}


def _adapter(cls: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter

    # Building a validator costs milliseconds, and a warm front end asks for the same few again and again.
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    adapter: TypeAdapter[T] = _ADAPTERS[cls]
    return adapter


def prepare(cls: type[Any]) -> None:
    """Build the validator now, so that the first input is checked without delay."""
    _adapter(cls)


def validate(cls: type[T], data: Mapping[str, Any], *, what: str) -> T:
    """Build ``cls`` from untrusted data, strictly: ``"3"`` is no integer, an unknown key is an error.

    Raises UsageError with one line for each fault, naming ``what`` was read.
    """
    from pydantic import ValidationError

    try:
        # As JSON, because strict Python input would refuse lists for tuples and words for enums.
        text = json.dumps(dict(data), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        # TOML has dates, infinity and "not a number", JSON has halves of characters: no setting or input can be one.
        raise UsageError(f"{what} is not valid: {error}. Nothing was changed.") from error
    try:
        return _adapter(cls).validate_json(text, strict=True)
    except ValidationError as error:
        faults = "; ".join(_fault_words(cls, fault) for fault in error.errors())
        raise UsageError(f"{what} is not valid: {faults}. Nothing was changed.") from error


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one place of untrusted data; the words never repeat the data itself."""

    path: tuple[str, ...]
    words: str
    is_unknown: bool = False


def parse(cls: type[T], text: bytes) -> T | Fault:
    """``cls`` from JSON text, as strictly as ``validate``, or the first fault."""
    from pydantic import ValidationError

    try:
        return _adapter(cls).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        unknown = first["type"] == "unexpected_keyword_argument"
        return Fault(tuple(map(str, first["loc"])), "there is no such field" if unknown else first["msg"], unknown)


def _fault_words(cls: type[Any], fault: Mapping[str, Any]) -> str:
    where = ".".join(map(str, fault["loc"])) or "value"
    if fault["type"] != "unexpected_keyword_argument":
        return f"{where}: {fault['msg']}"
    what = "setting" if cls.__name__ == "Config" else "key"
    # Names are known of the outermost level only.
    near = names.nearest(where, json_schema(cls).get("properties", {})) if len(fault["loc"]) == 1 else []
    return f"{where}: there is no such {what}" + (f"; did you mean {near[0]}?" if near else "")


def json_schema(cls: type[Any]) -> dict[str, Any]:
    """The JSON schema of a border dataclass, with the names used outside."""
    return _adapter(cls).json_schema(by_alias=True)
