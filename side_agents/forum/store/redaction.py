"""Taking a text out of the database, and then its bytes out of the files."""

from __future__ import annotations

from pathlib import Path

import apsw

from side_agents.forum.store import attachments, opening, posts, search, terms, threads
from side_agents.forum.store.database import Connection

REDACTED_TITLE = "[redacted]"
# Readers and writers of the forum are done in milliseconds; what takes longer is told of, not waited for.
_PATIENCE_MS = 2000


def empty_post(db: Connection, post: str, sequence: int, at: int) -> int:
    """Remove a post's text, metadata, files and index entry; says how many files there were."""
    posts.redact(db, post, at)
    terms.drop(db, "post", post)
    search.drop(db, sequence)
    search.purge(db)
    return attachments.drop(db, post)


def empty_thread(db: Connection, thread: str) -> None:
    """Remove a thread's title and metadata. Its opening post must have been emptied: that entry of the index has the title."""
    threads.redact_title(db, thread, REDACTED_TITLE)
    terms.drop(db, "thread", thread)


def rewrite(path: Path) -> bool:
    """Write the file anew from what is still in it and empty its log; False when others in the database prevent that for now.

    Overwriting what is freed (``secure_delete``) would not do: pages that were split keep remains of rows that moved.
    """
    connection = opening.connect(path, opening.WRITER)
    try:
        connection.set_busy_timeout(_PATIENCE_MS)
        connection.execute("VACUUM")
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    except (apsw.BusyError, apsw.LockedError):
        return False
    finally:
        connection.close()
    return bool(busy == 0)
