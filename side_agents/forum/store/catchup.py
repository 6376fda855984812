"""Catch-up plans: a stored, finite selection of unread posts, walked thread by thread (reference/forum.md 1.3).

A position in a plan is (ordinal of the thread, sequence within it); what comes next lies behind it. ``START`` is before
everything. A receipt remembers which stretch of the plan a page covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from side_agents.forum.scopes import Reason

if TYPE_CHECKING:
    from side_agents.forum.store.database import Connection

Position = tuple[int, int]
START: Position = (0, 0)

_HITS = {
    Reason.INVOLVED: "SELECT thread_id, baseline, 1 FROM participation WHERE session_id = :session",
    Reason.WATCHED_THREAD: "SELECT thread_id, baseline, 2 FROM thread_watch WHERE session_id = :session",
    Reason.WATCHED_SUBFORUM: (
        "SELECT t.id, w.baseline, 4 FROM subforum_watch w JOIN thread t ON t.subforum = w.subforum"
        " WHERE w.session_id = :session"
    ),
    Reason.VISITED_THREAD: "SELECT thread_id, baseline, 8 FROM thread_visit WHERE session_id = :session",
    Reason.VISITED_SUBFORUM: (
        "SELECT t.id, v.baseline, 16 FROM subforum_visit v JOIN thread t ON t.subforum = v.subforum"
        " WHERE v.session_id = :session"
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A row of ``catchup_plan``; times in milliseconds."""

    id: str
    session_id: str
    scope: str
    subforum: str | None
    upper: int
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class PlanThread:
    """One thread of a plan; ``reasons`` are the bits of ``scopes.Reason``."""

    ordinal: int
    id: str
    title: str
    subforum: str
    lower: int
    reasons: int


@dataclass(frozen=True, slots=True)
class Examined:
    """One post that a page comes to; own ones are passed over, not shown."""

    ordinal: int
    sequence: int
    post_id: str
    own: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of one thread that a receipt covers: behind ``start``, to ``through``. ``lower`` is the plan's bound."""

    thread_id: str
    lower: int
    start: int
    through: int


def insert_plan(connection: Connection, plan: Plan, reasons: Reason, limit: int) -> None:
    """Store the plan and select its threads, oldest first, at most ``limit``.

    A thread is selected when it is not muted and has posts of other sessions above both the session's read frontier
    and the lowest baseline of the given reasons; the greater of the two becomes its lower bound.
    """
    connection.execute(
        "INSERT INTO catchup_plan(id, session_id, scope, subforum, upper_seq, created_at, expires_at)"
        " VALUES(?, ?, ?, ?, ?, ?, ?)",
        (plan.id, plan.session_id, plan.scope, plan.subforum, plan.upper, plan.created_at, plan.expires_at),
    )
    hits = " UNION ALL ".join(sql for reason, sql in _HITS.items() if reason in reasons)
    connection.execute(
        f"WITH hit(thread_id, baseline, bit) AS ({hits}),"
        " related AS (SELECT thread_id, min(baseline) AS baseline, sum(bit) AS bits FROM hit"
        "   WHERE baseline < :upper GROUP BY thread_id),"
        " bounded AS (SELECT x.thread_id, x.bits, max(x.baseline, coalesce(r.through_seq, 0)) AS lower"
        "   FROM related x LEFT JOIN read_progress r ON r.session_id = :session AND r.thread_id = x.thread_id)"
        " INSERT INTO catchup_plan_thread(plan_id, ordinal, thread_id, lower_seq, reasons)"
        " SELECT :plan, row_number() OVER (ORDER BY t.created_seq), b.thread_id, b.lower, b.bits"
        " FROM bounded b JOIN thread t ON t.id = b.thread_id"
        " WHERE (:subforum IS NULL OR t.subforum = :subforum)"
        " AND NOT EXISTS(SELECT 1 FROM thread_mute m WHERE m.session_id = :session AND m.thread_id = b.thread_id)"
        " AND EXISTS(SELECT 1 FROM post p WHERE p.thread_id = b.thread_id AND p.created_seq > b.lower"
        "   AND p.created_seq <= :upper AND p.session_id <> :session)"
        " ORDER BY t.created_seq LIMIT :limit",
        {
            "plan": plan.id,
            "session": plan.session_id,
            "subforum": plan.subforum,
            "upper": plan.upper,
            "limit": limit,
        },
    )


def plan(connection: Connection, plan_id: str) -> Plan | None:
    """The plan, expired or not; None when it does not exist."""
    row = connection.execute(
        "SELECT id, session_id, scope, subforum, upper_seq, created_at, expires_at FROM catchup_plan WHERE id = ?",
        (plan_id,),
    ).fetchone()
    return Plan(*row) if row else None


