"""The rules for what may be stored (reference/forum.md 1.3, 5.4): each function returns the value to keep, or refuses it.

All raise ForumError ``invalid_argument`` with the field; nothing has happened then.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import ids, limits, requests
from side_agents.forum.failures import fail
from side_agents.models import camel_name

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,62}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,62}")
_SAFE_INTEGER = 2**63


@dataclass(frozen=True, slots=True)
class Attachment:
    """One decoded file; size and hash are of our own copy."""

    name: str
    media_type: str
    data: bytes
    sha256: bytes

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self.data)


def name(value: str, field: str = "name") -> str:
    """A unique name of an author."""
    if len(value) > limits.NAME_CHARACTERS or not _matches(limits.NAME_PATTERN, value):
        raise _refused(field, f"must be 1 to {limits.NAME_CHARACTERS} letters, digits, dots, dashes or underscores")
    return value


def key(value: str, field: str, most: int = limits.CONTEXT_KEY_CHARACTERS) -> str:
    """A context key or cause key: any printable text."""
    if not 1 <= len(value) <= most or _control(value):
        raise _refused(field, f"must be 1 to {most} characters without control characters")
    return value


def subforum_key(value: str, field: str = "key") -> str:
    """The slug that names a subforum."""
    if not _matches(limits.SUBFORUM_KEY_PATTERN, value):
        raise _refused(field, "must be 1 to 64 small letters, digits or dashes, beginning with a letter or digit")
    return value


def idempotency_key(value: str | None) -> str:
    """The key of a retryable command."""
    if not value:
        raise fail("idempotency_key_required", "This request needs an Idempotency-Key header. Nothing was changed.")
    if not _matches(limits.IDEMPOTENCY_KEY_PATTERN, value):
        raise _refused("Idempotency-Key", "must be 16 to 128 letters, digits, dots, dashes, underscores or tildes")
    return value


def title(value: str, field: str = "title") -> str:
    """One line, trimmed."""
    text = value.strip()
    if not 1 <= len(text) <= limits.TITLE_CHARACTERS or _control(text):
        raise _refused(
            field, f"must be 1 to {limits.TITLE_CHARACTERS} characters after trimming, without control characters"
        )
    return text


def text(value: str | None, field: str, most: int) -> str:
    """A free text of a profile or description, several lines allowed; absent is empty."""
    value = value or ""
    if len(value) > most or _control(value, allowed="\t\n"):
        raise _refused(field, f"must be at most {most} characters without control characters except tab and newline")
    return value


def body(value: str, field: str = "body") -> str:
    """The Markdown of a post, kept exactly."""
    if _control(value, allowed="\t\n"):
        raise _refused(field, "must be text without control characters except tab and newline")
    if not 1 <= len(value.encode()) <= limits.BODY_BYTES:
        raise _refused(field, f"must be 1 to {limits.BODY_BYTES} bytes")
    return value


def metadata(value: dict[str, Any] | None, field: str = "metadata") -> dict[str, Any]:
    """A JSON object, kept exactly; absent is empty."""
    value = value or {}
    try:
        _check_value(value, field, limits.METADATA_DEPTH)
        size = len(ids.canonical_json(value))
    except (ValueError, RecursionError) as error:
        raise _refused(field, "must be JSON with finite numbers and whole characters") from error
    if size > limits.METADATA_BYTES:
        raise _refused(field, f"must be at most {limits.METADATA_BYTES} bytes of JSON")
    return value


def terms(value: dict[str, Any]) -> list[tuple[str, str]]:
    """Checked metadata as (key, value) pairs to search by: arrays repeat the key, objects give dotted keys."""
    return sorted(set(_flatten(value, "")))


def provenance(value: requests.Provenance | None, field: str = "provenance") -> dict[str, str]:
    """What a client claims about itself, without the fields that it leaves open, by their names on the wire."""
    if value is None:
        return {}
    given = {camel_name(key): text for key, text in dataclasses.asdict(value).items() if text is not None}
    for part, claim in given.items():
        if len(claim) > limits.PROVENANCE_FIELD_CHARACTERS or _control(claim):
            most = limits.PROVENANCE_FIELD_CHARACTERS
            raise _refused(f"{field}.{part}", f"must be at most {most} characters without control characters")
    if len(ids.canonical_json(given)) > limits.PROVENANCE_BYTES:
        raise _refused(field, f"must be at most {limits.PROVENANCE_BYTES} bytes of JSON")
    return given


def attachments(values: Sequence[requests.AttachmentInput], field: str = "attachments") -> tuple[Attachment, ...]:
    """The decoded files of one post."""
    if len(values) > limits.ATTACHMENTS_PER_POST:
        raise _refused(field, f"must be at most {limits.ATTACHMENTS_PER_POST} files")
    decoded = tuple(_attachment(value, f"{field}.{index}") for index, value in enumerate(values))
    if sum(each.size for each in decoded) > limits.ATTACHMENTS_BYTES:
        raise _refused(field, f"must be at most {limits.ATTACHMENTS_BYTES} bytes together")
    return decoded


def sequence(value: str, field: str) -> int:
    """A sequence as it travels: decimal digits."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", value) or int(value) >= _SAFE_INTEGER:
        raise _refused(field, "must be a sequence in decimal digits, as the forum returned it")
    return int(value)


