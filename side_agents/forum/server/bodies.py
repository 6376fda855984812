"""Request bodies: counted while they are read, never more than allowed held, then made into the operation's dataclass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from side_agents import schemas
from side_agents.forum import limits
from side_agents.forum.failures import fail
from side_agents.forum.server.asgi import DISCONNECT, ClientGoneError, Receive, Scope, header_values
from side_agents.forum.server.strict_json import parse_object
from side_agents.forum.server.wire import SCHEMA_VERSION

T = TypeVar("T")

# After a body that is too large: how much more of it, and for how long, is taken in and thrown away. A client that is
# still sending when the connection closes loses the answer that tells it why.
_DRAIN_BYTES = 4 * limits.MIB
_DRAIN_SECONDS = 1.0


class LargeBodies:
    """How many bodies above the ordinary size may be in memory at once."""

    def __init__(self, most: int) -> None:
        self._free = most

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place that is taken only if it is asked for; it is free again at the end of the block."""
        place = Place(self)
        try:
            yield place
        finally:
            if place.is_taken:
                self._free += 1

    def take(self) -> None:
        """Raises ForumError ``busy`` when all places are taken."""
        if self._free <= 0:
            raise fail("busy", "Too many large posts are on their way at this moment; nothing was stored. Try again.")
        self._free -= 1


class Place:
    def __init__(self, owner: LargeBodies) -> None:
        self._owner = owner
        self.is_taken = False

    def take(self) -> None:
        if not self.is_taken:
            self._owner.take()
            self.is_taken = True


def check_media_type(scope: Scope) -> None:
    """Raises ForumError ``unsupported_media_type`` unless the body is uncompressed JSON in UTF-8."""
    given = header_values(scope, b"content-type")
    main, _, parameters = (given[0] if len(given) == 1 else b"").decode("latin-1").lower().partition(";")
    charset = parameters.strip().replace('"', "").replace(" ", "")
    if main.strip() != "application/json" or charset not in ("", "charset=utf-8"):
        raise fail("unsupported_media_type", "The body must have the Content-Type application/json.")
    if any(value.strip().lower() != b"identity" for value in header_values(scope, b"content-encoding")):
        raise fail("unsupported_media_type", "The body must not be compressed.")


async def read(scope: Scope, receive: Receive, place: Place, *, is_content: bool, seconds: float) -> bytes:
    """The whole body. Raises ForumError ``payload_too_large`` one byte above the limit, whatever Content-Length says,
    ``busy`` when it does not arrive in time or there is no place for it, and ClientGoneError."""
    limit = limits.CONTENT_REQUEST_BYTES if is_content else limits.ORDINARY_REQUEST_BYTES
    try:
        async with asyncio.timeout(seconds):
            return await _counted(scope, receive, place, limit)
    except TimeoutError:
        raise fail("busy", f"The body did not arrive within {seconds:g} s; nothing was stored.") from None


async def _counted(scope: Scope, receive: Receive, place: Place, limit: int) -> bytes:
    announced = _announced(scope)
    if announced > limit:
        await _refuse_size(receive, limit)
    if announced > limits.ORDINARY_REQUEST_BYTES:
        place.take()
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == DISCONNECT:
            raise ClientGoneError
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            await _refuse_size(receive, limit, more=more)
        if size > limits.ORDINARY_REQUEST_BYTES:
            place.take()
        chunks.append(chunk)
    return b"".join(chunks)


def _announced(scope: Scope) -> int:
    given = header_values(scope, b"content-length")
    return int(given[0]) if len(given) == 1 and given[0].isdigit() else 0


async def _refuse_size(receive: Receive, limit: int, *, more: bool = True) -> None:
    taken = 0
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while more and taken < _DRAIN_BYTES:
                message = await receive()
                if message["type"] == DISCONNECT:
                    raise ClientGoneError
                taken += len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        pass
    raise fail("payload_too_large", f"The body is larger than {limit} bytes; nothing was stored.", field="body")


def typed(cls: type[T], raw: bytes) -> T:
    """The request in a body. Raises ForumError with the place of the first fault in ``field``."""
    value = parse_object(raw)
    version = value.get("schemaVersion", SCHEMA_VERSION)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise fail("invalid_argument", f"schemaVersion must be {SCHEMA_VERSION}.", field="body.schemaVersion")
    found = schemas.parse(cls, raw)
    if not isinstance(found, schemas.Fault):
        return found
    field = ".".join(("body", *(part[:64] for part in found.path)))
    if found.is_unknown:
        raise fail("unknown_field", "The body has a field that this operation does not know.", field=field)
    code = "bad_credential_format" if found.path == ("credential",) else "invalid_argument"
    raise fail(code, f"{field}: {found.words}. Nothing was stored.", field=field)


def require_empty(raw: bytes) -> None:
    """For operations without a body: nothing, or an object with at most the schema version."""
    if raw and (extra := set(parse_object(raw)) - {"schemaVersion"}):
        raise fail("unknown_field", "This operation takes no fields.", field=f"body.{min(extra)[:64]}")
