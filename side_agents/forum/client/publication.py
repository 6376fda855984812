"""Publishing a post: prepared under its author's name for good, saved, sent, checked, and only then forgotten.

Whatever happens to the answer, the author, the bytes and the key of a publication stay what they were when it was
prepared, also after a compaction made the worker somebody else (seed 000, section 6).
"""

from __future__ import annotations

import copy
import json
import secrets
from dataclasses import dataclass
from typing import Any

from side_agents.errors import ForumError, NotFoundError, RefusedError
from side_agents.forum import failpoints, ids, limits
from side_agents.forum.client import api, commands, host
from side_agents.forum.client.api import Posted
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import Moment, Origin
from side_agents.forum.client.policy import Draft
from side_agents.forum.client.transport import bad_answer
from side_agents.forum.client.worker_document import Publication, WorkerDocument
from side_agents.forum.client.worker_file import WorkerFile
from side_agents.infra import clock


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a publication: ``posted``, or why not; ``is_definite`` when trying again cannot help."""

    publication_id: str
    posted: Posted | None = None
    error: ForumError | None = None
    is_definite: bool = False


def capture(document: WorkerDocument, draft: Draft, *, origin: Origin, moment: Moment) -> Publication:
    """The whole publication as of now, not saved yet: taken before anybody is asked, so that a compaction or another
    model meanwhile changes nothing of it.

    Raises RefusedError when the worker is nobody yet, or has as many unresolved publications as it may.
    """
    identity = document["identity"]
    if identity is None:
        raise RefusedError("This worker is not registered with the forum yet. Nothing was published.")
    if len(document["publications"]) >= limits.CLIENT_PUBLICATIONS:
        raise RefusedError(
            f"{limits.CLIENT_PUBLICATIONS} publications are unresolved, as many as there may be. Nothing was published.",
            hint="The user resolves them: side-agents forum worker show, then retry or discard.",
        )
    payload = _payload(draft, host.provenance(document, moment, origin=origin))
    key = draft.thread_id or draft.subforum
    return {
        "id": f"pb_{secrets.token_hex(16)}",
        "authorId": identity["agentId"],
        "credential": identity["credential"],
        "method": "POST",
        "path": f"/v1/threads/{key}/posts" if draft.thread_id else f"/v1/subforums/{key}/threads",
        "requestKey": ids.new_request_key(),
        "payload": payload,
        "payloadSha256": commands.payload_hash(payload),
        "target": draft.target(),
        "origin": "user" if origin == "user" else "model",
        "status": "prepared",
        "attempts": 0,
        "lastError": None,
        "preparedAt": clock.iso(),
    }


def save(file: WorkerFile, publication: Publication) -> None:
    """Make a captured publication durable; from now on it can be sent, and is never lost."""
    failpoints.reach("C1")

    def add(draft: WorkerDocument) -> None:
        if len(draft["publications"]) >= limits.CLIENT_PUBLICATIONS:
            raise RefusedError("Another publication took the last place meanwhile. Nothing was published.")
        draft["publications"].append(copy.deepcopy(publication))

    failpoints.reach("K1")
    file.update(add)
    failpoints.reach("K2")


def send(file: WorkerFile, connection: Connection, publication_id: str) -> Outcome:
    """Send a saved publication exactly as it is saved, for the first or another time.

    It disappears only after an answer that is certainly about it. Raises NotFoundError for an unknown id; failures of the
    forum are outcomes.
    """
    publication = find(file.document, publication_id)
    try:
        reply = connection.send_prepared(
            publication["path"],
            key=publication["requestKey"],
            payload=publication["payload"],
            credential=publication["credential"],
            sent=lambda: failpoints.reach("K3"),
        )
        failpoints.reach("K4")
        posted = api.posted_of(reply, connection.origin)
        commands.check_reply(reply, publication["payload"], connection.origin)
        _check_target(posted, publication, connection.origin)
    except ForumError as error:
        outcome = Outcome(publication_id, error=error, is_definite=commands.is_definite(error))
        file.update(lambda draft: _note_failure(draft, outcome))
        return outcome
    failpoints.reach("C2")
    file.update(lambda draft: _remove(draft, publication_id))
    failpoints.reach("K5")
    return Outcome(publication_id, posted=posted)


def discard(file: WorkerFile, publication_id: str) -> None:
    """Forget a publication, for a person who decided so; what the forum may have made of it stays there."""
    find(file.document, publication_id)
    file.update(lambda draft: _remove(draft, publication_id))


def find(document: WorkerDocument, publication_id: str) -> Publication:
    """An unresolved publication. Raises NotFoundError."""
    for publication in document["publications"]:
        if publication["id"] == publication_id:
            return publication
    raise NotFoundError(f"There is no unresolved publication {publication_id[:80]!r}. Nothing was changed.")


def _payload(draft: Draft, provenance: dict[str, str]) -> str:
    content: dict[str, Any] = {"body": draft.body, "provenance": provenance}
    if draft.thread_id is not None:
        replied = {} if draft.reply_to is None else {"replyTo": draft.reply_to}
        whole = {"schemaVersion": limits.SCHEMA_VERSION, **content, **replied}
    else:
        whole = {"schemaVersion": limits.SCHEMA_VERSION, "title": draft.title, "post": content}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _check_target(posted: Posted, publication: Publication, origin: str) -> None:
    target = publication["target"]
    checks: tuple[tuple[str, str, str | None], ...] = (
        ("author", posted.author_id, publication["authorId"]),
        ("thread", posted.thread_id, target.get("threadId")),
        ("subforum", posted.subforum, target.get("subforum")),
    )
    for what, answered, expected in checks:
        if expected is not None and answered != expected:
            raise bad_answer(origin, f"it names another {what} than the one that was meant", status=201)


def _note_failure(draft: WorkerDocument, outcome: Outcome) -> None:
    publication = find(draft, outcome.publication_id)
    publication["attempts"] += 1
    publication["status"] = "refused" if outcome.is_definite else "unknown"
    publication["lastError"] = None if outcome.error is None else commands.last_error(outcome.error)


def _remove(draft: WorkerDocument, publication_id: str) -> None:
    draft["publications"] = [each for each in draft["publications"] if each["id"] != publication_id]
