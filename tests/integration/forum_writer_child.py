"""Another process that uses the same forum file: it posts, or waits for posts, and reports as JSON lines."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from side_agents.forum import requests
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.principal import Command
from side_agents.forum.store.database import Database
from tests.support.forum import unhurried


def report(value: Any) -> None:
    print(json.dumps(value), flush=True)


def post(forum: Forum, credential: str, thread: str, keys: list[str]) -> None:
    """Reply once for each key, as fast as it goes."""
    me = forum.identities.authenticate(credential)
    for key in keys:
        answer = forum.content.reply(
            me, thread, requests.ReplyRequest(body="from another process"), command=Command(key, b"\0" * 32)
        )
        report(json.loads(answer.body))


def wait(forum: Forum, credential: str, count: int) -> None:
    """Say what arrives, each with the moment on the clock that all processes share."""
    me = forum.identities.authenticate(credential)
    asked: dict[str, str] = {"start": "tail"}
    seen = 0
    while seen < count:
        generation = forum.database.changed.generation()
        page = forum.events.page(me, scope="watched-subforums", **asked)
        now = time.monotonic_ns()
        asked = {"cursor": page["nextCursor"]}
        seen += len(page["events"])
        report({"events": [event["sequence"] for event in page["events"]], "at": now})
        if not page["events"]:
            forum.database.changed.wait(generation, 30)


def main() -> None:
    mode, path, credential, *rest = sys.argv[1:]
    with Database.open(Path(path)) as database:
        forum = Forum(database, origin="http://127.0.0.1", pace=unhurried())
        report("ready")
        if mode == "open":
            report(database.installation.id)
        elif mode == "post":
            sys.stdin.readline()
            post(forum, credential, rest[0], rest[1:])
        else:
            wait(forum, credential, int(rest[0]))


if __name__ == "__main__":
    main()
