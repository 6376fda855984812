"""Stopping: everything that belongs to an agent ends, its work stays, and it is told once and truthfully."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from conversation import fickle, idle, status_of, tmux, wait_any, waiter
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.core import leases, observe
from side_agents.core import stop as stopping
from side_agents.core.results import Stopped
from side_agents.errors import NotDeliveredError, RefusedError, SideAgentsError, UnknownAgentError, UsageError
from side_agents.infra import processes
from side_agents.models import AgentRecord, AgentStatus, EndedBy, ProcessRef
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def stop(stage: Orchestra, agent_id: str, *, polite: bool = False, timeout: float = 10.0) -> Stopped:
    return stopping.stop(stage.context, agent_id, quit=polite, timeout=timeout)


def assert_stopped(stage: Orchestra, stopped: Stopped, record: AgentRecord) -> None:
    stone = stopped.tombstone
    assert (stone.id, stone.status, stone.ended_by) == (record.id, AgentStatus.FAILED, EndedBy.STOPPED)
    assert stone.error == stopping.STOPPED
    assert [old.id for old in stage.context.registry.history()] == [record.id], "it is buried once"
    stage.assert_quiet()


def test_a_live_agent_ends_with_all_its_processes_and_keeps_its_work(stage: Orchestra) -> None:
    record = idle(stage, "write: work.txt data\ncommit: saved\nwrite: more.txt data")
    stopped = stop(stage, record.id)
    stone = stopped.tombstone
    assert (stone.status, stone.ended_by) == (AgentStatus.FAILED, EndedBy.STOPPED)
    assert stopped.ended_processes >= 1
    assert f"branch {record.branch}" in stopped.kept
    assert "1 uncommitted file" in stopped.kept
    assert "work.txt" in stage.repo.git("ls-tree", "--name-only", record.branch or "").split()
    assert (Path(record.worktree_path or "") / "more.txt").exists()
    eventually(lambda: not stage.panes() and not stage.processes(), SLOW)
    assert not stage.leases()
    assert stage.check(record.id).tombstone == stone


def test_report_100_a_child_in_its_own_session_that_ignores_signals_ends_too(stage: Orchestra) -> None:
    stage.configure(fickle("graceful"))
    record = idle(stage, client="fickle")
    pid = int((stage.context.paths.runtime(record.id).directory / "stubborn.pid").read_text())
    assert os.getsid(pid) == pid
    # The client answers TERM with exit 0, which must not count as having finished.
    assert_stopped(stage, stop(stage, record.id), record)
    assert processes.identify(pid) is None


def test_a_stopped_client_that_cannot_act_on_a_signal_ends_too(stage: Orchestra) -> None:
    record = idle(stage)
    stage.server.tmux.send_keys(record.tmux_pane_id or "", "C-z")
    stage.event(record, "suspended")
    assert_stopped(stage, stop(stage, record.id), record)


def test_a_polite_quit_lets_the_agent_end_by_itself(stage: Orchestra) -> None:
    record = idle(stage)
    stopped = stop(stage, record.id, polite=True)
    assert (stopped.tombstone.status, stopped.tombstone.ended_by) == (AgentStatus.DONE, EndedBy.EXIT)
    assert stopped.tombstone.exit_code == 0
    stage.assert_quiet()


def test_a_polite_quit_kills_nothing_when_it_has_no_effect(stage: Orchestra) -> None:
    stage.configure("send_timeout = 0.5\n" + fickle("deaf"))
    record = idle(stage, client="fickle")
    with pytest.raises(NotDeliveredError, match="Nothing was killed") as caught:
        stop(stage, record.id, polite=True, timeout=0.5)
    assert f"side-agents stop {record.id}" in (caught.value.hint or "")
    assert record.launcher is not None
    assert processes.is_alive(record.launcher)
    assert_stopped(stage, stop(stage, record.id), record)


def test_a_polite_quit_is_refused_where_the_client_has_none_or_shows_a_dialog(stage: Orchestra) -> None:
    stage.configure(
        '[clients.plain]\nargv = ["sh", "-c", "exec cat"]\nprompt = "file"\nprompt_args = ["{prompt_file}"]\n'
    )
    plain = stage.start(client="plain", branch_hint="plain")
    with pytest.raises(RefusedError, match="no quit command"):
        stop(stage, plain.id, polite=True)
    asks = stage.start("permit: delete it?", branch_hint="asks")
    stage.eventually_status(asks.id, AgentStatus.WAITING_USER)
    with pytest.raises(RefusedError, match="delete it"):
        stop(stage, asks.id, polite=True)
    for record in (plain, asks):
        stop(stage, record.id)
    stage.assert_quiet()


def test_unknown_and_empty_ids_are_refused(stage: Orchestra) -> None:
    with pytest.raises(UnknownAgentError, match="nobody"):
        stop(stage, "nobody")
    with pytest.raises(UsageError, match="No agent id"):
        stop(stage, " ")


def test_stopping_twice_says_that_it_had_ended(stage: Orchestra) -> None:
    record = idle(stage)
    first = stop(stage, record.id)
    again = stop(stage, record.id)
    assert again.tombstone == first.tombstone
    assert again.ended_processes == 0
    assert "had ended before" in again.kept
    assert_stopped(stage, first, record)


def test_stopping_a_crashed_agent_clears_it_and_frees_the_slot(stage: Orchestra) -> None:
    clean, dirty = idle(stage, branch_hint="clean"), idle(stage, "write: work.txt data", branch_hint="dirty")
    for record in (clean, dirty):
        tmux(stage, "kill-window", "-t", record.tmux_window_id or "")
        stage.eventually_status(record.id, AgentStatus.CRASHED)
    assert len(stage.leases()) == 2
    before = {record.id: stage.row(record.id).stop_seq for record in (clean, dirty)}
    for record in (clean, dirty):
        stone = stop(stage, record.id).tombstone
        assert (stone.status, stone.ended_by) == (AgentStatus.CRASHED, EndedBy.CLEARED)
        assert stone.stop_seq == before[record.id], "clearing is no news"
    assert not stage.leases()
    assert {"clean", "dirty"} <= stage.branches()
    again, more = stage.start(branch_hint="again"), stage.start(branch_hint="more")
    assert again.worktree_path == clean.worktree_path, "the clean slot is used again"
    assert more.worktree_path == str(stage.slot(3)), "the dirty one is passed over"
    assert (Path(dirty.worktree_path or "") / "work.txt").exists()
    assert "dirty" in stage.branches()


def test_a_pane_that_somebody_split_off_stays(stage: Orchestra) -> None:
    record = idle(stage)
    split = tmux(stage, "split-window", "-d", "-P", "-F", "#{pane_id}", "-t", record.tmux_pane_id or "", "cat")
    stop(stage, record.id)
    eventually(lambda: [pane.pane_id for pane in stage.panes()] == [split], SLOW)
    assert not stage.leases()
    tmux(stage, "kill-pane", "-t", split)


@pytest.mark.parametrize("is_dead", [False, True], ids=["living", "dead"])
def test_a_pane_that_was_joined_into_another_window_is_closed_there_and_the_others_stay(
    stage: Orchestra, is_dead: bool
) -> None:
    tmux(stage, "set-option", "-g", "remain-on-exit", "on")
    record = idle(stage)
    home = tmux(stage, "new-window", "-d", "-P", "-F", "#{pane_id}", "cat")
    tmux(stage, "join-pane", "-d", "-s", record.tmux_pane_id or "", "-t", home)
    if is_dead:
        os.kill(int(stage.event(record, "launcher")["pid"]), signal.SIGKILL)
        stage.eventually_status(record.id, AgentStatus.CRASHED)
    stop(stage, record.id)
    panes = tmux(stage, "list-panes", "-a", "-F", "#{pane_id}").split()
    assert record.tmux_pane_id not in panes
    assert home in panes
    tmux(stage, "kill-pane", "-t", home)


def test_two_stops_at_once_bury_one_agent(stage: Orchestra) -> None:
    record = idle(stage)
    with ThreadPoolExecutor(2) as pool:
        stops = [pool.submit(stop, stage, record.id) for _ in range(2)]
        stones = [each.result(SLOW).tombstone for each in stops]
    assert stones[0] == stones[1]
    assert_stopped(stage, stop(stage, record.id), record)


def test_a_late_stop_never_buries_the_next_agent_of_the_name(stage: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    record = idle(stage, branch_hint="again")
    close = stopping.close_window
    newer: list[AgentRecord] = []

    def overtaken(old: AgentRecord) -> None:
        """Another stop is faster, the branch goes, and somebody starts an agent of the same name in the same slot."""
        close(old)
        monkeypatch.setattr(stopping, "close_window", close)
        stop(stage, old.id)
        slot = stage.worktree(old)
        slot.git("checkout", "--quiet", "--detach")
        slot.git("branch", "-D", old.branch or "")
        newer.append(stage.start(branch_hint="again"))

    monkeypatch.setattr(stopping, "close_window", overtaken)
    stopped = stop(stage, record.id)
    assert stopped.tombstone.started_at == record.started_at
    [new] = newer
    assert (new.id, new.worktree_path) == (record.id, record.worktree_path)
    assert stage.eventually_idle("again").started_at == new.started_at
    lease = leases.read(Path(new.worktree_path or ""))
    assert lease is not None
    assert lease.agent_id == "again"


def test_a_stop_while_somebody_waits_is_told_once(stage: Orchestra) -> None:
    stage.configure(fickle("obedient"))
    record = idle(stage, client="fickle")
    other = stage.start("sleep: 60", branch_hint="other")
    cursor = wait_any(stage, record.id).cursor
    with waiter(stage, record.id, other.id, after=cursor) as told, ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(stop, stage, record.id)
        seen: set[object] = set()
        while not stopped.done():
            checked = stage.check(record.id)
            seen.add((checked.record or checked.tombstone).status)  # type: ignore[union-attr]  # one of them is there
            time.sleep(0.01)
        found = told.result(SLOW)
    assert found.checked.tombstone == stopped.result().tombstone
    assert seen <= {AgentStatus.WAITING_USER, AgentStatus.FAILED}, "nobody took it for a crash or for done"
    assert status_of(found) is AgentStatus.FAILED


def test_a_message_to_an_agent_that_is_being_stopped_is_refused(stage: Orchestra) -> None:
    record = idle(stage)
    me = processes.current()
    with stage.context.registry.transaction("as a stop does") as state:
        mark = {observe.STOPPER: {"pid": me.pid, "started": me.started}}
        state.put(replace(state.agents[record.id], extra=mark))
    with pytest.raises(RefusedError, match="being stopped"):
        stage.send(record.id, "hello")


def test_a_stop_that_was_killed_halfway_leaves_an_agent_that_is_judged_and_stopped_as_ever(stage: Orchestra) -> None:
    record = idle(stage)
    gone = subprocess.Popen(["sleep", "60"])
    ref = processes.identify(gone.pid)
    assert ref is not None
    with stage.context.registry.transaction("as a stop does") as state:
        mark = {observe.STOPPER: {"pid": ref.pid, "started": ref.started}}
        state.put(replace(state.agents[record.id], extra=mark))
    with waiter(stage, record.id, states=frozenset({AgentStatus.CRASHED})) as told:
        os.kill(int(stage.event(record, "launcher")["pid"]), signal.SIGKILL)
        stage.event(record, "client")
        assert stage.check(record.id).record is not None
        gone.kill()
        gone.wait()
        assert status_of(told.result(5.0)) is AgentStatus.CRASHED
    assert stop(stage, record.id).tombstone.ended_by is EndedBy.CLEARED
    stage.assert_quiet()


def test_processes_that_survive_keep_record_and_lease(stage: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    record = idle(stage)
    survivor = ProcessRef(4_000_000, "x")
    with monkeypatch.context() as patch:
        patch.setattr(processes, "end_tree", lambda refs, **_: [survivor])
        with pytest.raises(SideAgentsError, match="4000000") as caught:
            stop(stage, record.id)
    assert "kept" in caught.value.message
    assert record.id in stage.context.registry.read().ids
    assert stage.leases()
    assert observe.STOPPER not in stage.row(record.id).extra
    stop(stage, record.id)
    stage.assert_quiet()


def test_an_agent_whose_client_is_no_longer_configured_can_be_stopped(stage: Orchestra) -> None:
    stage.configure(fickle("plain"))
    record = idle(stage, client="fickle")
    stage.configure()
    assert stage.check(record.id).record is not None
    assert_stopped(stage, stop(stage, record.id), record)


def test_an_agent_whose_start_is_under_way_is_refused(stage: Orchestra) -> None:
    owner = processes.current()
    idle(stage, branch_hint="other")
    row = replace(stage.row("other"), id="begun", status=AgentStatus.SPAWNING_TMUX, owner=owner, launcher=None)
    with stage.context.registry.transaction("a start that is under way") as state:
        state.put(replace(row, worktree_path=None, branch=None))
    with pytest.raises(RefusedError, match="being started"):
        stop(stage, "begun")
    assert "begun" in stage.context.registry.read().ids
