"""Participants of a forum who act in processes of their own, which may be told to die at a failpoint.

Import ``nursery`` into a test module to use it as a fixture.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from side_agents.forum.client import worker_lock
from tests.support.forum_client import Place

ROOT = Path(__file__).parents[2]
CHILD = [sys.executable, "-m", "tests.integration.forum_worker_child"]


class Nursery:
    """Runs actions in processes of their own, quickly."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [*CHILD, "--nursery", str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert json.loads(self._line()) == {"ready": True}

    def __call__(self, *arguments: str) -> tuple[int, str]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        return answer["status"], answer["output"]

    def close(self) -> None:
        self._process.communicate("", timeout=30)
        assert self._process.returncode == 0

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def nursery(guard_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@dataclass(frozen=True)
class Stage(Place):
    """A project whose participants act in processes of their own."""

    nursery: Nursery | None = None

    def attempt(self, name: str, action: str, failpoint: str) -> tuple[int, str]:
        """How an action ends, and what it says."""
        assert self.nursery is not None
        return self.nursery(str(self.folder), self.origin, name, action, failpoint)

    def run(self, name: str, action: str) -> Any:
        """An action that comes to its end."""
        status, output = self.attempt(name, action, "")
        assert status == 0, output
        return json.loads(output)

    def killed(self, name: str, action: str, failpoint: str) -> None:
        """An action that dies at the failpoint; it leaves a lock that says who died."""
        assert self.dies(name, action, failpoint), failpoint
        owner = worker_lock.owner_of(self.state(name))
        assert owner is not None
        assert not owner.alive

    def dies(self, name: str, action: str, failpoint: str) -> bool:
        """Whether an action comes to the failpoint; otherwise it comes to its end."""
        status, output = self.attempt(name, action, failpoint)
        assert status in (0, -signal.SIGKILL), (failpoint, output)
        return status != 0
