"""Many short-lived processes on one forum file, half of which are killed at a random moment of their lives.

``python -m tests.integration.forum_storm_child DATABASE CREDENTIAL THREAD PROCESSES SEED`` prints one JSON object: how many
were killed and how many ended by themselves, and the ids and sequences of the posts that they were promised.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from random import Random

from side_agents.forum.requests import ReplyRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from tests.support.forum import ORIGIN, command, json_of, unhurried

AT_ONCE = 5
# So long the life of one takes on an idle machine.
LIFE_SECONDS = 0.1


def live(path: Path, credential: str, thread: str, random: Random, promises: int) -> None:
    """Open the forum, say a few things and note what was promised, and leave, perhaps as the last one."""
    with Database.open(path) as database:
        forum = Forum(database, origin=ORIGIN, pace=unhurried())
        author = forum.identities.authenticate(credential)
        for _ in range(random.randrange(1, 4)):
            words = ReplyRequest(body="x" * random.choice((10, 3000, 60_000)))
            made = json_of(forum.content.reply(author, thread, words, command=command()))
            os.write(promises, f"{made['postId']} {made['sequence']}\n".encode())


def begin(path: Path, credential: str, thread: str, random: Random, promises: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        live(path, credential, thread, random, promises)
        status = 0
    finally:
        os._exit(status)


def main(database: str, credential: str, thread: str, processes: str, seed: str) -> None:
    random, ends, running = Random(seed), {"killed": 0, "ended": 0}, dict[int, float]()
    noted = Path(database).with_name("promises")
    promises = os.open(noted, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    left = int(processes)
    while left or running:
        while left and len(running) < AT_ONCE:
            pid = begin(Path(database), credential, thread, Random(f"{seed}-{left}"), promises)
            doomed = random.random() < 0.5
            running[pid] = time.monotonic() + random.random() * LIFE_SECONDS if doomed else float("inf")
            left -= 1
        for pid, due in list(running.items()):
            if time.monotonic() > due:
                os.kill(pid, signal.SIGKILL)
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del running[pid]
                ending = os.waitstatus_to_exitcode(status)
                assert ending in (0, -signal.SIGKILL), ending
                ends["ended" if ending == 0 else "killed"] += 1
        time.sleep(0.001)
    print(json.dumps({**ends, "promised": [line.split() for line in noted.read_text().splitlines()]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
