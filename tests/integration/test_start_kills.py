"""A start that is killed after any of its steps, or fails, leaves a row that tells the truth and blocks nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.core import launcher, observe
from side_agents.core.status import OWNER_DIED
from side_agents.errors import RefusedError, StartFailedError, StateError
from side_agents.infra import fs, git_worktrees
from side_agents.infra.tmux import Tmux, WindowRef
from side_agents.models import AgentStatus, EndedBy
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

TASK = "say: hello"
AGENT = "say-hello"
# What leaves a trace, in order; "write registry.json" are the three states of the row.
BEFORE = ("write exclude",)
OPENED = ("tmux set-option", "write registry.json 3", "draft active.lock 2", "write active.lock")
LAUNCHING = ("write kickoff.md", "write backlog.log", "write registry.json 2", "write launch.sh", "tmux new-window")
LEASED = ("draft active.lock", "create active.lock")
IN_FRESH_SLOT = ("write registry.json", "git worktree add", *LEASED, "git reset", "archive")
IN_USED_SLOT = ("write registry.json", *LEASED, "git checkout branch", "git update-ref")


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def archivable(stage: Orchestra) -> None:
    """The runtime folder of an earlier agent of the same name, which had ended well."""
    old = stage.repo.path / ".pi/side-agents/runtime" / AGENT
    old.mkdir(parents=True)
    (old / "exit.json").write_text('{"exitCode":0,"finishedAt":"2026-01-01T00:00:00Z","phase":"client"}')
    (old / "events.jsonl").write_text('{"type":"launcher","pid":1,"at":"2026-01-01T00:00:00Z"}\n')


def used_slot(stage: Orchestra) -> None:
    """A slot whose agent has ended; its branch is merged."""
    stage.quit(stage.start("say: before").id)
    assert stage.slots() == [stage.slot(1)]


def start_in_child(stage: Orchestra, die_at: str = "") -> tuple[int, dict[str, object]]:
    """Exit status, negative for a signal, and what the process said."""
    child = stage.child("start", TASK, "script", *filter(None, [die_at]))
    out, err = child.communicate(timeout=60)
    return child.returncode, json.loads(out) if out else {"error": err.decode()}


def die_at(stage: Orchestra, step: str) -> None:
    status, answer = start_in_child(stage, step)
    assert status == -signal.SIGKILL, f"the start went past {step!r}: {answer}"


def assert_next_start_works(stage: Orchestra, *, beside: Path | None) -> None:
    record = stage.start(TASK, client="fake")
    assert record.worktree_path != str(beside)
    stage.assert_sound()
    stage.stop(record.id)


@pytest.mark.parametrize("prepare", [archivable, used_slot])
def test_the_steps_killed_below_are_all_there_are(stage: Orchestra, prepare: object) -> None:
    assert callable(prepare)
    prepare(stage)
    _, answer = start_in_child(stage)
    ours = (*BEFORE, *IN_FRESH_SLOT, *IN_USED_SLOT, "create backlog.log", *LAUNCHING, *OPENED)
    assert set(answer["steps"]) <= set(ours)  # type: ignore[call-overload]  # JSON


def test_a_start_killed_before_its_reservation_leaves_nothing(stage: Orchestra) -> None:
    die_at(stage, "write exclude")
    assert not stage.assert_sound().records
    assert not stage.branches()
    assert not stage.slots()
    assert_next_start_works(stage, beside=None)


@pytest.mark.parametrize("step", [*IN_FRESH_SLOT, *LAUNCHING])
def test_x17_a_start_killed_in_a_fresh_slot_is_crashed_and_gives_everything_back(stage: Orchestra, step: str) -> None:
    archivable(stage)
    die_at(stage, step)
    assert_crashed_and_given_back(stage)


@pytest.mark.parametrize("step", [*IN_USED_SLOT, *LAUNCHING])
def test_x17_a_start_killed_in_a_used_slot_is_crashed_and_gives_everything_back(stage: Orchestra, step: str) -> None:
    used_slot(stage)
    die_at(stage, step)
    assert_crashed_and_given_back(stage)


def assert_crashed_and_given_back(stage: Orchestra) -> None:
    [row] = stage.assert_sound().records
    assert (row.id, row.status, row.error) == (AGENT, AgentStatus.CRASHED, OWNER_DIED)
    assert row.worktree_path == str(stage.slot(1))
    assert_next_start_works(stage, beside=stage.slot(1))
    stopped = stage.stop(AGENT)
    assert "left as it is" not in stopped.kept
    assert AGENT not in stage.branches()
    assert not stage.leases()
    slots = stage.slots()
    assert not [path for slot in slots for path in slot.glob(".pi/.active.lock.*")], "half a lease was left behind"
    again = stage.start(TASK, client="fake")
    assert again.id == AGENT
    assert stage.slots() == slots, "a slot was given back and is not used again"
    assert "passed over" not in " ".join(again.warnings)
    assert stage.worktree(again).status() == ""
    stage.stop(again.id)
    stage.assert_quiet()


@pytest.mark.parametrize("step", OPENED)
@pytest.mark.parametrize("prepare", [archivable, used_slot])
def test_a_start_killed_when_its_window_runs_leaves_a_normal_agent(
    stage: Orchestra, prepare: object, step: str
) -> None:
    assert callable(prepare)
    prepare(stage)
    die_at(stage, step)
    eventually(lambda: stage.journal(AGENT), SLOW)
    row = stage.eventually_idle(AGENT)
    assert row.launcher is not None
    [pane] = stage.panes()
    assert (row.tmux_pane_id, row.tmux_window_id) == (pane.pane_id, pane.window_id)
    assert_next_start_works(stage, beside=stage.slot(1))
    assert stage.send(AGENT, "write: made.txt data\ncommit: made").state == "submitted"
    eventually(lambda: "made.txt" in stage.worktree(row).git("ls-files"), SLOW)
    stage.quit(AGENT)
    assert stage.repo.git("diff", "--name-only", f"HEAD...side-agent/{AGENT}") == "made.txt"
    stage.assert_quiet()


def test_a_start_killed_between_git_making_the_branch_and_the_worktree_gives_the_branch_back(stage: Orchestra) -> None:
    die_at(stage, "write registry.json")
    stage.repo.git("branch", f"side-agent/{AGENT}")
    [row] = stage.assert_sound().records
    assert row.status is AgentStatus.CRASHED
    stage.stop(AGENT)
    assert not stage.branches()
    assert stage.start(TASK, client="fake").id == AGENT


def assert_taken_back(stage: Orchestra, agent_id: str, reason: str) -> None:
    """The row says why, and slot, branch and lease can be had again at once."""
    row = stage.row(agent_id)
    assert (row.status, row.worktree_path) == (AgentStatus.FAILED, None)
    assert reason in (row.error or "")
    assert not stage.leases()
    assert not stage.branches()
    stage.assert_sound()


def test_a_window_that_tmux_refuses_is_rolled_back(stage: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    other = stage.server.start(session="other")
    write = launcher.write

    def write_and_lose_the_session(spec: launcher.LaunchSpec) -> Path:
        stage.server.tmux.kill_window(stage.pane.window_id, expect_pane=stage.pane.pane_id, expect_tag="gone")
        return write(spec)

    stage.server.tmux.set_option(stage.pane.pane_id, "@side_agent_id", "gone")
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "write", write_and_lose_the_session)
        with pytest.raises(StartFailedError, match="0001 is free again") as caught:
            stage.start()
    assert "tmux" in caught.value.message
    assert "side-agents stop say-hello" in (caught.value.hint or "")
    assert_taken_back(stage, "say-hello", "tmux")
    stage.pane = other
    stage.environment["TMUX_PANE"] = other.pane_id
    again = stage.start()
    assert again.worktree_path == str(stage.slot(1))
    stage.eventually_idle(again.id)


@pytest.mark.parametrize("name", ["kickoff.md", "launch.sh"])
def test_a_full_disk_is_rolled_back(stage: Orchestra, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    replace = fs.replace

    def full(path: Path, data: bytes | str, **more: Any) -> None:
        if path.name == name:
            raise StateError(f"{path} could not be written (No space left on device)", hint="Free some space.")
        replace(path, data, **more)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "replace", full)
        with pytest.raises(StartFailedError, match="No space left") as caught:
            stage.start()
    assert caught.value.hint == "Free some space."
    assert "(No space left on device). It was taken back: " in caught.value.message
    assert_taken_back(stage, "say-hello", "No space left")
    again = stage.start()
    assert (again.id, again.worktree_path) == ("say-hello-2", str(stage.slot(1)))
    stage.stop("say-hello")
    stage.eventually_idle(again.id)


def test_a_client_that_vanishes_fails_the_agent_visibly(stage: Orchestra, tmp_path: Path) -> None:
    program = tmp_path / "client"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    stage.configure(f'[clients.mine]\nargv = ["{program}"]\nprompt = "stdin"\n')
    record = stage.start(client="mine")
    failed = stage.eventually_status(record.id, AgentStatus.FAILED).record
    assert failed is not None
    assert failed.exit_code in (126, 127)
    stage.stop(record.id)
    stage.assert_quiet()
    assert stage.start().worktree_path == str(stage.slot(1))


def test_a_start_under_way_is_not_stopped_and_finishes(stage: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    populate = git_worktrees.populate
    refused: list[str] = []

    def populate_and_stop(*args: Any, **more: Any) -> None:
        with pytest.raises(RefusedError, match="being started") as caught:
            stage.stop("say-hello")
        refused.append(caught.value.message)
        populate(*args, **more)

    monkeypatch.setattr(git_worktrees, "populate", populate_and_stop)
    record = stage.start()
    assert refused
    stage.stop(record.id)
    stage.assert_quiet()


def test_a_start_whose_entry_was_cleared_meanwhile_takes_everything_back(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = launcher.prepare_runtime

    def prepare_and_clear(*args: Any) -> str | None:
        with stage.context.registry.transaction("as if it had been stuck for long") as state:
            state.bury(observe.entomb(stage.context, state.agents["say-hello"], EndedBy.CLEARED))
        return prepare(*args)

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "prepare_runtime", prepare_and_clear)
        with pytest.raises(StartFailedError, match="cleared"):
            stage.start()
    stage.assert_quiet()
    assert not stage.branches()
    assert stage.start().worktree_path == str(stage.slot(1))


def test_a_window_that_cannot_be_recorded_is_a_warning_and_found_by_the_next_look(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, writes = fs.replace, []

    def full_at_last(path: Path, data: bytes | str, **more: Any) -> None:
        writes.append(path.name)
        if writes.count("registry.json") == 3:
            raise StateError("No space left on device")
        replace(path, data, **more)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "replace", full_at_last)
        record = stage.start(TASK)
    assert "could not be recorded yet: No space left" in record.warnings[-1]
    row = stage.eventually_idle(AGENT)
    assert (row.launcher, row.tmux_pane_id) == (record.launcher, record.tmux_pane_id)
    stage.quit(AGENT)
    stage.assert_quiet()


def test_an_agent_that_ended_before_its_window_was_recorded_does_not_come_back(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_window = Tmux.new_window

    def outpaced(self: Tmux, **more: Any) -> WindowRef:
        window = new_window(self, **more)
        eventually(lambda: not stage.listed().records, SLOW)
        return window

    monkeypatch.setattr(Tmux, "new_window", outpaced)
    record = stage.start("quit")
    assert record.status is AgentStatus.DONE
    assert [stone.id for stone in stage.context.registry.history()] == [record.id]
    stage.assert_quiet()


def test_an_interrupted_start_closes_the_window_that_it_opened(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_window = Tmux.new_window

    def interrupted(self: Tmux, **more: Any) -> WindowRef:
        new_window(self, **more)
        eventually(lambda: stage.journal(AGENT), SLOW)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Tmux, "new_window", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stage.start(TASK)
    assert_taken_back(stage, AGENT, "KeyboardInterrupt")
    assert not stage.panes()
    stage.stop(AGENT)
    stage.assert_quiet()
