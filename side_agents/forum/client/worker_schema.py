"""Which worker files are good: every field of every nested record, and what must agree between them (reference/forum 5.8).

A file is either good or refused whole; nothing is repaired, and messages name a place in the file, never its content.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, cast, get_args

from side_agents.errors import ForumError, StateError, UsageError
from side_agents.forum import ids, limits
from side_agents.forum.client import settings
from side_agents.forum.client.worker_document import (
    FORMAT,
    ID_PATTERN,
    SCOPE,
    VERSION,
    SuspensionReason,
    WorkerDocument,
)
from side_agents.forum.client.worker_rules import (
    FaultError,
    fail,
    identifier,
    items,
    number,
    one_of,
    optional,
    record,
    text,
)

_REGISTER_PATH = "/v1/agents/register"
_CHILDREN_PATH = re.compile(r"/v1/agents/(ag_[0-9A-Z]{26})/children\Z")
_POST_PATH = r"(/v1/threads/th_[0-9A-Z]{26}/posts|/v1/subforums/[a-z0-9][a-z0-9-]{0,63}/threads)$"
_TIME_CHARACTERS = 64
_PATH_CHARACTERS = 4096
_ERROR_CHARACTERS = 2000


def parse(raw: bytes, *, where: str) -> WorkerDocument:
    """The document in the bytes of a worker file. Raises StateError, which says exactly what is wrong."""
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
        return check(data)
    except FaultError as fault:
        raise StateError(f"{where} is no good worker file: {fault}. It was left as it is.") from fault
    except (ValueError, RecursionError) as error:
        raise StateError(f"{where} is no good worker file: it is not valid JSON. It was left as it is.") from error


def encode(document: WorkerDocument) -> bytes:
    """The bytes to save. Raises StateError when the document is not good or too large; nothing was written then."""
    try:
        check(document)
    except FaultError as fault:
        raise StateError(f"The forum state was not changed, the change would make it wrong: {fault}.") from fault
    raw = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1).encode()
    if len(raw) > limits.CLIENT_STATE_BYTES:
        raise StateError(
            f"The forum state was not changed: it would grow over {limits.CLIENT_STATE_BYTES} bytes.",
            hint="Resolve pending publications first: side-agents forum worker show",
        )
    return raw


def check(data: object) -> WorkerDocument:
    """Return the same object when every rule holds. Raises an exception of this module's own otherwise."""
    if not isinstance(data, dict):
        fail("the file", "must be one JSON object")
    if data.get("format") != FORMAT:
        fail("format", f"must be {FORMAT}")
    if data.get("version") != VERSION or type(data.get("version")) is not int:
        fail("version", f"must be {VERSION}; this version of side-agents knows no other")
    _DOCUMENT("", data)
    document = cast("WorkerDocument", data)
    _check_agreement(document)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        fail("a key", "occurs twice in one object")
    return found


def _no_constant(_: str) -> NoReturn:
    fail("a number", "is not finite")


def _credential(where: str, value: Any) -> None:
    try:
        ids.credential_hash(value if isinstance(value, str) else "")
    except ForumError:
        fail(where, "is no credential: af_ and 43 base64url characters of 32 bytes")


def _origin(where: str, value: Any) -> None:
    try:
        good = value == settings.LOCAL or settings.check_origin(value if isinstance(value, str) else "") == value
    except UsageError:
        good = False
    if not good:
        fail(where, "is no origin that may be trusted")


def _settings(where: str, value: Any) -> None:
    try:
        settings.settings_from(value, complete=True)
    except UsageError as error:
        fail(where, f"are not valid: {error.message}")


def _creation_path(where: str, value: Any) -> None:
    if not isinstance(value, str) or (value != _REGISTER_PATH and not _CHILDREN_PATH.match(value)):
        fail(where, "is not one of the routes that create an author")


def _target(where: str, value: Any) -> None:
    known = {"threadId", "subforum", "replyTo", "title"}
    if not isinstance(value, dict) or not value or not value.keys() <= known:
        fail(where, "must say what is posted to: threadId, replyTo, subforum, title")
    for name, item in value.items():
        text(limits.TITLE_CHARACTERS)(f"{where}.{name}", item)


