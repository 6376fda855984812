"""Looking at agents: what check and list say, and that a crash is never taken for success."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conversation import idle, tmux
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.clients import script_agent
from side_agents.core import observe, views
from side_agents.core.results import Listed
from side_agents.errors import RefusedError, UnknownAgentError, UsageError
from side_agents.infra import processes, text
from side_agents.models import AgentRecord, AgentStatus, EndedBy
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

ENDS = (AgentStatus.CRASHED, AgentStatus.FAILED, AgentStatus.DONE)


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_i7_and_u24_check_has_every_field_with_its_type_and_as_the_registry_has_it(stage: Orchestra) -> None:
    with pytest.raises(UnknownAgentError, match="nobody"):
        stage.check("nobody")
    task = "say: line one of it\nsay: " + "x" * 300
    record = idle(stage, task)
    view = views.checked_view(stage.check(f" {record.id} and more words"))
    agent, row = view["agent"], stage.row(record.id).to_json()
    assert view["ok"] is True
    types = {"id": str, "status": str, "depth": int, "tmuxWindowId": str, "tmuxWindowIndex": int, "worktreePath": str}
    types |= {"branch": str, "task": str, "startedAt": str, "warnings": list}
    assert {name: type(agent[name]) for name in types} == types
    same = [name for name in types if name not in ("task", "warnings", "depth")]
    assert {name: agent[name] for name in same} == {name: row[name] for name in same}
    assert (agent["depth"], agent["warnings"]) == (1, [])
    assert len(agent["task"]) == 220
    assert "\n" not in agent["task"]
    assert not {"parentAgentId", "finishedAt", "exitCode", "error"} & set(agent)
    assert agent["tmuxWindowId"] in {pane.window_id for pane in stage.panes()}
    backlog = view["backlog"]
    assert "line one of it" in backlog
    assert len(backlog) <= 10
    assert not any(text.is_divider(line) or "\x1b" in line for line in backlog)


@pytest.mark.parametrize("given", ["", "  \n"])
def test_u26_a_check_without_an_id_is_refused(stage: Orchestra, given: str) -> None:
    with pytest.raises(UsageError, match="No agent id"):
        stage.check(given)


def test_looking_creates_nothing_in_a_project_without_agents(stage: Orchestra) -> None:
    assert stage.listed() == Listed(())
    with pytest.raises(UnknownAgentError):
        stage.check("nobody")
    assert not (stage.repo.path / ".pi").exists()


def test_x18_a_finished_agent_is_done_for_check_and_list(stage: Orchestra) -> None:
    record = idle(stage)
    stage.quit(record.id)
    checked = stage.check(record.id)
    assert checked.record is None
    assert checked.tombstone is not None
    assert checked.tombstone.ended_by is EndedBy.EXIT
    agent = views.checked_view(checked)["agent"]
    assert (agent["status"], agent["exitCode"], agent["branch"]) == ("done", 0, record.branch)
    assert agent["branchHead"] == stage.repo.git("rev-parse", record.branch or "")
    assert "hello" in "\n".join(checked.backlog)
    assert not stage.listed().records
    [stone] = observe.list_agents(stage.context, everything=True).tombstones
    assert stone.id == record.id
    assert not stage.leases()


def _pid(stage: Orchestra, record: AgentRecord, kind: str) -> int:
    return int(stage.event(record, kind)["pid"])


def _kill_client(stage: Orchestra, record: AgentRecord) -> None:
    os.kill(_pid(stage, record, "client"), signal.SIGKILL)


def _signal_launcher(number: signal.Signals) -> Callable[[Orchestra, AgentRecord], None]:
    return lambda stage, record: os.kill(_pid(stage, record, "launcher"), number)


DEATHS: dict[str, Callable[[Orchestra, AgentRecord], object]] = {
    "window killed": lambda stage, record: tmux(stage, "kill-window", "-t", record.tmux_window_id or ""),
    "server killed by SIGKILL": lambda stage, record: os.kill(stage.pane.server.pid, signal.SIGKILL),
    "kill-server": lambda stage, record: stage.server.tmux.kill_server(),
    "launcher HUP": _signal_launcher(signal.SIGHUP),
    "launcher TERM": _signal_launcher(signal.SIGTERM),
    "launcher KILL": _signal_launcher(signal.SIGKILL),
    "client KILL": _kill_client,
}


@pytest.mark.parametrize("how", DEATHS)
def test_x1_a_death_is_never_taken_for_success_and_keeps_the_lease(stage: Orchestra, how: str) -> None:
    record = idle(stage, "write: work.txt data")
    DEATHS[how](stage, record)
    first = stage.eventually_status(record.id, *ENDS).record
    assert first is not None, "it counts as finished"
    assert first.status is AgentStatus.CRASHED
    assert first.error
    assert first.finished_at
    assert first.exit_code != 0
    # Whatever the launcher still writes on its way out changes neither the verdict nor the number of the stop.
    launcher, marker = record.launcher, stage.context.paths.runtime(record.id).exit_marker
    assert launcher is not None
    eventually(lambda: observe.read_marker(marker) or not processes.is_alive(launcher), SLOW)
    again = stage.check(record.id).record
    assert again is not None
    assert (again.status, again.stop_seq) == (AgentStatus.CRASHED, first.stop_seq)
    assert [lease.agent_id for lease in stage.leases().values()] == [record.id]
    assert (Path(record.worktree_path or "") / "work.txt").exists()
    with pytest.raises(RefusedError, match="Nothing was sent"):
        stage.send(record.id, "touch it")


def test_x17_a_start_whose_process_died_is_crashed_and_can_be_cleared(stage: Orchestra) -> None:
    killed = stage.child("start", "say: hello", "script", "write kickoff.md")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    checked = stage.check("say-hello")
    assert checked.record is not None
    assert checked.record.status is AgentStatus.CRASHED
    with pytest.raises(RefusedError):
        stage.send("say-hello", "x")
    assert stage.stop("say-hello").tombstone.ended_by is EndedBy.CLEARED
    stage.assert_quiet()
    assert stage.start().worktree_path == str(stage.slot(1))


def test_x23_a_second_client_in_the_agents_environment_changes_nothing(stage: Orchestra) -> None:
    record = idle(stage)
    before = stage.row(record.id)
    events = stage.journal(record.id)
    environment = stage.inside(record).environment
    other = stage.server.tmux.new_window(
        session_id=stage.pane.session_id,
        name="other",
        cwd=Path(record.worktree_path or ""),
        argv=(sys.executable, "-IS", script_agent.__file__),
        tag="somebody",
        env={key: value for key, value in environment.items() if key.startswith(("PI_SIDE_", "SIDE_AGENTS_"))},
    )
    eventually(lambda: "script · idle" in "\n".join(stage.server.tmux.capture(other.pane_id)), SLOW)
    stage.server.tmux.paste(other.pane_id, b"say: from the other")
    stage.server.tmux.send_keys(other.pane_id, "Enter")
    eventually(lambda: "\nfrom the other" in "\n".join(stage.server.tmux.capture(other.pane_id)), SLOW)
    assert stage.check(record.id).record == before
    assert stage.journal(record.id) == events
    stage.server.tmux.kill_window(other.window_id, expect_pane=other.pane_id, expect_tag="somebody")
    eventually(lambda: len(stage.panes()) == 1)
    assert stage.check(record.id).record == before


def test_list_shows_running_waiting_and_crashed_agents_side_by_side(stage: Orchestra) -> None:
    busy = stage.start("sleep: 60", branch_hint="busy")
    asked = stage.start("ask: which colour?", branch_hint="asked")
    gone = idle(stage, branch_hint="gone")
    _kill_client(stage, gone)
    stage.eventually_status(gone.id, AgentStatus.CRASHED)
    stage.eventually_status(asked.id, AgentStatus.WAITING_USER)
    stage.event(busy, "turn_start")
    listed = stage.assert_sound()
    assert {record.id: str(record.status) for record in listed.records} == {
        "busy": "running",
        "asked": "waiting_user",
        "gone": "crashed",
    }
    assert listed.notes == ()
    asking = next(record for record in listed.records if record.id == "asked")
    assert (asking.waiting_for, asking.waiting_text) == ("question", "which colour?")
    files_only = observe.list_agents(stage.context, probe=False)
    assert files_only.records == listed.records


def test_only_an_agent_whose_window_waits_for_a_key_has_a_window_after_its_end(stage: Orchestra) -> None:
    failed, closed = idle(stage, branch_hint="failed"), idle(stage, branch_hint="closed")
    tmux(stage, "kill-window", "-t", closed.tmux_window_id or "")
    stage.eventually_status(closed.id, AgentStatus.CRASHED)
    os.kill(int(stage.event(failed, "client")["pid"]), signal.SIGKILL)
    eventually(lambda: stage.check(failed.id).lingers, SLOW)
    assert not stage.check(closed.id).lingers
    assert stage.listed().lingering == {failed.id}
    tmux(stage, "kill-window", "-t", failed.tmux_window_id or "")
    eventually(lambda: not stage.listed().lingering, SLOW)


def test_a_look_that_finds_nothing_new_writes_nothing(stage: Orchestra) -> None:
    idle(stage)
    stage.listed()
    before = stage.context.paths.registry.stat()
    for _ in range(3):
        stage.listed()
    after = stage.context.paths.registry.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
