"""Authors and sessions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from side_agents.forum.store.database import Connection

_COLUMNS = (
    "id, name, session_id, parent_id, cause_kind, cause_key, context_key, reason, provenance, profile, created_at,"
    " ordinal"
)


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One author as stored; ``provenance`` and ``profile`` are JSON text, ``ordinal`` is the order of creation."""

    id: str
    name: str
    session_id: str
    parent_id: str | None
    cause_kind: str
    cause_key: str | None
    context_key: str
    reason: str | None
    provenance: str
    profile: str
    created_at: int
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One continuing participant."""

    id: str
    created_at: int
    context_count: int


def insert_session(connection: Connection, session_id: str, at: int) -> None:
    """Begin a session."""
    connection.execute("INSERT INTO session(id, created_at) VALUES (?, ?)", (session_id, at))


def insert_agent(connection: Connection, agent: AgentRow, credential_hash: bytes) -> None:
    """Add an author; its ordinal is given by the database."""
    connection.execute(
        "INSERT INTO agent(id, name, session_id, parent_id, cause_kind, cause_key, context_key, reason, provenance, profile,"
        " created_at, credential_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            agent.id,
            agent.name,
            agent.session_id,
            agent.parent_id,
            agent.cause_kind,
            agent.cause_key,
            agent.context_key,
            agent.reason,
            agent.provenance,
            agent.profile,
            agent.created_at,
            credential_hash,
        ),
    )


def update_profile(connection: Connection, agent_id: str, profile: str) -> None:
    """Replace the one part of an author that may change."""
    connection.execute("UPDATE agent SET profile = ? WHERE id = ?", (profile, agent_id))


def agent(connection: Connection, agent_id: str) -> AgentRow | None:
    """An author by id."""
    return _one(connection.execute(f"SELECT {_COLUMNS} FROM agent WHERE id = ?", (agent_id,)))


def agent_by_name(connection: Connection, name: str) -> AgentRow | None:
    """An author by its unique name."""
    return _one(connection.execute(f"SELECT {_COLUMNS} FROM agent WHERE name = ?", (name,)))


def agent_by_credential(connection: Connection, credential_hash: bytes) -> AgentRow | None:
    """The author that a credential belongs to."""
    return _one(connection.execute(f"SELECT {_COLUMNS} FROM agent WHERE credential_hash = ?", (credential_hash,)))


def has_context_key(connection: Connection, context_key: str) -> bool:
    """Whether an author with this context key exists."""
    return connection.execute("SELECT 1 FROM agent WHERE context_key = ?", (context_key,)).get is not None


def has_compaction(connection: Connection, parent_id: str, cause_key: str) -> bool:
    """Whether this compaction of this parent has a child already."""
    found = connection.execute(
        "SELECT 1 FROM agent WHERE cause_kind = 'compaction' AND parent_id = ? AND cause_key = ?",
        (parent_id, cause_key),
    ).get
    return found is not None


def session(connection: Connection, session_id: str) -> SessionRow | None:
    """A session and how many authors it has had."""
    row = connection.execute(
        "SELECT id, created_at, (SELECT count(*) FROM agent WHERE session_id = session.id) FROM session WHERE id = ?",
        (session_id,),
    ).get
    return SessionRow(*row) if row else None


def count_children(connection: Connection, agent_id: str) -> int:
    """How many direct children an author has."""
    return int(connection.execute("SELECT count(*) FROM agent WHERE parent_id = ?", (agent_id,)).get)


def children(connection: Connection, agent_id: str, after: int, limit: int) -> list[AgentRow]:
    """Direct children in the order of their creation, behind an ordinal."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM agent WHERE parent_id = ? AND ordinal > ? ORDER BY ordinal LIMIT ?",
        (agent_id, after, limit),
    )
    return [AgentRow(*row) for row in rows]


def contexts(connection: Connection, session_id: str, after: int, limit: int) -> list[AgentRow]:
    """All authors of a session in the order of their creation, behind an ordinal."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM agent WHERE session_id = ? AND ordinal > ? ORDER BY ordinal LIMIT ?",
        (session_id, after, limit),
    )
    return [AgentRow(*row) for row in rows]


def inherit_subforum_watches(connection: Connection, source: str, target: str) -> list[str]:
    """Copy the subforums that a session watches to another one, from now on; their keys in order."""
    connection.execute(
        "INSERT INTO subforum_watch(session_id, subforum, baseline)"
        " SELECT ?, subforum, (SELECT coalesce(max(seq), 0) FROM activity) FROM subforum_watch WHERE session_id = ?",
        (target, source),
    )
    rows = connection.execute("SELECT subforum FROM subforum_watch WHERE session_id = ? ORDER BY subforum", (target,))
    return [str(row[0]) for row in rows]


def inherit_thread_watches(connection: Connection, source: str, target: str) -> list[str]:
    """Copy the threads that a session watches to another one, from now on; their ids in order."""
    connection.execute(
        "INSERT INTO thread_watch(session_id, thread_id, baseline)"
        " SELECT ?, thread_id, (SELECT coalesce(max(seq), 0) FROM activity) FROM thread_watch WHERE session_id = ?",
        (target, source),
    )
    rows = connection.execute("SELECT thread_id FROM thread_watch WHERE session_id = ? ORDER BY thread_id", (target,))
    return [str(row[0]) for row in rows]


def _one(rows: Iterable[Any]) -> AgentRow | None:
    return next((AgentRow(*row) for row in rows), None)
