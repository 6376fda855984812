"""Replay rows: what a retryable command has answered, kept in the transaction of its effect (reference/forum.md 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

from side_agents.forum.store.database import Connection


@dataclass(frozen=True, slots=True)
class Saved:
    """The answer of an earlier command."""

    digest: bytes
    status: int
    result: bytes


def find(connection: Connection, scope: str, operation: str, key: str) -> Saved | None:
    """The answer saved under this key, None when the key is new in its scope and operation."""
    row = connection.execute(
        "SELECT digest, status, result FROM command WHERE scope = ? AND op = ? AND key = ?", (scope, operation, key)
    ).get
    return Saved(*row) if row else None


def save(
    connection: Connection,
    *,
    scope: str,
    operation: str,
    key: str,
    saved: Saved,
    payload_sha256: bytes,
    entity: str,
    at: int,
) -> None:
    """Keep an answer for ever; ``entity`` is the id of what the command made."""
    connection.execute(
        "INSERT INTO command(scope, op, key, digest, payload_sha256, status, result, entity, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (scope, operation, key, saved.digest, payload_sha256, saved.status, saved.result, entity, at),
    )
