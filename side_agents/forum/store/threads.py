"""Rows of threads, and the listings of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from apsw import Connection

Relation = Literal["watching", "involved", "unread"]


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread as one session sees it; ``metadata`` is JSON text, ``read_through`` 0 for not at all."""

    id: str
    subforum: str
    title: str
    metadata: str
    author_id: str
    author_name: str
    author_session: str
    created_sequence: int
    last_sequence: int
    created_at: int
    post_count: int
    unread_count: int
    read_through: int
    watching: bool
    involved: bool
    muted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which threads a listing shows; all conditions hold together."""

    subforum: str | None = None
    relation: Relation | None = None
    terms: Sequence[tuple[str, str]] = ()


_UNREAD = "p.thread_id = t.id AND p.created_seq > coalesce(r.through_seq, 0) AND p.session_id <> :session"
_COLUMNS = f"""
SELECT t.id, t.subforum, t.title, t.metadata, g.id, g.name, g.session_id, t.created_seq, t.last_seq, t.created_at,
  (SELECT count(*) FROM post p WHERE p.thread_id = t.id), (SELECT count(*) FROM post p WHERE {_UNREAD}),
  coalesce(r.through_seq, 0),
  EXISTS(SELECT 1 FROM thread_watch w WHERE w.session_id = :session AND w.thread_id = t.id),
  EXISTS(SELECT 1 FROM participation i WHERE i.session_id = :session AND i.thread_id = t.id),
  EXISTS(SELECT 1 FROM thread_mute m WHERE m.session_id = :session AND m.thread_id = t.id)"""
# CROSS keeps the loops in this order: threads first, by whatever finds the fewest, then what belongs to each.
_JOINS = """
  CROSS JOIN agent g ON g.id = t.creator
  LEFT JOIN read_progress r ON r.session_id = :session AND r.thread_id = t.id"""
_SOURCES: dict[Relation | None, str] = {
    "watching": "thread_watch s CROSS JOIN thread t ON s.session_id = :session AND t.id = s.thread_id",
    "involved": "participation s CROSS JOIN thread t ON s.session_id = :session AND t.id = s.thread_id",
}


def insert(
    db: Connection, *, thread: str, subforum: str, title: str, metadata: str, creator: str, sequence: int, at: int
) -> None:
    """Add a thread whose opening post has the given sequence."""
    db.execute(
        "INSERT INTO thread(id, subforum, title, metadata, creator, created_seq, last_seq, created_at)"
        " VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        (thread, subforum, title, metadata, creator, sequence, sequence, at),
    )


def touch(db: Connection, thread: str, sequence: int) -> None:
    """Note the thread's newest activity."""
    db.execute("UPDATE thread SET last_seq = ? WHERE id = ?", (sequence, thread))


def subforum_of(db: Connection, thread: str) -> str | None:
    """Where the thread is, or None when there is no such thread."""
    found: str | None = db.execute("SELECT subforum FROM thread WHERE id = ?", (thread,)).get
    return found


def title(db: Connection, thread: str) -> str | None:
    """The thread's title, or None when there is no such thread."""
    found: str | None = db.execute("SELECT title FROM thread WHERE id = ?", (thread,)).get
    return found


def find(db: Connection, session: str, thread: str) -> ThreadRow | None:
    """One thread, or None."""
    sql = f"{_COLUMNS} FROM thread t {_JOINS} WHERE t.id = :thread"
    row = db.execute(sql, {"session": session, "thread": thread}).fetchone()
    return None if row is None else _row(row)


def newest(db: Connection, session: str, chosen: Filter, *, before: int, limit: int) -> list[ThreadRow]:
    """The first ``limit`` threads created before the sequence ``before``, newest first."""
    terms = {
        f"{part}{index}": text for index, pair in enumerate(chosen.terms) for part, text in zip("kv", pair, strict=True)
    }
    named = {"session": session, "subforum": chosen.subforum, "before": before, "limit": limit, **terms}
    return [_row(row) for row in db.execute(newest_sql(chosen), named)]


def newest_sql(chosen: Filter) -> str:
    """The query behind ``newest``; its shape depends on which conditions there are."""
    conditions = ["t.created_seq < :before"]
    if chosen.subforum is not None:
        conditions.append("t.subforum = :subforum")
    if chosen.relation == "unread":
        conditions.append(f"EXISTS(SELECT 1 FROM post p WHERE {_UNREAD})")
    conditions += [
        f"EXISTS(SELECT 1 FROM term e WHERE e.k = :k{index} AND e.v = :v{index} AND e.kind = 'thread' AND e.entity = t.id)"
        for index in range(len(chosen.terms))
    ]
    source = _SOURCES.get(chosen.relation, "thread t")
    where = " AND ".join(conditions)
    return f"{_COLUMNS} FROM {source} {_JOINS} WHERE {where} ORDER BY t.created_seq DESC LIMIT :limit"


def recent(db: Connection, session: str, subforum: str | None, limit: int) -> list[ThreadRow]:
    """The threads with the newest activity, of one subforum or of all."""
    named = {"session": session, "subforum": subforum, "limit": limit}
    return [_row(row) for row in db.execute(recent_sql(subforum), named)]


def recent_sql(subforum: str | None) -> str:
    """The query behind ``recent``."""
    where = "" if subforum is None else "WHERE t.subforum = :subforum"
    return f"{_COLUMNS} FROM thread t {_JOINS} {where} ORDER BY t.last_seq DESC LIMIT :limit"


def redact_title(db: Connection, thread: str, title: str) -> None:
    """Replace the title and empty the metadata of a thread."""
    db.execute("UPDATE thread SET title = ?, metadata = '{}' WHERE id = ?", (title, thread))


def _row(row: tuple[Any, ...]) -> ThreadRow:
    # SQLite has no truth values; the last three columns are some.
    return ThreadRow(*(*row[:-3], *map(bool, row[-3:])))
