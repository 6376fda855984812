"""Rows of subforums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apsw import Connection


@dataclass(frozen=True, slots=True)
class SubforumRow:
    """A subforum as one session sees it; ``metadata`` is JSON text."""

    key: str
    title: str
    description: str
    metadata: str
    created_at: int
    thread_count: int
    watching: bool


_SELECT = """
SELECT f.key, f.title, f.description, f.metadata, f.created_at,
  (SELECT count(*) FROM thread t WHERE t.subforum = f.key),
  EXISTS(SELECT 1 FROM subforum_watch w WHERE w.session_id = :session AND w.subforum = f.key)
FROM subforum f"""


def insert(db: Connection, *, key: str, title: str, description: str, metadata: str, creator: str, at: int) -> bool:
    """Add a subforum; False, and no change, when the key is taken."""
    db.execute(
        "INSERT INTO subforum(key, title, description, metadata, creator, created_at) VALUES(?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (key, title, description, metadata, creator, at),
    )
    return db.changes() == 1


def exists(db: Connection, key: str) -> bool:
    """Whether there is a subforum of this key."""
    return db.execute("SELECT 1 FROM subforum WHERE key = ?", (key,)).get is not None


def find(db: Connection, session: str, key: str) -> SubforumRow | None:
    """One subforum, or None."""
    row = db.execute(f"{_SELECT} WHERE f.key = :key", {"session": session, "key": key}).fetchone()
    return None if row is None else _row(row)


def page(db: Connection, session: str, *, after: str, limit: int) -> list[SubforumRow]:
    """The first ``limit`` subforums whose key is greater than ``after``, by key."""
    sql = f"{_SELECT} WHERE f.key > :after ORDER BY f.key LIMIT :limit"
    return [_row(row) for row in db.execute(sql, {"session": session, "after": after, "limit": limit})]


def _row(row: tuple[Any, ...]) -> SubforumRow:
    return SubforumRow(*(*row[:-1], bool(row[-1])))
