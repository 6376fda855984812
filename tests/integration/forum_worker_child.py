"""One participant's action in a process of its own, which may be told to die at a failpoint.

``python -m tests.integration.forum_worker_child FOLDER ORIGIN NAME ACTION [FAILPOINT]`` prints one line of JSON; an action
may have an argument: ``compact:entry-2``. With
``--nursery FOLDER`` it reads such arguments as JSON lines and carries each out in a fork of itself, which has everything
loaded already: a hundred processes in the time of ten.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from side_agents.forum import failpoints
from side_agents.forum.client import children, policy
from side_agents.forum.client.children import ChildPlan
from side_agents.forum.client.worker import Worker
from tests.support.forum_client import Place, add_subforum

TOPIC = policy.draft(body="said once", subforum="lab", title="A title")
CAUSE = "fix-login 2026-03-03"


def register(worker: Worker) -> Any:
    return worker.ensure_identity("a")["agentId"]


def publish(worker: Worker) -> Any:
    outcome = worker.publish(TOPIC, origin="model")
    assert outcome.posted is not None, outcome.error
    return outcome.posted.post_id


def retry(worker: Worker) -> Any:
    pending = worker.document["publications"]
    return [worker.retry(each["id"], confirm=lambda _: True).posted is not None for each in pending]


def say(worker: Worker, spoken: str) -> Any:
    """Make sure of ``THREAD:WORDS`` whatever became of it before: what is kept is sent again, what is there is not repeated."""
    thread, words = spoken.split(":", 1)
    if not all(retry(worker)):
        return False
    there = worker.call(lambda api: api.posts(thread, cursor=None, limit=100, max_bytes=100_000)).posts
    if words in [post["body"] for post in there]:
        return True
    return worker.publish(policy.draft(body=words, thread_id=thread), origin="model").posted is not None


def compact(worker: Worker, entry: str = "entry-1") -> Any:
    return worker.compact(entry_id=entry, label="a")["agentId"]


def collect(worker: Worker, after: str | None = None) -> Any:
    found = worker.wait(after=after, seconds=0)
    failpoints.reach("E3")
    return [each["sequence"] for each in found.references]


def change(worker: Worker) -> Any:
    worker.file.update(lambda draft: draft["host"].update(leafEntryId="new"))
    return worker.document["revision"]


def plan(worker: Worker) -> ChildPlan:
    state = children.child_state_path(worker.file.path.parent.parent, worker.document, CAUSE)
    launch: Any = {"kind": "tmux", "target": "agent-fix-login", "cwd": "/", "model": None}
    return ChildPlan(cause_key=CAUSE, name="t-fix-login", child_state=state, launch=launch)


def spawn(worker: Worker) -> Any:
    made = worker.create_child(plan(worker))
    # P6 stands for the program's start, which whoever starts programs does.
    failpoints.reach("P6")
    children.launched(worker.file, CAUSE)
    return made["childStatePath"]


def hold(worker: Worker) -> Any:
    print(json.dumps(worker.document["revision"]), flush=True)
    sys.stdin.read()
    return None


ACTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (register, publish, retry, say, compact, collect, change, spawn, hold)
}


def main(folder: str, origin: str, name: str, action: str, failpoint: str = "") -> None:
    with Place(Path(folder), origin).worker(name, registered=False) as worker:
        failpoints.arm(failpoint)
        word, *argument = action.split(":", 1)
        print(json.dumps(ACTIONS[word](worker, *argument)), flush=True)


def nursery(folder: str) -> None:
    import_module("side_agents.forum.client.http")
    # Once through everything, so that it is loaded; the threads of it are gone when this returns.
    with Place(Path(folder)).worker("warm") as worker:
        add_subforum(worker)
        publish(worker)
        collect(worker)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_in_a_fork(json.loads(line))), flush=True)


def _in_a_fork(arguments: list[str]) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(reading)
        try:
            main(*arguments)
        except BaseException:  # noqa: BLE001 - told to who waits for the status
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as output:
        said = output.read()
    _, status = os.waitpid(pid, 0)
    return {"status": os.waitstatus_to_exitcode(status), "output": said}


if __name__ == "__main__":
    if sys.argv[1] == "--nursery":
        nursery(sys.argv[2])
    else:
        main(*sys.argv[1:])
