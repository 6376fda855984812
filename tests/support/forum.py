"""A forum in a temporary folder, people in it, and the check of all invariants after every test that writes.

Import ``forum_factory`` (and ``forum``), or ``sound_forums``, into a test module to use them as fixtures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import ForumError
from side_agents.forum import ids, requests
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.pace import Pace
from side_agents.forum.service.principal import Command, CommandResult, Principal
from side_agents.forum.store import invariants
from side_agents.forum.store.database import Database

ORIGIN = "http://127.0.0.1:8080"
_NUMBERS = count(1)


@dataclass(frozen=True)
class Person:
    """An author that a test works with, and the secret that proves it."""

    principal: Principal
    credential: str = field(repr=False)

    @property
    def id(self) -> str:
        return self.principal.agent_id

    @property
    def session(self) -> str:
        return self.principal.session_id

    @property
    def name(self) -> str:
        return self.principal.name


class ForumFactory:
    """Opens forums below one folder and closes them at the end of the test, with all invariants checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: list[Forum] = []

    def __call__(self, name: str = "forum", *, clock: Callable[[], int] = ids.now_ms, **options: Any) -> Forum:
        """Open (or reopen) the forum of that name; ``options`` go to ``Database.open``."""
        forum = Forum(Database.open(self.path(name), **options), origin=ORIGIN, clock=clock, pace=unhurried())
        self._open.append(forum)
        return forum

    def path(self, name: str = "forum") -> Path:
        """Where the forum of that name lies."""
        return self.folder / "forums" / f"{name}.db"

    def close(self, forum: Forum) -> None:
        """Check and close one forum before the test ends."""
        self._open.remove(forum)
        check(forum)
        forum.database.close()

    def close_all(self) -> None:
        for forum in tuple(self._open):
            self.close(forum)


def unhurried() -> Pace:
    """A pace that never holds anybody back: each look at its clock is an hour later."""
    hours = count()
    return Pace(lambda: next(hours) * 3600.0)


@pytest.fixture
def forum_factory(tmp_path: Path) -> Iterator[ForumFactory]:
    factory = ForumFactory(tmp_path)
    yield factory
    factory.close_all()


@pytest.fixture
def forum(forum_factory: ForumFactory) -> Forum:
    """One fresh forum."""
    return forum_factory()


@pytest.fixture(autouse=True)
def sound_forums(tmp_path: Path) -> Iterator[None]:
    """For modules whose tests make projects: at the end of each test, the forums of all its projects are checked."""
    yield
    for path in tmp_path.rglob("forum.db"):
        with Database.open(path) as database:
            check(Forum(database, origin=ORIGIN))


def check(forum: Forum) -> None:
    """All invariants that one look can show hold, and SQLite finds its file sound."""
    found = forum.database.read(invariants.violations)
    assert not found, found
    assert forum.database.read(lambda connection: connection.execute("PRAGMA integrity_check").get) == "ok"


def command(key: str | None = None, payload: bytes = b"") -> Command:
    """A command with a new key, or the given one."""
    return Command(key or ids.new_request_key(), hashlib.sha256(payload).digest())


def register(forum: Forum, name: str | None = None) -> Person:
    """A new root author."""
    name = name or f"agent-{next(_NUMBERS)}"
    credential = ids.new_credential()
    forum.identities.register(registration(name, credential), command=command())
    return Person(forum.identities.authenticate(credential), credential)


def registration(name: str, credential: str | None = None, **more: Any) -> requests.RegisterRequest:
    """A registration whose context key follows from the name."""
    return requests.RegisterRequest(
        **{"context_key": f"context of {name}", "credential": credential or ids.new_credential(), "name": name, **more}
    )


def child_request(name: str, kind: requests.CauseKind, key: str | None = None, **more: Any) -> requests.ChildRequest:
    """The creation of a child; the cause key follows from the name unless given."""
    return requests.ChildRequest(
        **{
            "cause": requests.Cause(kind=kind, key=key or f"cause of {name}"),
            "context_key": f"context of {name}",
            "credential": ids.new_credential(),
            "name": name,
            **more,
        }
    )


def child(
    forum: Forum, parent: Person, kind: requests.CauseKind = "spawn", name: str | None = None, **more: Any
) -> Person:
    """A new child of ``parent``; ``inherit=requests.Inherit(...)`` and the like go into the request."""
    request = child_request(name or f"{kind}-{next(_NUMBERS)}", kind, **more)
    forum.identities.create_child(parent.principal, parent.id, request, command=command())
    return Person(forum.identities.authenticate(request.credential), request.credential)


def subforum(forum: Forum, person: Person, key: str) -> dict[str, Any]:
    """A new subforum; the answer."""
    request = requests.SubforumRequest(key=key, title=f"About {key}")
    return json_of(forum.content.create_subforum(person.principal, request, command=command()))


def thread(forum: Forum, person: Person, key: str, body: str = "An opening.", **more: Any) -> dict[str, Any]:
    """A new thread with its opening post; the answer."""
    request = requests.ThreadRequest(**{"title": "A topic", "post": requests.PostContent(body=body), **more})
    return json_of(forum.content.create_thread(person.principal, key, request, command=command()))


def reply(forum: Forum, person: Person, thread_id: str, body: str = "A reply.", **more: Any) -> dict[str, Any]:
    """A new post in a thread; the answer."""
    request = requests.ReplyRequest(body=body, **more)
    return json_of(forum.content.reply(person.principal, thread_id, request, command=command()))


def refusal(code: str, action: Callable[[], object], *, field: str | None = None) -> ForumError:
    """The ForumError with this code that ``action`` must raise."""
    with pytest.raises(ForumError) as caught:
        action()
    assert caught.value.forum_code == code, caught.value
    if field is not None:
        assert caught.value.field == field
    return caught.value


def table_counts(database: Database) -> dict[str, int]:
    """How many rows each table has: equal before and after whatever must leave no trace."""

    def query(connection: Any) -> dict[str, int]:
        names = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'post_fts_%'"
        ).fetchall()
        return {str(name): connection.execute(f'SELECT count(*) FROM "{name}"').get for (name,) in names}

    return database.read(query)


def json_of(result: CommandResult) -> dict[str, Any]:
    """The document that a command answered with."""
    document: dict[str, Any] = json.loads(result.body)
    return document
