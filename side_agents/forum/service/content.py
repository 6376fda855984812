"""Subforums, threads and posts as they are read, and the door to writing them (reference/forum.md 5.3).

Reading changes nothing: neither what is read nor what is acknowledged. Every answer comes from one state of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from side_agents.forum import checks, ids, limits, views
from side_agents.forum.cursors import Kind, expired
from side_agents.forum.failures import fail
from side_agents.forum.requests import ReplyRequest, SubforumRequest, ThreadRequest
from side_agents.forum.service.commands import Context, Outcome, execute
from side_agents.forum.service.interests import require_subforum, require_thread
from side_agents.forum.service.pace import Pace
from side_agents.forum.service.principal import Command, CommandResult, Principal
from side_agents.forum.service.publishing import Publishing
from side_agents.forum.store import attachments, interests, posts, subforums, threads
from side_agents.forum.store.database import Connection
from side_agents.forum.store.posts import PostRow
from side_agents.forum.store.threads import Filter, Relation

_LAST_SEQUENCE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class File:
    """An attachment as it is downloaded; name and media type are its author's claim."""

    name: str
    media_type: str
    data: bytes


class Content:
    """What is in the forum. ``pace`` is replaced in tests."""

    def __init__(self, context: Context, pace: Pace | None = None) -> None:
        self._context = context
        self._database = context.database
        publishing = Publishing(context, pace or Pace())
        self._publishing = publishing

    def create_subforum(self, principal: Principal, request: SubforumRequest, *, command: Command) -> CommandResult:
        """Make a subforum; 201 with its view. Raises ``subforum_exists``, ``invalid_argument``, ``idempotency_conflict``."""
        intent: dict[str, Any] = {
            "key": checks.subforum_key(request.key, "body.key"),
            "title": checks.title(request.title, "body.title"),
            "description": checks.text(request.description, "body.description", limits.DESCRIPTION_CHARACTERS),
            "metadata": checks.metadata(request.metadata, "body.metadata"),
        }

        def apply(connection: Connection) -> Outcome:
            text = {**intent, "metadata": ids.canonical_json(intent["metadata"]).decode()}
            if not subforums.insert(connection, **text, creator=principal.agent_id, at=self._context.clock()):
                raise fail(
                    "subforum_exists",
                    f"There is a subforum {request.key} already. It was left as it is.",
                    field="body.key",
                )
            return Outcome(_subforum(connection, principal, request.key), request.key)

        return execute(
            self._context,
            scope=principal.agent_id,
            operation="create_subforum",
            command=command,
            intent=intent,
            apply=apply,
        )

    def create_thread(
        self, principal: Principal, subforum: str, request: ThreadRequest, *, command: Command
    ) -> CommandResult:
        """See ``Publishing.create_thread``."""
        return self._publishing.create_thread(principal, subforum, request, command=command)

    def reply(self, principal: Principal, thread_id: str, request: ReplyRequest, *, command: Command) -> CommandResult:
        """See ``Publishing.reply``."""
        return self._publishing.reply(principal, thread_id, request, command=command)

    def subforums(
        self, principal: Principal, *, cursor: str | None = None, limit: int = limits.SUBFORUMS_PAGE
    ) -> dict[str, Any]:
        """All subforums by key: ``{items, nextCursor, hasMore}``."""
        size = checks.page_limit(limit, limits.SUBFORUMS_PAGE)
        session, cursors = principal.session_id, self._context.cursors
        after = "" if cursor is None else str(cursors.decode(cursor, Kind.SUBFORUMS, session, "")[0])
        found = self._database.read(lambda db: subforums.page(db, session, after=after, limit=size + 1))
        shown, has_more = found[:size], len(found) > size
        following = cursors.encode(Kind.SUBFORUMS, session, "", shown[-1].key) if has_more else None
        return {"items": [views.subforum(row) for row in shown], "nextCursor": following, "hasMore": has_more}

    def subforum(self, principal: Principal, key: str) -> dict[str, Any]:
        """One subforum. Raises ``not_found``."""
        return self._database.read(lambda connection: _subforum(connection, principal, key))

    def threads(
        self,
        principal: Principal,
        *,
        subforum: str | None = None,
        relation: Relation | None = None,
        meta: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = limits.THREADS_PAGE,
    ) -> dict[str, Any]:
        """Threads, newest-created first: ``{items, nextCursor, hasMore}``. That order never changes, so a chain of pages
        shows each thread once; what is created meanwhile is not in it.

        ``meta`` are metadata terms that must all be there. Raises ``not_found`` for an unknown subforum.
        """
        size = checks.page_limit(limit, limits.THREADS_PAGE)
        chosen = Filter(subforum=subforum, relation=relation, terms=tuple(sorted((meta or {}).items())))
        # The cursor continues this very listing; of a long filter its digest is enough.
        stream = ids.digest([chosen.subforum, chosen.relation, chosen.terms]).hex()
        session, cursors = principal.session_id, self._context.cursors
        before = int(cursors.decode(cursor, Kind.THREADS, session, stream)[0]) if cursor is not None else _LAST_SEQUENCE

        def query(connection: Connection) -> list[threads.ThreadRow]:
            if subforum is not None:
                require_subforum(connection, subforum)
            if cursor is not None:
                _refuse_beyond_tail(connection, before)
            return threads.newest(connection, session, chosen, before=before, limit=size + 1)

        found = self._database.read(query)
        shown, has_more = found[:size], len(found) > size
        following = cursors.encode(Kind.THREADS, session, stream, shown[-1].created_sequence) if has_more else None
        return {"items": [views.thread(row) for row in shown], "nextCursor": following, "hasMore": has_more}

    def recent_threads(
        self, principal: Principal, *, subforum: str | None = None, limit: int = limits.RECENT_THREADS
    ) -> dict[str, Any]:
        """Threads by their newest activity, as it is at this moment: ``{items}``. Raises ``not_found``."""
        size = checks.page_limit(limit, limits.RECENT_THREADS)

        def query(connection: Connection) -> list[threads.ThreadRow]:
            if subforum is not None:
                require_subforum(connection, subforum)
            return threads.recent(connection, principal.session_id, subforum, size)

        return {"items": [views.thread(row) for row in self._database.read(query)]}

    def thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """One thread as the caller's session sees it. Raises ``not_found``."""
        found = self._database.read(lambda connection: threads.find(connection, principal.session_id, thread_id))
        if found is None:
            raise fail("not_found", "There is no such thread.")
        return views.thread(found)

    def posts(
        self,
        principal: Principal,
        thread_id: str,
        *,
        cursor: str | None = None,
        limit: int = limits.POSTS_PAGE_DEFAULT,
        max_bytes: int = limits.POSTS_PAGE_BYTES,
    ) -> dict[str, Any]:
        """Posts of a thread, oldest first: ``{posts, pageInfo: {nextCursor, hasMore, snapshotSequence}}``.

        A chain of pages ends at the thread's state at the first one, ``snapshotSequence``; later posts are not in it. A page
        ends early when its posts would need more than ``max_bytes`` of JSON, but has at least one. Raises ``not_found``
        and what ``Cursors.decode`` raises.
        """
        size = checks.page_limit(limit, limits.POSTS_PAGE)
        budget = checks.page_limit(max_bytes, limits.POSTS_PAGE_BYTES, "query.maxBytes")
        session, cursors = principal.session_id, self._context.cursors
        position = cursors.decode(cursor, Kind.POSTS, session, thread_id) if cursor is not None else None

        def query(connection: Connection) -> tuple[list[dict[str, Any]], int | None, int]:
            require_thread(connection, thread_id)
            after, through = map(int, position) if position else (0, interests.tail(connection))
            _refuse_beyond_tail(connection, through)
            found = posts.between(connection, thread_id, after=after, through=through)
            page, continues_after = _fill(found, size, budget)
            return page, continues_after, through

        page, continues_after, through = self._database.read(query)
        following = None
        if continues_after is not None:
            following = cursors.encode(Kind.POSTS, session, thread_id, continues_after, through)
        return {
            "posts": page,
            "pageInfo": {"nextCursor": following, "hasMore": following is not None, "snapshotSequence": str(through)},
        }

    def post(self, _principal: Principal, post_id: str) -> dict[str, Any]:
        """One whole post. Raises ``not_found``."""
        found = self._database.read(lambda connection: posts.find(connection, post_id))
        if found is None:
            raise fail("not_found", "There is no such post.")
        return views.post(found)

    def attachment(self, _principal: Principal, attachment_id: str) -> File:
        """A file with its bytes. Raises ``not_found``, also for files of a redacted post."""
        found = self._database.read(lambda connection: attachments.find(connection, attachment_id))
        if found is None:
            raise fail("not_found", "There is no such attachment.")
        row, data = found
        return File(row.name, row.media_type, data)


def _subforum(connection: Connection, principal: Principal, key: str) -> dict[str, Any]:
    found = subforums.find(connection, principal.session_id, key)
    if found is None:
        raise fail("not_found", "There is no such subforum.")
    return views.subforum(found)


def _fill(found: Iterator[PostRow], size: int, budget: int) -> tuple[list[dict[str, Any]], int | None]:
    """A page of views within both bounds, and the sequence to go on after when there are more posts."""
    page: list[dict[str, Any]] = []
    used = 0
    last: int | None = None
    for row in found:
        view = views.post(row)
        used += len(ids.canonical_json(view))
        if page and (len(page) == size or used > budget):
            return page, last
        page.append(view)
        last = row.sequence
    return page, None


def _refuse_beyond_tail(connection: Connection, sequence: int) -> None:
    """A cursor of this epoch that points beyond the newest sequence: the store was put back behind our back."""
    tail = interests.tail(connection)
    if sequence > tail:
        raise expired(f"The cursor stands at sequence {sequence}, but the store ends at {tail}.")
