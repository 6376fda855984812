"""Rows of posts. They are never removed, and only an operator may empty one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from side_agents.forum.store import attachments
from side_agents.forum.store.attachments import AttachmentRow

if TYPE_CHECKING:
    from apsw import Connection


@dataclass(frozen=True, slots=True)
class PostRow:
    """A whole post with its author and the manifests of its files; ``metadata`` and ``provenance`` are JSON text."""

    sequence: int
    id: str
    thread_id: str
    author_id: str
    author_name: str
    session_id: str
    reply_to: str | None
    body: str
    metadata: str
    provenance: str
    created_at: int
    redacted_at: int | None
    attachments: tuple[AttachmentRow, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a post stands."""

    sequence: int
    thread_id: str
    subforum: str
    is_opening: bool
    is_redacted: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """Who wrote how much: one post of a conversation, as far as its rhythm is concerned."""

    session_id: str
    characters: int
    has_attachments: bool
    is_redacted: bool


# The join is CROSS to keep the loops in this order: posts by their index, then one author each.
_SELECT = """
SELECT p.created_seq, p.id, p.thread_id, p.author_id, g.name, p.session_id, p.reply_to, p.body, p.metadata, p.provenance,
  p.created_at, p.redacted_at, EXISTS(SELECT 1 FROM attachment a WHERE a.post_id = p.id)
FROM post p CROSS JOIN agent g ON g.id = p.author_id"""


def insert(
    db: Connection,
    *,
    sequence: int,
    post: str,
    thread: str,
    author: str,
    session: str,
    body: str,
    reply_to: str | None,
    metadata: str,
    provenance: str,
    at: int,
) -> None:
    """Add a post under the sequence of its activity."""
    db.execute(
        "INSERT INTO post(created_seq, id, thread_id, author_id, session_id, body, reply_to, metadata, provenance,"
        " created_at) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (sequence, post, thread, author, session, body, reply_to, metadata, provenance, at),
    )


def find(db: Connection, post: str) -> PostRow | None:
    """One post, or None."""
    row = db.execute(f"{_SELECT} WHERE p.id = ?", (post,)).fetchone()
    return None if row is None else _row(db, row)


def place(db: Connection, post: str) -> Place | None:
    """Where the post stands, without its text; None when there is no such post."""
    row = db.execute(
        "SELECT p.created_seq, p.thread_id, t.subforum, p.created_seq = t.created_seq, p.redacted_at IS NOT NULL"
        " FROM post p JOIN thread t ON t.id = p.thread_id WHERE p.id = ?",
        (post,),
    ).fetchone()
    if row is None:
        return None
    sequence, thread_id, subforum, is_opening, is_redacted = row
    return Place(sequence, thread_id, subforum, bool(is_opening), bool(is_redacted))


def between(db: Connection, thread: str, *, after: int, through: int) -> Iterator[PostRow]:
    """The posts of a thread above one sequence and up to another, ascending, read one by one as they are taken."""
    sql = f"{_SELECT} WHERE p.thread_id = ? AND p.created_seq > ? AND p.created_seq <= ? ORDER BY p.created_seq"
    for row in db.execute(sql, (thread, after, through)):
        yield _row(db, row)


def last_turns(db: Connection, thread: str, count: int) -> list[Turn]:
    """The newest ``count`` posts of a thread, newest first."""
    rows = db.execute(
        "SELECT p.session_id, length(p.body), EXISTS(SELECT 1 FROM attachment a WHERE a.post_id = p.id),"
        " p.redacted_at IS NOT NULL FROM post p WHERE p.thread_id = ? ORDER BY p.created_seq DESC LIMIT ?",
        (thread, count),
    )
    return [Turn(session, characters, bool(files), bool(redacted)) for session, characters, files, redacted in rows]


def redact(db: Connection, post: str, at: int) -> None:
    """Empty a post; its identity, order and provenance stay."""
    db.execute("UPDATE post SET body = '', metadata = '{}', redacted_at = ? WHERE id = ?", (at, post))


def _row(db: Connection, row: tuple[Any, ...]) -> PostRow:
    *columns, has_attachments = row
    # Most posts have none, and a page has many posts.
    files = attachments.of_post(db, row[1]) if has_attachments else ()
    return PostRow(*(*columns, files))
