"""``side-agents clean`` as a whole: what it offers, what it does, and bringing that back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from discard_support import STAMP, Pool, in_a_process, make_pool
from orchestra import SLOW, Orchestra, orchestra

from side_agents.core import clean as cleaning
from side_agents.core import discard, leases, slot_proof, trash
from side_agents.core.clean import CleanRequest
from side_agents.core.undo import undo
from side_agents.core.verdicts import Kind, Target
from side_agents.errors import NotFoundError, RefusedError, SideAgentsError
from side_agents.infra import clock
from side_agents.models import AgentStatus, EndedBy, Lease
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually
from tests.unit.cli_support import CommandLine


@pytest.fixture
def pool(repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    # No tmux server of this machine's user is to be looked at.
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    return make_pool(repo)


@pytest.fixture
def cli(pool: Pool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(pool.repo.path)
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def items(cli: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    ran = cli("clean", "--json", *arguments)
    answer = json.loads(ran.out)
    found: list[dict[str, Any]] = answer["items"]
    return found


def shown(found: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["name"], item["result"]) for item in found}


def codes(found: list[dict[str, Any]], name: str) -> list[str]:
    return [reason["code"] for item in found if item["name"] == name for reason in item.get("reasons", ())]


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def survey(pool: Pool, **request: Any) -> cleaning.Plan:
    return cleaning.survey(pool.context, CleanRequest(**request))


# Leases.


def test_fo1_fo2_worktrees_without_a_lease_or_of_other_names_are_no_orphans(pool: Pool, cli: CommandLine) -> None:
    other = pool.repo.path.parent / "hotfix"
    pool.repo.git("worktree", "add", "--quiet", "-b", "hotfix", str(other))
    leases.take(other, Lease(agent_id="ghost"))
    assert items(cli, "--dry-run") == []


def test_fo3_the_lease_of_a_tracked_agent_is_no_orphan(pool: Pool, cli: CommandLine) -> None:
    pool.put("a", AgentStatus.FAILED)
    leases.take(pool.path, Lease(agent_id="a"))
    assert items(cli, "--dry-run", "--only", "lease") == []


def test_fo4_a_lease_with_a_live_process_is_blocked(pool: Pool, cli: CommandLine) -> None:
    leases.take(pool.path, Lease(agent_id="ghost", pid=os.getpid()))
    found = items(cli, "--yes")
    assert shown(found) == {("lease", pool.path.name, "stays")}
    assert codes(found, pool.path.name) == ["pid-alive"]
    assert leases.read(pool.path) is not None


def test_fo4_a_process_of_somebody_else_is_alive(pool: Pool, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPERM means alive."""
    from side_agents.infra import processes

    def kill(pid: int, number: int) -> None:
        raise PermissionError

    leases.take(pool.path, Lease(agent_id="ghost", pid=dead_pid()))
    monkeypatch.setattr(processes.os, "kill", kill)
    assert codes(items(cli, "--dry-run"), pool.path.name) == ["pid-alive"]


def test_fo5_an_unreadable_lease_is_reclaimable(pool: Pool, cli: CommandLine) -> None:
    (pool.path / ".pi").mkdir()
    (pool.path / ".pi/active.lock").write_text("{half")
    assert shown(items(cli, "--yes")) == {("lease", pool.path.name, "done")}
    assert leases.read(pool.path) is None
    assert pool.slot.status() == ""


def test_an_orphan_lease_goes_and_nothing_else(pool: Pool, cli: CommandLine) -> None:
    pool.slot.write("unsaved.txt")
    lock = pool.path / ".pi/active.lock"
    lock.parent.mkdir()
    lock.write_text(json.dumps({"agentId": "ghost", "pid": str(dead_pid()), "tmuxWindowId": "@3"}))
    before = pool.refs()
    assert shown(items(cli, "--yes")) == {("lease", pool.path.name, "done")}
    assert not lock.exists()
    assert (pool.path / "unsaved.txt").exists()
    assert pool.refs() == before


def test_a_lease_taken_anew_after_the_question_stays(pool: Pool) -> None:
    """The gap of reference/side-agents 4.3: verify again before the file is removed."""
    leases.take(pool.path, Lease(agent_id="ghost", started_at="2026-03-03T02:58:00.000Z"))
    plan = survey(pool)
    leases.release(pool.path)
    leases.take(pool.path, Lease(agent_id="ghost", started_at="2026-03-03T03:00:00.000Z"))
    (outcome,) = cleaning.carry_out(pool.context, plan.safe)
    assert isinstance(outcome.error, RefusedError)
    assert leases.read(pool.path) is not None


