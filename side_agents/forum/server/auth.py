"""Who asks, and under which key: the two headers that a command carries."""

from __future__ import annotations

import re

from side_agents.forum import limits
from side_agents.forum.failures import fail
from side_agents.forum.server.asgi import Scope, header_values

_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +(af_[A-Za-z0-9_-]{43})")
_KEY = re.compile(limits.IDEMPOTENCY_KEY_PATTERN.encode())


def credential(scope: Scope) -> str:
    """The credential of a request, empty when there is none of the right form: the forum then refuses it in the same words
    as an unknown one, so that nobody learns what was wrong with it."""
    given = header_values(scope, b"authorization")
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    return match[1].decode() if match else ""


def idempotency_key(scope: Scope) -> str:
    """The key of a command. Raises ForumError: ``idempotency_key_required`` when there is none, ``invalid_argument`` when
    there are several or it has another form."""
    given = header_values(scope, b"idempotency-key")
    if not given:
        raise fail("idempotency_key_required", "This needs an Idempotency-Key header, the same for every retry.")
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        raise fail(
            "invalid_argument",
            "The Idempotency-Key must be one value of 16 to 128 letters, digits and . _ ~ -",
            field="header.Idempotency-Key",
        )
    return given[0].decode()
