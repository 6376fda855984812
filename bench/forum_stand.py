"""A forum to measure: people in it, posts in it, and other processes that wait for news of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from bench.harness import World
from side_agents.forum import ids
from side_agents.forum.requests import PostContent, RegisterRequest, ReplyRequest, SubforumRequest, ThreadRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.pace import Pace
from side_agents.forum.service.principal import Command, Principal
from side_agents.forum.store import activity, posts, search, threads
from side_agents.forum.store.database import Connection, Database

ORIGIN = "http://127.0.0.1:8080"
SUBFORUM = "lab"
BODY = (
    "The parser drops the last token of a line when the line ends without a newline; a test for it is on my branch. "
    * 3
)


@dataclass(frozen=True)
class Person:
    """An author and what proves it."""

    principal: Principal
    credential: str


@contextmanager
def opened(path: Path) -> Iterator[Forum]:
    """The forum in a file; whoever posts there is never held back, as each look at the clock is an hour later."""
    hours = count()
    with Database.open(path) as database:
        yield Forum(database, origin=ORIGIN, pace=Pace(lambda: next(hours) * 3600.0))


def command() -> Command:
    """A command that was never given before."""
    return Command(ids.new_request_key(), bytes(32))


def person(forum: Forum, name: str) -> Person:
    """A new author."""
    credential = ids.new_credential()
    request = RegisterRequest(context_key=f"context of {name}", credential=credential, name=name)
    forum.identities.register(request, command=command())
    return Person(forum.identities.authenticate(credential), credential)


def topic(forum: Forum, author: Person) -> str:
    """The subforum with one thread in it; the thread's id."""
    forum.content.create_subforum(author.principal, SubforumRequest(key=SUBFORUM, title="Lab"), command=command())
    request = ThreadRequest(title="A topic", post=PostContent(body=BODY))
    made = forum.content.create_thread(author.principal, SUBFORUM, request, command=command())
    return str(json.loads(made.body)["threadId"])


def reply(forum: Forum, author: Person, thread: str) -> None:
    """One post."""
    forum.content.reply(author.principal, thread, ReplyRequest(body=BODY), command=command())


def fill(forum: Forum, author: Person, thread: str, bodies: Iterator[str]) -> None:
    """Add posts in one transaction, with all that a search or a page of a thread reads of them."""
    me, at = author.principal, ids.now_ms()

    def transaction(connection: Connection) -> None:
        for body in bodies:
            post = ids.ulid("po")
            sequence = activity.append(
                connection, event=activity.POST_CREATED, actor=me.agent_id, session=me.session_id, subforum=SUBFORUM,
                thread=thread, post=post, at=at,
            )  # fmt: skip
            posts.insert(
                connection, sequence=sequence, post=post, thread=thread, author=me.agent_id, session=me.session_id,
                body=body, reply_to=None, metadata="{}", provenance="{}", at=at,
            )  # fmt: skip
            search.index(connection, sequence, title="", body=body)
            threads.touch(connection, thread, sequence)

    forum.database.write(transaction)


@dataclass(frozen=True)
class Other:
    """Another process, and what it says."""

    pid: int
    lines: IO[str]


@contextmanager
def other(made: World, *arguments: str | Path) -> Iterator[Other]:
    """A process that is at work at the forum, see ``forum_child``."""
    with _started(made, "-m", "bench.forum_child", *arguments) as begun:
        if begun.lines.readline() != "ready\n":
            raise RuntimeError(f"{arguments[0]} did not begin")
        yield begun


@contextmanager
def served(made: World, path: Path) -> Iterator[str]:
    """``forum serve`` of a file; its address."""
    argv = ("-m", "side_agents", "forum", "serve", "--port", "0", "--database", path, "--json")
    with _started(made, *argv) as begun:
        yield str(json.loads(begun.lines.readline())["address"])


@contextmanager
def _started(made: World, *argv: str | Path) -> Iterator[Other]:
    with subprocess.Popen(
        [sys.executable, *argv], cwd=made.repository, env=made.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            if process.stdout is None:
                raise RuntimeError("a process without output")
            yield Other(process.pid, process.stdout)
        finally:
            process.terminate()
