"""Eight agents land on one branch at the same time, each in a process of its own; some of them are killed on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from side_agents.core import finish_record
from side_agents.core.landing import Outcome
from side_agents.infra import fs, processes
from side_agents.infra.git import Git
from tests.integration.finish_support import Worker, Yard, is_linear, state_of, subjects
from tests.support.repositories import Repository
from tests.support.waiting import eventually

AGENTS = 8
DIRTY = {"README.md": b"half\r\nwritten", "notes/mine.txt": b"untracked\0"}


@pytest.fixture
def yard(repo: Repository) -> Yard:
    """A parent with uncommitted work, and a check that fails when two of it run at the same time."""
    yard = Yard(repo, dict(os.environ))
    alone = repo.path.parent / "alone"
    yard.configure(f"finish_check = 'mkdir {alone} && test -e src/app.txt && rmdir {alone}'")
    return yard


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of a test; what still runs at its end is ended."""
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def workers(yard: Yard) -> list[Worker]:
    agents = [yard.worker(f"agent-{number}") for number in range(AGENTS)]
    for agent in agents:
        agent.tree.commit(f"{agent.id}/a.txt", message=f"{agent.id} first")
        agent.tree.commit(f"{agent.id}/b.txt", message=f"{agent.id} second")
    for name, data in DIRTY.items():
        path = yard.repo.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return agents


def assert_all_is_well(yard: Yard, agents: list[Worker], *also: str) -> None:
    expected = {f"{agent.id} {part}" for agent in agents for part in ("first", "second")} | set(also)
    assert is_linear(yard.repo)
    assert sorted(subjects(yard.repo)) == sorted({"first", *expected})
    files = state_of(yard.repo)
    assert {name: files[name] for name in DIRTY} == DIRTY
    assert set(yard.repo.status().splitlines()) == {" M README.md", "?? notes/"}
    assert all(f"{agent.id}/b.txt" in files for agent in agents)
    with fs.locked(yard.paths.merge_lock, purpose="test", timeout=0):
        pass
    assert not finish_record.is_unsettled(yard.paths)
    assert yard.repo.git("fsck", "--no-dangling", "--connectivity-only", "main") == ""


def test_eight_agents_land_at_the_same_time(yard: Yard, started: list[subprocess.Popen[str]]) -> None:
    agents = workers(yard)
    clashing = [yard.worker(name) for name in ("clash-1", "clash-2")]
    for agent in clashing:
        agent.tree.commit("src/app.txt", f"{agent.id}\n", agent.id)
    started += [agent.popen() for agent in (*agents, *clashing)]
    for process in started:
        process.communicate(timeout=110)

    assert [process.returncode for process in started[:AGENTS]] == [0] * AGENTS
    assert sorted(process.returncode for process in started[AGENTS:]) == [0, 2]
    winner, loser = sorted(clashing, key=lambda agent: started[AGENTS + clashing.index(agent)].returncode)
    assert (yard.repo.path / "src/app.txt").read_text() == f"{winner.id}\n"
    assert Git(loser.tree.path).unfinished_operation() == "rebase"
    assert_all_is_well(yard, agents, winner.id)
    loser.tree.git("rebase", "--abort")
    assert loser.tree.git("log", "-1", "--format=%s") == loser.id


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_any_point_a_retry_lands_everything(
    yard: Yard, started: list[subprocess.Popen[str]], seed: int
) -> None:
    # Killed inside the check, it would leave the mark that this check is recognised by.
    yard.configure("finish_check = 'test -e src/app.txt'")
    agents = workers(yard)
    chance = random.Random(seed)
    begun = time.monotonic()
    assert agents[0].command().returncode == 0
    usual = time.monotonic() - begun
    # Eight at once take longer; most are hit somewhere between their first look and the move.
    started += [agent.popen() for agent in agents[1:]]
    deaths = sorted((begun + usual + chance.uniform(0.3, 5.0) * usual, n) for n in range(len(started)))
    descendants: list[processes.ProcessRef] = []
    for moment, number in deaths:
        process = started[number]
        try:
            process.wait(max(0.0, moment - time.monotonic()))
        except subprocess.TimeoutExpired:
            descendants += processes.descendants(process.pid)
            os.kill(process.pid, signal.SIGKILL)
    for process in started:
        process.communicate(timeout=60)
    codes = [process.returncode for process in started]
    # What a killed landing had started ends by itself; it is no longer in anybody's way then.
    eventually(lambda: not any(processes.is_alive(ref) for ref in descendants), deadline=60)

    for agent in agents:
        done = agent.command()
        if done.returncode == 6:
            agent.tree.git("rebase", "--abort")
            done = agent.command()
        assert done.returncode == 0, (agent.id, codes, done.stderr)

    assert_all_is_well(yard, agents)


# Where a landing kills itself: module, function, and whether before or after that function did its work.
BOUNDARIES = [
    ("side_agents.infra.git_landing", "rebase", "before"),
    ("side_agents.infra.git_landing", "rebase", "after"),
    ("side_agents.core.finish", "_land", "before"),
    ("side_agents.core.finish_check", "run", "after"),
    ("side_agents.core.finish_record", "intent", "before"),
    ("side_agents.infra.git_target", "move_ref", "before"),
    ("side_agents.infra.git_target", "move_ref", "after"),
    ("side_agents.infra.git_target", "fast_forward", "after"),
    ("side_agents.core.finish_record", "remember", "before"),
    ("side_agents.core.finish_record", "remember", "after"),
]
SUICIDE = """
import importlib, os, signal, sys
name, function, moment = sys.argv[1:4]
module = importlib.import_module(name)
real = getattr(module, function)
def deadly(*args, **kwargs):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, function, deadly)
from side_agents.cli import border
sys.exit(border.run(["finish"]))
"""


@pytest.mark.parametrize(("module", "function", "moment"), BOUNDARIES)
def test_killed_at_a_boundary_another_lands_and_then_a_retry_does(
    yard: Yard, module: str, function: str, moment: str
) -> None:
    yard.configure("finish_check = 'test -e src/app.txt'")
    agents = workers(yard)[:2]
    yard.repo.commit("main.txt", message="main goes on")
    victim, other = agents
    killed = subprocess.run(
        [sys.executable, "-c", SUICIDE, module, function, moment],
        cwd=victim.tree.path,
        env=victim.environment,
        capture_output=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert other.land().verdict.outcome is Outcome.LANDED
    assert victim.land().verdict.outcome in (Outcome.LANDED, Outcome.ALREADY_LANDED)
    assert_all_is_well(yard, agents, "main goes on")
    assert yard.paths.runtime(victim.id).journal.read_text().count('"landed"') == 1
