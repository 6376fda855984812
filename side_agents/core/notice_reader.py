"""How one session is told of its agents, each change once, whoever reads for it: the command line or a companion.

The cursor in the session's folder is the only memory. A reader takes the session's lock, collects what is new, tells it,
and then moves the cursor; nobody holds the lock while nothing is due unless nobody else may read (``notices --follow``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from side_agents.core import routing, transitions
from side_agents.core.context import Context
from side_agents.core.notice_feed import Feed
from side_agents.core.routing import Listener
from side_agents.core.transitions import Change
from side_agents.infra import fs

_CURSOR = "cursor.json"
_LOCK = "reader.lock"


@contextmanager
def locked(context: Context, who: Listener, *, timeout: float = 10.0) -> Iterator[None]:
    """Be the only reader of a session for a while; its folder is made. Raises BusyError naming the other one."""
    folder = _folder(context, who)
    fs.make_private_dir(folder)
    with fs.locked(folder / _LOCK, purpose="read notices", timeout=timeout):
        yield


def has_cursor(context: Context, who: Listener) -> bool:
    """Whether anybody has read for this session yet."""
    return (_folder(context, who) / _CURSOR).exists()


def open_feed(context: Context, who: Listener) -> Feed:
    """The changes that the session hears of, from where its last reader stopped; for a first one, from the oldest known."""
    me = context.registry.read().agents.get(who.agent_id) if who.agent_id is not None else None
    # An earlier agent of this id had children of its own.
    since = me.started_at if me is not None else ""
    cursor = _folder(context, who) / _CURSOR
    feed = Feed(context.paths.transitions, cursor, lambda change: routing.hears(who, change), since=since)
    feed.open()
    return feed


def collect(context: Context, feed: Feed) -> Feed:
    """Take in all that was noted so far."""
    feed.collect(context.registry.read().extra.get(transitions.COUNTER))
    return feed


def begin(context: Context, who: Listener, born: str) -> None:
    """Let a session that nobody has read for hear of what comes after ``born``, and of all that was started in its name.

    Without this, a conversation that is new would be told what became of every agent that some nameless session, such as
    a shell, has ever started here.
    """
    with locked(context, who):
        if has_cursor(context, who):
            return
        feed = open_feed(context, who)
        feed.skip(context.registry.read().extra.get(transitions.COUNTER), lambda change: _is_old(who, change, born))


def _is_old(who: Listener, change: Change, born: str) -> bool:
    is_its_own = who.agent_id is not None or (who.session is not None and who.session == change.parent_session_id)
    return not is_its_own and change.at < born


def _folder(context: Context, who: Listener) -> Path:
    return context.paths.session(routing.key(who))
