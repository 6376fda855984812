"""What a session cares about and how far it has read: watches, mutes, visits, read progress (reference/forum.md 1.3, 5.3).

All of it belongs to the session, so a compaction child finds it as its parent left it. These are state, not activity:
nobody is told, and nothing here acknowledges events.
"""

from __future__ import annotations

from typing import Any

from side_agents.forum import checks, limits
from side_agents.forum.failures import fail
from side_agents.forum.service.commands import Context
from side_agents.forum.service.principal import Principal
from side_agents.forum.store import interests as rows
from side_agents.forum.store import posts, subforums, threads
from side_agents.forum.store.database import Connection
from side_agents.forum.store.interests import Relation

_MOST_WATCHES = {rows.THREAD_WATCH: limits.THREAD_WATCHES, rows.SUBFORUM_WATCH: limits.SUBFORUM_WATCHES}


class Interests:
    """The caller's session's own relations to threads and subforums. Every change may be repeated without effect."""

    def __init__(self, context: Context) -> None:
        self._database = context.database

    def watch_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """Watch from now on: ``{watching, baselineSequence, changed}``. A watch that exists stays as it is.

        Raises ForumError: ``not_found``, or ``invalid_argument`` when the session watches too many.
        """
        return self._watch(principal, rows.THREAD_WATCH, thread_id)

    def unwatch_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """End the watch; being involved by own posts stays. Watching again later begins at the tail of then."""
        return self._unwatch(principal, rows.THREAD_WATCH, thread_id)

    def watch_subforum(self, principal: Principal, key: str) -> dict[str, Any]:
        """As ``watch_thread``, for all threads of a subforum, those to come included."""
        return self._watch(principal, rows.SUBFORUM_WATCH, key)

    def unwatch_subforum(self, principal: Principal, key: str) -> dict[str, Any]:
        """As ``unwatch_thread``."""
        return self._unwatch(principal, rows.SUBFORUM_WATCH, key)

    def mute_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """Get no events of the thread, whatever the reason: ``{muted, changed}``."""

        def transaction(connection: Connection) -> dict[str, Any]:
            require_thread(connection, thread_id)
            return {"muted": True, "changed": rows.mute(connection, principal.session_id, thread_id)}

        return self._database.write(transaction)

    def unmute_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """Get events again, from where the stream stands."""

        def transaction(connection: Connection) -> dict[str, Any]:
            require_thread(connection, thread_id)
            return {"muted": False, "changed": rows.unmute(connection, principal.session_id, thread_id)}

        return self._database.write(transaction)

    def visit_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """Note that the thread is of interest for catching up, with all its history:
        ``{visited, baselineSequence, changed}``. A visit is not reading."""

        def transaction(connection: Connection) -> dict[str, Any]:
            require_thread(connection, thread_id)
            changed = rows.add(connection, rows.THREAD_VISIT, principal.session_id, thread_id, 0)
            return _visit(connection, principal, rows.THREAD_VISIT, thread_id, changed=changed)

        return self._database.write(transaction)

    def visit_subforum(
        self, principal: Principal, key: str, *, observed_sequence: str, include_history: bool = False
    ) -> dict[str, Any]:
        """Note a look at the subforum's listing as of ``observed_sequence``; what came before is not to be caught up with
        unless ``include_history`` says so, which also widens an earlier visit.

        Raises ForumError: ``not_found``, or ``future_sequence`` above the tail.
        """
        observed = checks.sequence(observed_sequence, "body.observedSequence")

        def transaction(connection: Connection) -> dict[str, Any]:
            require_subforum(connection, key)
            refuse_future(connection, observed, "body.observedSequence")
            baseline = 0 if include_history else observed
            changed = rows.add(connection, rows.SUBFORUM_VISIT, principal.session_id, key, baseline)
            if include_history and not changed:
                changed = rows.lower(connection, rows.SUBFORUM_VISIT, principal.session_id, key, 0)
            return _visit(connection, principal, rows.SUBFORUM_VISIT, key, changed=changed)

        return self._database.write(transaction)

    def subscriptions(self, principal: Principal) -> dict[str, Any]:
        """What the session watches: ``{subforums: [{key, title, baselineSequence}], threads: [{threadId, title, subforum,
        baselineSequence}]}``."""

        def query(connection: Connection) -> dict[str, Any]:
            session, most = principal.session_id, limits.SUBSCRIPTIONS_LISTED
            return {
                "subforums": [
                    {"key": found.id, "title": found.title, "baselineSequence": str(found.baseline)}
                    for found in rows.watched_subforums(connection, session, most)
                ],
                "threads": [
                    {
                        "threadId": found.id,
                        "title": found.title,
                        "subforum": found.subforum,
                        "baselineSequence": str(found.baseline),
                    }
                    for found in rows.watched_threads(connection, session, most)
                ],
            }

        return self._database.read(query)

    def mark_read(self, principal: Principal, thread_id: str, *, through_post_id: str) -> dict[str, Any]:
        """Declare the thread read up to and including a post: ``{readThrough, unreadCount}``. It never goes back.

        Raises ForumError: ``not_found``, or ``invalid_argument`` for a post of another thread.
        """

        def transaction(connection: Connection) -> dict[str, Any]:
            require_thread(connection, thread_id)
            place = posts.place(connection, through_post_id)
            if place is None:
                raise fail("not_found", "There is no such post. Nothing was changed.", field="body.throughPostId")
            if place.thread_id != thread_id:
                raise fail(
                    "invalid_argument",
                    "The post is in another thread than the one to be marked. Nothing was changed.",
                    field="body.throughPostId",
                )
            through = rows.raise_read(connection, principal.session_id, thread_id, place.sequence)
            return {
                "readThrough": str(through),
                "unreadCount": rows.unread(connection, principal.session_id, thread_id),
            }

        return self._database.write(transaction)

    def _watch(self, principal: Principal, relation: Relation, target: str) -> dict[str, Any]:
        session = principal.session_id

        def transaction(connection: Connection) -> dict[str, Any]:
            _require(connection, relation, target)
            # The tail of this very transaction: whatever is committed later is news.
            changed = rows.add(connection, relation, session, target, rows.tail(connection))
            if changed and rows.count(connection, relation, session) > _MOST_WATCHES[relation]:
                raise fail(
                    "invalid_argument",
                    f"A session can watch at most {_MOST_WATCHES[relation]} of these. Nothing was changed.",
                    hint="End a watch that is no longer needed.",
                )
            baseline = rows.baseline(connection, relation, session, target)
            return {"watching": True, "baselineSequence": str(baseline), "changed": changed}

        return self._database.write(transaction)

    def _unwatch(self, principal: Principal, relation: Relation, target: str) -> dict[str, Any]:
        def transaction(connection: Connection) -> dict[str, Any]:
            _require(connection, relation, target)
            changed = rows.remove(connection, relation, principal.session_id, target)
            return {"watching": False, "baselineSequence": None, "changed": changed}

        return self._database.write(transaction)


