"""Becoming somebody: the root registration of a worker, and a new author of the same session after a compaction.

Both are prepared, saved, sent, checked and saved again; a crash anywhere leaves one exact request to send again, and a
refusal leaves it too, for a person to see (seed 000, sections 3 and 5).
"""

from __future__ import annotations

import json

from side_agents.errors import ForumError, NotFoundError, RefusedError
from side_agents.forum import failpoints
from side_agents.forum.client import commands, host
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import NOWHERE, Moment
from side_agents.forum.client.transport import bad_answer
from side_agents.forum.client.worker_document import Cause, Creation, Identity, WorkerDocument
from side_agents.forum.client.worker_file import WorkerFile


def register(file: WorkerFile, connection: Connection, *, name: str) -> Identity:
    """The worker's identity, registering it under ``name`` when it has none. Raises ForumError.

    Something that was prepared earlier is finished first, with the name it was prepared with. A worker is bound to its
    forum from the moment that its registration is saved.
    """
    document = file.document
    if document["identity"] is None and document["pendingCreation"] is None:
        server = connection.verify()

        def prepare(draft: WorkerDocument) -> None:
            cause: Cause = {"kind": "root", "key": None}
            draft["server"] = server
            draft["pendingCreation"] = commands.new_creation(
                cause=cause, name=name, provenance=host.provenance(draft, NOWHERE, origin="extension")
            )

        file.update(prepare)
        failpoints.reach("K2")
    if file.document["pendingCreation"] is not None:
        return finish(file, connection)
    return _identity(file)


def compact(
    file: WorkerFile, connection: Connection, *, entry_id: str, name: str, moment: Moment, reason: str | None = None
) -> Identity:
    """The author after the compaction with this entry: made once, however often this is called. Raises ForumError.

    Only for compactions that succeeded; an earlier one that was not finished is finished first.
    """
    if file.document["pendingCreation"] is not None:
        finish(file, connection)
    current = _identity(file)
    if current["cause"] == {"kind": "compaction", "key": entry_id}:
        return current

    def prepare(draft: WorkerDocument) -> None:
        cause: Cause = {"kind": "compaction", "key": entry_id}
        draft["pendingCreation"] = commands.new_creation(
            cause=cause,
            name=name,
            provenance=host.provenance(draft, moment, origin="extension"),
            parent=current,
            extra={} if reason is None else {"reason": reason},
        )

    file.update(prepare)
    failpoints.reach("K2")
    return finish(file, connection)


def finish(file: WorkerFile, connection: Connection) -> Identity:
    """Send the prepared creation, once more if need be, and become what it made. Raises ForumError; it stays then."""
    creation = file.document["pendingCreation"]
    if creation is None:
        raise NotFoundError("There is no unfinished registration. Nothing was sent.")
    try:
        author = commands.send_creation(
            connection,
            path=creation["path"],
            key=creation["requestKey"],
            payload=creation["payload"],
            credential=creation["asCredential"],
        )
        _check_session(file.document, creation, author.session_id, connection.origin)
    except ForumError as error:
        file.update(_note_attempt)
        raise _explained(error, creation) from error
    identity = commands.identity_of(
        author, payload=creation["payload"], credential=creation["credential"], cause=creation["cause"]
    )
    file.update(lambda draft: _become(draft, identity))
    failpoints.reach("K5")
    return identity


def discard(file: WorkerFile) -> None:
    """Forget a prepared registration or compaction, for a person who decided so. Raises NotFoundError.

    Should it have happened after all, an author remains whom nobody can speak for.
    """
    if file.document["pendingCreation"] is None:
        raise NotFoundError("There is no unfinished registration. Nothing was changed.")

    def forget(draft: WorkerDocument) -> None:
        draft["pendingCreation"] = None
        if draft["identity"] is None:
            draft["server"] = None

    file.update(forget)


def _become(draft: WorkerDocument, identity: Identity) -> None:
    """Identity and absence of the prepared request in one revision; cursor and references stay as they are."""
    before = draft["identity"]
    if before is not None:
        draft["lineage"].append({"agentId": before["agentId"], "contextKey": before["contextKey"]})
    draft["identity"] = identity
    draft["pendingCreation"] = None


def _check_session(document: WorkerDocument, creation: Creation, session_id: str, origin: str) -> None:
    current = document["identity"]
    if creation["cause"]["kind"] == "compaction" and current is not None and session_id != current["sessionId"]:
        raise bad_answer(origin, "it gave a compaction child a session of its own")


def _note_attempt(draft: WorkerDocument) -> None:
    creation = draft["pendingCreation"]
    if creation is not None:
        creation["attempts"] += 1


def _explained(error: ForumError, creation: Creation) -> ForumError:
    """The same error, saying that the prepared request is kept and what a person can do with it."""
    if not commands.is_definite(error):
        error.hint = error.hint or "The prepared registration is kept; the next forum call sends exactly it again."
        return error
    name = json.loads(creation["payload"])["name"]
    return ForumError(
        f"{error.message} The forum did not register {name}; the prepared request is kept as it is.",
        forum_code=error.forum_code,
        status=error.status,
        retryable=error.retryable,
        field=error.field,
        hint="Discard it, then the next forum call prepares another: side-agents forum worker discard",
    )


def _identity(file: WorkerFile) -> Identity:
    identity = file.document["identity"]
    if identity is None:
        raise RefusedError("This worker is not registered with the forum yet. Nothing was sent.")
    return identity
