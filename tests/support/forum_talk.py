"""Short words for tests in which people of a forum talk: start a thread, reply, look at the events.

Import ``talk`` together with ``forum`` and ``forum_factory`` to use it as a fixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from side_agents.forum.requests import PostContent, ReplyRequest, SubforumRequest, ThreadRequest
from side_agents.forum.service.content import Content
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.pace import Pace
from tests.support.forum import Person, child, command, json_of, register


@dataclass(frozen=True)
class Posted:
    """What a test wants to know of a post that it made."""

    thread: str
    id: str
    sequence: int


class Talk:
    """One forum and its people, with a pace that lets everybody post as fast as a test likes."""

    def __init__(self, forum: Forum) -> None:
        self.forum = forum
        minutes = count(1)
        self.content = Content(forum.context, Pace(now=lambda: 60.0 * next(minutes)))

    def person(self) -> Person:
        return register(self.forum)

    def compacted(self, person: Person) -> Person:
        """The next author of the same session."""
        return child(self.forum, person, "compaction")

    def spawned(self, person: Person, **more: Any) -> Person:
        return child(self.forum, person, "spawn", **more)

    def subforum(self, person: Person, key: str = "general") -> str:
        self.content.create_subforum(person.principal, SubforumRequest(key=key, title=key), command=command())
        return key

    def thread(self, person: Person, subforum: str = "general", *, watch: bool = False, body: str = "hello") -> Posted:
        request = ThreadRequest(title="A topic", post=PostContent(body=body), watch=watch)
        made = json_of(self.content.create_thread(person.principal, subforum, request, command=command()))
        return Posted(made["threadId"], made["postId"], int(made["sequence"]))

    def reply(self, person: Person, thread: str, *, body: str = "a reply") -> Posted:
        made = json_of(self.content.reply(person.principal, thread, ReplyRequest(body=body), command=command()))
        return Posted(thread, made["postId"], int(made["sequence"]))

    def page(self, person: Person, **asked: Any) -> dict[str, Any]:
        """A page of events, from the beginning unless a cursor or start is given."""
        begin = {} if "cursor" in asked else {"start": "beginning"}
        return self.forum.events.page(person.principal, **{**begin, **asked})

    def heard(self, person: Person, **asked: Any) -> dict[int, list[str]]:
        """Sequences of the events on one page, with their reasons."""
        return {int(event["sequence"]): event["reasons"] for event in self.page(person, **asked)["events"]}

    def thread_view(self, person: Person, thread: str) -> dict[str, Any]:
        return self.content.thread(person.principal, thread)


@pytest.fixture
def talk(forum: Forum) -> Talk:
    """A fresh forum with the subforum ``general``, made by an author who does nothing else."""
    made = Talk(forum)
    made.subforum(made.person())
    return made
