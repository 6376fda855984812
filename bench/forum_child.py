"""Another process at a forum: it says when it heard of each post, by the clock that all processes share.

``raw FILE`` sleeps in the kernel until a file is written. ``poll DATABASE`` asks every 200 ms. ``wait ORIGIN DATABASE
CREDENTIAL`` asks for events as a participant does, in this process (``local``) or of a server. ``hold DATABASE`` has the
forum open and ``bare`` only the library, for their memory.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

POLL_SECONDS = 0.2
_WAIT_SECONDS = 20


def say(word: str) -> None:
    """One line for the measuring process."""
    print(word, flush=True)


def raw(file: str) -> Iterator[None]:
    """A bare kernel wait."""
    from inotify_simple import INotify, flags  # there on Linux only

    with INotify() as watch:
        watch.add_watch(file, flags.CLOSE_WRITE)
        say("ready")
        while True:
            watch.read()
            yield


def poll(database: str) -> Iterator[None]:
    """What one writes without any wake-ups."""
    import apsw

    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    known = connection.execute("SELECT max(seq) FROM activity").get
    say("ready")
    while True:
        time.sleep(POLL_SECONDS)
        found = connection.execute("SELECT max(seq) FROM activity").get
        if found != known:
            known = found
            yield


def wait(origin: str, database: str, credential: str) -> Iterator[None]:
    """A participant."""
    from side_agents.forum.client.api import Api
    from side_agents.forum.client.connection import Connection
    from side_agents.forum.client.http import HttpTransport
    from side_agents.forum.client.in_process import local_transport

    transport = local_transport(Path(database)) if origin == "local" else HttpTransport(origin)
    api = Api(Connection(transport, None), credential)
    scope = ("watched-subforums",)
    page = api.events(scope, cursor=None, limit=100, wait=0, cancellation=None)
    while page.has_more:
        page = api.events(scope, cursor=page.next_cursor, limit=100, wait=0, cancellation=None)
    say("ready")
    while True:
        page = api.events(scope, cursor=page.next_cursor, limit=100, wait=_WAIT_SECONDS, cancellation=None)
        if page.events:
            yield


def hold(database: str) -> Iterator[None]:
    """A process that has read and written in the forum."""
    from bench import forum_stand

    with forum_stand.opened(Path(database)) as forum:
        author = forum_stand.person(forum, "holder")
        forum.content.subforums(author.principal)
        forum.database.changed.generation()
        say("ready")
        time.sleep(86400)
        yield


def bare() -> Iterator[None]:
    """An interpreter with the database library."""
    import_module("apsw")
    say("ready")
    time.sleep(86400)
    yield


WAYS: dict[str, Callable[..., Iterator[None]]] = {"raw": raw, "poll": poll, "wait": wait, "hold": hold, "bare": bare}


def main() -> None:
    """Report each wake-up until ended."""
    way, *arguments = sys.argv[1:]
    for _ in WAYS[way](*arguments):
        say(str(time.monotonic_ns()))


if __name__ == "__main__":
    main()
