"""Children of an author, made in stages that survive a crash at any point (reference/forum 5.11, P1-P7).

P1 ``prepare`` saves the child's secret with the parent · P2, P3 ``create`` sends it and saves the answer · P4, P5
``save_child`` writes the child's own file · P6 starts the child's program, by whoever calls us · P7 ``launched`` lets go
of the secret. Each function may be called again after a crash and then goes on where the saved stage says.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from side_agents.errors import ConflictError, ForumError, NotFoundError, RefusedError, StateError
from side_agents.forum import failpoints, limits
from side_agents.forum.client import commands, host, worker_document
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import NOWHERE, HostFacts, Moment
from side_agents.forum.client.transport import bad_answer
from side_agents.forum.client.worker_document import Cause, Identity, Launch, Spawn, WorkerDocument
from side_agents.forum.client.worker_file import WorkerFile, read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """Who the child is to be. ``cause_key`` is what its spawner calls this one start, the same after a crash."""

    cause_key: str
    name: str
    child_state: Path
    launch: Launch
    kind: Literal["spawn", "fork"] = "spawn"
    reason: str | None = None
    moment: Moment = NOWHERE


def has_room(document: WorkerDocument) -> bool:
    """Whether one more child may be begun; each start gives its place back when its program runs."""
    return len(_unfinished(document)) < limits.CLIENT_SPAWNS


def prepare(file: WorkerFile, plan: ChildPlan) -> Spawn:
    """P1: the child's prepared creation, saved; the one of an earlier call with the same cause key, if there is one.

    Raises RefusedError when the worker is nobody yet or has as many unfinished children as it may.
    """
    existing = _find(file.document, plan.cause_key)
    if existing is not None:
        if existing["childStatePath"] != str(plan.child_state):
            raise ConflictError("This start was prepared before with another state file. Nothing was changed.")
        return existing

    def save(draft: WorkerDocument) -> None:
        identity = draft["identity"]
        if identity is None:
            raise RefusedError("The spawning worker is not registered with the forum yet. Nothing was changed.")
        unfinished = _unfinished(draft)
        if not has_room(draft):
            raise RefusedError(
                f"{len(unfinished)} children of this worker are unfinished, as many as there may be. Nothing was changed.",
                hint="Look at them: side-agents forum worker show",
            )
        # What is launched is kept for a while only so that a repeated call finds it.
        launched = [spawn for spawn in draft["pendingSpawns"] if spawn["stage"] == "launched"]
        room = limits.CLIENT_SPAWNS - len(unfinished) - 1
        draft["pendingSpawns"] = [*(launched[-room:] if room else []), *unfinished, _spawn(draft, identity, plan)]

    file.update(save)
    failpoints.reach("P1")
    return _need(file.document, plan.cause_key)


def create(file: WorkerFile, connection: Connection, cause_key: str) -> Spawn:
    """P2 and P3: make the child at the forum and save who it is. Raises ForumError; the prepared request stays."""
    spawn = _need(file.document, cause_key)
    if spawn["stage"] != "prepared":
        return spawn
    try:
        author = commands.send_creation(
            connection,
            path=spawn["path"],
            key=spawn["requestKey"],
            payload=spawn["payload"],
            credential=spawn["asCredential"],
        )
        identity = file.document["identity"]
        if identity is not None and author.session_id == identity["sessionId"]:
            raise bad_answer(connection.origin, "it gave a child the session of its parent")
    except ForumError:
        file.update(lambda draft: _change(draft, cause_key, _count_attempt))
        raise
    failpoints.reach("P2")
    born: worker_document.Born = {
        "agentId": author.agent_id,
        "sessionId": author.session_id,
        "name": author.name,
        "createdAt": author.created_at,
    }

    def save(spawn: Spawn) -> None:
        spawn["stage"], spawn["born"] = "created", born

    file.update(lambda draft: _change(draft, cause_key, save))
    failpoints.reach("P3")
    return _need(file.document, cause_key)


def save_child(file: WorkerFile, cause_key: str) -> Spawn:
    """P4 and P5: write the child's own file and save that it is there.

    Raises ConflictError when another worker's file has the name, which is kept.
    """
    spawn = _need(file.document, cause_key)
    if spawn["stage"] != "created":
        return spawn
    child = child_document(file.document, spawn)
    path = Path(spawn["childStatePath"])
    if not _is_saved(path, child):
        WorkerFile.create(path, lambda: child, purpose=f"writing the forum state of {_name(spawn)}").close()
        if not _is_saved(path, child):
            raise ConflictError(f"{path} holds the forum state of somebody else; it was kept.")
    failpoints.reach("P4")

    def save(spawn: Spawn) -> None:
        spawn["stage"] = "childSaved"

    file.update(lambda draft: _change(draft, cause_key, save))
    failpoints.reach("P5")
    return _need(file.document, cause_key)


def launched(file: WorkerFile, cause_key: str) -> Spawn:
    """P7: the child's program runs; its secret and the parent's copy for this request are dropped here."""
    failpoints.reach("P6")
    spawn = _need(file.document, cause_key)
    if spawn["stage"] == "launched":
        return spawn
    if spawn["stage"] != "childSaved":
        raise StateError(f"{_name(spawn)} cannot have been started: its forum state is not saved yet.")

    def save(spawn: Spawn) -> None:
        payload = json.loads(spawn["payload"])
        del payload["credential"]
        spawn["payload"] = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
        spawn["credential"] = spawn["asCredential"] = None
        spawn["stage"] = "launched"

    file.update(lambda draft: _change(draft, cause_key, save))
    failpoints.reach("P7")
    return _need(file.document, cause_key)


def abandon(file: WorkerFile, cause_key: str) -> None:
    """Forget a child whose start was given up; an author that was made remains at the forum, and nobody speaks for it."""
    _need(file.document, cause_key)

    def forget(draft: WorkerDocument) -> None:
        draft["pendingSpawns"] = [spawn for spawn in draft["pendingSpawns"] if spawn["cause"]["key"] != cause_key]

    file.update(forget)


def child_document(parent: WorkerDocument, spawn: Spawn) -> WorkerDocument:
    """The first revision of the child's file: its own identity and settings, no cursor, no references (rule 48)."""
    born, credential = spawn["born"], spawn["credential"]
    if born is None or credential is None:
        raise StateError(f"{_name(spawn)} has no identity yet, or has been started already.")
    worker_id = worker_document.worker_id_of(Path(spawn["childStatePath"]))
    facts = HostFacts(kind=spawn["launch"]["kind"])
    settings = copy.deepcopy(parent["settings"])
    document = worker_document.new_document(worker_id, host.new_host(worker_id, facts), settings)
    document["server"] = parent["server"]
    document["identity"] = {
        "agentId": born["agentId"],
        "sessionId": born["sessionId"],
        "name": born["name"],
        "contextKey": json.loads(spawn["payload"])["contextKey"],
        "credential": credential,
        "cause": spawn["cause"],
        "createdAt": born["createdAt"],
    }
    return document


