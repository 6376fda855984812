"""Rows of attachments: the bytes of files, kept with the post that brought them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection


@dataclass(frozen=True, slots=True)
class AttachmentRow:
    """What is told about a file without its bytes."""

    id: str
    name: str
    media_type: str
    size: int
    sha256: bytes


# The bytes come last in the table and are not named here, so that listing a post does not read them.
_MANIFEST = "id, name, media_type, size, sha256"


def insert(db: Connection, post: str, ordinal: int, row: AttachmentRow, data: bytes) -> None:
    """Add one file of a post at its place in the order, from 0."""
    db.execute(
        f"INSERT INTO attachment(post_id, ordinal, {_MANIFEST}, data) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        (post, ordinal, row.id, row.name, row.media_type, row.size, row.sha256, data),
    )


def of_post(db: Connection, post: str) -> tuple[AttachmentRow, ...]:
    """The files of a post in their order."""
    rows = db.execute(f"SELECT {_MANIFEST} FROM attachment WHERE post_id = ? ORDER BY ordinal", (post,))
    return tuple(AttachmentRow(*row) for row in rows)


def find(db: Connection, attachment: str) -> tuple[AttachmentRow, bytes] | None:
    """One file with its bytes, or None."""
    row = db.execute(f"SELECT {_MANIFEST}, data FROM attachment WHERE id = ?", (attachment,)).fetchone()
    if row is None:
        return None
    *manifest, data = row
    return AttachmentRow(*manifest), data


def drop(db: Connection, post: str) -> int:
    """Remove the files of a post; says how many there were."""
    db.execute("DELETE FROM attachment WHERE post_id = ?", (post,))
    return db.changes()
