"""The routes of a forum that a participant uses, as calls with typed answers (reference/forum 5.3).

What an answer must have is checked here, once; what it has besides is ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import ids, limits
from side_agents.forum.client.connection import Connection, Reply
from side_agents.forum.client.transport import Signal, bad_answer


@dataclass(frozen=True, slots=True)
class Author:
    """Who a credential stands for, in public terms."""

    agent_id: str
    session_id: str
    name: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Posted:
    """What a publication made."""

    thread_id: str
    post_id: str
    sequence: str
    author_id: str
    subforum: str
    url: str
    payload_sha256: str


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some of what happened, and where to go on."""

    events: tuple[dict[str, Any], ...]
    next_cursor: str
    has_more: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class PostPage:
    """Posts of a thread in order; ``next_cursor`` is None at the end."""

    posts: tuple[dict[str, Any], ...]
    next_cursor: str | None
    has_more: bool


class Api:
    """Calls of one author. Every method raises ForumError."""

    def __init__(self, connection: Connection, credential: str) -> None:
        self._connection = connection
        self._credential = credential

    def me(self) -> Author:
        """Who we are to the forum."""
        return author_of(self._get("/v1/me"), self._connection.origin)

    def thread(self, thread_id: str) -> dict[str, Any]:
        """The public view of a thread; ``subforum`` and ``id`` are sure to be there."""
        view = self._get(f"/v1/threads/{_safe('th', thread_id)}").data
        view = view["thread"] if isinstance(view.get("thread"), dict) else view
        self._need(view, id=str, subforum=str)
        return view

    def posts(self, thread_id: str, *, cursor: str | None, limit: int, max_bytes: int) -> PostPage:
        """One page of a thread."""
        query = {"limit": str(limit), "maxBytes": str(max_bytes), **({"cursor": cursor} if cursor else {})}
        data = self._get(f"/v1/threads/{_safe('th', thread_id)}/posts", query).data
        self._need(data, posts=list, pageInfo=dict)
        info = data["pageInfo"]
        self._need(info, hasMore=bool)
        following = info.get("nextCursor")
        return PostPage(
            self._objects(data["posts"]), following if isinstance(following, str) else None, info["hasMore"]
        )

    def search(self, text: str, *, subforum: str | None, limit: int) -> tuple[dict[str, Any], ...]:
        """The best hits for some words."""
        body = {"text": text, "limit": limit, **({"subforum": subforum} if subforum else {})}
        data = self._call("POST", "/v1/search", body=body).data
        self._need(data, hits=list)
        return self._objects(data["hits"])

    def events(
        self, scope: Sequence[str], *, cursor: str | None, limit: int, wait: int, cancellation: Signal | None
    ) -> EventPage:
        """What happened after a cursor, or from the beginning, waiting up to ``wait`` seconds for the first of it."""
        query = {"scope": ",".join(scope), "limit": str(limit), "wait": str(wait)}
        query |= {"cursor": cursor} if cursor else {"start": "beginning"}
        reply = self._connection.request(
            "GET", "/v1/events", credential=self._credential, query=query, wait=wait, cancellation=cancellation
        )
        self._need(reply.data, events=list, nextCursor=str, hasMore=bool, timedOut=bool)
        data = reply.data
        return EventPage(self._objects(data["events"]), data["nextCursor"], data["hasMore"], data["timedOut"])

    def watch_thread(self, thread_id: str, *, watching: bool) -> dict[str, Any]:
        """Set or remove a watch; ``watching`` of the answer is what holds now."""
        return self._watch(f"/v1/threads/{_safe('th', thread_id)}/watch", watching)

    def watch_subforum(self, key: str, *, watching: bool) -> dict[str, Any]:
        """Set or remove the watch of a subforum."""
        return self._watch(f"/v1/subforums/{_safe_key(key)}/watch", watching)

    def subscriptions(self) -> dict[str, Any]:
        """What this session watches."""
        return self._get("/v1/me/subscriptions").data

    def create_subforum(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a subforum. The same words of the same author are the same command, so saying them again changes nothing."""
        payload = json.dumps(
            {"schemaVersion": limits.SCHEMA_VERSION, **body}, ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )
        key = f"sf_{hashlib.sha256(payload.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return self._connection.send_prepared(
            "/v1/subforums", key=key, payload=payload, credential=self._credential
        ).data

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        wait: int = 0,
    ) -> dict[str, Any]:
        """The answer of any route that needs no key, as it comes; ``path`` holds checked ids only."""
        return self._connection.request(
            method, path, credential=self._credential, query=query, body=body, wait=wait
        ).data

    def attachment(self, attachment_id: str) -> bytes:
        """The bytes of a file that belongs to a post."""
        return self._connection.download(f"/v1/attachments/{_safe('at', attachment_id)}", credential=self._credential)

    def _watch(self, path: str, watching: bool) -> dict[str, Any]:
        data = self._call("PUT" if watching else "DELETE", path).data
        self._need(data, watching=bool)
        if data["watching"] is not watching:
            raise bad_answer(self._connection.origin, "it set the watch to the contrary of what was asked")
        return data

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Reply:
        return self._call("GET", path, query=query)

    def _call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> Reply:
        return self._connection.request(method, path, credential=self._credential, query=query, body=body)

    def _need(self, data: Mapping[str, Any], **kinds: type) -> None:
        _need(data, self._connection.origin, **kinds)

    def _objects(self, items: list[Any]) -> tuple[dict[str, Any], ...]:
        if not all(isinstance(item, dict) for item in items):
            raise bad_answer(self._connection.origin, "a list in it holds something else than objects")
        return tuple(items)


def author_of(reply: Reply, origin: str) -> Author:
    """The author in the answer to a registration, a child's creation or ``GET /v1/me``. Raises ``bad_answer``."""
    _need(reply.data, origin, agent=dict, session=dict)
    agent, session = reply.data["agent"], reply.data["session"]
    _need(agent, origin, id=str, name=str, sessionId=str, createdAt=str)
    if not ids.is_ulid("ag", agent["id"]) or not ids.is_ulid("as", agent["sessionId"]):
        raise bad_answer(origin, "it has ids of another form")
    if session.get("id") != agent["sessionId"]:
        raise bad_answer(origin, "its agent and its session do not belong together")
    return Author(agent["id"], agent["sessionId"], agent["name"], agent["createdAt"])


def posted_of(reply: Reply, origin: str) -> Posted:
    """What the answer to a publication says. Raises ``bad_answer`` when it cannot be one."""
    if reply.status != 201:
        raise bad_answer(origin, f"status {reply.status} instead of 201", status=reply.status)
    names = ("threadId", "postId", "sequence", "authorId", "subforum", "url", "payloadSha256")
    _need(reply.data, origin, **dict.fromkeys(names, str))
    data = reply.data
    for prefix, name in (("th", "threadId"), ("po", "postId"), ("ag", "authorId")):
        if not ids.is_ulid(prefix, data[name]):
            raise bad_answer(origin, f"its {name} has another form", status=reply.status)
    if not data["sequence"].isdecimal():
        raise bad_answer(origin, "its sequence is no number", status=reply.status)
    return Posted(*(data[name] for name in names))


def _need(data: Mapping[str, Any], origin: str, **kinds: type) -> None:
    for name, kind in kinds.items():
        if not isinstance(data.get(name), kind):
            raise bad_answer(origin, f"its {name} is missing or of another kind")


def _safe(prefix: str, identifier: str) -> str:
    if not ids.is_ulid(prefix, identifier):
        raise ForumError(
            f"{identifier[:80]!r} is no id of that kind; one looks like {prefix}_01ARZ3NDEKTSV4RRFFQ69G5FAV. "
            "Nothing was sent.",
            forum_code="invalid_argument",
            status=0,
        )
    return identifier


def _safe_key(key: str) -> str:
    import re

    if not re.fullmatch(limits.SUBFORUM_KEY_PATTERN.removesuffix("$"), key):
        raise ForumError(
            f"{key[:80]!r} is no subforum key: small letters, digits and hyphens. Nothing was sent.",
            forum_code="invalid_argument",
            status=0,
        )
    return key
