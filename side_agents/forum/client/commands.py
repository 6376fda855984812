"""Commands that create: saved with their secret before they are sent, and sent again exactly as they were saved.

What is prepared here has one key for good. No function makes a second one for the same intent (reference/forum 6.2).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import failpoints, ids, limits
from side_agents.forum.client import api
from side_agents.forum.client.api import Author
from side_agents.forum.client.connection import Connection, Reply, is_local_fault
from side_agents.forum.client.transport import bad_answer
from side_agents.forum.client.worker_document import Cause, Creation, Identity, LastError
from side_agents.infra import clock, text

REGISTER_PATH = "/v1/agents/register"
# Answers that a request cannot survive as it is: a person has to decide. All others may be followed by the same request.
_DEFINITE = frozenset((400, 403, 404, 405, 409, 413, 415, 422))
_ERROR_CHARACTERS = 1000


def fresh_name(prefix: str, label: str) -> str:
    """A name that nobody has: prefix, label as far as it fits, and a random end."""
    ending = secrets.token_hex(4)
    room = limits.NAME_CHARACTERS - len(prefix) - len(ending) - 2
    middle = re.sub(r"[^A-Za-z0-9]+", "-", text.to_ascii(label)).strip("-")[: max(0, room)].strip("-")
    name = "-".join(part for part in (prefix, middle, ending) if part)
    # A prefix may begin with a dash or underscore, a name may not.
    return name.lstrip("-_")


def new_creation(
    *,
    cause: Cause,
    name: str,
    provenance: Mapping[str, str],
    parent: Identity | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Creation:
    """A prepared registration, or a prepared child of ``parent``; nothing of it exists anywhere yet."""
    credential = ids.new_credential()
    body: dict[str, Any] = {
        "schemaVersion": limits.SCHEMA_VERSION,
        "contextKey": f"ck_{secrets.token_hex(16)}",
        "credential": credential,
        "name": name,
        "provenance": {**provenance},
        **(extra or {}),
    }
    if parent is not None:
        body["cause"] = {**cause}
    failpoints.reach("K1")
    return {
        "stage": "prepared",
        "path": REGISTER_PATH if parent is None else f"/v1/agents/{parent['agentId']}/children",
        "requestKey": ids.new_request_key(),
        "payload": json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False),
        "credential": credential,
        "asAgentId": None if parent is None else parent["agentId"],
        "asCredential": None if parent is None else parent["credential"],
        "cause": cause,
        "preparedAt": clock.iso(),
        "attempts": 0,
    }


def send_creation(connection: Connection, *, path: str, key: str, payload: str, credential: str | None) -> Author:
    """Send a prepared creation and check that the answer is the answer to it. Raises ForumError."""
    reply = connection.send_prepared(
        path, key=key, payload=payload, credential=credential, sent=lambda: failpoints.reach("K3")
    )
    failpoints.reach("K4")
    author = api.author_of(reply, connection.origin)
    check_reply(reply, payload, connection.origin)
    if author.name != json.loads(payload)["name"]:
        raise bad_answer(connection.origin, "it names another author than the one that was asked for")
    return author


def identity_of(author: Author, *, payload: str, credential: str, cause: Cause) -> Identity:
    """The identity that a creation made."""
    return {
        "agentId": author.agent_id,
        "sessionId": author.session_id,
        "name": author.name,
        "contextKey": json.loads(payload)["contextKey"],
        "credential": credential,
        "cause": cause,
        "createdAt": author.created_at,
    }


def check_reply(reply: Reply, payload: str, origin: str) -> None:
    """Raise ``bad_answer`` unless an answer says that it made something out of exactly these bytes."""
    if reply.status != 201:
        raise bad_answer(origin, f"status {reply.status} instead of 201", status=reply.status)
    if reply.data.get("payloadSha256") != payload_hash(payload):
        raise bad_answer(origin, "it is the answer to other bytes than those that were sent", status=reply.status)


def payload_hash(payload: str) -> str:
    """SHA-256 of a payload, as it is stored and as the forum returns it."""
    return hashlib.sha256(payload.encode()).hexdigest()


def is_definite(error: ForumError) -> bool:
    """Whether the same request can never succeed, so that a person has to decide what becomes of it."""
    return not is_local_fault(error) and error.status in _DEFINITE


def last_error(error: ForumError) -> LastError:
    """A failure as it is stored."""
    return {
        "code": error.forum_code[:64] or "error",
        "message": text.one_line(error.message, _ERROR_CHARACTERS),
        "at": clock.iso(),
    }
