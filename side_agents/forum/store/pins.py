"""Pins: the few threads of a subforum, and posts of a thread, that somebody put on top. ``pinned_seq`` is their order."""

from __future__ import annotations

from dataclasses import dataclass

from side_agents.forum.store.database import Connection


@dataclass(frozen=True, slots=True)
class Shelf:
    """What can be pinned, and where: a table with the column that names what pins are counted in."""

    table: str
    context: str


THREADS = Shelf("thread", "subforum")
POSTS = Shelf("post", "thread_id")


def pinned(connection: Connection, shelf: Shelf, item: str) -> int | None:
    """The sequence of the activity that pinned it, None when it is not pinned."""
    sequence: int | None = connection.execute(f"SELECT pinned_seq FROM {shelf.table} WHERE id = ?", (item,)).get
    return sequence


def pin(connection: Connection, shelf: Shelf, item: str, sequence: int | None) -> None:
    """Pin under the sequence of the activity that says so, or with None unpin."""
    connection.execute(f"UPDATE {shelf.table} SET pinned_seq = ? WHERE id = ?", (sequence, item))


def listed(connection: Connection, shelf: Shelf, context: str) -> list[str]:
    """Ids of what is pinned in a subforum or thread, in the order of pinning."""
    rows = connection.execute(
        f"SELECT id FROM {shelf.table} WHERE {shelf.context} = ? AND pinned_seq IS NOT NULL ORDER BY pinned_seq",
        (context,),
    )
    return [item for (item,) in rows]
