"""Waiting for agents: who is told, when, how often, and that waiting itself costs nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conversation import answer_of, child, id_of, idle, status_of, tmux, wait_any, waiter
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.core import views
from side_agents.core import wait as waiting
from side_agents.errors import CancelledError, RefusedError, StateError, UnknownAgentError, UsageError, WaitTimeoutError
from side_agents.infra import clock, processes
from side_agents.infra.events import Wakeup
from side_agents.models import AgentRecord, AgentStatus, EndedBy
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

# Far below the minute after which a waiter looks without having been woken.
AT_ONCE = 5.0


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_i8_a_started_agent_is_waited_for_until_it_quits(stage: Orchestra) -> None:
    record = idle(stage)
    view = views.waited_view(wait_any(stage, record.id))
    assert view["ok"] is True
    agent = view["agent"]
    assert (agent["id"], agent["status"], view["reason"]) == (record.id, "waiting_user", "turn 1 completed")
    assert agent["tmuxWindowId"] == record.tmux_window_id
    assert agent["tmuxWindowId"] in {pane.window_id for pane in stage.panes()}
    assert "hello" in view["backlog"]
    with waiter(stage, record.id, after=view["cursor"]) as told:
        stage.send(record.id, "/quit")
        done = told.result(SLOW)
    assert status_of(done) is AgentStatus.DONE
    assert views.waited_view(done)["agent"]["exitCode"] == 0
    assert done.cursor > view["cursor"]
    again = wait_any(stage, record.id)
    assert (status_of(again), again.cursor) == (AgentStatus.DONE, done.cursor)


@pytest.mark.parametrize("ids", [(), ("",), ("  ", "\n")])
def test_u27_waiting_for_nobody_is_refused_at_once(stage: Orchestra, ids: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="No agent ids"):
        wait_any(stage, *ids)


def test_i9_and_u28_an_unknown_id_is_an_error_at_once(stage: Orchestra) -> None:
    begin = time.monotonic()
    with pytest.raises(UnknownAgentError, match="nobody"):
        wait_any(stage, "nobody")
    assert time.monotonic() - begin < 20
    assert not (stage.repo.path / ".pi").exists()


def test_u29_an_unknown_id_among_known_ones_is_an_error_at_once(stage: Orchestra) -> None:
    record = stage.start("sleep: 60", branch_hint="fix-menu")
    with pytest.raises(UnknownAgentError, match="fix-menus") as caught:
        wait_any(stage, record.id, "fix-menus")
    assert "fix-menu" in (caught.value.hint or "")


def test_u30_and_u31_agents_that_stopped_before_are_told_at_once_the_oldest_first(stage: Orchestra) -> None:
    failed = stage.start("fail: 3", branch_hint="z-failed")
    stage.eventually_status(failed.id, AgentStatus.FAILED)
    waits = idle(stage, branch_hint="a-waits")
    first = wait_any(stage, waits.id, failed.id)
    assert (id_of(first), status_of(first)) == (failed.id, AgentStatus.FAILED)
    assert "3" in first.reason
    second = wait_any(stage, waits.id, failed.id, after=first.cursor)
    assert (id_of(second), status_of(second)) == (waits.id, AgentStatus.WAITING_USER)
    with pytest.raises(WaitTimeoutError):
        wait_any(stage, waits.id, failed.id, after=second.cursor, timeout=0.2)


def test_u32_and_u33_running_agents_and_unwanted_states_are_not_told(stage: Orchestra) -> None:
    running = stage.start("sleep: 60", branch_hint="running")
    waits = idle(stage, branch_hint="waits")
    with pytest.raises(WaitTimeoutError, match="running") as caught:
        wait_any(stage, running.id, timeout=0.3)
    assert "They go on" in caught.value.message
    with pytest.raises(WaitTimeoutError):
        wait_any(stage, waits.id, states=frozenset({AgentStatus.CRASHED}), timeout=0.3)
    assert status_of(wait_any(stage, running.id, states=frozenset({AgentStatus.RUNNING}))) is AgentStatus.RUNNING


def test_a_timeout_is_kept(stage: Orchestra) -> None:
    running = stage.start("sleep: 60")
    for timeout in (0.0, 0.5):
        begin = time.monotonic()
        with pytest.raises(WaitTimeoutError):
            wait_any(stage, running.id, timeout=timeout)
        assert timeout <= time.monotonic() - begin < timeout + 20


def test_a_wait_that_is_cancelled_ends_at_once(stage: Orchestra) -> None:
    running = stage.start("sleep: 60")
    cancellation = Wakeup()
    threading.Timer(0.1, cancellation.fire).start()
    begin = clock.monotonic()
    with pytest.raises(CancelledError, match="The agents go on"):
        wait_any(stage, running.id, cancellation=cancellation)
    assert clock.monotonic() - begin < 20
    with pytest.raises(CancelledError):
        wait_any(stage, running.id, cancellation=cancellation)
    cancellation.close()


def test_the_same_stop_is_never_told_twice_over_thirty_fast_turns(stage: Orchestra) -> None:
    record = idle(stage)
    told = wait_any(stage, record.id)
    turns = [1]
    for number in range(2, 32):
        stage.send(record.id, f"say: {number}")
        told = wait_any(stage, record.id, after=told.cursor)
        assert told.checked.record is not None
        turns.append(told.checked.record.turn)
        assert told.checked.record.last_turn_text == str(number)
    assert turns == list(range(1, 32))
    with pytest.raises(WaitTimeoutError):
        wait_any(stage, record.id, after=told.cursor, timeout=0.2)


def test_a_wait_right_after_a_send_is_not_told_of_the_stop_before(stage: Orchestra) -> None:
    record = idle(stage)
    for number in range(5):
        stage.send(record.id, f"sleep: 0.1\nsay: answer {number}")
        told = wait_any(stage, record.id)
        assert told.checked.record is not None
        assert told.checked.record.last_turn_text == f"answer {number}"


def test_a_turn_of_a_moment_is_not_missed(stage: Orchestra) -> None:
    record = idle(stage)
    cursor = wait_any(stage, record.id).cursor
    with waiter(stage, record.id, after=cursor) as told:
        stage.send(record.id, "sleep: 0.05")
        found = told.result(SLOW).checked.record
    assert found is not None
    assert (found.turn, found.status) == (2, AgentStatus.WAITING_USER)


def test_two_waiters_are_both_told(stage: Orchestra) -> None:
    record = idle(stage)
    cursor = wait_any(stage, record.id).cursor
    with waiter(stage, record.id, after=cursor) as one, waiter(stage, record.id, after=cursor) as two:
        stage.send(record.id, "say: news")
        assert one.result(SLOW).cursor == two.result(SLOW).cursor > cursor


def test_nobody_starves_behind_agents_that_stop_often(stage: Orchestra) -> None:
    often = [idle(stage, branch_hint=name).id for name in ("aa", "bb")]
    late = stage.start("ask: a quiet question", branch_hint="zz").id
    stage.eventually_status(late, AgentStatus.WAITING_USER)
    cursor = None
    heard: list[str] = []
    for _ in range(4):
        for agent_id in often:
            stage.send(agent_id, "say: again")
        for agent_id in often:
            stage.eventually_status(agent_id, AgentStatus.WAITING_USER)
        found = wait_any(stage, *often, late, after=cursor)
        cursor = found.cursor
        heard.append(id_of(found))
    assert late in heard[:3], heard


def test_x18_an_agent_that_ended_before_is_done_and_waiting_on_for_it_is_refused(stage: Orchestra) -> None:
    record = idle(stage)
    stage.quit(record.id)
    told = wait_any(stage, record.id)
    assert status_of(told) is AgentStatus.DONE
    # Nothing newer can ever come from it: a wait without end would be a trap.
    with pytest.raises(RefusedError, match="ended"):
        wait_any(stage, record.id, after=told.cursor)
    other = stage.start("sleep: 60")
    with pytest.raises(WaitTimeoutError):
        wait_any(stage, record.id, other.id, after=told.cursor, timeout=0.2)


def test_an_agent_stopped_by_hand_is_told_once_and_not_as_a_crash(stage: Orchestra) -> None:
    record = idle(stage)
    busy = stage.start("sleep: 60", branch_hint="busy")
    stage.event(busy, "turn_start")
    cursor = wait_any(stage, record.id).cursor
    with waiter(stage, record.id, busy.id, after=cursor) as told:
        stage.stop(record.id)
        found = told.result(SLOW)
    stone = found.checked.tombstone
    assert stone is not None
    assert (stone.id, stone.status, stone.ended_by) == (record.id, AgentStatus.FAILED, EndedBy.STOPPED)
    assert "stopped on request" in found.reason
    with pytest.raises(WaitTimeoutError):
        wait_any(stage, record.id, busy.id, after=found.cursor, timeout=0.3)


def test_a_busy_agent_stopped_by_hand_is_told_once(stage: Orchestra) -> None:
    busy = stage.start("sleep: 60", branch_hint="busy")
    stage.event(busy, "turn_start")
    with waiter(stage, busy.id) as told:
        stage.stop(busy.id)
        assert told.result(SLOW).checked.tombstone is not None


def _kill(kind: str) -> Callable[[Orchestra, AgentRecord], None]:
    return lambda stage, record: os.kill(int(stage.event(record, kind)["pid"]), signal.SIGKILL)


DEATHS: dict[str, Callable[[Orchestra, AgentRecord], object]] = {
    "launcher": _kill("launcher"),
    "client": _kill("client"),
    "window": lambda stage, record: tmux(stage, "kill-window", "-t", record.tmux_window_id or ""),
    "server": lambda stage, record: os.kill(stage.pane.server.pid, signal.SIGKILL),
}


@pytest.mark.parametrize("what", DEATHS)
def test_x1_a_crash_wakes_at_once(stage: Orchestra, what: str) -> None:
    record = stage.start("sleep: 60")
    stage.event(record, "turn_start")
    with waiter(stage, record.id) as told:
        DEATHS[what](stage, record)
        found = told.result(AT_ONCE)
    assert status_of(found) is AgentStatus.CRASHED
    assert found.checked.record is not None, "the record and its lease are kept"
    assert stage.leases()


def test_an_agent_killed_a_moment_after_its_start_is_told(stage: Orchestra) -> None:
    record = stage.start("sleep: 60")
    with waiter(stage, record.id, timeout=AT_ONCE) as told:
        tmux(stage, "kill-window", "-t", record.tmux_window_id or "")
        assert status_of(told.result(SLOW)) is AgentStatus.CRASHED


@pytest.mark.parametrize("status", [AgentStatus.ALLOCATING_WORKTREE, AgentStatus.SPAWNING_TMUX])
def test_x17_a_starter_that_dies_wakes_who_waits_for_its_agent(stage: Orchestra, status: AgentStatus) -> None:
    idle(stage, branch_hint="other")
    starter = subprocess.Popen(["sleep", "60"])
    record = AgentRecord(
        id="begun",
        status=status,
        owner=processes.identify(starter.pid),
        started_at=clock.iso(),
        tmux_socket=str(stage.pane.socket),
        tmux_server=stage.pane.server,
    )
    with stage.context.registry.transaction("a start that is under way") as state:
        state.put(record)
    with waiter(stage, "begun") as told:
        # News of others, whatever they are, must not make the waiter forget that it has to ask tmux.
        stage.send("other", "say: news")
        starter.kill()
        starter.wait()
        found = told.result(AT_ONCE)
    assert status_of(found) is AgentStatus.CRASHED


def test_a_registry_that_becomes_unreadable_ends_the_wait_with_a_clear_error(stage: Orchestra) -> None:
    record = stage.start("sleep: 60")
    registry = stage.context.paths.registry
    good = registry.read_bytes()
    with waiter(stage, record.id) as told:
        registry.write_bytes(b"{ this is no registry")
        with pytest.raises(StateError, match="nothing was changed"):
            told.result(AT_ONCE)
    assert registry.read_bytes() == b"{ this is no registry"
    registry.write_bytes(good)
    assert stage.check(record.id).record is not None


def test_wait_all_waits_for_the_last_one_and_names_all(stage: Orchestra) -> None:
    quick = idle(stage, branch_hint="quick")
    slow = stage.start("sleep: 0.5", branch_hint="slow")
    found = waiting.wait_all(stage.context, (slow.id, quick.id), timeout=SLOW)
    assert [id_of(each) for each in found] == [slow.id, quick.id]


def test_wait_all_takes_no_dying_agent_for_one_that_waits(stage: Orchestra) -> None:
    record = stage.start("sleep: 60")
    stage.event(record, "turn_start")
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(waiting.wait_all, stage.context, (record.id,), timeout=SLOW)
        tmux(stage, "kill-window", "-t", record.tmux_window_id or "")
        [found] = told.result(SLOW)
    assert status_of(found) is AgentStatus.CRASHED


def _switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "voluntary_ctxt_switches" in line)


def test_waiting_sleeps_in_the_kernel_and_starts_no_program(stage: Orchestra) -> None:
    records = [stage.start("sleep: 60", branch_hint=name) for name in ("one", "two")]
    for record in records:
        stage.event(record, "turn_start")
    process = child(stage, "wait", *(record.id for record in records))
    assert process.stdout is not None
    assert process.stdout.readline() == b"looked\n"

    def is_settled() -> bool:
        before = _switches(process.pid)
        time.sleep(0.3)
        return _switches(process.pid) == before

    eventually(is_settled, SLOW)
    before = _switches(process.pid)
    time.sleep(2.0)  # the time over which idleness is measured
    assert _switches(process.pid) - before < 20
    assert not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    tmux(stage, "kill-window", "-t", records[1].tmux_window_id or "")
    assert answer_of(process) == {"id": "two", "status": "crashed", "spawned": 0}
