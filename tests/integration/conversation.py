"""Talking to agents, for tests: waiters and senders beside the test, and a client with chosen faults.

Run as a program it is such a sender or waiter in a process of its own, see ``main``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestra import Orchestra
from orchestra_child import SLOW

from side_agents.core import observe
from side_agents.core import send as sending
from side_agents.core import wait as waiting
from side_agents.core.context import open_context
from side_agents.core.results import Waited
from side_agents.infra import proc
from side_agents.infra.events import Wakeup
from side_agents.infra.tmux_call import client as tmux_client
from side_agents.models import AgentRecord, AgentStatus
from tests.support.waiting import eventually

_FICKLE = Path(__file__).with_name("fickle_client.py")


def fickle(mode: str, *, prompt: str = "file", status: str = "journal", box: str = "^>(.*)$", more: str = "") -> str:
    """Settings for the client ``fickle`` with this fault, see ``fickle_client``."""
    arguments = 'prompt_args = ["{prompt_file}"]' if prompt == "file" else ""
    return f"""
[clients.fickle]
argv = [{json.dumps(sys.executable)}, "-IS", {json.dumps(str(_FICKLE))}, "{mode}"]
prompt = "{prompt}"
status = "{status}"
draft_pattern = "{box}"
ready_pattern = "^>"
quit_text = "/quit"
{arguments}
{more}
"""


def took(stage: Orchestra, agent_id: str) -> list[str]:
    """The messages that the fickle client has taken."""
    path = stage.context.paths.runtime(agent_id).directory / "took.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tmux(stage: Orchestra, *arguments: str) -> str:
    """A tmux command as a person would give it."""
    return proc.run(tmux_client(stage.server.tmux.socket, *arguments), deadline=10.0).text


def type_text(stage: Orchestra, record: AgentRecord, text: str) -> None:
    """Characters typed by a person into the agent's window, without Enter; they are on the screen when this returns."""
    tmux(stage, "send-keys", "-t", record.tmux_pane_id or "", "-l", "--", text)
    eventually(lambda: text in stage.screen(record.id), SLOW)


def idle(stage: Orchestra, task: str = "say: hello", **more: Any) -> AgentRecord:
    """A new agent whose first turn has ended and whose input box is drawn."""
    started = stage.start(task, **more)
    record = stage.eventually_idle(started.id)
    eventually(lambda: "\n›" in stage.screen(record.id) or "\n>" in stage.screen(record.id), SLOW)
    return record


def wait_any(stage: Orchestra, *ids: str, timeout: float = SLOW, **more: Any) -> Waited:
    return waiting.wait_any(stage.context, ids, timeout=timeout, **more)


class _AskedWakeup(Wakeup):
    """Says when a waiter asks for the first time whether it was cancelled: after its first look."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = threading.Event()

    @property
    def fired(self) -> bool:
        self.was_asked.set()
        return super().fired


@contextmanager
def waiter(stage: Orchestra, *ids: str, timeout: float = SLOW, **more: Any) -> Iterator[Future[Waited]]:
    """A waiter in another thread that has looked once, found nothing and is about to sleep."""
    cancellation = _AskedWakeup()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait_any, stage, *ids, timeout=timeout, cancellation=cancellation, **more)
        future.add_done_callback(lambda _: cancellation.was_asked.set())
        assert cancellation.was_asked.wait(SLOW)
        yield future
    cancellation.close()


def status_of(waited: Waited) -> AgentStatus:
    found = waited.checked.record or waited.checked.tombstone
    assert found is not None
    return found.status


def id_of(waited: Waited) -> str:
    found = waited.checked.record or waited.checked.tombstone
    assert found is not None
    return found.id


def child(stage: Orchestra, *arguments: str) -> subprocess.Popen[bytes]:
    """This file as a program, see ``main``."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), *arguments],
        cwd=stage.cwd,
        env={**stage.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )


def answer_of(process: subprocess.Popen[bytes]) -> Any:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


def _send(agent_id: str, texts: Sequence[str]) -> list[str]:
    context = open_context(Path.cwd(), os.environ)
    return [sending.send(context, agent_id, f"say: {text}").state for text in texts]


def _wait(ids: Sequence[str]) -> dict[str, Any]:
    """Wait, and count the programs that are started between the first look and the second."""
    spawned: list[str] = []
    counts: list[int] = []
    refresh = observe.refresh

    def look(*args: Any, **more: Any) -> Any:
        counts.append(len(spawned))
        found = refresh(*args, **more)
        if len(counts) == 1:
            counts[0] = len(spawned)
            sys.stdout.write("looked\n")
            sys.stdout.flush()
        return found

    def hear(event: str, _arguments: Any) -> None:
        if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec"):
            spawned.append(event)

    sys.addaudithook(hear)
    observe.refresh = look
    found = waiting.wait_any(open_context(Path.cwd(), os.environ), ids, timeout=60)
    return {"id": id_of(found), "status": status_of(found), "spawned": counts[1] - counts[0]}


def main(command: str, *arguments: str) -> None:
    """``send ID TEXT...``: one after another. ``wait ID...``: says "looked" before it sleeps. Both answer in JSON."""
    answer = _send(arguments[0], arguments[1:]) if command == "send" else _wait(arguments)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
