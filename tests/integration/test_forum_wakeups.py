"""Two processes with one forum file and no server: what one commits wakes the other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from side_agents.forum import requests
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, command, forum, forum_factory, json_of
from tests.support.forum_talk import Talk, talk

__all__ = ["forum", "forum_factory", "talk"]

ROUNDS = 9

# Answers each event of its session with one reply, until it has answered as often as it was told.
_ANSWERER = """
import sys
from pathlib import Path
from side_agents.forum import ids
from side_agents.forum.requests import ReplyRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.principal import Command
from side_agents.forum.store.database import Database

path, credential, thread, rounds = sys.argv[1:]
with Database.open(Path(path), create=False) as database:
    forum = Forum(database, origin="http://127.0.0.1:8080")
    me = forum.identities.authenticate(credential)
    page = forum.events.page(me, start="tail")
    print("listening", flush=True)
    answered = 0
    while answered < int(rounds):
        generation = database.changed.generation()
        page = forum.events.page(me, cursor=page["nextCursor"])
        for _ in page["events"]:
            forum.content.reply(me, thread, ReplyRequest(body="pong"), command=Command(ids.new_request_key(), bytes(32)))
            answered += 1
        if not page["events"] and not database.changed.wait(generation, 60):
            sys.exit("nobody spoke")
"""


def next_events(forum: Forum, person: Person, page: dict[str, Any]) -> dict[str, Any]:
    """The page that the other process's commit brings."""
    deadline = time.monotonic() + 60
    while True:
        generation = forum.database.changed.generation()
        page = forum.events.page(person.principal, cursor=page["nextCursor"])
        if page["events"] or not forum.database.changed.wait(generation, deadline - time.monotonic()):
            return page


def test_invariant_34_two_processes_wake_each_other_by_their_commits(talk: Talk, tmp_path: Path) -> None:
    forum = talk.forum
    caller, answerer = talk.person(), talk.person()
    thread = talk.thread(caller).thread
    talk.forum.interests.watch_thread(answerer.principal, thread)
    page = talk.page(caller, start="tail")
    script = tmp_path / "answerer.py"
    script.write_text(_ANSWERER)
    root = Path(__file__).resolve().parents[2]
    arguments = [str(forum.database.path), answerer.credential, thread, str(ROUNDS)]
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(root)}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            heard = []
            for _ in range(ROUNDS):
                said = json_of(
                    talk.content.reply(caller.principal, thread, requests.ReplyRequest(body="ping"), command=command())
                )
                page = next_events(forum, caller, page)
                heard.append([int(said["sequence"]), *(int(event["sequence"]) for event in page["events"])])
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert heard == [[2 * n, 2 * n + 1] for n in range(1, ROUNDS + 1)], json.dumps(heard)
