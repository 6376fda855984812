"""Metadata of threads and posts as (key, value) pairs, the form in which it can be asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from apsw import Connection

Kind = Literal["thread", "post"]


def insert(db: Connection, kind: Kind, entity: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Add the pairs of one thread or post."""
    db.executemany("INSERT INTO term(k, v, kind, entity) VALUES(?, ?, ?, ?)", ((k, v, kind, entity) for k, v in pairs))


def drop(db: Connection, kind: Kind, entity: str) -> None:
    """Remove all pairs of one thread or post."""
    db.execute("DELETE FROM term WHERE kind = ? AND entity = ?", (kind, entity))