def child_state_path(workers: Path, parent: WorkerDocument, cause_key: str) -> Path:
    """Where the file of a child lies: the same for the same cause, so that a repeated start finds it."""
    worker_id = worker_document.derived_worker_id(parent["workerId"], "child", cause_key)
    return workers / worker_id / "worker.json"


def _spawn(draft: WorkerDocument, identity: Identity, plan: ChildPlan) -> Spawn:
    settings = draft["settings"]
    cause: Cause = {"kind": plan.kind, "key": plan.cause_key}
    inherit = {"subforums": settings["copySubforumsOnSpawn"], "threadWatches": settings["copyThreadWatchesOnSpawn"]}
    extra: dict[str, Any] = {"inherit": inherit}
    if plan.reason is not None:
        extra["reason"] = plan.reason
    creation = commands.new_creation(
        cause=cause,
        name=plan.name,
        provenance=host.provenance(draft, plan.moment, origin="extension"),
        parent=identity,
        extra=extra,
    )
    return {
        "stage": "prepared",
        "path": creation["path"],
        "requestKey": creation["requestKey"],
        "payload": creation["payload"],
        "credential": creation["credential"],
        "asAgentId": identity["agentId"],
        "asCredential": creation["asCredential"],
        "cause": cause,
        "preparedAt": creation["preparedAt"],
        "attempts": 0,
        "childStatePath": str(plan.child_state),
        "launch": plan.launch,
        "born": None,
    }


def _unfinished(document: WorkerDocument) -> list[Spawn]:
    return [spawn for spawn in document["pendingSpawns"] if spawn["stage"] != "launched"]


def _is_saved(path: Path, child: WorkerDocument) -> bool:
    """Whether the child's file is there already; it may be in use, and have grown since."""
    try:
        identity = read_document(path)["identity"]
    except NotFoundError:
        return False
    expected = child["identity"]
    if identity is None or expected is None:
        return False
    return identity["sessionId"] == expected["sessionId"]


def _change(draft: WorkerDocument, cause_key: str, change: Callable[[Spawn], None]) -> None:
    change(_need(draft, cause_key))


def _count_attempt(spawn: Spawn) -> None:
    spawn["attempts"] += 1


def _find(document: WorkerDocument, cause_key: str) -> Spawn | None:
    return next((spawn for spawn in document["pendingSpawns"] if spawn["cause"]["key"] == cause_key), None)


def _need(document: WorkerDocument, cause_key: str) -> Spawn:
    spawn = _find(document, cause_key)
    if spawn is None:
        raise NotFoundError(f"No child was prepared for {cause_key}. Nothing was changed.")
    return spawn


def _name(spawn: Spawn) -> str:
    return str(json.loads(spawn["payload"])["name"])