def test_a_lease_whose_agent_appears_on_the_list_meanwhile_stays(pool: Pool) -> None:
    leases.take(pool.path, Lease(agent_id="ghost"))
    plan = survey(pool)
    pool.put("ghost", AgentStatus.RUNNING)
    (outcome,) = cleaning.carry_out(pool.context, plan.safe)
    assert "ghost" in str(outcome.error)
    assert leases.read(pool.path) is not None


def test_a_lease_with_a_process_in_its_slot_is_blocked(pool: Pool) -> None:
    leases.take(pool.path, Lease(agent_id="ghost"))
    with subprocess.Popen(["cat"], cwd=pool.path, stdin=subprocess.PIPE) as process:
        (verdict,) = survey(pool).refused
        assert [reason.code for reason in verdict.reasons] == ["in-use"]
        process.communicate()
    assert survey(pool).safe


# Records.


def test_own_failed_and_crashed_agents_are_cleared_and_their_work_is_kept(pool: Pool, cli: CommandLine) -> None:
    pool.slot.write("unsaved.txt")
    pool.put("a", AgentStatus.CRASHED, branch="side-agent/a", worktree_path=str(pool.path), launcher=None)
    pool.put("b", AgentStatus.FAILED)
    pool.put("c", AgentStatus.FAILED, parent_agent_id="d")
    pool.put("d", AgentStatus.RUNNING)
    leases.take(pool.path, Lease(agent_id="a"))
    found = items(cli, "--yes", "--only", "record")
    assert shown(found) == {("record", "a", "done"), ("record", "b", "done")}
    assert "1 uncommitted file" in found[0]["keeps"]
    assert pool.context.registry.read().ids == {"c", "d"}
    assert leases.read(pool.path) is None
    assert (pool.path / "unsaved.txt").exists()
    assert {stone.ended_by for stone in pool.context.registry.history()} == {EndedBy.CLEARED}


def test_all_includes_those_of_other_parents_and_orphans_belong_to_main(pool: Pool, cli: CommandLine) -> None:
    pool.put("kid", AgentStatus.FAILED, parent_agent_id="boss")
    pool.put("boss", AgentStatus.RUNNING)
    pool.put("orphan", AgentStatus.FAILED, parent_agent_id="gone")
    assert shown(items(cli, "--dry-run")) == {("record", "orphan", "would-go")}
    assert {name for _, name, _ in shown(items(cli, "--dry-run", "--all"))} == {"orphan", "kid"}


