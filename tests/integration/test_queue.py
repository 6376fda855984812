"""Budgets and the queue: refused with a way out, kept durably, started in order, never lost and never twice."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from many_support import PROGRAM, Ran, environment, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.core import queue, queue_runner
from side_agents.core.results import Started, StartRequest
from side_agents.errors import BudgetError, NotFoundError, RefusedError, StartFailedError
from side_agents.infra import processes
from side_agents.models import AgentStatus
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

TWO = "max_agents = 2\n"


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def queued(stage: Orchestra, *arguments: str, feed: str = "", **more: str) -> Ran:
    return run(stage, "start", "--client", "script", "--queue", "--json", *arguments, feed=feed, **more)


def waiting(stage: Orchestra) -> list[str]:
    return [entry.request.task for entry in queue.entries(stage.context.paths.queue)]


def fill(stage: Orchestra, count: int = 2) -> list[str]:
    return [stage.start("sleep: 60", branch_hint=f"busy-{number}").id for number in range(count)]


def test_a_start_above_the_budget_is_refused_with_the_way_out_and_leaves_nothing(stage: Orchestra) -> None:
    stage.configure(TWO)
    fill(stage)
    before = sorted(path.name for path in stage.meta.iterdir())
    refused = run(stage, "start", "--client", "script", "--json", "say: no")
    assert (refused.status, refused.json["code"]) == (8, "budget")
    assert "max_agents is 2" in refused.json["error"]
    assert "--queue" in refused.json["hint"]
    assert len(stage.listed().records) == 2
    assert sorted(path.name for path in stage.meta.iterdir()) == before


def test_an_agent_that_ended_takes_no_place_even_if_nobody_has_looked(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    first = stage.start("fail: 3")
    eventually((stage.context.paths.runtime(first.id).exit_marker).exists, SLOW)
    assert stage.start("say: hello", branch_hint="next").id == "next"


def test_each_parent_has_a_budget_of_its_own(stage: Orchestra) -> None:
    stage.configure("max_agents_per_parent = 1\n")
    outer = stage.start("say: hello", branch_hint="outer")
    stage.eventually_idle("outer")
    stage.inside(outer).start("sleep: 60", branch_hint="inner")
    with pytest.raises(BudgetError, match="max_agents_per_parent is 1"):
        stage.start("say: no")
    with pytest.raises(BudgetError, match="max_agents_per_parent is 1"):
        stage.inside(outer).start("say: no")


def test_two_main_sessions_have_a_budget_each(stage: Orchestra) -> None:
    stage.configure("max_agents_per_parent = 1\n")
    for session in ("one", "two"):
        assert stage.start("sleep: 60", session=session).parent_session_id == session
        with pytest.raises(BudgetError):
            stage.start("sleep: 60", session=session)


def test_a_queued_start_begins_at_once_where_there_is_a_place(stage: Orchestra) -> None:
    stage.configure(TWO)
    done = queued(stage, "say: hello")
    assert done.status == 0
    [answer] = done.json["agents"]
    assert (answer["ok"], answer["queueId"]) == (True, "q1")
    assert stage.eventually_idle(answer["id"]).extra["queueToken"]
    assert waiting(stage) == []


def test_a_queued_start_waits_for_a_place_and_is_begun_by_whoever_looks(stage: Orchestra) -> None:
    stage.configure(TWO)
    busy = fill(stage)
    answers = queued(stage, "--each", "-", feed="say: one\nsay: two\n").json["agents"]
    assert [(answer["queueId"], answer["queued"], answer["state"]) for answer in answers] == [
        ("q1", True, "waiting"),
        ("q2", True, "waiting"),
    ]
    files = [path for path in stage.context.paths.queue.iterdir() if path.suffix == ".json"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600, 0o600]
    assert stat.S_IMODE(stage.context.paths.queue.stat().st_mode) == 0o700
    assert waiting(stage) == ["say: one", "say: two"]
    assert run(stage, "stop", "--yes", busy[0]).status == 0
    assert waiting(stage) == ["say: two"]
    tasks = {record.task for record in stage.listed().records}
    assert tasks == {"sleep: 60", "say: one"}


def test_the_queue_is_shown_with_the_agents_and_by_itself(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    fill(stage, 1)
    queued(stage, "say: later\nand more")
    row = run(stage, "list").out.splitlines()[-1]
    assert row.split()[:2] == ["q1", "queued"]
    assert row.rstrip().endswith("say: later …")
    assert run(stage, "list", "--json").json["queued"][0]["queueId"] == "q1"
    assert run(stage, "queue").out.startswith("q1  queued, ")
    [shown] = run(stage, "queue", "--json").json["queued"]
    assert set(shown) == {"queueId", "state", "task", "queuedAt"}


def test_an_entry_can_be_dropped_and_its_number_is_not_used_again(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    fill(stage, 1)
    for task in ("say: one", "say: two"):
        queued(stage, task)
    dropped = run(stage, "queue", "drop", "q2")
    assert "say: two" in dropped.out
    assert queued(stage, "say: three").json["agents"][0]["queueId"] == "q3"
    assert waiting(stage) == ["say: one", "say: three"]
    assert run(stage, "queue", "drop", "--json", "q9").status == 3


def test_run_says_when_there_is_no_place(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    [busy] = fill(stage, 1)
    queued(stage, "say: later")
    assert run(stage, "queue", "run").out == "There is no place for what waits.\n"
    refused = run(stage, "queue", "run", "q1", "--json")
    assert (refused.status, refused.json["code"]) == (8, "budget")
    stage.stop(busy)
    done = run(stage, "queue", "run", "--json")
    assert [answer["queueId"] for answer in done.json["agents"]] == ["q1"]
    assert run(stage, "queue", "run").out == "Nothing waits.\n"


def test_secrets_stay_out_of_the_queue_and_what_a_start_needs_is_kept(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    fill(stage, 1)
    queued(stage, "say: later", OPENAI_API_KEY="s3cret", PI_API_TOKEN="s3cret", PI_CODING_AGENT_DIR="/x", HARMLESS="y")
    [path] = stage.context.paths.queue.glob("*.json")
    kept = json.loads(path.read_text())["environment"]
    assert "s3cret" not in path.read_text()
    assert "HARMLESS" not in kept
    assert kept["PI_CODING_AGENT_DIR"] == "/x"
    assert kept["TMUX_PANE"] == stage.pane.pane_id


def test_a_queued_start_begins_at_the_commit_that_was_there_when_it_was_queued(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    [busy] = fill(stage, 1)
    head = stage.repo.head()
    queued(stage, "say: later")
    stage.repo.commit("new.txt", "x", "later")
    stage.stop(busy)
    [ran] = queue_runner.drain(stage.context)
    assert isinstance(ran.outcome, Started)
    assert ran.outcome.record.base_commit == head


def test_a_mistake_is_told_before_anything_is_queued(stage: Orchestra) -> None:
    assert queued(stage, "--base", "no-such-commit", "say: x").status == 2
    assert queued(stage, "--with-changes", "say: x").status == 2
    assert not stage.context.paths.queue.exists()


def test_a_queued_start_of_an_agent_is_its_child_whoever_begins_it(stage: Orchestra) -> None:
    outer = stage.start("say: hello", branch_hint="outer")
    stage.eventually_idle("outer")
    stage.configure("max_agents = 1\n")
    queued(stage.inside(outer), "say: nested")
    stage.configure("max_agents = 2\n")
    [ran] = queue_runner.drain(stage.context)
    assert isinstance(ran.outcome, Started)
    record = ran.outcome.record
    assert (record.parent_agent_id, record.depth, record.parent_worktree_path) == ("outer", 2, outer.worktree_path)


def test_a_start_whose_parent_has_ended_is_set_aside_and_kept(stage: Orchestra) -> None:
    outer = stage.start("say: hello", branch_hint="outer")
    stage.eventually_idle("outer")
    stage.configure("max_agents = 1\n")
    queued(stage.inside(outer), "say: nested")
    stage.stop("outer")
    [ran] = queue_runner.drain(stage.context)
    assert isinstance(ran.outcome, StartFailedError)
    assert queue_runner.drain(stage.context) == []
    assert [entry.state for entry in queue.entries(stage.context.paths.queue)] == ["failed"]
    shown = run(stage, "queue").out
    assert "could not be started" in shown
    assert "outer, which had asked for it, has ended" in shown
    assert run(stage, "queue", "run", "q1").status == 11
    assert run(stage, "queue", "drop", "q1").status == 0
    assert waiting(stage) == []


def test_a_pane_that_is_gone_is_replaced_by_that_of_whoever_begins_it(stage: Orchestra) -> None:
    stage.configure("max_agents = 1\n")
    [busy] = fill(stage, 1)
    queued(stage, "say: later", TMUX_PANE=stage.row(busy).tmux_pane_id or "")
    run(stage, "stop", "--yes", busy)
    assert waiting(stage) == []
    assert [record.task for record in stage.listed().records] == ["say: later"]


def entry_of(stage: Orchestra, task: str = "say: later") -> queue.Entry:
    return queue.add(stage.context, StartRequest(task=task, client="script"))


def claim_dead(stage: Orchestra, entry: queue.Entry) -> queue.Entry:
    """As a starter leaves it that was killed after its claim."""
    ended = processes.ended(4_000_000)
    return queue.move(stage.context.paths.queue, entry, queue.CLAIMED, claimer=ended)


def test_a_claim_of_a_living_process_is_left_alone(stage: Orchestra) -> None:
    entry = entry_of(stage)
    queue.move(stage.context.paths.queue, entry, queue.CLAIMED, claimer=processes.current())
    assert queue_runner.drain(stage.context) == []
    with pytest.raises(RefusedError, match="being started"):
        queue.drop(stage.context, "q1")
    with pytest.raises(StartFailedError):
        queue_runner.run_one(stage.context, "q1")


def test_a_start_that_was_killed_before_its_reservation_waits_again(stage: Orchestra) -> None:
    claim_dead(stage, entry_of(stage))
    [ran] = queue_runner.drain(stage.context)
    assert isinstance(ran.outcome, Started)
    assert len(stage.listed().records) == 1


@pytest.mark.parametrize("ended", [False, True], ids=["running", "gone"])
def test_a_starter_that_was_killed_after_its_work_is_not_followed_by_a_second_agent(
    stage: Orchestra, ended: bool
) -> None:
    entry = entry_of(stage, "say: once\nquit" if ended else "say: once")
    record = stage.start(entry.request.task, queued=entry.token)
    if ended:
        stage.eventually_status(record.id, AgentStatus.DONE)
    claim_dead(stage, entry)
    assert queue_runner.drain(stage.context) == []
    assert waiting(stage) == []
    assert len(stage.listed().records) == (0 if ended else 1)


def test_entries_that_cannot_be_read_are_kept_and_hinder_nobody(stage: Orchestra) -> None:
    folder = stage.context.paths.queue
    entry_of(stage)
    (folder / "0000.json").write_text("{")
    (folder / "0005.json").write_text("[" * 100_000)
    (folder / "note.txt").write_text("mine")
    assert len(queue_runner.drain(stage.context)) == 1
    assert {path.name for path in folder.iterdir()} == {"0000.json", "0005.json", "note.txt", "last"}
    with pytest.raises(NotFoundError):
        queue.find(stage.context, "q7")


def test_every_start_of_a_storm_is_carried_out_once_though_starters_are_killed(
    stage: Orchestra, tmp_path: Path
) -> None:
    stage.configure(TWO)
    told = tmp_path / "told"
    busy = fill(stage)
    tasks = "".join(f"run: echo {number} >> {told}\n" for number in range(8))
    answers: list[dict[str, Any]] = queued(stage, "--each", "-", feed=tasks).json["agents"]
    assert all(answer["queued"] for answer in answers)
    chance = random.Random(7)
    for name in busy:
        stage.stop(name)
    for _ in range(5):
        _kill_a_starter(stage, chance.uniform(0.0, 0.25))
        _end_idle(stage)
    deadline = time.monotonic() + 90
    while waiting(stage) and time.monotonic() < deadline:
        run(stage, "queue", "run")
        _end_idle(stage)
        assert len([r for r in stage.listed().records if not r.status.is_terminal]) <= 2
    eventually(lambda: told.exists() and len(told.read_text().split()) >= 8, SLOW)
    assert Counter(told.read_text().split()) == Counter(map(str, range(8)))
    stage.assert_sound()


def _kill_a_starter(stage: Orchestra, delay: float) -> None:
    """Kill one that runs the queue some time after its claim, or let it be where there is nothing to claim."""
    process = subprocess.Popen(
        [*PROGRAM, "queue", "run"], cwd=stage.cwd, env=environment(stage), stdout=subprocess.DEVNULL
    )
    folder = stage.context.paths.queue
    eventually(lambda: process.poll() is not None or list(folder.glob("*.claimed.json")), SLOW)
    if process.poll() is None:
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _end_idle(stage: Orchestra) -> None:
    for record in stage.listed().records:
        if record.status is AgentStatus.WAITING_USER:
            stage.stop(record.id)
