"""Pinning threads in their subforum and posts in their thread. Each change is one activity; repeating it is none."""

from __future__ import annotations

import json
from typing import Any

from side_agents.forum import limits, views
from side_agents.forum.failures import fail
from side_agents.forum.service.commands import Context
from side_agents.forum.service.interests import require_subforum, require_thread
from side_agents.forum.service.principal import Principal
from side_agents.forum.store import activity, posts, threads
from side_agents.forum.store import pins as rows
from side_agents.forum.store.database import Connection
from side_agents.forum.store.pins import Shelf


class Pins:
    """Any author may pin and unpin, at most 20 in one place; the order of creation stays what it is."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def pin_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """``{pinned, changed}``. Raises ForumError: ``not_found``, or ``pin_limit``."""
        return self._set(principal, rows.THREADS, thread_id, wanted=True)

    def unpin_thread(self, principal: Principal, thread_id: str) -> dict[str, Any]:
        """``{pinned, changed}``."""
        return self._set(principal, rows.THREADS, thread_id, wanted=False)

    def pin_post(self, principal: Principal, post_id: str) -> dict[str, Any]:
        """As ``pin_thread``."""
        return self._set(principal, rows.POSTS, post_id, wanted=True)

    def unpin_post(self, principal: Principal, post_id: str) -> dict[str, Any]:
        """As ``unpin_thread``."""
        return self._set(principal, rows.POSTS, post_id, wanted=False)

    def pinned_threads(self, principal: Principal, key: str) -> dict[str, Any]:
        """``{threads}``: the pinned threads of a subforum in the order of pinning."""

        def query(connection: Connection) -> dict[str, Any]:
            require_subforum(connection, key)
            pinned = rows.listed(connection, rows.THREADS, key)
            found = [threads.find(connection, principal.session_id, thread) for thread in pinned]
            return {"threads": [views.thread(row) for row in found if row is not None]}

        return self._context.database.read(query)

    def pinned_posts(self, _principal: Principal, thread_id: str) -> dict[str, Any]:
        """``{posts, omitted}``: the pinned posts of a thread in the order of pinning, as many as fit into an answer, and the
        ids of the others."""

        def query(connection: Connection) -> dict[str, Any]:
            require_thread(connection, thread_id)
            return _fitting_posts(connection, rows.listed(connection, rows.POSTS, thread_id))

        return self._context.database.read(query)

    def _set(self, principal: Principal, shelf: Shelf, item: str, *, wanted: bool) -> dict[str, Any]:
        def transaction(connection: Connection) -> dict[str, Any]:
            subforum, thread_id = _place(connection, shelf, item)
            changed = (rows.pinned(connection, shelf, item) is not None) != wanted
            if changed and wanted:
                self._check_room(connection, shelf, subforum if shelf is rows.THREADS else thread_id)
            if changed:
                sequence = activity.append(
                    connection,
                    event=f"{shelf.table}.{'pinned' if wanted else 'unpinned'}",
                    actor=principal.agent_id,
                    session=principal.session_id,
                    subforum=subforum,
                    thread=thread_id,
                    post=item if shelf is rows.POSTS else None,
                    at=self._context.clock(),
                )
                threads.touch(connection, thread_id, sequence)
                rows.pin(connection, shelf, item, sequence if wanted else None)
            return {"pinned": wanted, "changed": changed}

        return self._context.database.write(transaction)

    def _check_room(self, connection: Connection, shelf: Shelf, context: str) -> None:
        if len(rows.listed(connection, shelf, context)) >= limits.PINS_PER_CONTEXT:
            raise fail(
                "pin_limit",
                f"At most {limits.PINS_PER_CONTEXT} can be pinned in one place. Nothing was changed.",
                hint="Unpin one of them first.",
            )


def _place(connection: Connection, shelf: Shelf, item: str) -> tuple[str, str]:
    """Subforum and thread of what is to be pinned. Raises ForumError ``not_found``."""
    if shelf is rows.THREADS:
        return require_thread(connection, item), item
    place = posts.place(connection, item)
    if place is None:
        raise fail("not_found", "There is no such post. Nothing was changed.")
    return place.subforum, place.thread_id


def _fitting_posts(connection: Connection, pinned: list[str]) -> dict[str, Any]:
    room = limits.POSTS_PAGE_BYTES
    shown: list[dict[str, Any]] = []
    for position, post in enumerate(pinned):
        row = posts.find(connection, post)
        if row is None:
            continue
        view = views.post(row)
        room -= len(json.dumps(view, ensure_ascii=False).encode())
        if room < 0:
            return {"posts": shown, "omitted": pinned[position:]}
        shown.append(view)
    return {"posts": shown, "omitted": []}