def test_an_agent_clears_its_own_children_only(pool: Pool, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PI_SIDE_AGENT_ID", "boss")
    pool.put("kid", AgentStatus.FAILED, parent_agent_id="boss")
    pool.put("mains", AgentStatus.FAILED)
    assert shown(items(cli, "--dry-run")) == {("record", "kid", "would-go")}


def test_x20_another_main_session_does_not_clear_mine(
    pool: Pool, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDE_AGENTS_SESSION", "/mine.jsonl")
    pool.put("mine", AgentStatus.FAILED, parent_session_id="/mine.jsonl")
    pool.put("theirs", AgentStatus.FAILED, parent_session_id="/theirs.jsonl")
    assert shown(items(cli, "--dry-run")) == {("record", "mine", "would-go")}


def test_named_agents_only(pool: Pool, cli: CommandLine) -> None:
    pool.put("a", AgentStatus.FAILED)
    pool.put("b", AgentStatus.FAILED)
    pool.put("busy", AgentStatus.RUNNING)
    assert shown(items(cli, "--yes", "b", "busy")) == {("record", "b", "done"), ("record", "busy", "stays")}
    assert pool.context.registry.read().ids == {"a", "busy"}
    assert cli("clean", "--yes", "nobody").status == 3


def test_an_agent_that_was_started_anew_meanwhile_stays(pool: Pool) -> None:
    pool.put("a", AgentStatus.FAILED)
    plan = survey(pool)
    pool.put("a", AgentStatus.FAILED, started_at="2026-03-04T00:00:00.000Z")
    (outcome,) = cleaning.carry_out(pool.context, plan.safe)
    assert isinstance(outcome.error, RefusedError)
    assert pool.context.registry.read().ids == {"a"}


def test_a_crashed_agent_whose_process_still_runs_stays(pool: Pool) -> None:
    from side_agents.infra import processes

    pool.put("a", AgentStatus.CRASHED, launcher=processes.current())
    (verdict,) = survey(pool).refused
    assert [reason.code for reason in verdict.reasons] == ["alive"]
    assert "side-agents stop a" in verdict.reasons[0].way_out


def test_corrupt_state_is_refused(pool: Pool, cli: CommandLine) -> None:
    pool.context.paths.registry.write_text("{")
    assert cli("clean", "--yes").status == 7
    assert pool.context.paths.registry.read_text() == "{"


# Slots, branches, trash.


def test_idle_slots_stay_unless_a_number_is_set(pool: Pool, cli: CommandLine) -> None:
    pool.add(2, "side-agent/b")
    pool.add(3, "side-agent/c").write("unsaved.txt")
    pool.add(4, "side-agent/d")
    assert items(cli, "--dry-run", "--only", "slot") == []
    found = items(cli, "--dry-run", "--only", "slot", "--keep-slots", "1")
    assert [item["result"] for item in found] == ["would-go", "stays", "would-go"]
    config = pool.context.paths.project_config
    config.write_text("slots_kept = 3\n")
    assert shown(items(cli, "--yes", "--only", "slot")) == {("slot", pool.place(4).name, "done")}
    assert not pool.place(4).exists()
    config.write_text("slots_kept = -1\n")
    assert cli("clean").status == 2


def test_leased_and_claimed_slots_do_not_count(pool: Pool) -> None:
    pool.add(2, "side-agent/b")
    pool.add(3, "side-agent/c")
    leases.take(pool.place(2), Lease(agent_id="b"))
    pool.put("b", AgentStatus.RUNNING)
    pool.put("c", AgentStatus.RUNNING, worktree_path=str(pool.place(3)))
    plan = survey(pool, slots_kept=0, kinds=[Kind.SLOT])
    assert [verdict.target.path for verdict in plan.verdicts] == [pool.path]


def test_a_hand_deleted_slot_is_offered_and_its_number_is_free_again(pool: Pool, cli: CommandLine) -> None:
    """Field report 72."""
    shutil.rmtree(pool.path)
    assert shown(items(cli, "--yes", "--only", "slot")) == {("slot", pool.path.name, "done")}
    assert pool.path.name not in pool.repo.git("worktree", "list")
    pool.repo.git("worktree", "add", "--quiet", str(pool.path), "side-agent/a")


def test_merged_branches_are_offered_and_unmerged_ones_explained(pool: Pool, cli: CommandLine) -> None:
    pool.repo.git("branch", "side-agent/done")
    pool.repo.git("branch", "side-agent/work", "side-agent/a")
    pool.repo.git("branch", "topic")
    found = items(cli, "--yes")
    assert shown(found) == {("branch", "side-agent/done", "done"), ("branch", "side-agent/work", "stays")}
    assert codes(found, "side-agent/work") == ["unmerged"]
    assert "git branch -D" in found[1]["reasons"][0]["wayOut"]
    assert "refs/heads/topic" in pool.refs()


def test_the_dry_run_decides_like_the_real_one_and_changes_nothing(pool: Pool, cli: CommandLine) -> None:
    """Field report 15."""
    pool.put("a", AgentStatus.CRASHED)
    pool.add(2, "side-agent/b")
    pool.add(3, "side-agent/c").write("unsaved.txt")
    leases.take(pool.add(4, "side-agent/d").path, Lease(agent_id="ghost"))
    pool.repo.git("branch", "side-agent/done")
    before = pool.fingerprint()
    planned = shown(items(cli, "--dry-run", "--keep-slots", "0"))
    assert pool.fingerprint() == before
    done = shown(items(cli, "--yes", "--keep-slots", "0"))
    assert {(kind, name, result.replace("would-go", "done")) for kind, name, result in planned} == done
    assert {result for *_, result in done} == {"done", "stays"}


def test_undo_brings_the_last_run_back_and_then_the_one_before(pool: Pool, cli: CommandLine) -> None:
    pool.add(2, "side-agent/b")
    pool.repo.git("branch", "side-agent/done")
    before = pool.repo.git("for-each-ref", "refs/heads")
    cli("clean", "--yes", "--only", "branch")
    items(cli, "--yes", "--keep-slots", "0", "--only", "slot")
    assert not pool.path.exists()
    listed = json.loads(cli("clean", "--trash", "--json").out)["runs"]
    assert [len(run["names"]) for run in listed] == [2, 1]
    assert listed[0]["bytes"] > 0
    ran = cli("clean", "--undo")
    assert ran.status == 0
    assert "on side-agent/a" in ran.out
    assert pool.slot.status() == ""
    assert pool.slot.git("branch", "--show-current") == "side-agent/a"
    assert cli("clean", "--undo", listed[1]["stamp"]).status == 0
    assert pool.repo.git("for-each-ref", "refs/heads") == before
    assert pool.repo.git("worktree", "list").count("\n") == 2
    assert cli("clean", "--undo").status == 3
    assert not pool.trash.exists()


def test_undo_keeps_ignored_files_and_sparse_patterns(pool: Pool, cli: CommandLine) -> None:
    pool.ignore("node_modules/\n")
    pool.slot.write("node_modules/a/index.js", "made")
    pool.slot.git("sparse-checkout", "set", "--cone", "node_modules")
    assert not (pool.path / "src").exists()
    cli("clean", "--yes", "--keep-slots", "0", "--only", "slot")
    cli("clean", "--undo")
    assert (pool.path / "node_modules/a/index.js").read_text() == "made"
    assert not (pool.path / "src").exists()
    assert pool.slot.status() == ""


@pytest.mark.parametrize("has_moved", [True, False], ids=["branch moved on", "branch checked out there"])
def test_undo_finds_another_place_when_the_old_one_is_taken(pool: Pool, cli: CommandLine, has_moved: bool) -> None:
    head = pool.slot.head()
    cli("clean", "--yes", "--keep-slots", "0", "--only", "slot")
    taken = Repository(pool.path)
    pool.repo.git("worktree", "add", "--quiet", str(taken.path), "side-agent/a")
    if has_moved:
        taken.commit("newer.txt")
    ran = cli("clean", "--undo")
    assert ran.status == 0
    assert "detached" in ran.out
    back = Repository(pool.place(2))
    assert (back.head(), back.status()) == (head, "")
    assert taken.status() == ""
    assert taken.git("branch", "--show-current") == "side-agent/a"
    pool.repo.git("worktree", "prune")
    assert pool.repo.git("worktree", "list").count("\n") == 2


def test_undo_does_not_move_a_branch_that_exists_again(pool: Pool, cli: CommandLine) -> None:
    pool.repo.git("branch", "side-agent/done")
    old = pool.repo.head()
    cli("clean", "--yes", "--only", "branch")
    pool.repo.git("branch", "side-agent/done", "side-agent/a")
    ran = cli("clean", "--undo")
    assert ran.status == 6
    assert "refs/side-agents/rescue/" in ran.err
    assert pool.repo.git("rev-parse", "side-agent/done") == pool.slot.head()
    assert old in pool.refs()


def test_commits_that_only_a_reflog_knew_get_a_rescue_ref(pool: Pool) -> None:
    lost = pool.slot.commit("amended.txt")
    pool.slot.git("reset", "--quiet", "--hard", "HEAD~1")
    done = pool.discard()
    kept = pool.repo.git("rev-list", f"refs/side-agents/rescue/{done.entry}/reflog")
    assert lost in kept.split()


def test_emptying_the_trash_keeps_what_only_rescue_refs_hold(pool: Pool, cli: CommandLine) -> None:
    lost = pool.slot.commit("amended.txt")
    pool.slot.git("reset", "--quiet", "--hard", "HEAD~1")
    (pool.path / ".pi").mkdir()
    pool.discard(stamp=clock.stamp())
    before = cli("clean", "--empty-trash", "--json")
    assert before.status == 2, "without a question it needs --yes"
    assert pool.trash.exists()
    assert cli("clean", "--empty-trash", "--yes").status == 0
    assert not pool.trash.exists()
    assert not (pool.repo.path / ".git/side-agents-trash").exists()
    left = [line for line in pool.refs().splitlines() if "refs/side-agents" in line]
    assert len(left) == 1
    assert lost in pool.repo.git("rev-list", left[0].split()[0])
    assert pool.slot.path.exists() is False


def test_trash_that_somebody_worked_in_is_not_emptied(pool: Pool, cli: CommandLine) -> None:
    done = pool.discard()
    (pool.trash / str(done.entry) / "slot" / "late.txt").write_text("late")
    found = items(cli, "--empty-trash", "--yes")
    assert codes(found, str(done.entry)) == ["dirty"]
    assert (pool.trash / str(done.entry) / "slot" / "late.txt").exists()


def test_what_is_no_entry_of_ours_in_the_trash_is_left_alone(pool: Pool, cli: CommandLine) -> None:
    pool.discard()
    mine = pool.trash / "mine"
    mine.mkdir()
    (mine / "file").touch()
    (pool.trash / "link").symlink_to(pool.repo.path)
    assert cli("clean", "--empty-trash", "--yes").status == 0
    assert (mine / "file").exists()
    assert (pool.repo.path / "README.md").exists()


# Asking.


def test_nothing_to_clean_is_no_question(pool: Pool, cli: CommandLine) -> None:
    ran = cli("clean")
    assert (ran.status, ran.out) == (0, "There is nothing to clean.\n")
    assert json.loads(cli("clean", "--json").out) == {"ok": True, "dryRun": False, "items": [], "notes": []}


def test_without_a_terminal_a_yes_is_needed(pool: Pool, cli: CommandLine) -> None:
    pool.repo.git("branch", "side-agent/done")
    before = pool.fingerprint()
    ran = cli("clean")
    assert ran.status == 2
    assert "--yes" in ran.err
    assert cli("clean", "--json").status == 2
    assert pool.fingerprint() == before


def test_each_kind_is_a_question_of_its_own(pool: Pool, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    import click

    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return "branch" in question or "side-agent/done" in question

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr("side_agents.cli.clean._can_ask", lambda: True)
    pool.put("a", AgentStatus.FAILED)
    pool.repo.git("branch", "side-agent/done")
    ran = cli("clean")
    assert len(asked) == 2
    assert "a" in asked[0]
    assert pool.context.registry.read().ids == {"a"}
    assert "refs/heads/side-agent/done" not in pool.refs()
    assert "--undo" in ran.out


def test_force_skips_the_question_and_never_the_proof(pool: Pool, cli: CommandLine) -> None:
    pool.slot.write("unsaved.txt")
    found = items(cli, "--force", "--keep-slots", "0")
    assert shown(found) == {("slot", pool.path.name, "stays")}
    assert (pool.path / "unsaved.txt").exists()


def test_a_refusal_names_the_reason_and_the_way_out_in_text(pool: Pool, cli: CommandLine) -> None:
    pool.slot.write("unsaved.txt")
    ran = cli("clean", "--dry-run", "--keep-slots", "0")
    assert "stays" in ran.out
    assert "uncommitted or untracked files: unsaved.txt" in ran.out
    assert f"git -C {pool.path} status" in ran.out


def test_the_modes_exclude_each_other(pool: Pool, cli: CommandLine) -> None:
    assert cli("clean", "--trash", "--empty-trash").status == 2


# At once, and killed.


def test_two_cleans_at_once_do_each_thing_once(pool: Pool) -> None:
    for number, name in enumerate("bcd", start=2):
        pool.add(number, f"side-agent/{name}")
    plan = survey(pool, slots_kept=0, kinds=[Kind.SLOT])
    outcomes: list[cleaning.Outcome] = []
    context = pool.context

    def run() -> None:
        outcomes.extend(cleaning.carry_out(context, plan.safe))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done = [outcome.target.name for outcome in outcomes if outcome.discarded is not None]
    assert sorted(done) == sorted(verdict.target.name for verdict in plan.safe)
    assert all(isinstance(outcome.error, SideAgentsError) for outcome in outcomes if outcome.discarded is None)
    assert pool.repo.git("worktree", "list").count("\n") == 0


def steps(pool: Pool, action: str, name: str = "") -> Iterator[int]:
    """Numbers of steps, until one run came to its end; the body repairs the pool."""
    for step in range(1, 40):
        status = in_a_process(pool, action, name, die_at=step)
        yield step
        if status == 0:
            return
    raise AssertionError("it never came to an end")


def assert_whole(pool: Pool, head: str) -> None:
    assert (pool.slot.head(), pool.slot.status()) == (head, "")
    assert pool.slot.git("branch", "--show-current") == "side-agent/a"
    assert (pool.path / "ignored/made.pyc").read_text() == "made"
    assert pool.repo.git("worktree", "list").count("\n") == 1
    pool.repo.git("worktree", "prune")
    assert pool.admin.exists()


def undo_everything(pool: Pool) -> None:
    while trash.entries(pool.context):
        for _, _, error in undo(pool.context, None):
            assert error is None, error


def prepare(pool: Pool) -> str:
    pool.slot.write("ignored/made.pyc", "made")
    return pool.slot.head()


def test_a_discard_killed_at_any_step_can_be_undone(pool: Pool) -> None:
    head, count = prepare(pool), 0
    for count in steps(pool, "slot", str(pool.path)):  # noqa: B007 - counted
        undo_everything(pool)
        assert_whole(pool, head)
        held = leases.read(pool.path)
        assert held is None or slot_proof.is_left_over(held)
        assert not pool.trash.exists()
    assert count > 5


def test_a_discard_killed_at_any_step_can_be_repeated(pool: Pool) -> None:
    head = prepare(pool)
    for _ in steps(pool, "slot", str(pool.path)):
        if pool.path.exists() or pool.admin.exists():
            pool.discard(stamp=clock.stamp())
        assert not pool.path.exists()
        assert not pool.admin.exists()
        undo_everything(pool)
        assert_whole(pool, head)


def test_clean_finds_again_what_a_killed_discard_left(pool: Pool) -> None:
    prepare(pool)
    for _ in steps(pool, "slot", str(pool.path)):
        plan = survey(pool, slots_kept=0)
        outcomes = list(cleaning.carry_out(pool.context, plan.safe))
        assert not [outcome.error for outcome in outcomes if outcome.target.kind is Kind.SLOT and outcome.error]
        assert not pool.path.exists()
        assert not pool.admin.exists()
        undo_everything(pool)


def test_an_undo_killed_at_any_step_can_be_repeated(pool: Pool) -> None:
    head = prepare(pool)
    pool.discard()
    for _ in steps(pool, "undo"):
        undo_everything(pool)
        assert_whole(pool, head)
        discard.tidy(pool.context)
        assert not pool.trash.exists()
        pool.discard()


def test_a_branch_discard_killed_at_any_step_can_be_undone(pool: Pool) -> None:
    pool.repo.git("branch", "side-agent/done")
    before = pool.repo.git("for-each-ref", "refs/heads")
    for _ in steps(pool, "branch", "side-agent/done"):
        undo_everything(pool)
        assert pool.repo.git("for-each-ref", "refs/heads") == before
        assert not pool.trash.exists()


def test_a_record_cleared_by_a_run_that_was_killed_leaves_nothing_that_clean_does_not_find(pool: Pool) -> None:
    crashed_with_lease(pool)
    for _ in steps(pool, "record", "a"):
        cleaned = [outcome for _ in range(2) for outcome in cleaning.carry_out(pool.context, survey(pool).safe)]
        assert not [outcome.error for outcome in cleaned if outcome.error]
        assert pool.context.registry.read().ids == set()
        assert leases.read(pool.path) is None
        assert [stone.id for stone in pool.context.registry.history()][-1] == "a"
        assert pool.slot.status() == ""
        crashed_with_lease(pool)


def crashed_with_lease(pool: Pool) -> None:
    pool.put("a", AgentStatus.CRASHED, branch="side-agent/a", worktree_path=str(pool.path))
    leases.take(pool.path, Lease(agent_id="a", pid=dead_pid()))


def test_emptying_killed_at_any_step_never_leaves_half_of_something_to_bring_back(pool: Pool) -> None:
    head = prepare(pool)
    pool.discard(stamp=clock.stamp())
    for _ in steps(pool, "empty"):
        for entry in trash.entries(pool.context):
            target = Target(Kind.TRASH, entry.name)
            discard.discard(pool.context, target, stamp=STAMP)
        assert not trash.entries(pool.context)
        discard.tidy(pool.context)
        assert not pool.trash.exists()
        assert not (pool.repo.path / ".git/side-agents-trash").exists()
        assert pool.repo.git("rev-parse", "side-agent/a") == head
        pool.repo.git("worktree", "add", "--quiet", str(pool.path), "side-agent/a")
        pool.discard(stamp=clock.stamp())


def test_an_unknown_stamp_is_refused(pool: Pool) -> None:
    with pytest.raises(NotFoundError):
        undo(pool.context, "1999")


# With tmux.


def test_a_failed_agent_is_cleared_with_its_window(stage: Orchestra) -> None:
    record = stage.start("fail: 3")
    stage.eventually_status(record.id, AgentStatus.FAILED)
    assert [pane.agent_tag for pane in stage.panes()] == [record.id]
    plan = cleaning.survey(stage.context, CleanRequest())
    (verdict,) = plan.safe
    assert (verdict.target.kind, verdict.target.name) == (Kind.RECORD, record.id)
    (outcome,) = cleaning.carry_out(stage.context, plan.safe)
    assert outcome.error is None
    stage.assert_quiet()
    stone = stage.context.registry.tombstone(record.id)
    assert stone is not None
    assert stone.ended_by is EndedBy.CLEARED
    assert stage.branches() == {record.id}


def test_leftover_windows_of_ended_agents_are_closed_by_tag_and_nobody_elses(stage: Orchestra) -> None:
    stage.configure()
    config = Path(stage.environment["XDG_CONFIG_HOME"], "side-agents", "config.toml")
    config.write_text(config.read_text().replace('window_close = "close"', 'window_close = "key"'))
    ended, busy = stage.start("quit"), stage.start("say: still here")
    stage.eventually_status(ended.id, AgentStatus.DONE)
    stage.eventually_idle(busy.id)
    other = stage.server.tmux.new_window(
        session_id=stage.pane.session_id, name="x", cwd=stage.repo.path, argv=("cat", "-u"), tag=ended.id
    )
    plan = cleaning.survey(stage.context, CleanRequest(kinds=[Kind.WINDOW]))
    assert [verdict.target.token for verdict in plan.verdicts] == [ended.id]
    assert plan.safe, plan.refused
    (outcome,) = cleaning.carry_out(stage.context, plan.safe)
    assert outcome.error is None
    eventually(lambda: {pane.pane_id for pane in stage.panes()} == {busy.tmux_pane_id, other.pane_id}, SLOW)
    stage.stop(busy.id)
    stage.server.tmux.kill_window(other.window_id, expect_pane=other.pane_id, expect_tag=ended.id)


def test_an_orphan_lease_with_an_open_window_is_blocked_until_it_closes(stage: Orchestra) -> None:
    first = stage.start("do it", client="fake")
    stage.stop(first.id)
    window = stage.server.tmux.new_window(
        session_id=stage.pane.session_id, name="x", cwd=stage.repo.path, argv=("cat", "-u"), tag="ghost"
    )
    slot = stage.slot(1)
    leases.take(slot, Lease(agent_id="ghost", tmux_window_id=window.window_id, started_at=clock.iso()))
    plan = cleaning.survey(stage.context, CleanRequest())
    assert [
        [reason.code for reason in verdict.reasons] for verdict in plan.refused if verdict.target.kind is Kind.LEASE
    ] == [["window"]]
    stage.server.tmux.kill_window(window.window_id, expect_pane=window.pane_id, expect_tag="ghost")
    plan = cleaning.survey(stage.context, CleanRequest(kinds=[Kind.LEASE]))
    assert plan.safe
    stage.server.freeze()
    try:
        frozen = cleaning.survey(stage.context, CleanRequest(kinds=[Kind.LEASE]))
    finally:
        stage.server.thaw()
    assert [reason.code for verdict in frozen.refused for reason in verdict.reasons] == ["tmux-silent"]


def test_a_window_id_of_an_older_server_does_not_block(stage: Orchestra) -> None:
    first = stage.start("do it", client="fake")
    stage.stop(first.id)
    long_ago = "2020-01-01T00:00:00.000Z"
    leases.take(stage.slot(1), Lease(agent_id="ghost", tmux_window_id=stage.pane.window_id, started_at=long_ago))
    assert cleaning.survey(stage.context, CleanRequest(kinds=[Kind.LEASE])).safe
    leases.release(stage.slot(1))
    leases.take(stage.slot(1), Lease(agent_id="ghost", tmux_window_id=stage.pane.window_id, started_at=clock.iso()))
    assert not cleaning.survey(stage.context, CleanRequest(kinds=[Kind.LEASE])).safe
