"""A resume that is killed after any of its steps leaves branch, files and conversation as they were, and can be done again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestra import SLOW, Orchestra, orchestra
from resume_support import back, quit_agent, recycle, say

from side_agents.core.resume import resume
from side_agents.errors import RefusedError
from side_agents.models import AgentRecord, AgentStatus
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def resume_in_child(stage: Orchestra, *arguments: str) -> tuple[int, str]:
    program = Path(__file__).with_name("resume_child.py")
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        check=False,
        cwd=stage.cwd,
        env=stage.environment,
        capture_output=True,
        timeout=60,
    )
    return done.returncode, (done.stdout or done.stderr).decode()


# What leaves a trace, in order. Until the window is there, the branch is all that counts.
BEFORE_WINDOW = (
    "write registry.json",
    "create active.lock",
    "archive",
    "write kickoff.md",
    "write resume-notice.json",
    "write registry.json 2",
    "write launch.sh",
)
ELSEWHERE = ("git checkout", "git worktree add", "git reset", "draft active.lock", "draft active.lock 2")
WITH_WINDOW = ("tmux set-option", "write registry.json 3", "write active.lock")


def parked(stage: Orchestra, where: str) -> AgentRecord:
    """An agent that quit with work: its branch still in its slot, or only as a branch with a used or no slot free."""
    record = quit_agent(stage)
    if where == "in place":
        stage.worktree(record).write("half.txt", "unsaved")
    elif where == "used slot":
        recycle(stage)
        stage.stop("other")
    else:
        recycle(stage)
        stage.eventually_idle("other")
    return record


@pytest.mark.parametrize("where", ["in place", "used slot", "new slot"])
def test_the_steps_killed_below_are_all_there_are(stage: Orchestra, where: str) -> None:
    parked(stage, where)
    status, out = resume_in_child(stage, "alpha")
    assert status == 0, out
    known = {*BEFORE_WINDOW, *ELSEWHERE, *WITH_WINDOW, "write backlog.log", "create backlog.log", "tmux new-window"}
    assert set(json.loads(out)["steps"]) <= known | {"git update-ref"}
    stage.eventually_idle("alpha")
    stage.quit("alpha")


@pytest.mark.parametrize(
    ("where", "step"),
    [
        *(("in place", step) for step in BEFORE_WINDOW if "notice" not in step),
        *(
            ("used slot", step)
            for step in ("write registry.json", "create active.lock", "git checkout", "write launch.sh")
        ),
        *(
            ("new slot", step)
            for step in ("git worktree add", "create active.lock", "git reset", "write resume-notice.json")
        ),
    ],
)
def test_a_resume_killed_before_its_window_can_be_done_again(stage: Orchestra, where: str, step: str) -> None:
    parked(stage, where)
    head = stage.repo.git("rev-parse", "side-agent/alpha")
    status, out = resume_in_child(stage, "alpha", step)
    assert status == -signal.SIGKILL, out
    row = next(each for each in stage.assert_sound().records if each.id == "alpha")
    assert row.status is AgentStatus.CRASHED
    with pytest.raises(RefusedError, match="Agent alpha crashed"):
        resume(stage.context, "alpha")
    stage.stop("alpha")
    assert stage.repo.git("rev-parse", "side-agent/alpha") == head
    after = back(stage, "alpha")
    assert stage.worktree(after).status() == ("?? half.txt" if where == "in place" else "")
    assert (stage.worktree(after).path / "alpha.txt").read_text() == "alpha"
    say(stage, after, "once more")
    stage.assert_sound()


@pytest.mark.parametrize("step", WITH_WINDOW)
def test_a_resume_killed_when_its_window_runs_leaves_a_normal_agent(stage: Orchestra, step: str) -> None:
    parked(stage, "in place")
    status, out = resume_in_child(stage, "alpha", step)
    assert status == -signal.SIGKILL, out
    eventually(lambda: stage.journal("alpha"), SLOW)
    after = stage.eventually_idle("alpha")
    stage.records["alpha"] = after
    say(stage, after, "alive")
    stage.assert_sound()


@pytest.mark.parametrize("where", ["in place", "new slot"])
def test_of_several_resumes_at_once_one_has_the_branch_and_none_shares_anything(stage: Orchestra, where: str) -> None:
    parked(stage, where)
    program = Path(__file__).with_name("resume_child.py")
    children = [
        subprocess.Popen(
            [sys.executable, str(program), "alpha"],
            cwd=stage.cwd,
            env=stage.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    outcomes = [child.communicate(timeout=60) for child in children]
    started = [json.loads(out)["id"] for out, _ in outcomes if out]
    errors = [err.decode().strip().splitlines()[-1] for out, err in outcomes if not out]
    assert started.count("alpha") == 1, outcomes
    assert where == "new slot" or started == ["alpha"], outcomes
    assert all("ConflictError" in error or "RefusedError" in error for error in errors), errors
    for name in started:
        stage.eventually_idle(name)
    listed = stage.assert_sound()
    files = [record.child_session_file for record in listed.records if record.client == "script"]
    assert len(files) == len(set(files)) == len(started)