def count_live(connection: Connection, session: str, now: int) -> int:
    """How many plans of the session have not expired."""
    number: int = connection.execute(
        "SELECT count(*) FROM catchup_plan WHERE session_id = ? AND expires_at > ?", (session, now)
    ).get
    return number


def empty_expired(connection: Connection, session: str, now: int) -> None:
    """Free what the session's expired plans hold. Their own rows stay, so that they are still known as expired."""
    for table in ("catchup_plan_thread", "catchup_receipt"):
        connection.execute(
            f"DELETE FROM {table} WHERE plan_id IN"
            " (SELECT id FROM catchup_plan WHERE session_id = ? AND expires_at <= ?)",
            (session, now),
        )


def delete_plan(connection: Connection, plan_id: str) -> None:
    """Remove the plan with all that belongs to it."""
    connection.execute("DELETE FROM catchup_plan WHERE id = ?", (plan_id,))


def totals(connection: Connection, plan: Plan) -> tuple[int, int]:
    """How many threads the plan has, and how many posts of other sessions are to be shown."""
    row: tuple[int, int] = connection.execute(
        "SELECT count(DISTINCT x.ordinal), count(p.id) FROM catchup_plan_thread x JOIN post p"
        " ON p.thread_id = x.thread_id AND p.created_seq > x.lower_seq AND p.created_seq <= ?2"
        " AND p.session_id <> ?3 WHERE x.plan_id = ?1",
        (plan.id, plan.upper, plan.session_id),
    ).get
    return row


def examine(connection: Connection, plan: Plan, behind: Position, limit: int) -> list[Examined]:
    """The next ``limit`` posts of the plan behind a position, in the plan's order."""
    rows = connection.execute(
        "SELECT x.ordinal, p.created_seq, p.id, p.session_id = :session"
        " FROM catchup_plan_thread x CROSS JOIN post p ON p.thread_id = x.thread_id"
        " AND p.created_seq > CASE x.ordinal WHEN :ordinal THEN :after ELSE x.lower_seq END"
        " AND p.created_seq <= :upper WHERE x.plan_id = :plan AND x.ordinal >= :ordinal"
        " ORDER BY x.ordinal, p.created_seq LIMIT :limit",
        {
            "plan": plan.id,
            "session": plan.session_id,
            "ordinal": behind[0],
            "after": behind[1],
            "upper": plan.upper,
            "limit": limit,
        },
    )
    return [Examined(ordinal, sequence, post, bool(own)) for ordinal, sequence, post, own in rows]


def threads(connection: Connection, plan_id: str, first: int, last: int) -> list[PlanThread]:
    """The threads of the plan with ordinals from ``first`` to ``last``."""
    rows = connection.execute(
        "SELECT x.ordinal, t.id, t.title, t.subforum, x.lower_seq, x.reasons FROM catchup_plan_thread x"
        " JOIN thread t ON t.id = x.thread_id WHERE x.plan_id = ? AND x.ordinal BETWEEN ? AND ? ORDER BY x.ordinal",
        (plan_id, first, last),
    )
    return [PlanThread(*row) for row in rows]


def keep_receipt(connection: Connection, receipt_id: str, plan_id: str, start: Position, end: Position) -> str:
    """Store a receipt for a stretch of the plan and return its id; the same stretch keeps its first receipt."""
    stretch = (plan_id, *start, *end)
    connection.execute(
        "INSERT INTO catchup_receipt(id, plan_id, from_ordinal, from_seq, to_ordinal, to_seq)"
        " VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (receipt_id, *stretch),
    )
    kept: str = connection.execute(
        "SELECT id FROM catchup_receipt WHERE plan_id = ? AND from_ordinal = ? AND from_seq = ?"
        " AND to_ordinal = ? AND to_seq = ?",
        stretch,
    ).get
    return kept


def stretches(connection: Connection, plan: Plan, receipt_id: str) -> list[Stretch]:
    """What the receipt covers of each thread; empty when the plan has no such receipt."""
    rows = connection.execute(
        "SELECT x.thread_id, x.lower_seq, CASE x.ordinal WHEN c.from_ordinal THEN c.from_seq ELSE x.lower_seq END AS start,"
        " max(p.created_seq) FROM catchup_receipt c CROSS JOIN catchup_plan_thread x ON x.plan_id = c.plan_id"
        " AND x.ordinal BETWEEN c.from_ordinal AND c.to_ordinal CROSS JOIN post p ON p.thread_id = x.thread_id"
        " AND p.created_seq > CASE x.ordinal WHEN c.from_ordinal THEN c.from_seq ELSE x.lower_seq END"
        " AND p.created_seq <= CASE x.ordinal WHEN c.to_ordinal THEN c.to_seq ELSE ?3 END"
        " WHERE c.id = ?1 AND c.plan_id = ?2 GROUP BY x.ordinal ORDER BY x.ordinal",
        (receipt_id, plan.id, plan.upper),
    )
    return [Stretch(*row) for row in rows]
