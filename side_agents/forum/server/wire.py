"""Answers as bytes: the one place that gives an answer its headers and an error its body (reference/forum 5.2)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import failpoints
from side_agents.forum.server.asgi import Send

SCHEMA_VERSION = 1
CREDENTIAL = re.compile(r"af_[A-Za-z0-9_-]{43}")
_JSON = b"application/json"
_RETRY_SECONDS = 1
_PLACES = ("body", "header", "path", "query", "url")


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. ``closes`` ends the connection after it."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = _JSON
    closes: bool = False

    def head(self) -> list[tuple[bytes, bytes]]:
        """All headers; every answer of the forum forbids storing and guessing of its type."""
        fixed = [
            (b"content-type", self.media_type),
            (b"content-length", str(len(self.body)).encode()),
            *GUARDS,
        ]
        return [*fixed, *self.headers, *([(b"connection", b"close")] if self.closes else [])]


GUARDS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def json_answer(status: int, value: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> Answer:
    """An answer with ``schemaVersion`` put in front of the value."""
    return Answer(status, encode({"schemaVersion": SCHEMA_VERSION, **value}), headers)


def encode(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8. Refuses numbers that JSON does not have."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def error_view(error: ForumError, request_id: str) -> dict[str, Any]:
    """The body of an error; a credential that found its way into words is cut out of them."""
    view: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "code": error.forum_code,
        "message": CREDENTIAL.sub("af_…", " ".join(filter(None, (error.message, error.hint)))),
        "retryable": error.retryable,
    }
    if error.field is not None:
        # The rules know fields by their names only; on the wire it also counts which part of the request they are in.
        place = error.field if error.field.partition(".")[0] in _PLACES else f"body.{error.field}"
        view["field"] = CREDENTIAL.sub("af_…", place)
    return {**view, "requestId": request_id}


def error_answer(error: ForumError, request_id: str, *, closes: bool = False) -> Answer:
    """The answer that tells of an error, with the headers that its status demands."""
    headers: list[tuple[bytes, bytes]] = []
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (429, 503):
        after = error.retry_after or _RETRY_SECONDS
        headers.append((b"retry-after", str(math.ceil(after)).encode()))
    return Answer(error.status, encode(error_view(error, request_id)), tuple(headers), closes=closes)


async def send_answer(send: Send, answer: Answer) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.head()})
    failpoints.reach("S15")
    await send({"type": "http.response.body", "body": answer.body})
