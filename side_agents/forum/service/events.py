"""What has happened that concerns a session, page by page, and what it has acknowledged (reference/forum.md 5.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import checks, limits, scopes, views
from side_agents.forum.cursors import Kind, expired
from side_agents.forum.failures import fail
from side_agents.forum.scopes import Reason
from side_agents.forum.service.commands import Context
from side_agents.forum.service.interests import refuse_future
from side_agents.forum.service.principal import Principal
from side_agents.forum.store import events as rows
from side_agents.forum.store import interests
from side_agents.forum.store.database import Connection

STARTS = ("beginning", "tail", "acknowledged")


@dataclass(frozen=True, slots=True)
class _Stream:
    """One session's events of one scope."""

    session: str
    scope: Reason

    @property
    def key(self) -> str:
        return scopes.stream_key(self.scope)


@dataclass(frozen=True, slots=True)
class _Page:
    """Eligible activities in order; everything up to ``through`` has been examined."""

    rows: list[rows.EventRow]
    through: int
    has_more: bool


class Events:
    """The events of the caller's session. Nothing here changes what is read; only ``acknowledge`` acknowledges."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def page(
        self,
        principal: Principal,
        *,
        scope: str | None = None,
        cursor: str | None = None,
        start: str | None = None,
        limit: int = limits.EVENTS_PAGE_DEFAULT,
    ) -> dict[str, Any]:
        """The next events behind ``cursor``, or from ``start``; exactly one of the two.

        Returns ``{events, nextCursor, scannedThrough, hasMore, timedOut}`` at once. To wait for more: note
        ``database.changed.generation()``, ask for a page, wait until the generation has grown, and ask again with
        ``nextCursor``; no transaction is open meanwhile and no commit is missed.

        Raises ForumError: ``invalid_scope``, ``invalid_argument``, or what ``Cursors.decode`` raises.
        """
        stream = _Stream(principal.session_id, scopes.parse(scope))
        size = checks.page_limit(limit, limits.EVENTS_PAGE)
        after = self._opened(stream, cursor, start)
        page = self._context.database.read(lambda connection: _scan(connection, stream, after, size))
        return {
            "events": [views.event(row) for row in page.rows],
            "nextCursor": self._context.cursors.encode(Kind.EVENTS, stream.session, stream.key, page.through),
            "scannedThrough": str(page.through),
            "hasMore": page.has_more,
            "timedOut": False,
        }

    def acknowledged(self, principal: Principal, *, scope: str | None = None) -> dict[str, Any]:
        """What the session has acknowledged of the stream: ``{scope, throughSequence}``."""
        stream = _Stream(principal.session_id, scopes.parse(scope))
        through = self._context.database.read(
            lambda connection: interests.acknowledged(connection, stream.session, stream.key)
        )
        return _acknowledgement(stream, through)

    def acknowledge(self, principal: Principal, *, scope: str, through_sequence: str) -> dict[str, Any]:
        """Acknowledge the stream up to a sequence and return what holds then; it never goes back.

        Raises ForumError: ``invalid_scope``, or ``future_sequence`` above the tail.
        """
        stream = _Stream(principal.session_id, scopes.parse(scope, field="body.scope"))
        through = checks.sequence(through_sequence, "body.throughSequence")

        def transaction(connection: Connection) -> int:
            refuse_future(connection, through, "body.throughSequence")
            return interests.raise_acknowledged(connection, stream.session, stream.key, through)

        return _acknowledgement(stream, self._context.database.write(transaction))

    def _opened(self, stream: _Stream, cursor: str | None, start: str | None) -> int | str:
        """The sequence behind which to begin, or the word for it that only a transaction can resolve."""
        if (cursor is None) == (start is None):
            raise _refused("query.cursor", "exactly one of cursor and start is needed")
        if cursor is not None:
            (after,) = self._context.cursors.decode(cursor, Kind.EVENTS, stream.session, stream.key)
            return int(after)
        if start not in STARTS:
            raise _refused("query.start", f"start is one of {', '.join(STARTS)}")
        return start


def _scan(connection: Connection, stream: _Stream, begin: int | str, limit: int) -> _Page:
    """One page in one state of the database."""
    tail = interests.tail(connection)
    after = begin if isinstance(begin, int) else _started(connection, stream, begin, tail)
    if after > tail:
        raise expired(f"The cursor stands at sequence {after}, but the store ends at {tail}.")
    found = rows.eligible(connection, stream.session, stream.scope, after=after, tail=tail, limit=limit + 1)
    if len(found) > limit:
        return _Page(found[:limit], found[limit - 1].sequence, has_more=True)
    return _Page(found, tail, has_more=False)


def _started(connection: Connection, stream: _Stream, start: str, tail: int) -> int:
    if start == "acknowledged":
        return interests.acknowledged(connection, stream.session, stream.key)
    return tail if start == "tail" else 0


def _acknowledgement(stream: _Stream, through: int) -> dict[str, Any]:
    return {"scope": scopes.names(stream.scope), "throughSequence": str(through)}


def _refused(field: str, rule: str) -> ForumError:
    return fail("invalid_argument", f"The request cannot be answered: {rule}.", field=field)
