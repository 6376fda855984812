"""What must hold before an author is made, root or child."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from side_agents.forum import checks, ids, limits, requests
from side_agents.forum.failures import fail
from side_agents.forum.service.principal import Principal
from side_agents.forum.store import identities as rows
from side_agents.forum.store.database import Connection


@dataclass(frozen=True, slots=True)
class Newcomer:
    """The checked parts of a creation that root and child share."""

    context_key: str
    credential_hash: bytes
    name: str
    provenance: dict[str, str]

    def intent(self) -> dict[str, Any]:
        """Its part of what an idempotency key stands for; the credential by its hash."""
        return {
            "contextKey": self.context_key,
            "credential": self.credential_hash.hex(),
            "name": self.name,
            "provenance": self.provenance,
        }


def newcomer(request: requests.RegisterRequest | requests.ChildRequest) -> Newcomer:
    """Check what a root and a child have in common. Raises ``invalid_argument``, ``bad_credential_format``."""
    return Newcomer(
        context_key=checks.key(request.context_key, "body.contextKey"),
        credential_hash=ids.credential_hash(request.credential),
        name=checks.name(request.name, "body.name"),
        provenance=checks.provenance(request.provenance, "body.provenance"),
    )


def check_unused(connection: Connection, new: Newcomer) -> None:
    """Raises ``context_key_taken``, ``credential_taken`` or ``name_taken``, the most telling one first."""
    if rows.has_context_key(connection, new.context_key):
        raise fail(
            "context_key_taken",
            "Another request has registered this context. Nothing was changed.",
            field="body.contextKey",
            hint="Send the request that was prepared for it again, unchanged.",
        )
    if rows.agent_by_credential(connection, new.credential_hash) is not None:
        raise fail(
            "credential_taken",
            "This credential belongs to another author. Nothing was changed.",
            field="body.credential",
        )
    if rows.agent_by_name(connection, new.name) is not None:
        raise fail(
            "name_taken",
            f"Another author is called {new.name}. Nothing was changed; the prepared request is still good for a retry.",
            field="body.name",
            hint="Prepare a new request with another name.",
        )


def check_cause(connection: Connection, principal: Principal, cause: requests.Cause) -> None:
    """Raises ``cause_taken`` for a second child of one compaction, ``invalid_argument`` where a bound is reached."""
    if cause.kind == "compaction" and rows.has_compaction(connection, principal.agent_id, cause.key):
        raise fail(
            "cause_taken",
            "This compaction has made its child already. Nothing was changed.",
            field="body.cause.key",
            hint="Send the request that was prepared for it again, unchanged.",
        )
    if rows.count_children(connection, principal.agent_id) >= limits.CHILDREN_PER_PARENT:
        raise fail(
            "invalid_argument",
            f"An author can have at most {limits.CHILDREN_PER_PARENT} children. Nothing was changed.",
            field="body.cause",
        )
    if cause.kind == "compaction":
        session = rows.session(connection, principal.session_id)
        if session is not None and session.context_count >= limits.CONTEXTS_PER_SESSION:
            raise fail(
                "invalid_argument",
                f"A session can have at most {limits.CONTEXTS_PER_SESSION} authors. Nothing was changed.",
                field="body.cause",
            )
