"""Catching up: a stored, finite selection of unread posts, read in pages, whose receipts move the read progress.

A plan is fixed when it is made: which threads, from where, up to which sequence. Reading its pages changes nothing that
counts; acknowledging the receipt of a page declares read what that page showed (reference/forum.md 1.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from side_agents.forum import checks, ids, limits, scopes, views
from side_agents.forum.cursors import Kind
from side_agents.forum.failures import fail
from side_agents.forum.requests import PlanScope
from side_agents.forum.scopes import Reason
from side_agents.forum.service.commands import Context
from side_agents.forum.service.interests import require_subforum
from side_agents.forum.service.principal import Principal
from side_agents.forum.store import catchup as rows
from side_agents.forum.store import interests, posts
from side_agents.forum.store.catchup import START, Examined, Plan, Position, Stretch
from side_agents.forum.store.database import Connection

_VISITED = Reason.VISITED_THREAD | Reason.VISITED_SUBFORUM
_REASONS: dict[PlanScope, Reason] = {
    "visited": _VISITED,
    "subscriptions": Reason.WATCHED_THREAD | Reason.WATCHED_SUBFORUM,
    "all": scopes.EVENT_SCOPE | _VISITED,
}
_LIFE_MS = limits.PLAN_HOURS * 3_600_000


@dataclass(frozen=True, slots=True)
class _Page:
    """Shown posts of a stretch of the plan; ``end`` equals ``begin`` when nothing was left."""

    posts: list[dict[str, Any]]
    threads: list[dict[str, Any]]
    begin: Position
    end: Position
    has_more: bool


class Catchup:
    """Plans of the caller's session: at most three at a time, each for a day."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create(self, principal: Principal, *, scope: PlanScope, subforum: str | None = None) -> dict[str, Any]:
        """Select what is unread now in what was visited, is watched, or (``all``) concerns the session in any way:
        ``{planId, scope, subforum, upperSequence, threadCount, postCount, isFull, createdAt, expiresAt}``.

        A full plan has left out newer threads, which the next plan will find. Raises ForumError: ``plan_limit``, or
        ``not_found`` for the subforum.
        """

        def transaction(connection: Connection) -> dict[str, Any]:
            if subforum is not None:
                require_subforum(connection, subforum)
            now, session = self._context.clock(), principal.session_id
            rows.empty_expired(connection, session, now)
            if rows.count_live(connection, session, now) >= limits.PLANS_PER_SESSION:
                raise fail(
                    "plan_limit",
                    f"The session has {limits.PLANS_PER_SESSION} catch-up plans already. Nothing was changed.",
                    hint="Finish or delete one of them; each ends by itself a day after it was made.",
                )
            upper = interests.tail(connection)
            plan = Plan(ids.ulid("pl"), session, scope, subforum, upper, created_at=now, expires_at=now + _LIFE_MS)
            rows.insert_plan(connection, plan, _REASONS[scope], limits.PLAN_THREADS)
            return _plan_view(plan, *rows.totals(connection, plan))

        return self._context.database.write(transaction)

    def page(
        self, principal: Principal, plan_id: str, *, cursor: str | None = None, limit: int = limits.PLAN_PAGE
    ) -> dict[str, Any]:
        """The next posts of a plan, thread by thread: ``{planId, threads, posts, receiptId, pageInfo}``.

        At most ``limit`` posts are looked at, own ones are passed over, and a page ends early when it grows too large.
        ``receiptId`` is null when nothing was left. Raises ForumError: ``not_found``, ``plan_expired``,
        ``invalid_argument``, or what ``Cursors.decode`` raises.
        """
        size = checks.page_limit(limit, limits.PLAN_PAGE)
        begin = self._opened(principal, plan_id, cursor)

        def query(connection: Connection) -> _Page:
            return _read_page(connection, self._live(connection, principal, plan_id), begin, size)

        def keep_receipt(connection: Connection) -> str:
            self._live(connection, principal, plan_id)
            return rows.keep_receipt(connection, ids.ulid("rc"), plan_id, page.begin, page.end)

        page = self._context.database.read(query)
        receipt = self._context.database.write(keep_receipt) if page.end != page.begin else None
        next_cursor = (
            self._context.cursors.encode(Kind.CATCHUP, principal.session_id, plan_id, *page.end)
            if page.has_more
            else None
        )
        return {
            "planId": plan_id,
            "threads": page.threads,
            "posts": page.posts,
            "receiptId": receipt,
            "pageInfo": {"nextCursor": next_cursor, "hasMore": page.has_more},
        }

    def acknowledge(self, principal: Principal, plan_id: str, *, receipt_id: str) -> dict[str, Any]:
        """Declare read what the page of this receipt covered: ``{receiptId, threads: [{threadId, readThrough,
        unreadCount}]}``. Repeating it changes nothing.

        Raises ForumError: ``coverage_gap``, with nothing changed in any thread, when an earlier page of one of the
        threads was not acknowledged; ``not_found``, ``plan_expired``.
        """

        def transaction(connection: Connection) -> dict[str, Any]:
            plan = self._live(connection, principal, plan_id)
            covered = rows.stretches(connection, plan, receipt_id)
            if not covered:
                raise fail("not_found", "The plan has no such receipt. Nothing was changed.", field="body.receiptId")
            for stretch in covered:
                _refuse_gap(connection, principal, stretch)
            return {
                "receiptId": receipt_id,
                "threads": [_advance(connection, principal.session_id, stretch) for stretch in covered],
            }

        return self._context.database.write(transaction)

    def close(self, principal: Principal, plan_id: str) -> dict[str, Any]:
        """Delete a plan, expired or not, with its receipts: ``{closed}``. Read progress stays. Raises ``not_found``."""

        def transaction(connection: Connection) -> dict[str, Any]:
            _owned(connection, principal, plan_id)
            rows.delete_plan(connection, plan_id)
            return {"closed": True}

        return self._context.database.write(transaction)

    def _opened(self, principal: Principal, plan_id: str, cursor: str | None) -> Position:
        if cursor is None:
            return START
        ordinal, after = self._context.cursors.decode(cursor, Kind.CATCHUP, principal.session_id, plan_id)
        return int(ordinal), int(after)

    def _live(self, connection: Connection, principal: Principal, plan_id: str) -> Plan:
        plan = _owned(connection, principal, plan_id)
        if plan.expires_at <= self._context.clock():
            raise fail(
                "plan_expired",
                "The catch-up plan has ended. What was acknowledged stays read.",
                hint="Make a new plan; it begins where reading stopped.",
            )
        return plan


