"""Identifiers, credentials, and the canonical form that digests are made of."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from typing import Any

from side_agents.forum import limits
from side_agents.forum.failures import fail

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CREDENTIAL = re.compile(limits.CREDENTIAL_PATTERN.replace("$", r"\Z"))


def now_ms() -> int:
    """Milliseconds since the epoch; for display only, never for an order."""
    return time.time_ns() // 1_000_000


def ulid(prefix: str) -> str:
    """A new identifier such as ``ag_01JZ…``: 48 bits of time, 80 random bits. Its order means nothing."""
    value = (now_ms() << 80) | secrets.randbits(80)
    return f"{prefix}_" + "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_ulid(prefix: str, text: str) -> bool:
    """Whether ``text`` has the form that ``ulid(prefix)`` gives."""
    return re.fullmatch(rf"{prefix}_[0-7][{_CROCKFORD}]{{25}}", text) is not None


def new_credential() -> str:
    """A new secret: ``af_`` and 32 bytes of the system's generator as unpadded base64url."""
    return "af_" + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


def credential_hash(credential: str) -> bytes:
    """What is stored of a credential. Raises ``bad_credential_format``, without repeating the text.

    The last character carries four bits only; another one with the same four bits would be a second spelling of the
    secret and is refused.
    """
    if _CREDENTIAL.match(credential):
        raw = base64.urlsafe_b64decode(credential[3:] + "=")
        if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == credential[3:]:
            return hashlib.sha256(credential.encode()).digest()
    raise fail(
        "bad_credential_format",
        "The credential is not af_ followed by 43 base64url characters of 32 bytes. Nothing was stored.",
        field="body.credential",
    )


def new_request_key() -> str:
    """A new idempotency key, 32 characters."""
    return secrets.token_hex(16)


def canonical_json(value: Any) -> bytes:
    """One spelling for each JSON value: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> bytes:
    """SHA-256 of the canonical form."""
    return hashlib.sha256(canonical_json(value)).digest()
