"""Opaque cursors: positions in one listing of one session, sealed with the installation's key (reference/forum.md 5.6.6).

A cursor is a position, neither a permission nor an acknowledgement. Its kind, session and stream (the scope of events,
the thread of posts) are inside the seal, so that it continues exactly the listing that gave it. So is the epoch: after
an older backup was put back, positions of before mean nothing any more, and the reader must be told (5.6.14).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum.failures import fail

Position = tuple[int | str, ...]

_VERSION = 1
_SEAL_BYTES = 16
_LONGEST = 1024


class Kind(StrEnum):
    """Which listing a cursor continues; one kind is never taken for another."""

    EVENTS = "events"
    POSTS = "posts"
    THREADS = "threads"
    SUBFORUMS = "subforums"
    CHILDREN = "children"
    CONTEXTS = "contexts"
    CATCHUP = "catchup"


@dataclass(frozen=True, slots=True)
class Cursors:
    """Seals and opens the cursors of one installation in one epoch."""

    installation: str
    epoch: int
    key: bytes = field(repr=False)

    def encode(self, kind: Kind, session: str, stream: str, *position: int | str) -> str:
        """The text that continues the listing ``stream`` of ``session`` behind ``position``."""
        named = [_VERSION, kind.value, self.installation, self.epoch, session, stream, *position]
        payload = json.dumps(named, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(payload + self._seal(payload)).rstrip(b"=").decode()

    def decode(self, text: str, kind: Kind, session: str, stream: str) -> Position:
        """The position as it was given to ``encode``.

        Raises ForumError: ``invalid_cursor`` for what this installation did not issue to this session for this kind of
        listing, ``cursor_scope_mismatch`` for another stream, ``cursor_expired`` for another epoch.
        """
        version, issued_kind, installation, epoch, issued_session, issued_stream, *position = self._open(text)
        if (version, issued_kind, installation) != (_VERSION, kind.value, self.installation):
            raise _invalid(f"The cursor belongs to another listing than {kind.value}.")
        if issued_session != session:
            raise _invalid("The cursor was issued to another session.")
        if epoch != self.epoch:
            raise expired("The store was put back from a backup since this cursor was issued.")
        if issued_stream != stream:
            raise fail(
                "cursor_scope_mismatch",
                "The cursor continues another scope, filter or thread than the one asked for. Nothing was changed.",
                field="query.cursor",
                hint="Ask with what the first page was asked with, or leave the cursor out to start anew.",
            )
        return tuple(position)

    def _open(self, text: str) -> list[Any]:
        if text.isascii() and text.isdigit():
            raise _invalid("The cursor is a plain number; a sequence is not a cursor.")
        raw = _decoded(text)
        payload, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(payload)):
            raise _invalid("The cursor was not issued by this forum or was changed on the way.")
        # Behind the seal everything is our own writing.
        opened: list[Any] = json.loads(payload)
        return opened

    def _seal(self, payload: bytes) -> bytes:
        return hmac.digest(self.key, payload, hashlib.sha256)[:_SEAL_BYTES]


def expired(reason: str) -> ForumError:
    """The 410 for a cursor whose position this store does not have (any more); never answered with an empty page."""
    return fail(
        "cursor_expired",
        f"{reason} Where it pointed to cannot be known; posts that were seen before may be gone.",
        field="query.cursor",
        hint="Start again from the beginning and do not rely on what was collected with the old cursor.",
    )


def _decoded(text: str) -> bytes:
    if len(text) > _LONGEST:
        raise _invalid("The cursor is longer than any that this forum issues.")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _invalid("The cursor is not one that this forum issues.") from None
    # Spare bits of the last character would be a second spelling of the same cursor.
    if len(raw) <= _SEAL_BYTES or base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise _invalid("The cursor is not one that this forum issues.")
    return raw


def _invalid(reason: str) -> ForumError:
    return fail(
        "invalid_cursor",
        f"{reason} Nothing was changed.",
        field="query.cursor",
        hint="Pass nextCursor of the last page unchanged, or leave the cursor out to start anew.",
    )
