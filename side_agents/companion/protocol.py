"""What the session's extension and its companion say to each other: one JSON object a line. Pure.

From the extension: ``hello`` first, then ``session``, ``idle``, ``call``, ``cancel`` and ``told`` in any order. To it:
``ready`` or ``fatal``, answers, and the events ``status``, ``notice`` and ``toast``. Keys and kinds of line that are not known
are passed over on both sides, so that either may be newer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from side_agents.errors import UsageError

VERSION = 1
# The largest task (10 MiB), every byte of it escaped, and some room.
LINE_LIMIT = 64 * 1024 * 1024

CallId = int | str


@dataclass(frozen=True, slots=True)
class Hello:
    """The first line. ``linked`` False: the host merely inherited an agent's variables and is not that agent.

    ``acknowledges``: a notice counts as told once the extension says so, and not as soon as it is written.
    """

    session: str | None
    host: str
    host_version: str
    linked: bool = True
    acknowledges: bool = False


@dataclass(frozen=True, slots=True)
class SessionChange:
    """The host shows another conversation from now on."""

    session: str | None


@dataclass(frozen=True, slots=True)
class Idle:
    """Whether notices may be told."""

    is_idle: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Something to be answered."""

    call_id: CallId
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cancel:
    """The answer of a call is no longer waited for."""

    call_id: CallId


@dataclass(frozen=True, slots=True)
class ToldNotice:
    """A notice has arrived in the conversation."""

    number: int


Message = Hello | SessionChange | Idle | Call | Cancel | ToldNotice


class LineError(UsageError):
    """A line that cannot be understood; ``call_id`` is that of the call in it, where there is one."""

    def __init__(self, message: str, call_id: CallId | None = None) -> None:
        super().__init__(f"{message} Nothing was done.")
        self.call_id = call_id


def parse(line: bytes) -> Message | None:
    """The message in a line; None for kinds of a newer version. Raises LineError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"A line is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise LineError("A line is not a JSON object.")
    for key, reader in _READERS.items():
        if key in data:
            return reader(data)
    return None


def _hello(data: Mapping[str, Any]) -> Hello:
    hello = data["hello"]
    if not isinstance(hello, dict):
        raise LineError("hello is not an object.")
    version = hello.get("protocol")
    if version != VERSION or isinstance(version, bool):
        raise LineError(
            f"The extension speaks version {version!r} of the protocol and this side-agents version {VERSION}: they were not "
            "installed together."
        )
    return Hello(
        session=_session_in(hello),
        host=_text(hello, "host"),
        host_version=_text(hello, "hostVersion"),
        linked=_flag(hello, "linked", default=True),
        acknowledges=_flag(hello, "acknowledges", default=False),
    )


def _call(data: Mapping[str, Any]) -> Call:
    call_id = _id(data.get("id"), "id")
    name, given = data["call"], data.get("input", {})
    if not isinstance(name, str):
        raise LineError("call is not a name.", call_id)
    if not isinstance(given, dict):
        raise LineError(f"The input of {name} is not an object.", call_id)
    return Call(call_id, name, given)


def _told(data: Mapping[str, Any]) -> ToldNotice:
    number = data["told"]
    if type(number) is not int:
        raise LineError("told is not the number of a notice.")
    return ToldNotice(number)


_READERS: dict[str, Callable[[Mapping[str, Any]], Message]] = {
    "hello": _hello,
    "call": _call,
    "cancel": lambda data: Cancel(_id(data["cancel"], "cancel")),
    "told": _told,
    "idle": lambda data: Idle(_flag(data, "idle", default=False)),
    "session": lambda data: SessionChange(_session_in(data)),
}


def _id(value: Any, what: str) -> CallId:
    if type(value) not in (int, str):
        raise LineError(f"{what} is neither a number nor a text.")
    found: CallId = value
    return found


def _session_in(data: Mapping[str, Any]) -> str | None:
    value = data.get("session")
    if value is not None and not isinstance(value, str):
        raise LineError("session is neither a text nor null.")
    if value and "\0" in value:
        raise LineError("session contains a NUL character.")
    return value or None


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str):
        raise LineError(f"{key} is not a text.")
    return value


def _flag(data: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise LineError(f"{key} is neither true nor false.")
    return value


def encode(message: Mapping[str, Any]) -> bytes:
    """One line. ASCII only: what JavaScript takes for a line end, and halves of characters, can do no harm then."""
    return json.dumps(message).encode() + b"\n"
