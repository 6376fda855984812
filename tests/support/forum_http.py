"""The forum's API called through ASGI, without a socket, as a client on the wire would see it.

Import ``web`` (and ``forum_factory``, ``forum``) into a test module to use it as a fixture.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import pytest

from side_agents.forum import ids
from side_agents.forum.server.app import LocalApp
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, register

T = TypeVar("T")
Headers = Mapping[str, str] | Iterable[tuple[str, str]]
_KEYS = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """What came back: header names in lower case; ``messages`` are the ASGI messages as they were sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    messages: tuple[dict[str, Any], ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(self.json["code"])


@dataclass
class Wire:
    """One request in flight: ``hang_up`` is the client going away."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    chunks: list[bytes]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    messages: list[dict[str, Any]] = field(default_factory=list)
    consumed: int = 0
    # What the client does while it is asked for the next piece of its body.
    before_chunk: Callable[[int], Awaitable[None]] | None = None

    def hang_up(self) -> None:
        self.gone.set()

    async def run(self, app: Any) -> Answer:
        path, _, query = self.target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": self.headers,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        await app(scope, self._receive, self._send)
        if not self.messages:
            return Answer(0, {}, b"")
        head = self.messages[0]
        headers = {name.decode(): value.decode() for name, value in head["headers"]}
        body = b"".join(message.get("body", b"") for message in self.messages[1:])
        return Answer(head["status"], headers, body, tuple(self.messages))

    async def _receive(self) -> dict[str, Any]:
        if self.consumed < len(self.chunks):
            if self.before_chunk is not None:
                await self.before_chunk(self.consumed)
            self.consumed += 1
            more = self.consumed < len(self.chunks)
            return {"type": "http.request", "body": self.chunks[self.consumed - 1], "more_body": more}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.messages.append(dict(message))


class Web:
    """A client of one application; every request of a test runs on the same event loop."""

    def __init__(self, app: Any, runner: asyncio.Runner) -> None:
        self.app = app
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the test on the loop of the application."""
        return self._runner.run(work)

    def wire(
        self,
        method: str,
        target: str,
        *,
        by: Person | str | None = None,
        body: Any = None,
        raw: bytes | None = None,
        chunks: list[bytes] | None = None,
        key: str | None = "",
        headers: Headers = (),
        host: str | None = "localhost",
        length: bool = True,
    ) -> Wire:
        """A request: ``by`` brings a credential, ``body`` is sent as JSON, ``key`` "" makes a new one for POST."""
        given = list(headers.items() if isinstance(headers, Mapping) else headers)
        content = json.dumps(body).encode() if body is not None else raw
        pieces = chunks if chunks is not None else [content] if content is not None else [b""]
        sent = [("host", host)] if host is not None else []
        if by is not None:
            sent.append(("authorization", f"Bearer {by if isinstance(by, str) else by.credential}"))
        if content is not None or chunks is not None:
            sent.append(("content-type", "application/json"))
            if length:
                sent.append(("content-length", str(sum(map(len, pieces)))))
            else:
                sent.append(("transfer-encoding", "chunked"))
        if key == "" and method == "POST":
            key = f"key-of-request-{next(_KEYS):08}"
        if key:
            sent.append(("idempotency-key", key))
        named = {name.lower() for name, _ in given}
        kept = [(name, value) for name, value in sent if name not in named]
        return Wire(method, target, [(n.lower().encode(), v.encode("latin-1")) for n, v in (*kept, *given)], pieces)

    async def ask(self, method: str, target: str, **options: Any) -> Answer:
        """One whole request, for use inside of ``run``."""
        return await self.wire(method, target, **options).run(self.app)

    def __call__(self, method: str, target: str, **options: Any) -> Answer:
        """One whole request."""
        return self.run(self.ask(method, target, **options))

    def get(self, target: str, **options: Any) -> Answer:
        return self("GET", target, **options)

    def post(self, target: str, body: Any = None, **options: Any) -> Answer:
        return self("POST", target, body=body, **options)

    def subforum(self, by: Person, key: str = "general") -> str:
        """A new subforum's key."""
        assert self.post("/v1/subforums", {"key": key, "title": key}, by=by).status == 201
        return key

    def thread(self, by: Person, subforum: str = "general", title: str = "A topic", **post: Any) -> dict[str, Any]:
        """A new thread, as the answer to its creation."""
        content = {"title": title, "post": {"body": "Opening.", **post}}
        answer = self.post(f"/v1/subforums/{subforum}/threads", content, by=by)
        assert answer.status == 201, answer
        return dict(answer.json)

    def reply(self, by: Person, thread: str, text: str = "A reply.", **more: Any) -> dict[str, Any]:
        """A new post, as the answer to its creation."""
        answer = self.post(f"/v1/threads/{thread}/posts", {"body": text, **more}, by=by)
        assert answer.status == 201, answer
        return dict(answer.json)


@contextmanager
def opened_web(forum: Forum, settings: ServerSettings | None = None) -> Iterator[Web]:
    """A client of a forum with settings of its own."""
    app = LocalApp(forum, settings)
    try:
        with asyncio.Runner() as runner:
            yield Web(app, runner)
    finally:
        app.close()


@pytest.fixture
def web(forum: Forum) -> Iterator[Web]:
    with opened_web(forum) as client:
        yield client


@pytest.fixture
def ann(forum: Forum) -> Person:
    return register(forum, "ann")


@pytest.fixture
def bob(forum: Forum) -> Person:
    return register(forum, "bob")


def registration_body(name: str, **more: Any) -> dict[str, Any]:
    """The body of a registration over the wire."""
    return {"contextKey": f"context of {name}", "credential": ids.new_credential(), "name": name, **more}


def scene(web: Web, forum: Forum, ann: Person) -> tuple[dict[str, Any], dict[str, str]]:
    """A forum in which every operation has something to answer: bodies by operation, and values for paths."""
    bob = register(forum, "bob")
    web.subforum(bob)
    files = [{"name": "a.txt", "mediaType": "text/plain", "data": base64.b64encode(b"a").decode()}]
    thread = web.thread(bob, attachments=files, provenance={"model": "m"}, metadata={"k": [1, {"a": None}]})
    post = web.reply(bob, thread["threadId"], replyTo=thread["postId"])
    web("PUT", f"/v1/threads/{thread['threadId']}/watch", by=ann)
    web("PUT", f"/v1/threads/{thread['threadId']}/pin", by=bob)
    web("PUT", f"/v1/posts/{post['postId']}/pin", by=bob)
    opening = web.get(f"/v1/posts/{thread['postId']}", by=ann).json
    values = {
        "agentId": ann.id, "sessionId": ann.session, "name": ann.name, "key": "general", "threadId": thread["threadId"],
        "postId": post["postId"], "attachmentId": opening["attachments"][0]["id"], "planId": ids.ulid("pl"),
    }  # fmt: skip
    bodies: dict[str, Any] = {
        "register": registration_body("carl"),
        "createChild": {**registration_body("kid"), "cause": {"kind": "spawn", "key": "k"}, "inherit": {"threadWatches": True}},
        "updateMe": {"bio": "b"}, "createSubforum": {"key": "other", "title": "Other"},
        "visitSubforum": {"observedSequence": "0"}, "createThread": {"title": "T", "post": {"body": "b"}},
        "createPost": {"body": "b"}, "markRead": {"throughPostId": thread["postId"]}, "search": {"text": "opening"},
        "ackEvents": {"scope": "involved", "throughSequence": "1"}, "createPlan": {"scope": "all"},
    }  # fmt: skip
    return bodies, values


def refused(answer: Answer, status: int, code: str, field: str | None = None) -> None:
    """An error as reference/forum 5.2 defines it, with nothing else in it."""
    assert (answer.status, answer.code) == (status, code), answer
    expected = {"schemaVersion", "code", "message", "retryable", "requestId"} | ({"field"} if field else set())
    assert set(answer.json) - {"field"} == expected - {"field"}
    if field:
        assert answer.json["field"] == field
    assert re.fullmatch(r"rq_[0-9A-Z]{26}", answer.json["requestId"])
    assert answer.json["retryable"] is (status in (429, 503, 507))
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"


def watched(web: Web, forum: Forum) -> tuple[Person, Person, str]:
    """A watcher, a writer, and the thread that both know."""
    writer, watcher = register(forum), register(forum)
    web.subforum(writer)
    thread = web.thread(writer)["threadId"]
    assert web("PUT", f"/v1/threads/{thread}/watch", by=watcher).status == 200
    return watcher, writer, thread


def tail(web: Web, who: Person) -> str:
    return str(web.get("/v1/events?start=tail", by=who).json["nextCursor"])


async def until(predicate: Any, deadline: float = 10.0) -> None:
    end = time.monotonic() + deadline
    while not predicate():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)
