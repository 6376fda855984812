"""A process of its own that holds a forum open, writes to it, or puts a backup back and may be killed in the middle.

``hold DB``, ``write DB THREAD CREDENTIAL`` (until its input ends), ``restore BACKUP DB STEP``: STEP counts calls of what
makes a change visible in the file system; at that one the process dies.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_agents.forum.requests import ReplyRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.operator import restore
from side_agents.forum.store.database import Database
from tests.support.forum import ORIGIN, command, unhurried


def hold(path: str) -> None:
    with Database.open(Path(path)) as database:
        database.read(lambda connection: connection.execute("SELECT count(*) FROM post").get)
        print("ready", flush=True)
        sys.stdin.read()


def write(path: str, thread: str, credential: str) -> None:
    with Database.open(Path(path)) as database:
        forum = Forum(database, origin=ORIGIN, pace=unhurried())
        me = forum.identities.authenticate(credential)
        number = 0
        os.set_blocking(0, False)
        print("ready", flush=True)
        while _input_is_open():
            number += 1
            request = ReplyRequest(body=f"post {number}", metadata={"number": number})
            forum.content.reply(me, thread, request, command=command())
        print(number, flush=True)


def _input_is_open() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


def put_back(backup: str, path: str, step: str) -> None:
    remaining = int(step)

    def dying(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **named)

        return call

    for name in ("link", "rename", "replace", "fsync", "unlink"):
        setattr(os, name, dying(getattr(os, name)))
    restore(Path(backup), Path(path), replace=True)


if __name__ == "__main__":
    {"hold": hold, "write": write, "restore": put_back}[sys.argv[1]](*sys.argv[2:])