def _owned(connection: Connection, principal: Principal, plan_id: str) -> Plan:
    plan = rows.plan(connection, plan_id)
    if plan is None or plan.session_id != principal.session_id:
        raise fail("not_found", "The session has no such catch-up plan. Nothing was changed.")
    return plan


def _read_page(connection: Connection, plan: Plan, begin: Position, limit: int) -> _Page:
    examined = rows.examine(connection, plan, begin, limit + 1)
    shown: list[dict[str, Any]] = []
    end, taken = begin, 0
    for post, view in _within_budget(connection, examined[:limit]):
        end, taken = (post.ordinal, post.sequence), taken + 1
        if view is not None:
            shown.append(view)
    return _Page(shown, _thread_views(connection, plan, shown, begin, end), begin, end, has_more=taken < len(examined))


def _within_budget(
    connection: Connection, examined: list[Examined]
) -> Iterator[tuple[Examined, dict[str, Any] | None]]:
    """Posts with their views (None for own ones) until the page is full; the first is always taken."""
    room = limits.PLAN_PAGE_BYTES
    for post in examined:
        row = None if post.own else posts.find(connection, post.post_id)
        view = None if row is None else views.post(row)
        size = 0 if view is None else len(json.dumps(view, ensure_ascii=False).encode())
        if size > room and room < limits.PLAN_PAGE_BYTES:
            return
        room -= size
        yield post, view


def _thread_views(
    connection: Connection, plan: Plan, shown: list[dict[str, Any]], begin: Position, end: Position
) -> list[dict[str, Any]]:
    """The threads of the shown posts, and why they are in the plan."""
    wanted = {view["threadId"] for view in shown}
    return [
        {
            "threadId": thread.id,
            "title": thread.title,
            "subforum": thread.subforum,
            "reasons": scopes.names(thread.reasons),
        }
        for thread in rows.threads(connection, plan.id, begin[0], end[0])
        if thread.id in wanted
    ]


def _refuse_gap(connection: Connection, principal: Principal, stretch: Stretch) -> None:
    """What lies before the stretch must be read already, or lie below what the plan began with."""
    reached = max(interests.read_through(connection, principal.session_id, stretch.thread_id), stretch.lower)
    if reached < stretch.start:
        raise fail(
            "coverage_gap",
            f"An earlier page with posts of thread {stretch.thread_id} was not acknowledged. Nothing was changed.",
            field="body.receiptId",
            hint="Acknowledge the receipts in the order of their pages.",
        )


def _advance(connection: Connection, session: str, stretch: Stretch) -> dict[str, Any]:
    through = interests.raise_read(connection, session, stretch.thread_id, stretch.through)
    return {
        "threadId": stretch.thread_id,
        "readThrough": str(through),
        "unreadCount": interests.unread(connection, session, stretch.thread_id),
    }


def _plan_view(plan: Plan, thread_count: int, post_count: int) -> dict[str, Any]:
    return {
        "planId": plan.id,
        "scope": plan.scope,
        "subforum": plan.subforum,
        "upperSequence": str(plan.upper),
        "threadCount": thread_count,
        "postCount": post_count,
        "isFull": thread_count == limits.PLAN_THREADS,
        "createdAt": views.time(plan.created_at),
        "expiresAt": views.time(plan.expires_at),
    }
