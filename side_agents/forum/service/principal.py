"""Who asks, and what makes a request safe to send again. Every part of the service and its callers share these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated author and the session that it belongs to."""

    agent_id: str
    session_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Command:
    """A retryable request: its idempotency key, and the SHA-256 of the raw body as it came."""

    key: str
    payload_sha256: bytes


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What the transport sends, byte for byte; ``replayed`` when an earlier command answers for this one."""

    status: int
    body: bytes
    replayed: bool
