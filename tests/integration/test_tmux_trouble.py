"""tmux that hangs, restarts, is rearranged by a person, or is set up unusually: nothing is mistaken, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conversation import idle, status_of, tmux, wait_any, waiter
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.core import launcher
from side_agents.errors import RefusedError, StartFailedError, TmuxUnreachableError, WaitTimeoutError
from side_agents.infra import proc, processes, tmux_call
from side_agents.infra import tmux as tmux_module
from side_agents.models import AgentRecord, AgentStatus, DeliveryState
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second instead of five for every tmux call, and no two seconds in which it may end by itself."""
    monkeypatch.setattr(proc, "_GRACE", 0.05)
    raw = tmux_call.raw

    def hurried(socket: Path, *args: str, deadline: float = 0.5, **more: bytes | None) -> object:
        return raw(socket, *args, deadline=min(deadline, 0.5), input=more.get("input"))

    monkeypatch.setattr(tmux_module, "raw", hurried)


def assert_works(stage: Orchestra, record: AgentRecord, token: str) -> None:
    assert stage.send(record.id, f"say: {token}").state is DeliveryState.SUBMITTED
    eventually(lambda: token in stage.check(record.id).backlog, SLOW)
    assert stage.messages(record)[-1] == f"say: {token}"


def test_report_48_a_wedged_server_changes_nothing_and_is_named(stage: Orchestra, impatient: None) -> None:
    record = idle(stage)
    busy = stage.start("sleep: 60", branch_hint="busy")
    stage.event(busy, "turn_start")
    stage.listed()
    rows = stage.context.paths.registry.read_bytes()
    cursor = wait_any(stage, record.id).cursor
    stage.server.freeze()
    listed = stage.listed()
    assert {each.id: str(each.status) for each in listed.records} == {record.id: "waiting_user", "busy": "running"}
    assert any("gave no answer" in note for note in listed.notes)
    checked = stage.check(record.id)
    assert checked.record is not None
    assert checked.record.status is AgentStatus.WAITING_USER
    assert checked.backlog, "the end of the log is shown instead of the window"
    with pytest.raises(TmuxUnreachableError, match="Nothing was sent"):
        stage.send(record.id, "say: lost")
    with pytest.raises(TmuxUnreachableError, match="Nothing was sent"):
        stage.send(record.id, "!")
    with pytest.raises(WaitTimeoutError):
        wait_any(stage, record.id, "busy", after=cursor, timeout=0.3)
    assert stage.context.paths.registry.read_bytes() == rows
    stage.server.thaw()
    assert_works(stage, record, "after-the-thaw")
    assert "say: lost" not in stage.messages(record)
    assert stage.listed().notes == ()


def test_an_agent_of_a_wedged_server_can_be_stopped(stage: Orchestra, impatient: None) -> None:
    record = idle(stage)
    stage.server.freeze()
    assert stage.stop(record.id).tombstone.status is AgentStatus.FAILED
    assert not stage.leases()
    stage.server.thaw()
    stage.assert_quiet()


def test_report_47_an_unlinked_socket_is_not_the_end_of_the_server(stage: Orchestra) -> None:
    record = idle(stage)
    cursor = wait_any(stage, record.id).cursor
    server = stage.pane.server
    stage.server.tmux.socket.unlink()
    try:
        checked = stage.check(record.id)
        assert checked.record is not None
        assert checked.record.status is AgentStatus.WAITING_USER
        listed = stage.listed()
        assert listed.records[0].status is AgentStatus.WAITING_USER
        assert any("gave no answer" in note for note in listed.notes)
        with pytest.raises(TmuxUnreachableError, match="Nothing was sent"):
            stage.send(record.id, "say: lost")
        with pytest.raises(WaitTimeoutError):
            wait_any(stage, record.id, after=cursor, timeout=0.3)
    finally:
        os.kill(server.pid, signal.SIGUSR1)  # tmux makes its socket again
        eventually(stage.server.tmux.socket.exists, SLOW)
    assert_works(stage, record, "found-again")


def test_x4_a_new_server_that_uses_the_same_ids_is_not_typed_into(stage: Orchestra) -> None:
    record = idle(stage)
    os.kill(stage.pane.server.pid, signal.SIGKILL)
    eventually(lambda: not processes.is_alive(stage.pane.server), SLOW)
    stage.server.tmux.socket.unlink(missing_ok=True)
    again = stage.server.start(env=stage.environment)
    stage.server.start(session="more", env=stage.environment)
    twin = next(pane for pane in stage.server.sweep().panes.values() if pane.pane_id == record.tmux_pane_id)
    assert twin.window_id == record.tmux_window_id
    # Even a tag that looks right does not help: it is another server.
    stage.server.tmux.set_option(twin.pane_id, "@side_agent_id", record.id)
    stage.pane = again
    crashed = stage.check(record.id).record
    assert crashed is not None
    assert crashed.status is AgentStatus.CRASHED
    for message in ("touch pwned", "!", "/quit"):
        with pytest.raises(RefusedError, match="Nothing was sent"):
            stage.send(record.id, message)
    assert not "".join(stage.server.tmux.capture(twin.pane_id)).strip()
    assert stage.stop(record.id).tombstone.status is AgentStatus.CRASHED
    assert twin.pane_id in stage.server.sweep().panes, "the other server's window is not closed"


