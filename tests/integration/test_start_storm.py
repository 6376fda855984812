"""Many starts at the same time, half of them killed: nothing is used twice and nothing is lost from sight.

``SIDE_AGENTS_TEST_STORM_ROUNDS`` sets the number of rounds, ``SIDE_AGENTS_TEST_STORM_SEED`` the first seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

ROUNDS = int(os.environ.get("SIDE_AGENTS_TEST_STORM_ROUNDS", "3"))
SEED = int(os.environ.get("SIDE_AGENTS_TEST_STORM_SEED", "1"))
STARTS = 16
TASKS = ("same task", "same task", "another task")


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        # Sixteen processes at once on a busy machine may wait longer than a person would want to.
        made.configure("lock_timeout = 60\n")
        yield made


def storm(stage: Orchestra, seed: int, killed: int, seconds: float) -> tuple[list[dict[str, Any]], float]:
    """What the starts that lived to say so have got, and how long it all took; kills are spread over ``seconds``."""
    child = stage.child("storm", str(STARTS), str(seed), str(killed), str(seconds), *TASKS)
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err.decode()
    answers = [answer for answer in json.loads(out) if answer is not None]
    assert [answer for answer in answers if "error" in answer] == [], err.decode()
    assert len(answers) >= STARTS - killed
    for key in ("id", "slot", "branch"):
        assert len({answer[key] for answer in answers}) == len(answers), f"{key} given twice"
    return answers, max(answer["seconds"] for answer in answers)


def settle(stage: Orchestra, answers: list[dict[str, Any]]) -> None:
    """Every row has come to the truth, and shows all that there is."""
    eventually(lambda: not [row for row in stage.listed().records if row.status.is_starting], SLOW)
    # What git and tmux were doing for a start when it was killed comes to its end first.
    eventually(lambda: not [name for name in stage.processes().values() if name.startswith(("git ", "tmux "))], SLOW)
    rows = {row.id: row for row in stage.assert_sound().records}
    for answer in answers:
        row = rows[answer["id"]]
        assert (row.worktree_path, row.branch) == (answer["slot"], answer["branch"])
        assert row.launcher is not None
        assert stage.worktree(row).git("branch", "--show-current") == row.branch
        assert stage.worktree(row).status() == ""
    tagged = sorted(pane.agent_tag for pane in stage.panes() if pane.agent_tag)
    assert tagged == sorted(row.id for row in rows.values() if not row.status.is_terminal)
    held = {path.name for path in stage.slots() if stage.repo.git("worktree", "list").count(f"{path} ")}
    assert held == {path.name for path in stage.slots()}, "a slot that is no worktree"


@pytest.mark.timeout(120 + 30 * ROUNDS)
def test_x12_storms_of_starts_that_are_killed_at_any_moment(stage: Orchestra) -> None:
    answers, seconds = storm(stage, SEED, 0, 0.0)
    assert len(answers) == STARTS
    assert all(not answer["warnings"] for answer in answers)
    cut_off = 0
    for number in range(ROUNDS):
        settle(stage, answers)
        cut_off += len(stage.listed().records) - len(answers)
        again = stage.start("same task", client="fake")
        assert again.id in {row.id for row in stage.assert_sound().records}
        for row in stage.listed().records:
            stage.stop(row.id)
        stage.assert_quiet()
        answers, seconds = storm(stage, SEED + number, STARTS // 2, seconds / 2)
    settle(stage, answers)
    assert len(stage.slots()) <= STARTS + 1, "slots that nobody has were not used again"
    assert cut_off or ROUNDS < 3, "no start was killed between its reservation and its end"
