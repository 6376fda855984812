"""What every part of the service works with, and commands that may be sent again without happening again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from side_agents.forum import checks, failpoints, ids, limits
from side_agents.forum.cursors import Cursors
from side_agents.forum.failures import fail
from side_agents.forum.service.principal import Command, CommandResult
from side_agents.forum.store import commands as rows
from side_agents.forum.store.database import Connection, Database


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did: the document to answer with, and the id of what it made."""

    document: dict[str, Any]
    entity: str
    status: int = 201


@dataclass(frozen=True, slots=True)
class Context:
    """What each part of the service works with. ``origin`` begins the URLs that it returns."""

    database: Database
    origin: str
    clock: Callable[[], int] = ids.now_ms

    @property
    def cursors(self) -> Cursors:
        """What seals and opens the positions in listings."""
        installation = self.database.installation
        return Cursors(installation.id, installation.epoch, installation.cursor_key)


def execute(
    context: Context,
    *,
    scope: str,
    operation: str,
    command: Command,
    intent: Any,
    apply: Callable[[Connection], Outcome],
) -> CommandResult:
    """Run ``apply`` at most once for each (scope, operation, key), in one transaction with the row that answers retries.

    ``intent`` is the normalised request as JSON-ready data, path parameters included, files by name, type, size and
    hash, secrets by their hash; the same key with another intent is refused as ``idempotency_conflict``. Refusals that
    ``apply`` raises are not saved.
    """
    key = checks.idempotency_key(command.key)
    digest = ids.digest([operation, intent])
    failpoints.reach("S1")

    def transaction(connection: Connection) -> CommandResult:
        saved = rows.find(connection, scope, operation, key)
        failpoints.reach("S3")
        if saved is not None:
            if saved.digest != digest:
                raise fail(
                    "idempotency_conflict",
                    "This idempotency key was used for another request. What that one did stands; nothing new happened.",
                )
            return CommandResult(saved.status, saved.result, replayed=True)
        outcome = apply(connection)
        body = answer_bytes({**outcome.document, "payloadSha256": command.payload_sha256.hex()})
        rows.save(
            connection,
            scope=scope,
            operation=operation,
            key=key,
            saved=rows.Saved(digest, outcome.status, body),
            payload_sha256=command.payload_sha256,
            entity=outcome.entity,
            at=context.clock(),
        )
        failpoints.reach("S10")
        return CommandResult(outcome.status, body, replayed=False)

    return context.database.write(transaction)


def answer_bytes(document: dict[str, Any]) -> bytes:
    """The JSON of an answer, with the version of its form."""
    return json.dumps(
        {"schemaVersion": limits.SCHEMA_VERSION, **document}, ensure_ascii=False, separators=(",", ":")
    ).encode()