def page_limit(value: int, most: int, field: str = "query.limit") -> int:
    """How many items a page may have."""
    if not 1 <= value <= most:
        raise _refused(field, f"must be between 1 and {most}")
    return value


def _attachment(value: requests.AttachmentInput, field: str) -> Attachment:
    bad_name = value.name in ("", ".", "..") or any(sign in value.name for sign in "/\\") or _control(value.name)
    if bad_name or len(value.name.encode()) > limits.ATTACHMENT_NAME_BYTES:
        raise _refused(
            f"{field}.name",
            f"must be a file name of 1 to {limits.ATTACHMENT_NAME_BYTES} bytes without slashes or control characters",
        )
    if len(value.media_type) > limits.MEDIA_TYPE_CHARACTERS or not _MEDIA_TYPE.fullmatch(value.media_type):
        raise _refused(f"{field}.mediaType", "must be a media type such as text/plain")
    # Four characters carry three bytes: what cannot fit is not decoded at all.
    if len(value.data) > (limits.ATTACHMENT_BYTES + 2) // 3 * 4:
        raise _refused(f"{field}.data", f"must be at most {limits.ATTACHMENT_BYTES} bytes")
    try:
        data = base64.b64decode(value.data.encode("ascii"), validate=True)
    except (ValueError, binascii.Error) as error:
        raise _refused(f"{field}.data", "must be base64") from error
    if len(data) > limits.ATTACHMENT_BYTES:
        raise _refused(f"{field}.data", f"must be at most {limits.ATTACHMENT_BYTES} bytes")
    return Attachment(value.name, value.media_type, data, hashlib.sha256(data).digest())


def _check_value(value: Any, field: str, depth: int) -> None:
    if isinstance(value, str):
        if _control(value, allowed="\t\n\r"):
            raise _refused(field, "must not contain control characters or halves of characters")
    elif isinstance(value, int):
        if not -_SAFE_INTEGER <= value < _SAFE_INTEGER:
            raise _refused(field, "must not contain integers beyond 64 bits")
    elif isinstance(value, dict | list):
        if depth == 0:
            raise _refused(field, f"must be at most {limits.METADATA_DEPTH} levels deep")
        for part in value:
            if isinstance(value, dict) and not _matches(limits.METADATA_KEY_PATTERN, part):
                raise _refused(field, "must have keys of letters, digits and underscores, not beginning with one")
        for part in value.values() if isinstance(value, dict) else value:
            _check_value(part, field, depth - 1)


def _flatten(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for part, inner in value.items():
            yield from _flatten(inner, f"{path}.{part}" if path else part)
    elif isinstance(value, list):
        for inner in value:
            yield from _flatten(inner, path)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _matches(pattern: str, value: str) -> bool:
    # "$" would let a final newline through.
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value) is not None


def _control(value: str, allowed: str = "") -> bool:
    """Whether a text has control characters (C0, DEL, C1) beyond those allowed, or halves of surrogate pairs."""
    if value.isprintable():
        return False
    return any(unicodedata.category(sign) in ("Cc", "Cs") and sign not in allowed for sign in value)


def _refused(field: str, rule: str) -> ForumError:
    return fail("invalid_argument", f"{field} {rule}. Nothing was changed.", field=field)
