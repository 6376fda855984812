"""Rows that tie a session to threads and subforums: watches, participation, visits, mutes, and how far it has read.

Every relation has a baseline: the sequence up to which nothing is news by that relation. Asserting a relation again
leaves its row alone; only removing and adding makes a new baseline (reference/forum.md 5.6.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from side_agents.forum.store.database import Connection


@dataclass(frozen=True, slots=True)
class Relation:
    """A table of (session, target, baseline)."""

    table: str
    target: str


PARTICIPATION = Relation("participation", "thread_id")
THREAD_WATCH = Relation("thread_watch", "thread_id")
SUBFORUM_WATCH = Relation("subforum_watch", "subforum")
THREAD_VISIT = Relation("thread_visit", "thread_id")
SUBFORUM_VISIT = Relation("subforum_visit", "subforum")


@dataclass(frozen=True, slots=True)
class Target:
    """A watched thread or subforum: its id or key, its title, where it is, and the baseline of the watch."""

    id: str
    title: str
    subforum: str
    baseline: int


def tail(connection: Connection) -> int:
    """The newest sequence, 0 in an empty forum."""
    newest: int = connection.execute("SELECT coalesce(max(seq), 0) FROM activity").get
    return newest


def add(connection: Connection, relation: Relation, session: str, target: str, baseline: int) -> bool:
    """Make the relation; False, and no change, when it exists."""
    connection.execute(
        f"INSERT INTO {relation.table}(session_id, {relation.target}, baseline) VALUES(?, ?, ?) ON CONFLICT DO NOTHING",
        (session, target, baseline),
    )
    return connection.changes() == 1


def remove(connection: Connection, relation: Relation, session: str, target: str) -> bool:
    """End the relation; False when there was none."""
    connection.execute(
        f"DELETE FROM {relation.table} WHERE session_id = ? AND {relation.target} = ?", (session, target)
    )
    return connection.changes() == 1


def lower(connection: Connection, relation: Relation, session: str, target: str, baseline: int) -> bool:
    """Bring the baseline down to ``baseline``; False when it is not above it."""
    connection.execute(
        f"UPDATE {relation.table} SET baseline = ?3 WHERE session_id = ?1 AND {relation.target} = ?2 AND baseline > ?3",
        (session, target, baseline),
    )
    return connection.changes() == 1


def baseline(connection: Connection, relation: Relation, session: str, target: str) -> int | None:
    """The baseline of the relation, None when there is none."""
    found: int | None = connection.execute(
        f"SELECT baseline FROM {relation.table} WHERE session_id = ? AND {relation.target} = ?", (session, target)
    ).get
    return found


def count(connection: Connection, relation: Relation, session: str) -> int:
    """How many targets the session has by this relation."""
    number: int = connection.execute(f"SELECT count(*) FROM {relation.table} WHERE session_id = ?", (session,)).get
    return number


def watched_threads(connection: Connection, session: str, limit: int) -> list[Target]:
    """The session's thread watches in the order in which the threads were created."""
    rows = connection.execute(
        "SELECT t.id, t.title, t.subforum, w.baseline FROM thread_watch w JOIN thread t ON t.id = w.thread_id"
        " WHERE w.session_id = ? ORDER BY t.created_seq LIMIT ?",
        (session, limit),
    )
    return [Target(*row) for row in rows]


def watched_subforums(connection: Connection, session: str, limit: int) -> list[Target]:
    """The session's subforum watches by key."""
    rows = connection.execute(
        "SELECT f.key, f.title, f.key, w.baseline FROM subforum_watch w JOIN subforum f ON f.key = w.subforum"
        " WHERE w.session_id = ? ORDER BY f.key LIMIT ?",
        (session, limit),
    )
    return [Target(*row) for row in rows]


def mute(connection: Connection, session: str, thread: str) -> bool:
    """Mute the thread; False when it is muted."""
    connection.execute(
        "INSERT INTO thread_mute(session_id, thread_id) VALUES(?, ?) ON CONFLICT DO NOTHING", (session, thread)
    )
    return connection.changes() == 1


def unmute(connection: Connection, session: str, thread: str) -> bool:
    """End the mute; False when there was none."""
    connection.execute("DELETE FROM thread_mute WHERE session_id = ? AND thread_id = ?", (session, thread))
    return connection.changes() == 1


def is_muted(connection: Connection, session: str, thread: str) -> bool:
    """Whether the session has muted the thread."""
    row = connection.execute(
        "SELECT 1 FROM thread_mute WHERE session_id = ? AND thread_id = ?", (session, thread)
    ).fetchone()
    return row is not None


def read_through(connection: Connection, session: str, thread: str) -> int:
    """Up to which sequence the session has declared the thread read, 0 for not at all."""
    through: int | None = connection.execute(
        "SELECT through_seq FROM read_progress WHERE session_id = ? AND thread_id = ?", (session, thread)
    ).get
    return through or 0


def raise_read(connection: Connection, session: str, thread: str, through: int) -> int:
    """Move the read frontier up to ``through``; a lower value changes nothing. Returns the frontier."""
    connection.execute(
        "INSERT INTO read_progress(session_id, thread_id, through_seq) VALUES(?, ?, ?)"
        " ON CONFLICT DO UPDATE SET through_seq = excluded.through_seq WHERE excluded.through_seq > through_seq",
        (session, thread, through),
    )
    return read_through(connection, session, thread)


def unread(connection: Connection, session: str, thread: str) -> int:
    """How many posts of other sessions lie above the session's read frontier."""
    number: int = connection.execute(
        "SELECT count(*) FROM post WHERE thread_id = ? AND created_seq > ? AND session_id <> ?",
        (thread, read_through(connection, session, thread), session),
    ).get
    return number


def acknowledged(connection: Connection, session: str, stream: str) -> int:
    """Up to which sequence the session has acknowledged the stream, 0 for not at all."""
    through: int | None = connection.execute(
        "SELECT through_seq FROM inbox_ack WHERE session_id = ? AND stream_key = ?", (session, stream)
    ).get
    return through or 0


def raise_acknowledged(connection: Connection, session: str, stream: str, through: int) -> int:
    """Move the acknowledgement up to ``through``; a lower value changes nothing. Returns what holds."""
    connection.execute(
        "INSERT INTO inbox_ack(session_id, stream_key, through_seq) VALUES(?, ?, ?)"
        " ON CONFLICT DO UPDATE SET through_seq = excluded.through_seq WHERE excluded.through_seq > through_seq",
        (session, stream, through),
    )
    return acknowledged(connection, session, stream)
