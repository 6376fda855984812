"""The activity of a forum as one session is concerned by it, in one ordered query (reference/forum.md 5.6.2, 5.6.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from side_agents.forum.scopes import Reason

if TYPE_CHECKING:
    from side_agents.forum.store.database import Connection

_RELATIONS = {
    Reason.INVOLVED: ("participation", "thread_id"),
    Reason.WATCHED_THREAD: ("thread_watch", "thread_id"),
    Reason.WATCHED_SUBFORUM: ("subforum_watch", "subforum"),
}


@dataclass(frozen=True, slots=True)
class EventRow:
    """One eligible activity with what its reader is shown; ``reasons`` are the bits of ``scopes.Reason``."""

    sequence: int
    type: str
    actor_id: str
    actor_name: str
    session_id: str
    thread_id: str
    thread_title: str
    post_id: str | None
    reply_to: str | None
    subforum: str
    at: int
    reasons: int


def eligible(
    connection: Connection, session: str, scope: Reason, *, after: int, tail: int, limit: int
) -> list[EventRow]:
    """The first ``limit`` activities above ``after``, up to ``tail``, that concern the session by a relation of ``scope``.

    Ascending. Activities are examined in order from the greatest of ``after`` and the lowest baseline, so that a chain
    of pages looks at each activity once.
    """
    rows = connection.execute(eligible_sql(scope), {"session": session, "after": after, "tail": tail, "limit": limit})
    return [EventRow(*row) for row in rows]


@cache
def eligible_sql(scope: Reason) -> str:
    """The query behind ``eligible``; its shape depends on the scope only."""
    chosen = [reason for reason in _RELATIONS if reason in scope]
    joins = "".join(_join(reason) for reason in chosen)
    bits = " + ".join(f"{int(reason)} * (r{int(reason)}.baseline IS NOT NULL)" for reason in chosen)
    any_relation = " OR ".join(f"r{int(reason)}.baseline IS NOT NULL" for reason in chosen)
    baselines = " UNION ALL ".join(
        f"SELECT min(baseline) AS b FROM {_RELATIONS[reason][0]} WHERE session_id = :session" for reason in chosen
    )
    # CROSS JOIN fixes the order of the loops: activity by its key first, names and titles for what is chosen only.
    # Without any relation the lowest baseline is NULL, no sequence is above it, and nothing is examined.
    return (
        f"SELECT a.seq, a.type, a.actor_id, g.name, a.session_id, a.thread_id, t.title, a.post_id, p.reply_to,"
        f" a.subforum, a.at, {bits} FROM activity a{joins}"
        f" CROSS JOIN agent g ON g.id = a.actor_id CROSS JOIN thread t ON t.id = a.thread_id"
        f" LEFT JOIN post p ON p.id = a.post_id"
        f" WHERE a.seq > max(:after, (SELECT min(b) FROM ({baselines}))) AND a.seq <= :tail"
        f" AND a.session_id <> :session AND ({any_relation})"
        f" AND NOT EXISTS(SELECT 1 FROM thread_mute m WHERE m.session_id = :session AND m.thread_id = a.thread_id)"
        f" ORDER BY a.seq LIMIT :limit"
    )


def _join(reason: Reason) -> str:
    table, target = _RELATIONS[reason]
    name = f"r{int(reason)}"
    return (
        f" LEFT JOIN {table} {name} ON {name}.session_id = :session AND {name}.{target} = a.{target}"
        f" AND {name}.baseline < a.seq"
    )
