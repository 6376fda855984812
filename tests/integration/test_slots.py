"""The pool of worktrees as a whole start uses it: which slot, in what state, and what survives."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestra import Orchestra, orchestra

from side_agents.core import launcher, slots
from side_agents.errors import ConflictError, StartFailedError
from side_agents.infra import git_worktrees
from side_agents.models import AgentRecord, AgentStatus
from tests.support.repositories import Repository, copy_repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def fake(stage: Orchestra, **more: Any) -> AgentRecord:
    return stage.start("do it", client="fake", **more)


def used(stage: Orchestra, count: int = 1) -> list[Repository]:
    """Slots whose agents have ended."""
    records = [fake(stage) for _ in range(count)]
    for record in records:
        stage.stop(record.id)
    return [stage.worktree(record) for record in records]


def foreign_lease(slot: Path, text: str = '{"agentId": "ghost"}') -> Path:
    lock = slot / ".pi/active.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(text)
    return lock


def test_fa1_fa3_fa8_free_slots_are_used_in_order_then_new_ones_made(stage: Orchestra) -> None:
    used(stage)
    paths = [fake(stage).worktree_path for _ in range(4)]
    assert paths == [str(stage.slot(number)) for number in (1, 2, 3, 4)]
    stage.assert_sound()


def test_fa4_fa7_locked_and_dirty_slots_are_passed_over_with_a_warning_and_left_alone(stage: Orchestra) -> None:
    locked, dirty = used(stage, 2)
    lock = foreign_lease(locked.path)
    dirty.write("work.txt", "unsaved")
    record = fake(stage)
    assert record.worktree_path == str(stage.slot(3))
    assert "ghost, which is not tracked" in record.warnings[0]
    assert "0002 was passed over" in record.warnings[1]
    assert lock.read_text() == '{"agentId": "ghost"}'
    assert (dirty.path / "work.txt").read_text() == "unsaved"


def test_b1_slots_with_work_that_git_does_not_report_are_passed_over_with_the_reason(stage: Orchestra) -> None:
    ignored, overlooked, detached = used(stage, 3)
    with (stage.repo.path / ".git/info/exclude").open("a") as exclude:
        exclude.write("/.env\n")
    ignored.write(".env", "KEY=precious\n")
    overlooked.git("update-index", "--assume-unchanged", "README.md")
    overlooked.write("README.md", "precious\n")
    detached.git("checkout", "--quiet", "--detach")
    lost = detached.commit("work.txt")
    stage.repo.write(".env", "KEY=example\n")
    stage.repo.git("add", "--force", ".env")
    stage.repo.git("commit", "--quiet", "-m", "an example")
    record = fake(stage)
    assert record.worktree_path == str(detached.path)
    first, second, third = record.warnings
    assert "0001 was passed over" in first
    assert "has ignored files that the new branch tracks: .env" in first
    assert "0002 was passed over" in second
    assert "has changes that git was told to overlook: README.md" in second
    assert f"{git_worktrees.RESCUE_REFS}{lost}" in third
    assert (ignored.path / ".env").read_text() == "KEY=precious\n"
    assert (overlooked.path / "README.md").read_text() == "precious\n"
    assert [lease.agent_id for lease in stage.leases().values()] == [record.id]


def test_fa5_a_failed_start_frees_only_its_own_slot(stage: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("no luck")

    first = fake(stage)
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "write", fail)
        with pytest.raises(StartFailedError, match="RuntimeError: no luck"):
            fake(stage)
    assert [lease.agent_id for lease in stage.leases().values()] == [first.id]
    assert stage.branches() == {first.id}
    assert fake(stage).worktree_path == str(stage.slot(2))
    stage.assert_sound()


def test_fa6_an_agent_that_failed_keeps_its_slot_until_it_is_cleared(stage: Orchestra) -> None:
    record = stage.start("fail: 3")
    stage.eventually_status(record.id, AgentStatus.FAILED)
    assert fake(stage).worktree_path == str(stage.slot(2))
    stage.stop(record.id)
    assert fake(stage).worktree_path == str(stage.slot(1))


def test_fa9_slots_of_a_neighbour_do_not_count(stage: Orchestra, template_repository: Path) -> None:
    for name in (
        "project2-agent-worktree-0007",
        "other-agent-worktree-0009",
        "project-agent-worktree-7",
        "project-agent",
    ):
        (stage.repo.path.parent / name).mkdir()
    assert fake(stage).worktree_path == str(stage.slot(1))


@pytest.mark.parametrize("lease", ['{"agentId": "ghost"}', "", "not json", "[]", '{"agentId": 7}'])
def test_i3_a_lease_of_whoever_keeps_a_slot(stage: Orchestra, lease: str) -> None:
    [slot] = used(stage)
    slot.git("checkout", "--quiet", "-b", "side-agent/old")
    lock = foreign_lease(slot.path, lease)
    record = fake(stage)
    assert record.worktree_path == str(stage.slot(2))
    assert "not tracked" in record.warnings[0]
    assert lock.read_text() == lease
    assert slot.git("branch", "--show-current") == "side-agent/old"


def test_i4_a_plain_folder_is_never_used_and_what_is_beside_it_is_reused(stage: Orchestra) -> None:
    lock = foreign_lease(stage.slot(1))
    first = stage.start()
    assert first.worktree_path == str(stage.slot(2))
    assert "ghost" in first.warnings[0]
    assert stage.worktree(first).status() == ""
    stage.eventually_idle(first.id)
    stage.quit(first.id)
    lock.unlink()
    assert fake(stage).worktree_path == str(stage.slot(2))
    assert stage.slot(1).is_dir()


def test_an_empty_folder_is_taken_and_other_things_are_not(stage: Orchestra, tmp_path: Path) -> None:
    stage.slot(1).mkdir()
    stage.slot(2).write_text("a file")
    stage.slot(3).symlink_to(tmp_path / "nowhere")
    copy_repository(stage.repo.path, stage.slot(4))
    records = [fake(stage), fake(stage)]
    assert [record.worktree_path for record in records] == [str(stage.slot(1)), str(stage.slot(5))]
    assert stage.slot(2).read_text() == "a file"
    assert stage.slot(3).is_symlink()


def test_x8_our_own_files_do_not_make_a_slot_dirty_and_the_users_excludes_stay(stage: Orchestra) -> None:
    exclude = stage.repo.path / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("# mine\nscratch/")
    for name in (".pi/side-agent-start.sh", ".pi/side-agent-skills/finish/SKILL.md"):
        stage.repo.write(name)
    for _ in range(2):
        record = stage.start()
        assert (record.worktree_path, record.warnings) == (str(stage.slot(1)), ())
        stage.eventually_idle(record.id)
        stage.quit(record.id)
    assert exclude.read_text().startswith("# mine\nscratch/\n")
    assert stage.repo.status() == ""
    assert stage.worktree(record).status() == ""


def test_x9_slots_removed_by_hand_are_made_again(stage: Orchestra) -> None:
    first, second = used(stage, 2)
    shutil.rmtree(first.path)
    shutil.rmtree(second.path)
    for number in (1, 2):
        record = fake(stage)
        assert record.worktree_path == str(stage.slot(number))
        assert stage.worktree(record).status() == ""


def test_x9_a_removed_slot_that_git_has_locked_is_passed_over(stage: Orchestra) -> None:
    [slot] = used(stage)
    stage.repo.git("worktree", "lock", str(slot.path))
    shutil.rmtree(slot.path)
    record = fake(stage)
    assert record.worktree_path == str(stage.slot(2))
    assert "git worktree lock" in record.warnings[0]


def test_x10_unmerged_commits_of_the_last_agent_survive_and_merged_branches_go(stage: Orchestra) -> None:
    record = stage.start("write: a.txt data\ncommit: kept", branch_hint="kept")
    stage.eventually_idle("kept")
    head = stage.worktree(record).head()
    stage.quit("kept")
    assert fake(stage, branch_hint="empty").worktree_path == record.worktree_path
    assert stage.repo.git("rev-parse", "side-agent/kept") == head
    assert not (stage.slot(1) / "a.txt").exists()
    stage.stop("empty")
    fake(stage, branch_hint="next")
    assert stage.branches() == {"kept", "next"}


def test_x11_a_parked_branch_of_the_same_name_is_left_alone(stage: Orchestra) -> None:
    stage.repo.git("branch", "side-agent/Fix")
    stage.repo.git("tag", "side-agent/fix-3")
    assert [fake(stage, branch_hint="fix").id for _ in range(2)] == ["fix-2", "fix-3"]
    assert stage.repo.git("rev-parse", "refs/heads/side-agent/Fix") == stage.repo.head()


def test_x11_a_branch_that_appears_during_a_start_is_left_alone_too(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(stage)
    for name, busy in (("reuse", False), ("add", True)):
        original = getattr(git_worktrees, name)
        made: list[str] = []

        def appear(first: Any, *args: Any, original: Any = original, made: list[str] = made, **more: Any) -> None:
            if not made:
                made.append("side-agent/fix" if not stage.context.registry.read().ids - {"fix"} else "side-agent/fix-3")
                stage.repo.git("branch", made[0])
            original(first, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(git_worktrees, name, appear)
            record = fake(stage, branch_hint="fix")
        assert record.id == ("fix-4" if busy else "fix-2")
        assert stage.repo.git("rev-parse", made[0]) == stage.repo.head()
        assert stage.worktree(record).git("branch", "--show-current") == record.branch
    assert [record.id for record in stage.listed().records] == ["fix-2", "fix-4"]


def test_x12_simultaneous_starts_never_share_a_slot_or_an_id(stage: Orchestra) -> None:
    out, err = stage.child("pairs", "20").communicate(timeout=100)
    assert out, err.decode()
    for one, two in json.loads(out):
        assert "id" in one, one
        assert "id" in two, two
        assert all(one[key] != two[key] for key in ("id", "slot", "branch"))
    stage.assert_sound()
    eventually(lambda: not stage.listed().records)
    stage.assert_quiet()
    assert len(stage.slots()) < 40, "no slot was ever used again"


@pytest.mark.parametrize("harm", ["index", "merge", "HEAD"])
def test_a_slot_that_git_cannot_work_with_does_not_stop_starts(stage: Orchestra, harm: str) -> None:
    [slot] = used(stage)
    git_dir = Path(slot.git("rev-parse", "--absolute-git-dir"))
    name, text = {"index": ("index", "junk"), "merge": ("MERGE_HEAD", stage.repo.head()), "HEAD": ("HEAD", "")}[harm]
    (git_dir / name).write_text(text)
    record = fake(stage)
    assert record.worktree_path == str(stage.slot(2))
    assert "0001 was passed over" in record.warnings[0]
    assert not stage.leases().get(slot.path.name)
    assert (git_dir / name).read_text() == text


def test_a_lease_that_appears_during_a_start_is_respected_even_if_nothing_else_goes_well(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    [slot] = used(stage)
    slot.git("checkout", "--quiet", "-b", "side-agent/other")
    choose = slots.choose
    calls: list[int] = []

    def choose_and_lose(*args: Any, **more: Any) -> slots.Choice:
        calls.append(1)
        if len(calls) == 2:
            raise ConflictError("nothing goes well")
        choice = choose(*args, **more)
        foreign_lease(slot.path, '{"agentId": "other"}')
        return choice

    monkeypatch.setattr(slots, "choose", choose_and_lose)
    with pytest.raises(StartFailedError, match="left to other"):
        fake(stage)
    assert slot.git("branch", "--show-current") == "side-agent/other"
    assert stage.leases()[slot.path.name].agent_id == "other"


def test_a_slot_on_another_branch_is_not_touched_when_a_start_is_undone(stage: Orchestra) -> None:
    [slot] = used(stage)
    slot.git("checkout", "--quiet", "-b", "mine")
    stage.repo.git("branch", "side-agent/x")
    slots.leave(slot.path, "side-agent/x", stage.repo.head())
    assert slot.git("branch", "--show-current") == "mine"
    assert "x" not in stage.branches()
    slot.git("checkout", "--quiet", "-b", "side-agent/y")
    slots.leave(stage.slot(2), "side-agent/y", stage.repo.head())
    assert slot.git("branch", "--show-current") == "side-agent/y"
    assert "y" in stage.branches()


def test_a_branch_that_appeared_is_not_taken_back_with_the_start_that_met_it(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, choose = git_worktrees.add, slots.choose

    def appear(*args: Any, **more: Any) -> None:
        stage.repo.git("branch", "side-agent/fix")
        monkeypatch.setattr(slots, "choose", fail)
        add(*args, **more)

    def fail(*args: Any, **more: Any) -> slots.Choice:
        raise ConflictError("nothing goes well")

    monkeypatch.setattr(git_worktrees, "add", appear)
    with pytest.raises(StartFailedError, match="nothing goes well"):
        fake(stage, branch_hint="fix")
    assert stage.branches() == {"fix"}
    monkeypatch.setattr(git_worktrees, "add", add)
    monkeypatch.setattr(slots, "choose", choose)
    assert fake(stage, branch_hint="fix").id == "fix-2"


def test_links_of_the_project_itself_are_kept_and_ours_follow_the_main_checkout(stage: Orchestra) -> None:
    stage.repo.write("skills/finish.md")
    stage.repo.write(".pi/side-agent-finish.sh", "committed\n")
    (stage.repo.path / ".pi/side-agent-skills").symlink_to("../skills")
    stage.repo.git("add", "--force", ".pi/side-agent-finish.sh", ".pi/side-agent-skills", "skills")
    stage.repo.git("commit", "--quiet", "-m", "project scripts")
    mine = stage.repo.write(".pi/side-agent-notes.md")
    for _ in range(2):
        record = fake(stage)
        pi = stage.slot(1) / ".pi"
        assert record.worktree_path == str(stage.slot(1))
        assert stage.worktree(record).status() == ""
        assert not (pi / "side-agent-finish.sh").is_symlink()
        assert (pi / "side-agent-skills").readlink() == Path("../skills")
        assert (pi / "side-agent-notes.md").readlink() == mine
        stage.stop(record.id)
    stage.repo.git("add", "--force", ".pi/side-agent-notes.md")
    stage.repo.git("commit", "--quiet", "-m", "shared by the project from now on")
    record = fake(stage)
    assert record.worktree_path == str(stage.slot(1))
    assert not (pi / "side-agent-notes.md").is_symlink()
    stage.stop(record.id)
    stage.repo.git("rm", "--quiet", "--cached", ".pi/side-agent-notes.md")
    stage.repo.git("commit", "--quiet", "-m", "not any more")
    record = fake(stage)
    assert (pi / "side-agent-notes.md").readlink() == mine
    stage.stop(record.id)
    mine.unlink()
    fake(stage)
    assert not os.path.lexists(pi / "side-agent-notes.md")