_TIME = text(_TIME_CHARACTERS)
_PATH = text(_PATH_CHARACTERS)
_SEQUENCE = text(19, pattern=r"(0|[1-9][0-9]*)$")
_REQUEST_KEY = text(128, pattern=limits.IDEMPOTENCY_KEY_PATTERN)
_PAYLOAD = text(limits.CLIENT_STATE_BYTES)
_NAME = text(limits.NAME_CHARACTERS, pattern=limits.NAME_PATTERN)
_CONTEXT_KEY = text(limits.CONTEXT_KEY_CHARACTERS)
_CAUSE = record(
    {
        "kind": one_of("root", "compaction", "spawn", "fork"),
        "key": optional(text(limits.CAUSE_KEY_CHARACTERS)),
    }
)
_LAST_ERROR = optional(record({"code": text(64), "message": text(_ERROR_CHARACTERS, empty=True), "at": _TIME}))
_CREATION = {
    "path": _creation_path,
    "requestKey": _REQUEST_KEY,
    "payload": _PAYLOAD,
    "cause": _CAUSE,
    "preparedAt": _TIME,
    "attempts": number,
    "asCredential": optional(_credential),
}
_BORN = record({"agentId": identifier("ag"), "sessionId": identifier("as"), "name": _NAME, "createdAt": _TIME})
_LAUNCH = record(
    {"kind": text(64), "target": text(256), "cwd": _PATH, "model": optional(text(256))},
)
_DOCUMENT = record(
    {
        "format": one_of(FORMAT),
        "version": one_of(VERSION),
        "revision": number,
        "workerId": text(64, pattern=ID_PATTERN),
        "host": record(
            {
                "kind": text(64),
                "sessionId": text(256, empty=True),
                "transcriptRef": text(64, pattern=r"tr_[a-z0-9]{16,60}$"),
                "transcriptPath": optional(_PATH),
                "leafEntryId": optional(text(256)),
            }
        ),
        "server": optional(
            record({"origin": _origin, "installationId": identifier("in"), "protocolVersion": one_of(1)})
        ),
        "identity": optional(
            record(
                {
                    "agentId": identifier("ag"),
                    "sessionId": identifier("as"),
                    "name": _NAME,
                    "contextKey": _CONTEXT_KEY,
                    "credential": _credential,
                    "cause": _CAUSE,
                    "createdAt": _TIME,
                }
            )
        ),
        "lineage": items(record({"agentId": identifier("ag"), "contextKey": _CONTEXT_KEY}), limits.CLIENT_LINEAGE),
        "pendingCreation": optional(
            record(
                {
                    **_CREATION,
                    "stage": one_of("prepared"),
                    "credential": _credential,
                    "asAgentId": optional(identifier("ag")),
                }
            )
        ),
        "pendingSpawns": items(
            record(
                {
                    **_CREATION,
                    "stage": one_of("prepared", "created", "childSaved", "launched"),
                    "credential": optional(_credential),
                    "asAgentId": identifier("ag"),
                    "childStatePath": _PATH,
                    "launch": _LAUNCH,
                    "born": optional(_BORN),
                }
            ),
            limits.CLIENT_SPAWNS,
        ),
        "publications": items(
            record(
                {
                    "id": text(64, pattern=r"pb_[a-z0-9]{16,60}$"),
                    "authorId": identifier("ag"),
                    "credential": _credential,
                    "method": one_of("POST"),
                    "path": text(200, pattern=_POST_PATH),
                    "requestKey": _REQUEST_KEY,
                    "payload": _PAYLOAD,
                    "payloadSha256": text(64, pattern=r"[0-9a-f]{64}$"),
                    "target": _target,
                    "origin": one_of("model", "user"),
                    "status": one_of("prepared", "unknown", "refused"),
                    "attempts": number,
                    "lastError": _LAST_ERROR,
                    "preparedAt": _TIME,
                }
            ),
            limits.CLIENT_PUBLICATIONS,
        ),
        "collector": record(
            {
                "scope": items(one_of(*SCOPE), len(SCOPE)),
                "cursor": optional(text(4096)),
                "lastAt": optional(_TIME),
                "lastError": _LAST_ERROR,
            }
        ),
        "references": items(
            record(
                {
                    "sequence": _SEQUENCE,
                    "type": text(64),
                    "threadId": identifier("th"),
                    "threadTitle": text(limits.TITLE_CHARACTERS, empty=True),
                    "postId": optional(identifier("po")),
                    "subforum": text(64, pattern=limits.SUBFORUM_KEY_PATTERN),
                    "actorName": text(limits.NAME_CHARACTERS),
                    "reasons": items(text(64), 16),
                    "collectedAt": _TIME,
                }
            ),
            limits.CLIENT_REFERENCES,
        ),
        "settings": _settings,
        "suspended": optional(record({"reason": one_of(*get_args(SuspensionReason)), "at": _TIME})),
    }
)


