"""``doctor``: every fault is made for real, found, mended where it can be, and gone; looking writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from orchestra import SLOW, Orchestra, orchestra
from psutil import process_iter

from side_agents.core import leases
from side_agents.core.doctor import Examination, examine
from side_agents.core.findings import Finding, Severity
from side_agents.core.repair import CODES, Repaired, repair
from side_agents.errors import RefusedError, StateError
from side_agents.infra import clock, fs, processes
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Lease, Tombstone
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually
from tests.unit.cli_support import CommandLine


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer, tmp_path: Path) -> Iterator[Orchestra]:
    # No tmux server of this machine's user is to be looked at.
    with orchestra(repo, tmux_server, TMUX_TMPDIR=str(tmp_path)) as made:
        made.configure('client = "script"\n')
        yield made


@pytest.fixture
def cli(stage: Orchestra, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(stage.repo.path)
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)
    return CommandLine(capsys, monkeypatch)


def look(stage: Orchestra) -> Examination:
    return examine(stage.cwd, stage.environment)


def found(stage: Orchestra, code: str) -> list[Finding]:
    return [finding for finding in look(stage).findings if finding.code == code]


def one(stage: Orchestra, code: str) -> Finding:
    findings = found(stage, code)
    assert len(findings) == 1, [(each.code, each.what) for each in look(stage).findings if each.severity != Severity.OK]
    return findings[0]


def mend(stage: Orchestra, code: str) -> list[Repaired]:
    """Repair everything of one code; it has to be gone then, and a second repair has nothing to do."""
    examination = look(stage)
    assert examination.site is not None
    done = [repair(examination.site, finding) for finding in examination.repairable if finding.code == code]
    assert done, f"nothing to repair: {[finding.code for finding in examination.findings]}"
    assert [outcome.error for outcome in done if outcome.error is not None] == []
    assert found(stage, code) == []
    return done


def assert_clean(stage: Orchestra) -> None:
    faults = [(finding.code, finding.what) for finding in look(stage).findings if finding.severity.is_fault]
    assert faults == []


def times(top: Path) -> dict[str, tuple[int, int]]:
    """When and how every file below a folder was changed."""
    paths = [Path(folder, name) for folder, folders, files in os.walk(top) for name in (*folders, *files)]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in paths}


def lease_folder(stage: Orchestra) -> Path:
    """A slot that an agent has left, clean and without a lease."""
    record = stage.start("say: hi")
    stage.eventually_idle(record.id)
    stage.quit(record.id)
    return Path(record.worktree_path or "")


def old(path: Path) -> None:
    long_ago = clock.now().timestamp() - 7200
    os.utime(path, (long_ago, long_ago))


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def put(stage: Orchestra, record: AgentRecord) -> None:
    with stage.context.registry.transaction("test") as state:
        state.put(record)


def forget(stage: Orchestra, agent_id: str) -> None:
    """What a fault in some other program does: the row is gone, and nothing else."""
    with stage.context.registry.transaction("test") as state:
        del state.agents[agent_id]
        state.removed.add(agent_id)


def test_a_repository_without_agents_is_clean_and_nothing_is_made(stage: Orchestra) -> None:
    before = times(stage.repo.path.parent)

    examination = look(stage)

    assert examination.is_clean
    assert examination.repairable == ()
    assert times(stage.repo.path.parent) == before
    assert not (stage.repo.path / ".pi").exists()


def test_a_repository_with_a_working_agent_and_an_idle_slot_is_clean_and_nothing_is_written(stage: Orchestra) -> None:
    first = stage.start("say: one")
    second = stage.start("say: two")
    for record in (first, second):
        stage.eventually_idle(record.id)
    stage.quit(second.id)
    stage.listed()
    before = times(stage.repo.path.parent)

    examination = look(stage)

    assert [(each.code, each.what) for each in examination.findings if each.severity.is_fault] == []
    assert examination.repairable == ()
    assert times(stage.repo.path.parent) == before
    assert "slots" in next(each.what for each in examination.findings if each.code == "disk")


# Files.


def temp_file(stage: Orchestra) -> None:
    path = stage.meta / ".registry.json.4711-0123456789ab.tmp"
    path.write_text("half")
    old(path)
    (stage.meta / f".registry.json.{os.getpid()}-0123456789ac.tmp").write_text("one that is being written")


def temp_of_a_dead_process(stage: Orchestra) -> None:
    with subprocess.Popen(["true"]) as writer:
        writer.wait()
    (stage.meta / f".registry.json.{writer.pid}-0123456789ad.tmp").write_text("half")


def temp_lease(stage: Orchestra) -> None:
    path = lease_folder(stage) / ".pi" / ".active.lock.4711-0123456789ab.tmp"
    path.parent.mkdir(exist_ok=True)
    path.write_text("half")
    old(path)


def open_folder(stage: Orchestra) -> None:
    stage.meta.chmod(0o755)


def lost_excludes(stage: Orchestra) -> None:
    (stage.repo.path / ".git/info/exclude").write_text("mine\n")


def low_sequence(stage: Orchestra) -> None:
    stone = Tombstone(id="gone", status=AgentStatus.DONE, ended_by=EndedBy.EXIT, stop_seq=70)
    fs.append_line(stage.context.paths.history, json.dumps(stone.to_json()))


def broken_backup(stage: Orchestra) -> None:
    stage.context.paths.registry_backup.unlink()
    stage.context.paths.registry_backup.write_text("{half")


def dead_holder(stage: Orchestra) -> None:
    holder = {
        "pid": dead_pid(),
        "startedAt": "x:1",
        "host": os.uname().nodename,
        "command": "c",
        "purpose": "p",
        "since": "s",
    }
    stage.context.paths.registry_lock.write_text(json.dumps(holder))


def orphan_lease(stage: Orchestra) -> None:
    leases.take(lease_folder(stage), Lease(agent_id="ghost", pid=dead_pid()))


def missing_lease(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    stage.eventually_idle(record.id)
    leases.release(Path(record.worktree_path or ""))


def deleted_slot(stage: Orchestra) -> None:
    shutil.rmtree(lease_folder(stage))


def renamed_slot(stage: Orchestra) -> None:
    slot = lease_folder(stage)
    slot.rename(slot.with_name(slot.name.replace("0001", "0007")))


def cut_pointer(stage: Orchestra) -> None:
    (lease_folder(stage) / ".git").write_text("gitdir: /nowhere/at/all\n")


def vanished_entry(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    stage.eventually_idle(record.id)
    slot = Path(record.worktree_path or "")
    shutil.rmtree(stage.repo.path / ".git/worktrees" / slot.name)


def large_log(stage: Orchestra) -> None:
    lease_folder(stage)
    path = stage.meta / "runtime" / next(iter(stage.records)) / "backlog.log"
    # Whoever kept it short while the agent ran may outlive the agent for a moment.
    eventually(lambda: not any(str(path) in " ".join(each.info["cmdline"] or ()) for each in process_iter(["cmdline"])))
    path.write_bytes(b"x" * 4_000_000 + b"the end\n")


REPAIRED: dict[str, list[Callable[[Orchestra], None]]] = {
    "temp-file": [temp_file, temp_of_a_dead_process, temp_lease],
    "permissions": [open_folder],
    "exclude-block": [lost_excludes],
    "sequence-low": [low_sequence],
    "backup-unreadable": [broken_backup],
    "lock-text": [dead_holder],
    "lease-orphan": [orphan_lease],
    "lease-missing": [missing_lease],
    "registration-stale": [deleted_slot],
    "slot-pointers": [renamed_slot, cut_pointer],
    "slot-entry-gone": [vanished_entry],
    "log-large": [large_log],
}
CASES = [(code, fault) for code, faults in REPAIRED.items() for fault in faults]


@pytest.mark.parametrize(("code", "fault"), CASES, ids=[fault.__name__ for _, fault in CASES])
def test_a_fault_is_found_mended_and_gone(stage: Orchestra, code: str, fault: Callable[[Orchestra], None]) -> None:
    put(stage, AgentRecord(id="older", status=AgentStatus.FAILED, stop_seq=3))
    with stage.context.registry.transaction("test") as state:
        state.sequence = 5
    from side_agents.infra.git import Git
    from side_agents.paths import EXCLUDED

    Git(stage.repo.path).ensure_excludes(EXCLUDED)
    fault(stage)
    heads = stage.repo.git("for-each-ref", "refs/heads")

    finding = one(stage, code)
    assert finding.what
    assert finding.safe
    assert "side-agents" in finding.mend

    mend(stage, code)

    assert_clean(stage)
    assert stage.repo.git("for-each-ref", "refs/heads") == heads
    assert stage.repo.git("status", "--porcelain") == ""
    stage.listed()


def test_every_repair_has_a_test() -> None:
    elsewhere = {
        "registry-unreadable", "registry-missing", "window-left", "process-left", "agent-untracked", "start-dead",
        "window-gone", "landing-cut-off",
    }  # fmt: skip
    assert set(REPAIRED) | elsewhere == CODES


def test_the_users_lines_in_the_exclude_file_stay(stage: Orchestra) -> None:
    lease_folder(stage)
    lost_excludes(stage)
    mend(stage, "exclude-block")
    assert "mine\n" in (stage.repo.path / ".git/info/exclude").read_text()


def test_a_fresh_temporary_file_is_somebodys_work(stage: Orchestra) -> None:
    lease_folder(stage)
    temp_file(stage)
    mend(stage, "temp-file")
    assert [path.name for path in stage.meta.glob(".*.tmp")] == [f".registry.json.{os.getpid()}-0123456789ac.tmp"]


def test_a_slot_that_was_copied_is_not_given_the_entry_of_the_first(stage: Orchestra) -> None:
    slot = lease_folder(stage)
    copy = slot.with_name(slot.name.replace("0001", "0002"))
    shutil.copytree(slot, copy, symlinks=True)
    finding = one(stage, "slot-pointers")
    assert (finding.subject, finding.repairable) == (copy.name, False)
    assert Repository(slot).status() == ""


def test_work_in_a_slot_whose_entry_vanished_is_all_there_again(stage: Orchestra) -> None:
    record = stage.start("commit: early.txt words\nsay: hi")
    stage.eventually_idle(record.id)
    slot = Repository(Path(record.worktree_path or ""))
    slot.write("late.txt", "not committed\n")
    slot.git("add", "late.txt")
    head = slot.head()
    shutil.rmtree(stage.repo.path / ".git/worktrees" / slot.path.name)
    assert slot.path.name in one(stage, "slot-entry-gone").what

    mend(stage, "slot-entry-gone")

    assert (slot.head(), slot.git("branch", "--show-current")) == (head, record.branch)
    assert slot.status() == "?? late.txt"


def test_of_a_vanished_entry_without_a_record_the_branch_is_not_guessed(stage: Orchestra) -> None:
    slot = lease_folder(stage)
    with stage.context.registry.transaction("test") as state:
        state.agents.clear()
    shutil.rmtree(stage.repo.path / ".git/worktrees" / slot.name)
    finding = one(stage, "slot-entry-gone")
    assert (finding.repairable, "Copy what you need" in finding.mend) == (False, True)


def test_a_stale_entry_with_staged_work_is_not_pruned(stage: Orchestra) -> None:
    slot = lease_folder(stage)
    Repository(slot).write("staged.txt", "only here\n")
    Repository(slot).git("add", "staged.txt")
    shutil.rmtree(slot)
    finding = one(stage, "registration-stale")
    assert not finding.repairable
    assert "taged work" in finding.what


def test_a_missing_worktree_of_the_user_keeps_everything_from_being_pruned(stage: Orchestra, tmp_path: Path) -> None:
    stage.repo.git("worktree", "add", "--quiet", "-b", "mine", str(tmp_path / "mine"))
    deleted_slot(stage)
    shutil.rmtree(tmp_path / "mine")
    assert [finding.repairable for finding in found(stage, "registration-stale")] == [False, False]


# What only a person can mend.


def dirty_slot(stage: Orchestra) -> None:
    (lease_folder(stage) / "unsaved.txt").write_text("work\n")


def unfinished_rebase(stage: Orchestra) -> None:
    slot = Repository(lease_folder(stage))
    slot.commit("README.md", "theirs\n")
    stage.repo.commit("README.md", "ours\n")
    slot.git("rebase", "main", check=False)


def foreign_folder(stage: Orchestra) -> None:
    stage.slot(4).mkdir()
    (stage.slot(4) / "notes.txt").write_text("mine\n")


def slot_of_a_live_agent_deleted(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    stage.eventually_idle(record.id)
    shutil.rmtree(record.worktree_path or "")


def slot_of_another_repository(stage: Orchestra) -> None:
    other = stage.repo.path.parent / "other"
    stage.repo.git("clone", "--quiet", ".", str(other))
    Repository(other).git("worktree", "add", "--quiet", str(stage.slot(3)))


def two_rows(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    row = stage.eventually_idle(record.id)
    put(stage, replace(row, id="second"))


def other_lease(stage: Orchestra) -> None:
    missing_lease(stage)
    leases.take(stage.slot(1), Lease(agent_id="somebody", pid=os.getpid()))


def foreign_row(stage: Orchestra) -> None:
    lease_folder(stage)
    path = stage.context.paths.registry
    data = json.loads(path.read_text())
    data["agents"]["future"] = {"id": "future", "status": "dreaming"}
    path.write_text(json.dumps(data))


def newer_registry(stage: Orchestra) -> None:
    lease_folder(stage)
    stage.context.paths.registry.write_text('{"version": 99, "agents": {}}')


def bad_settings(stage: Orchestra) -> None:
    lease_folder(stage)
    stage.context.paths.project_config.write_text("max_dept = 3\n")


def missing_client(stage: Orchestra) -> None:
    stage.configure('client = "lost"\n[clients.lost]\nargv = ["no-such-program-anywhere"]\n')


def stuck_dialog(stage: Orchestra) -> None:
    record = stage.start("permit: may I?")
    stage.eventually_idle(record.id)
    old(stage.context.paths.runtime(record.id).journal)


def outlived(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    row = stage.eventually_idle(record.id)
    put(stage, replace(row, status=AgentStatus.CRASHED))


REPORTED = [
    ("slot-dirty", Severity.WARNING, dirty_slot),
    ("slot-unfinished", Severity.WARNING, unfinished_rebase),
    ("slot-foreign", Severity.WARNING, foreign_folder),
    ("slot-foreign", Severity.WARNING, slot_of_another_repository),
    ("slot-missing", Severity.PROBLEM, slot_of_a_live_agent_deleted),
    ("slot-twice", Severity.PROBLEM, two_rows),
    ("lease-other", Severity.PROBLEM, other_lease),
    ("registry-rows", Severity.WARNING, foreign_row),
    ("registry-newer", Severity.PROBLEM, newer_registry),
    ("config-invalid", Severity.PROBLEM, bad_settings),
    ("client-missing", Severity.PROBLEM, missing_client),
    ("stuck", Severity.WARNING, stuck_dialog),
    ("process-outlives", Severity.WARNING, outlived),
]


@pytest.mark.parametrize(("code", "severity", "fault"), REPORTED, ids=[case[2].__name__ for case in REPORTED])
def test_a_fault_for_a_person_is_told_with_a_way_out(
    stage: Orchestra, code: str, severity: Severity, fault: Callable[[Orchestra], None]
) -> None:
    fault(stage)
    before = {path.name: path.read_bytes() for path in stage.repo.path.parent.rglob("*.txt")}

    finding = next(each for each in found(stage, code) if each.severity is severity)

    assert finding.what
    assert finding.safe
    assert finding.mend
    assert not finding.repairable
    assert {path.name: path.read_bytes() for path in stage.repo.path.parent.rglob("*.txt")} == before


def test_an_unfinished_rebase_is_not_taken_for_work_to_commit(stage: Orchestra) -> None:
    unfinished_rebase(stage)
    finding = one(stage, "slot-unfinished")
    git = f"git -C {finding.place}"
    assert f"`{git} rebase --continue`" in finding.mend
    assert f"`{git} rebase --abort`" in finding.mend
    assert found(stage, "slot-dirty") == []


def test_the_way_out_for_uncommitted_work_commits_it(stage: Orchestra) -> None:
    dirty_slot(stage)
    finding = one(stage, "slot-dirty")
    command = finding.mend.partition("commit them: ")[2]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True, env=stage.environment)
    assert found(stage, "slot-dirty") == []
    assert finding.place is not None
    slot = Repository(finding.place)
    agent_id = slot.git("branch", "--show-current").strip().removeprefix("side-agent/")
    assert slot.git("log", "-1", "--format=%s").strip() == f"Work of {agent_id}"


def test_without_a_usable_default_client_there_is_a_warning(stage: Orchestra, tmp_path: Path) -> None:
    stage.configure()
    environment = {**stage.environment, "PATH": str(tmp_path / "nothing")}
    (finding,) = (each for each in examine(stage.cwd, environment).findings if each.code == "client-none")
    assert finding.severity is Severity.WARNING
    assert "npm install" in finding.mend
    assert 'client = "' in finding.mend


@pytest.mark.parametrize(("task", "word"), [("permit: may I?", "permission"), ("ask: which?", "question")])
def test_an_agent_that_asks_is_named_at_once_and_is_no_fault(stage: Orchestra, task: str, word: str) -> None:
    record = stage.start(task)
    stage.eventually_idle(record.id)
    finding = one(stage, "waiting")
    assert (finding.severity, finding.subject) == (Severity.NOTE, record.id)
    assert word in finding.what
    assert_clean(stage)


def test_an_agent_on_the_list_is_cleared_before_it_is_resumed(stage: Orchestra) -> None:
    record = stage.start("fail: 3")
    stage.eventually_status(record.id, AgentStatus.FAILED)
    mend_text = one(stage, "ended").mend
    steps = [f"`side-agents {word} {record.id}`" for word in ("check", "log", "stop", "resume")]
    places = [mend_text.index(step) for step in steps]
    assert places == sorted(places)


def test_a_project_without_agents_is_not_said_to_have_files(stage: Orchestra) -> None:
    said = {each.check: each.what for each in look(stage).findings}
    assert said["registry"] == "There is none yet."
    assert "are kept" not in said["exclude"]


def test_parked_work_and_rescue_refs_are_told_and_are_no_faults(stage: Orchestra) -> None:
    record = stage.start("commit: work of mine")
    stage.eventually_idle(record.id)
    stage.worktree(record).commit("work.txt")
    stage.quit(record.id)
    stage.repo.git("update-ref", "refs/side-agents/rescue/x", "HEAD")
    assert record.branch is not None
    parked = one(stage, "parked-branches")
    assert record.branch in parked.what
    assert "side-agents finish" in parked.mend
    assert "clean" not in parked.mend
    assert one(stage, "rescue-refs").severity is Severity.NOTE
    assert_clean(stage)


def test_a_merge_lock_that_is_held_is_told_and_left(stage: Orchestra) -> None:
    lease_folder(stage)
    with fs.locked(stage.context.paths.merge_lock, purpose="a landing"):
        holder = json.loads(stage.context.paths.merge_lock.read_text())
        long_ago = {**holder, "since": "2020-01-01T00:00:00.000Z"}
        stage.context.paths.merge_lock.write_text(json.dumps(long_ago))
        finding = one(stage, "merge-lock-held")
        assert str(os.getpid()) in finding.what
        assert not finding.repairable


def test_a_landing_that_was_cut_off_is_completed(stage: Orchestra) -> None:
    lease_folder(stage)
    before = stage.repo.head()
    after = stage.repo.commit("landed.txt", "landed\n")
    # As a process leaves it that is killed after it moved the branch and before it brought the files over.
    stage.repo.git("read-tree", "-m", "-u", after, before)
    note = {"target": "main", "old": before, "new": after, "checkout": str(stage.repo.path), "at": clock.iso()}
    (stage.meta / "merge.intent").write_text(json.dumps(note))
    assert stage.repo.status() != ""

    mend(stage, "landing-cut-off")

    assert stage.repo.status() == ""
    assert (stage.repo.path / "landed.txt").read_text() == "landed\n"
    assert_clean(stage)


def test_a_repository_without_a_commit_is_told(stage: Orchestra, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "empty")], check=True)
    codes = {finding.code for finding in examine(tmp_path / "empty", stage.environment).findings}
    assert "no-commits" in codes
    assert not (tmp_path / "empty" / ".pi").exists()


def test_outside_of_a_repository_the_rest_is_looked_at(stage: Orchestra, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    examination = examine(tmp_path / "plain", stage.environment)
    assert examination.site is None
    assert {"tmux", "git", "clients"} <= {finding.check for finding in examination.findings}
    assert [finding.code for finding in examination.findings if finding.severity.is_fault] == ["not-a-repository"]


def test_a_tmux_that_does_not_answer_is_told_and_nobody_is_taken_for_dead(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    stage.eventually_idle(record.id)
    stage.server.freeze()
    try:
        codes = {finding.code for finding in look(stage).findings if finding.severity.is_fault}
    finally:
        stage.server.thaw()
    assert codes == {"tmux-silent"}


def test_a_pane_that_is_gone_is_told(stage: Orchestra) -> None:
    examination = examine(stage.cwd, {**stage.environment, "TMUX_PANE": "%999"})
    assert "tmux-stale" in {finding.code for finding in examination.findings}


def test_missing_and_old_programs_are_told(stage: Orchestra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name, words in (("tmux", "tmux 2.9a"), ("git", "git version 2.20.1")):
        program = bin_dir / name
        program.write_text(
            f'#!/bin/sh\ncase "$1" in -V|--version) echo "{words}";; *) exec /usr/bin/{name} "$@";; esac\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    environment = {**stage.environment, "PATH": os.environ["PATH"]}
    assert {"tmux-old", "git-old"} <= {finding.code for finding in examine(stage.cwd, environment).findings}

    empty = {**stage.environment, "PATH": str(tmp_path / "nothing")}
    codes = {finding.code for finding in examine(stage.cwd, empty).findings}
    assert {"tmux-missing", "git-missing"} <= codes


# Agents.


def test_x17_a_start_whose_process_died_is_recorded_as_crashed(stage: Orchestra) -> None:
    lease_folder(stage)
    put(
        stage,
        AgentRecord(
            id="cut-off",
            status=AgentStatus.ALLOCATING_WORKTREE,
            started_at=clock.iso(),
            owner=processes.ended(dead_pid()),
        ),
    )
    assert "start" in one(stage, "start-dead").what
    mend(stage, "start-dead")
    assert stage.row("cut-off").status is AgentStatus.CRASHED
    assert_clean(stage)


def test_an_agent_whose_process_vanished_is_recorded_as_crashed_and_keeps_its_slot(stage: Orchestra) -> None:
    record = stage.start("say: hi")
    stage.eventually_idle(record.id)
    launcher = stage.row(record.id).launcher
    assert launcher is not None
    everything = [launcher, *processes.descendants(launcher.pid)]
    # Each of them would record the end of another one.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for ref in everything:
            os.kill(ref.pid, number)
    eventually(lambda: not processes.is_alive(launcher))
    assert not stage.context.paths.runtime(record.id).exit_marker.exists()

    one(stage, "window-gone")
    mend(stage, "window-gone")

    assert stage.row(record.id).status is AgentStatus.CRASHED
    assert leases.read(Path(record.worktree_path or "")) is not None
    assert_clean(stage)


def test_an_agent_that_nobody_lists_is_put_back_and_works_on(stage: Orchestra) -> None:
    record = stage.start("say: first")
    before = stage.eventually_idle(record.id)
    forget(stage, record.id)
    assert one(stage, "agent-untracked").severity is Severity.PROBLEM

    mend(stage, "agent-untracked")

    same(before, stage.row(record.id))
    assert_clean(stage)
    stage.send(record.id, "say: second")
    eventually(lambda: stage.row(record.id).turn >= 2 or stage.check(record.id) is None, SLOW)
    stage.eventually_idle(record.id)
    stage.quit(record.id)
    assert_clean(stage)


def same(before: AgentRecord, after: AgentRecord) -> None:
    """What has to be as it was in a row that was put together again."""
    names = (
        "id", "status", "task", "branch", "worktree_path", "base_commit", "client", "launcher", "client_pid", "tmux_socket",
        "tmux_server", "tmux_pane_id", "tmux_window_id", "tmux_session", "child_session_id", "child_session_file", "depth",
        "turn", "stops", "waiting_for", "parent_session_id", "parent_agent_id", "runtime_dir", "started_at", "journal_offset",
    )  # fmt: skip
    assert {name: getattr(after, name) for name in names} == {name: getattr(before, name) for name in names}


def test_the_window_of_an_ended_agent_is_closed(stage: Orchestra) -> None:
    record = stage.start("fail: 3")
    stage.eventually_status(record.id, AgentStatus.FAILED)
    forget(stage, record.id)
    leases.release(Path(record.worktree_path or ""))
    eventually(lambda: [each for each in found(stage, "window-left") if each.repairable], SLOW)

    mend(stage, "window-left")

    assert stage.panes() == []
    assert_clean(stage)


def test_processes_that_outlive_their_agent_are_ended_and_no_others(stage: Orchestra) -> None:
    record = stage.start("run: (setsid sleep 300 > /dev/null 2>&1 &)")
    stage.eventually_idle(record.id)
    other = stage.start("run: (setsid sleep 301 > /dev/null 2>&1 &)")
    stage.eventually_idle(other.id)
    assert found(stage, "process-left") == []
    stage.quit(record.id)

    finding = eventually(lambda: found(stage, "process-left"), SLOW)[0]
    assert "sleep 300" in finding.what
    mend(stage, "process-left")

    left = [name for name in stage.processes().values() if name.startswith("sleep")]
    assert [name.strip() for name in left] == ["sleep 301"]
    assert_clean(stage)
    stage.stop(other.id)
    mend(stage, "process-left")


def test_a_process_that_became_another_is_not_ended(stage: Orchestra) -> None:
    lease_folder(stage)
    examination = look(stage)
    assert examination.site is not None
    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            ref = processes.identify(bystander.pid)
            finding = Finding(code="process-left", severity=Severity.WARNING, what="", process=ref)
            outcome = repair(examination.site, finding)
            assert isinstance(outcome.error, RefusedError)
            assert bystander.poll() is None
        finally:
            bystander.kill()


# The registry.


def corrupt(path: Path) -> None:
    # A new file: the backup may be a second name of the same one.
    text = path.read_text()
    path.unlink()
    path.write_text(text[: len(text) // 2])


@pytest.mark.parametrize("backup", ["whole", "broken", "absent"])
def test_x21_a_registry_that_cannot_be_read_is_rebuilt_around_live_agents(stage: Orchestra, backup: str) -> None:
    ended = lease_folder(stage)
    first, second = stage.start("say: one"), stage.start("ask: which?")
    crashed = stage.start("crash")
    stage.eventually_status(crashed.id, AgentStatus.CRASHED)
    before = {record.id: stage.eventually_idle(record.id) for record in (first, second)}
    paths = stage.context.paths
    sequence = stage.context.registry.read().sequence
    if backup == "broken":
        corrupt(paths.registry_backup)
    elif backup == "absent":
        paths.registry_backup.unlink()
    corrupt(paths.registry)
    broken = paths.registry.read_bytes()
    with pytest.raises(StateError) as refused:
        stage.listed()
    assert "doctor --repair" in (refused.value.hint or "")

    one(stage, "registry-unreadable")
    mend(stage, "registry-unreadable")

    aside = list(stage.meta.glob("registry.json.broken-*"))
    assert [path.read_bytes() for path in aside] == [broken]
    state = stage.context.registry.read()
    assert set(state.agents) == {first.id, second.id, crashed.id}
    assert state.sequence > sequence
    for agent_id, record in before.items():
        same(record, state.agents[agent_id])
    assert state.agents[crashed.id].status is AgentStatus.CRASHED
    assert ended.is_dir()
    eventually(
        lambda: all(not each.severity.is_fault or each.code == "backup-unreadable" for each in look(stage).findings)
    )
    stage.send(first.id, "say: again")
    stage.eventually_idle(first.id)
    assert "say: again" in stage.messages(first)
    stage.send(second.id, "this one")
    stage.eventually_idle(second.id)
    for record in (first, second):
        stage.quit(record.id)
        stone = stage.context.registry.tombstone(record.id)
        assert stone is not None
        assert stone.status is AgentStatus.DONE
    stage.stop(crashed.id)
    assert look(stage).is_clean


def test_a_registry_that_was_deleted_is_rebuilt(stage: Orchestra) -> None:
    record = stage.start("say: one")
    before = stage.eventually_idle(record.id)
    stage.context.paths.registry.unlink()
    stage.context.paths.registry_backup.unlink(missing_ok=True)
    mend(stage, "registry-missing")
    same(before, stage.row(record.id))
    assert_clean(stage)


def test_agents_that_left_do_not_come_back_with_the_backup(stage: Orchestra) -> None:
    record = stage.start("say: one")
    stage.eventually_idle(record.id)
    stage.quit(record.id)
    backup = stage.context.registry.read_backup()
    assert backup is not None
    assert record.id in backup.agents
    corrupt(stage.context.paths.registry)
    mend(stage, "registry-unreadable")
    assert stage.context.registry.read().agents == {}
    assert_clean(stage)


def test_a_newer_registry_is_never_rebuilt(stage: Orchestra) -> None:
    newer_registry(stage)
    text = stage.context.paths.registry.read_text()
    assert look(stage).site is not None
    assert [finding.code for finding in look(stage).repairable if finding.code.startswith("registry")] == []
    assert stage.context.paths.registry.read_text() == text


_KILLED = """
import os, signal, sys
from pathlib import Path
from side_agents.core.doctor import examine
from side_agents.core.repair import repair
from side_agents.infra import fs
steps = 0
def wrap(name):
    inner = getattr(fs, name)
    def outer(*args, **more):
        global steps
        result = inner(*args, **more)
        steps += 1
        if steps == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(fs, name, outer)
