"""A process that is made to die in the middle of a forum command.

Run as a program it stays, and forks once for each job that it reads, so that hundreds of deaths cost one interpreter.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_agents.forum import failpoints, requests
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.principal import Command, CommandResult, Principal
from side_agents.forum.store import writer
from side_agents.forum.store.database import Connection, Database
from tests.support.forum_vfs import Shim, die_at

KEY = "the-one-key-of-this-intent"
DONE, NOT_REACHED = 0, 3


def credential(name: str) -> str:
    """A credential that both processes can know."""
    return "af_" + base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).rstrip(b"=").decode()


def send(forum: Forum, operation: str, author: Principal, target: str, key: str = KEY) -> CommandResult:
    """Send the one prepared request of an operation; ``target`` is a thread, for ``reply``."""
    command = Command(key, hashlib.sha256(operation.encode()).digest())
    file = requests.AttachmentInput(name="a.txt", media_type="text/plain", data=base64.b64encode(b"x" * 9000).decode())
    post = requests.PostContent(body="words of zebra", metadata={"k": [1, 2]}, attachments=(file,))
    if operation == "register":
        root = requests.RegisterRequest(context_key="killed root", credential=credential("root"), name="killed-root")
        return forum.identities.register(root, command=command)
    if operation == "child":
        child = requests.ChildRequest(
            cause=requests.Cause(kind="spawn", key="killed"),
            context_key="killed child",
            credential=credential("child"),
            name="killed-child",
            inherit=requests.Inherit(subforums=True, thread_watches=True),
        )
        return forum.identities.create_child(author, author.agent_id, child, command=command)
    if operation == "subforum":
        room = requests.SubforumRequest(key="killed", title="Killed", metadata={"k": "v"})
        return forum.content.create_subforum(author, room, command=command)
    if operation == "thread":
        topic = requests.ThreadRequest(title="Killed", post=post, metadata={"t": 1}, watch=True)
        return forum.content.create_thread(author, "lab", topic, command=command)
    reply = requests.ReplyRequest(body=post.body, metadata=post.metadata, attachments=post.attachments)
    return forum.content.reply(author, target, reply, command=command)


def send_together(forum: Forum, author: Principal, target: str) -> None:
    """Three replies that wait for one commit: the first holds the writer until the others are queued."""
    database = forum.database
    threads = [
        threading.Thread(target=send, args=(forum, "reply", author, target, f"{KEY}-{number}")) for number in range(3)
    ]

    def hold(_: Connection) -> None:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while database._writer._jobs.qsize() < len(threads) and time.monotonic() < deadline:
            time.sleep(0.001)

    database.write(hold)
    for thread in threads:
        thread.join()


def run(job: dict[str, Any]) -> int:
    """Do one job; returns only when nothing has killed the process."""
    author = Principal(**job["author"])
    if job["operation"] == "create":
        failpoints.arm(job["failpoint"])
        Database.open(Path(job["path"]))
        return NOT_REACHED
    with Database.open(Path(job["path"]), open_file=_file_layer(job)) as database:
        forum = Forum(database, origin="http://127.0.0.1")
        failpoints.arm(job.get("failpoint"))
        if job["operation"] == "batch":
            send_together(forum, author, job["target"])
        else:
            send(forum, job["operation"], author, job["target"])
    return DONE if not job.get("failpoint") and not job.get("die") else NOT_REACHED


def _file_layer(job: dict[str, Any]) -> Callable[[Path], Any] | None:
    if not job.get("die"):
        return None
    # Every commit is followed by a checkpoint, so that one can die in it.
    writer.CHECKPOINT_PAGES = 1
    return Shim(die_at(*job["die"])).open_file


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = run(json.loads(line))
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