def _check_agreement(document: WorkerDocument) -> None:
    identity, creation = document["identity"], document["pendingCreation"]
    known = {ancestor["agentId"] for ancestor in document["lineage"]}
    if identity is not None:
        if document["server"] is None:
            fail("server", "is missing although there is an identity")
        _check_cause("identity.cause", identity["cause"])
        known.add(identity["agentId"])
    if creation is not None:
        _check_creation("pendingCreation", cast("dict[str, Any]", creation))
    for place, spawn in enumerate(document["pendingSpawns"]):
        _check_spawn(f"pendingSpawns[{place}]", cast("dict[str, Any]", spawn))
    for place, publication in enumerate(document["publications"]):
        where = f"publications[{place}]"
        _check_payload(where, publication["payload"])
        if hashlib.sha256(publication["payload"].encode()).hexdigest() != publication["payloadSha256"]:
            fail(f"{where}.payloadSha256", "is not the hash of its payload")
        if publication["authorId"] not in known:
            fail(f"{where}.authorId", "is no author that this worker is or was")
    for what in ("publications", "references", "pendingSpawns"):
        key = {"publications": "id", "references": "sequence", "pendingSpawns": "requestKey"}[what]
        values = [item[key] for item in cast("dict[str, Any]", document)[what]]
        if len(set(values)) != len(values):
            fail(what, f"has the same {key} twice")


def _check_cause(where: str, cause: Mapping[str, Any]) -> None:
    if (cause["kind"] == "root") != (cause["key"] is None):
        fail(where, "must have a key, and only a root none")


def _check_creation(where: str, creation: Mapping[str, Any]) -> None:
    is_root = creation["cause"]["kind"] == "root"
    _check_cause(f"{where}.cause", creation["cause"])
    if is_root != (creation["asCredential"] is None) or is_root != (creation["asAgentId"] is None):
        fail(where, "must name a parent and its credential, and a root neither")
    expected = _REGISTER_PATH if is_root else f"/v1/agents/{creation['asAgentId']}/children"
    if creation["path"] != expected:
        fail(f"{where}.path", "does not fit its cause and parent")
    payload = _check_payload(where, creation["payload"])
    if payload.get("credential") != creation["credential"]:
        fail(f"{where}.payload", "registers another credential than the one saved with it")


def _check_spawn(where: str, spawn: Mapping[str, Any]) -> None:
    if spawn["cause"]["kind"] not in ("spawn", "fork"):
        fail(f"{where}.cause", "must be a spawn or a fork")
    if (spawn["born"] is None) != (spawn["stage"] == "prepared"):
        fail(f"{where}.born", "must be there from the stage created on, and not before")
    if spawn["stage"] != "launched":
        _check_creation(where, spawn)
        return
    if spawn["credential"] is not None or spawn["asCredential"] is not None:
        fail(where, "is launched and must hold no credential any more")
    if "credential" in _check_payload(where, spawn["payload"]):
        fail(f"{where}.payload", "is launched and must hold no credential any more")


def _check_payload(where: str, payload: str) -> dict[str, Any]:
    try:
        data = json.loads(payload, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        fail(f"{where}.payload", "is not one JSON object")
    return data
