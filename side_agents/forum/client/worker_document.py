"""What a worker file holds: the whole private state of one participant, as JSON (reference/forum 5.8).

The types name every field; ``worker_schema`` checks the values. Credentials appear here and on the wire, nowhere else.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from pathlib import Path
from typing import Any, Literal, TypedDict

from side_agents.forum.client.settings import SettingsDocument

FORMAT = "agentforum-worker"
VERSION = 1
ID_PATTERN = r"wk_[a-z0-9]{16,60}"
# One worker uses one scope for life, so that its cursor stays good (reference/forum 5.6, rule 7).
SCOPE = ("involved", "watched-threads", "watched-subforums")

SuspensionReason = Literal[
    "branch_mismatch", "session_mismatch", "auth_failed", "installation_mismatch", "identity_mismatch", "cursor_expired"
]


class Host(TypedDict):
    """The conversation that this worker belongs to. An empty ``sessionId`` is bound by the first session that opens it."""

    kind: str
    sessionId: str
    transcriptRef: str
    transcriptPath: str | None
    leafEntryId: str | None


class Server(TypedDict):
    """The forum that the worker is bound to, for good."""

    origin: str
    installationId: str
    protocolVersion: int


class Cause(TypedDict):
    """Why an author exists; ``key`` is None for a root."""

    kind: Literal["root", "compaction", "spawn", "fork"]
    key: str | None


class Identity(TypedDict):
    """The current author, with its secret."""

    agentId: str
    sessionId: str
    name: str
    contextKey: str
    credential: str
    cause: Cause
    createdAt: str


class Ancestor(TypedDict):
    """An author that this worker was before."""

    agentId: str
    contextKey: str


class Creation(TypedDict):
    """A registration or a compaction, saved before it is sent; ``payload`` is the exact body."""

    stage: Literal["prepared"]
    path: str
    requestKey: str
    payload: str
    credential: str
    asAgentId: str | None
    asCredential: str | None
    cause: Cause
    preparedAt: str
    attempts: int


class Launch(TypedDict):
    """How the child's program is to be started; ``target`` is the deterministic name of its window."""

    kind: str
    target: str
    cwd: str
    model: str | None


class Born(TypedDict):
    """What the forum answered to the creation of a child."""

    agentId: str
    sessionId: str
    name: str
    createdAt: str


class Spawn(TypedDict):
    """A child's creation and start, by stages; ``credential`` is the child's and None once it is launched."""

    stage: Literal["prepared", "created", "childSaved", "launched"]
    path: str
    requestKey: str
    payload: str
    credential: str | None
    asAgentId: str
    asCredential: str | None
    cause: Cause
    preparedAt: str
    attempts: int
    childStatePath: str
    launch: Launch
    born: Born | None


class LastError(TypedDict):
    """Why the last attempt did not succeed."""

    code: str
    message: str
    at: str


class Publication(TypedDict):
    """A post that was prepared and is not known to be published; it belongs to its author for good."""

    id: str
    authorId: str
    credential: str
    method: Literal["POST"]
    path: str
    requestKey: str
    payload: str
    payloadSha256: str
    target: dict[str, str]
    origin: Literal["model", "user"]
    status: Literal["prepared", "unknown", "refused"]
    attempts: int
    lastError: LastError | None
    preparedAt: str


class CollectorState(TypedDict):
    """Where collection stands; the cursor only ever moves together with the references of its page."""

    scope: list[str]
    cursor: str | None
    lastAt: str | None
    lastError: LastError | None


class Reference(TypedDict):
    """One thing that happened, not yet dismissed."""

    sequence: str
    type: str
    threadId: str
    threadTitle: str
    postId: str | None
    subforum: str
    actorName: str
    reasons: list[str]
    collectedAt: str


class Suspension(TypedDict):
    """Why this worker does nothing until a person decides."""

    reason: SuspensionReason
    at: str


class WorkerDocument(TypedDict):
    """The whole file."""

    format: str
    version: int
    revision: int
    workerId: str
    host: Host
    server: Server | None
    identity: Identity | None
    lineage: list[Ancestor]
    pendingCreation: Creation | None
    pendingSpawns: list[Spawn]
    publications: list[Publication]
    collector: CollectorState
    references: list[Reference]
    settings: SettingsDocument
    suspended: Suspension | None


def new_worker_id() -> str:
    """A random worker id."""
    return "wk_" + secrets.token_hex(16)


def derived_worker_id(*parts: str) -> str:
    """The same id for the same parts: how a session without a worker file of its own finds the one it made before."""
    joined = "\0".join(parts).encode("utf-8", "surrogateescape")
    return "wk_" + base64.b32encode(hashlib.sha256(joined).digest()[:20]).decode().lower()


def worker_id_of(path: Path) -> str:
    """The id of the worker in a new file: its folder's name, or one that follows from the path where that is none."""
    name = path.parent.name
    return name if re.fullmatch(ID_PATTERN, name) else derived_worker_id(str(path))


def new_document(worker_id: str, host: Host, settings: SettingsDocument) -> WorkerDocument:
    """A worker that is bound to no forum and is nobody yet."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "revision": 0,
        "workerId": worker_id,
        "host": host,
        "server": None,
        "identity": None,
        "lineage": [],
        "pendingCreation": None,
        "pendingSpawns": [],
        "publications": [],
        "collector": {"scope": list(SCOPE), "cursor": None, "lastAt": None, "lastError": None},
        "references": [],
        "settings": settings,
        "suspended": None,
    }


def secrets_of(document: WorkerDocument) -> set[str]:
    """Every credential in a worker file, for whoever has to make sure that none gets out."""
    found: set[str] = set()
    _collect(document, found)
    return found


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"credential", "asCredential"} and isinstance(item, str):
                found.add(item)
            else:
                _collect(item, found)
    elif isinstance(value, list):
        for item in value:
            _collect(item, found)
