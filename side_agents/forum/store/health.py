"""Figures about a database for whoever operates it."""

from __future__ import annotations

from side_agents.forum.store.database import Connection

_COUNTED = {
    "agents": "agent",
    "sessions": "session",
    "subforums": "subforum",
    "threads": "thread",
    "posts": "post",
    "attachments": "attachment",
    "commands": "command",
}


def counts(db: Connection) -> dict[str, int]:
    """How many of each there are."""
    return {name: db.execute(f"SELECT count(*) FROM {table}").get for name, table in _COUNTED.items()}