for name in ("replace", "keep_previous", "move", "remove_file", "create_exclusive", "append_line"):
    wrap(name)
for _ in range(3):
    found = examine(Path.cwd(), os.environ)
    for finding in found.repairable:
        repair(found.site, finding)
"""


def test_a_repair_that_is_killed_at_any_step_is_simply_done_again(stage: Orchestra) -> None:
    record = stage.start("say: one")
    stage.eventually_idle(record.id)
    orphan_lease(stage)
    temp_file(stage)
    corrupt(stage.context.paths.registry)
    corrupt(stage.context.paths.registry_backup)
    code, step = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        step += 1
        assert step < 40
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(step)],
            cwd=stage.cwd,
            env=stage.environment,
            check=False,
            capture_output=True,
        )
        code = done.returncode
        assert code in (0, -signal.SIGKILL), done.stderr.decode()
        # Either the broken one or a whole one, with the agent in it.
        assert stage.context.paths.registry.exists()
        site = look(stage).site
        assert site is not None
        assert site.state is None or record.id in site.state.agents
    assert step > 2
    assert_clean(stage)
    assert look(stage).repairable == ()
    stage.eventually_idle(record.id)
    stage.quit(record.id)


# The command.


def answer(cli: CommandLine, *arguments: str) -> tuple[int, dict[str, Any]]:
    ran = cli("doctor", "--json", *arguments)
    return ran.status, json.loads(ran.out)


def test_the_command_tells_mends_and_is_clean_the_second_time(stage: Orchestra, cli: CommandLine) -> None:
    lease_folder(stage)
    open_folder(stage)
    status, found_first = answer(cli)
    assert (status, found_first["ok"]) == (1, False)
    fault = next(each for each in found_first["findings"] if each["code"] == "permissions")
    assert (fault["severity"], fault["repairable"]) == ("warning", True)

    status, mended = answer(cli, "--repair", "--yes")
    assert (status, mended["ok"]) == (0, True)
    assert [(each["code"], each["result"]) for each in mended["repaired"]] == [("permissions", "done")]

    status, again = answer(cli, "--repair", "--yes")
    assert (status, again["ok"], again.get("repaired")) == (0, True, None)


def test_without_a_yes_nothing_is_done_but_shown(stage: Orchestra, cli: CommandLine) -> None:
    lease_folder(stage)
    open_folder(stage)
    ran = cli("doctor", "--repair")
    assert ran.status == 2
    assert "take the permissions of others" in ran.out
    assert stage.meta.stat().st_mode & 0o077
    assert cli("doctor", "--json", "--repair").status == 2
    assert cli("doctor", "--yes").status == 2
    assert stage.meta.stat().st_mode & 0o077


def test_what_ends_something_is_asked_for_by_itself(
    stage: Orchestra, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = stage.start("run: (setsid sleep 302 > /dev/null 2>&1 &)")
    stage.eventually_idle(record.id)
    stage.quit(record.id)
    open_folder(stage)
    eventually(lambda: found(stage, "process-left"), SLOW)
    asked: list[str] = []

    def confirm(question: str, **_more: Any) -> bool:
        asked.append(question)
        return not question.startswith("End")

    monkeypatch.setattr("side_agents.cli.doctor._can_ask", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    ran = cli("doctor", "--repair")

    assert len(asked) == 2
    assert asked[1].startswith("End say") or asked[1].startswith("End run")
    assert ran.status == 1
    assert found(stage, "permissions") == []
    assert found(stage, "process-left") != []
    mend(stage, "process-left")


def test_a_nested_agent_is_put_back_with_its_parent(stage: Orchestra) -> None:
    parent = stage.start("say: parent")
    stage.eventually_idle(parent.id)
    child = stage.inside(parent).start("say: child")
    before = {record.id: stage.eventually_idle(record.id) for record in (parent, child)}
    stage.context.paths.registry_backup.unlink()
    corrupt(stage.context.paths.registry)
    mend(stage, "registry-unreadable")
    for agent_id, record in before.items():
        same(record, stage.row(agent_id))
    assert stage.row(child.id).parent_worktree_path == before[child.id].parent_worktree_path


def test_with_an_unreadable_registry_the_command_mends_that_first_and_then_the_rest(
    stage: Orchestra, cli: CommandLine
) -> None:
    orphan_lease(stage)
    corrupt(stage.context.paths.registry)
    ran = cli("doctor")
    assert ran.status == 1
    assert "doctor --repair" in ran.out
    leases.release(stage.slot(1), "ghost")
    leases.take(stage.slot(1), Lease(agent_id=None, pid=dead_pid()))

    ran = cli("doctor", "--repair", "--yes")

    assert ran.status == 0, ran.out + ran.err
    assert leases.read(stage.slot(1)) is None
    assert "All is well." in ran.out


def test_the_disk_bill_is_exact_when_asked_for(stage: Orchestra, cli: CommandLine) -> None:
    slot = lease_folder(stage)
    (slot / "ignored").mkdir()
    (slot / "ignored" / "big").write_bytes(os.urandom(3_000_000))
    ran = cli("doctor", "--disk")
    assert ran.status == 0, ran.out
    assert f"{slot.name} 3." in ran.out