def test_two_servers_with_agents_of_one_repository(stage: Orchestra, repo: Repository) -> None:
    with orchestra(repo, PrivateServer()) as other:
        here, there = idle(stage, branch_hint="here"), idle(other, branch_hint="there")
        assert here.tmux_pane_id == there.tmux_pane_id, "the same ids, on two servers"
        assert {record.id for record in stage.listed().records} == {"here", "there"}
        stage.send("there", "say: for-there")
        other.send("here", "say: for-here")
        eventually(lambda: stage.messages(there)[1:] == ["say: for-there"], SLOW)
        eventually(lambda: stage.messages(here)[1:] == ["say: for-here"], SLOW)
        stage.eventually_idle("there")
        with waiter(stage, "there", states=frozenset({AgentStatus.CRASHED})) as told:
            other.server.tmux.kill_server()
            assert status_of(told.result(5.0)) is AgentStatus.CRASHED
        listed = {record.id: str(record.status) for record in stage.listed().records}
        assert listed == {"here": "waiting_user", "there": "crashed"}
        stage.stop("there")
        assert_works(stage, here, "still-here")
        other.server.start(env=other.environment)


def test_report_42_a_renamed_window_is_still_the_agents(stage: Orchestra) -> None:
    record = idle(stage)
    other = stage.server.start(session="second", env=stage.environment)
    tmux(stage, "rename-window", "-t", other.window_id, f"agent-{record.id}")
    tmux(stage, "rename-window", "-t", record.tmux_window_id or "", "mine now")
    tmux(stage, "move-window", "-s", record.tmux_window_id or "", "-t", "main:7")
    assert_works(stage, record, "by-id")
    stage.stop(record.id)
    assert other.pane_id in stage.server.sweep().panes


def test_a_pane_that_was_joined_into_another_window_still_receives_and_stops_alone(stage: Orchestra) -> None:
    record = idle(stage)
    tmux(stage, "join-pane", "-d", "-s", record.tmux_pane_id or "", "-t", stage.pane.pane_id)
    assert stage.server.sweep().panes[record.tmux_pane_id or ""].window_id == stage.pane.window_id
    assert_works(stage, record, "joined")
    stage.stop(record.id)
    eventually(lambda: not stage.panes(), SLOW)
    assert stage.pane.pane_id in stage.server.sweep().panes
    assert not stage.leases()


def test_report_41_a_server_that_counts_from_one(repo: Repository, tmux_server: PrivateServer) -> None:
    options = ("set -g base-index 1", "setw -g pane-base-index 1", "set -g renumber-windows on")
    with orchestra(repo, tmux_server, options=options) as stage:
        records = [idle(stage, branch_hint=name) for name in ("one", "two")]
        assert [record.tmux_window_index for record in records] == [2, 3]
        stage.stop("one")
        assert_works(stage, records[1], "renumbered")


def assert_works_in_a_life(stage: Orchestra) -> None:
    done = stage.child("life", "say: begin", "say: 修复 é")
    output, error = done.communicate(timeout=60)
    assert done.returncode == 0, error.decode()
    answer = json.loads(output)
    assert (answer["sent"], answer["messages"]) == ("submitted", ["say: begin", "say: 修复 é"])


def test_report_55_a_c_locale_damages_no_message(repo: Repository, tmux_server: PrivateServer) -> None:
    with orchestra(repo, tmux_server, LC_ALL="C") as stage:
        assert_works_in_a_life(stage)


def test_49_a_start_that_tmux_leaves_unanswered_takes_nothing_back_and_is_settled_later(
    stage: Orchestra, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = launcher.write

    def freezing(spec: launcher.LaunchSpec) -> Path:
        stage.server.freeze()
        return write(spec)

    monkeypatch.setattr(tmux_call, "DEADLINE", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "write", freezing)
        with pytest.raises(StartFailedError, match="not known whether it runs") as refused:
            stage.start(branch_hint="late")
    assert "kept" in refused.value.message
    row = stage.row("late")
    assert (row.status, Path(row.worktree_path or "").is_dir()) == (AgentStatus.SPAWNING_TMUX, True)
    assert "late" in stage.branches()
    assert stage.listed().notes
    assert stage.row("late").status is AgentStatus.SPAWNING_TMUX
    stage.server.thaw()
    stage.eventually_status("late", AgentStatus.CRASHED)
    stage.stop("late")
    assert "late" not in stage.branches()
    again = stage.start(branch_hint="late")
    assert again.worktree_path == row.worktree_path
    stage.eventually_idle(again.id)
