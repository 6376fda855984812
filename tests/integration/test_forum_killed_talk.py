"""The talk of seed 000, section 13, in which the server and everybody who talks are killed again and again (T207)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from side_agents.forum import failpoints
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from tests.integration import forum_worker_child
from tests.integration.forum_stage import ROOT, Nursery, Stage, nursery
from tests.support.forum import ORIGIN, check
from tests.support.forum_client import add_subforum

__all__ = ["nursery"]

SAYING = ("C1", "K1", "K2", "K3", "K4", "C2", "K5", "F1", "F3", "F4", "F5", "F6")
HEARING = ("E1", "E2", "E3", "F2", "F5")
SERVING = ("S1", "S2", "S4", "S7", "S9", "S11", "S13", "S14", "S15")


class Server:
    """``forum serve`` at one address through all its deaths."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._port = 0
        self.start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, failpoint: str = "") -> None:
        words = [
            "forum",
            "serve",
            "--json",
            "--port",
            str(self._port),
            "--database",
            str(self._database),
            "--allow-tmpfs",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "side_agents", *words],
            cwd=self._database.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), failpoints.VARIABLE: failpoint},
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._port = int(json.loads(self._process.stdout.readline())["address"].rpartition(":")[2])

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)

    def is_dead(self) -> bool:
        return self._process.poll() is not None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir(mode=0o700)
    made = Server(folder / "forum.db")
    yield made
    made.kill()


class Talk:
    """The people of the talk, who do each thing until it is done, however often they and the server die of it."""

    def __init__(self, stage: Stage, server: Server, random: Random) -> None:
        self.stage, self.server, self.random = stage, server, random
        self.deaths: list[str] = []

    def do(self, name: str, action: str, points: tuple[str, ...]) -> object:
        """The answer of the first attempt that comes to its end, after at most two that are meant not to."""
        for point in [*self.random.sample(points, self.random.randrange(3)), "", "", ""]:
            status, output = self.stage.attempt(name, action, point)
            if status == -signal.SIGKILL:
                self.deaths.append(point)
            if self.server.is_dead():
                self.deaths.append("the server")
                self.server.kill()
                self.server.start()
            elif status == 0 and (answer := json.loads(output)):
                return answer
        raise AssertionError((name, action, self.deaths, output))

    def endanger_server(self) -> None:
        """Kill it now, and its next life ends at a point that was drawn."""
        self.server.kill()
        self.server.start(f"{self.random.choice(SERVING)}:{self.random.randrange(1, 3)}")


def test_t207_killed_again_and_again_the_talk_ends_in_the_same_ledger(
    tmp_path: Path, server: Server, nursery: Nursery
) -> None:
    stage = Stage(tmp_path, server.origin, nursery)
    talk = Talk(stage, server, Random(207))
    with stage.worker("student") as student, stage.worker("teacher") as teacher:
        add_subforum(student)
        first = student.document["identity"]
        opened = student.publish(forum_worker_child.TOPIC, origin="model").posted
        assert opened is not None
        thread = opened.thread_id
        teacher.watch(thread, watching=True)
    heard = {"student": "0", "teacher": "0"}
    lines = [(who, f"{who} {number}") for number in range(1, 5) for who in ("teacher", "student")]

    for number, (speaker, words) in enumerate(lines):
        listener = "student" if speaker == "teacher" else "teacher"
        if number in (2, 5):
            talk.endanger_server()
        assert talk.do(speaker, f"say:{thread}:{words}", SAYING) is True
        found = talk.do(listener, f"collect:{heard[listener]}", HEARING)
        assert isinstance(found, list)
        # What the other one has just said, and nothing twice, whatever died meanwhile.
        [heard[listener]] = found
    compacted = talk.do("student", "compact", ("K1", "K2", "K3", "K4", "K5"))
    assert talk.do("student", f"say:{thread}:audit", SAYING) is True

    server.kill()
    ledger: list[Any]
    with Database.open(tmp_path / "served" / "forum.db") as database:
        check(Forum(database, origin=ORIGIN))
        ledger = database.read(
            lambda db: db.execute(
                "SELECT body, author_id, (SELECT count(*) FROM command WHERE entity = post.id) FROM post ORDER BY created_seq"
            ).fetchall()
        )
    assert first is not None
    assert [body for body, _, _ in ledger] == ["said once", *(words for _, words in lines), "audit"]
    assert {author for body, author, _ in ledger if body.startswith(("said", "student"))} == {first["agentId"]}
    assert ledger[-1][1] == compacted
    assert [commands for _, _, commands in ledger] == [1] * len(ledger)
    assert talk.deaths.count("the server") >= 1
    assert len(talk.deaths) >= 10
