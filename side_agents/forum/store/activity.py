"""The ledger: one row for each thing that happened, in the only order there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

THREAD_CREATED = "thread.created"
POST_CREATED = "post.created"
POST_REDACTED = "post.redacted"


def append(
    db: Connection, *, event: str, actor: str, session: str, subforum: str, thread: str, post: str | None, at: int
) -> int:
    """Add an activity and return its sequence."""
    db.execute(
        "INSERT INTO activity(type, actor_id, session_id, subforum, thread_id, post_id, at) VALUES(?, ?, ?, ?, ?, ?, ?)",
        (event, actor, session, subforum, thread, post, at),
    )
    return db.last_insert_rowid()