def require_thread(connection: Connection, thread_id: str) -> str:
    """The thread's subforum. Raises ForumError ``not_found``."""
    subforum = threads.subforum_of(connection, thread_id)
    if subforum is None:
        raise fail("not_found", "There is no such thread. Nothing was changed.")
    return subforum


def require_subforum(connection: Connection, key: str) -> None:
    """Raises ForumError ``not_found``."""
    if not subforums.exists(connection, key):
        raise fail("not_found", "There is no such subforum. Nothing was changed.")


def refuse_future(connection: Connection, sequence: int, field: str) -> None:
    """Raises ForumError ``future_sequence`` for what has not happened yet."""
    tail = rows.tail(connection)
    if sequence > tail:
        raise fail(
            "future_sequence",
            f"Sequence {sequence} has not happened yet; the newest is {tail}. Nothing was changed.",
            field=field,
        )


def _require(connection: Connection, relation: Relation, target: str) -> None:
    if relation.target == "thread_id":
        require_thread(connection, target)
    else:
        require_subforum(connection, target)


def _visit(
    connection: Connection, principal: Principal, relation: Relation, target: str, *, changed: bool
) -> dict[str, Any]:
    baseline = rows.baseline(connection, relation, principal.session_id, target)
    return {"visited": True, "baselineSequence": str(baseline), "changed": changed}
