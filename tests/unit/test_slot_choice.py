"""Which slot an agent gets, from files alone; and the leases that guard slots. No git process runs here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from side_agents.core import leases, slots
from side_agents.core.slots import Choice, SlotKind
from side_agents.models import AgentRecord, AgentStatus, Lease, ProcessRef
from side_agents.paths import lease_path

LAUNCHER = ProcessRef(100, "boot:1")


@dataclass(frozen=True)
class Pool:
    """A repository with just the files that make git take it for one, and slots beside it."""

    root: Path

    @property
    def common_dir(self) -> Path:
        return self.root / ".git"

    def path(self, number: int) -> Path:
        return self.root.parent / f"{self.root.name}-agent-worktree-{number:04d}"

    def slot(self, number: int, *, held_by: str | None = None, locked: bool = False) -> Path:
        """A registered worktree in a slot."""
        slot, admin = self.path(number), self.common_dir / "worktrees" / f"slot{number}"
        slot.mkdir()
        admin.mkdir(parents=True)
        (admin / "HEAD").write_text("ref: refs/heads/side-agent/x\n")
        (admin / "commondir").write_text("../..\n")
        (admin / "gitdir").write_text(f"{slot}/.git\n")
        (slot / ".git").write_text(f"gitdir: {admin}\n")
        if locked:
            (admin / "locked").write_text("")
        if held_by is not None:
            assert leases.take(slot, Lease(agent_id=held_by))
        return slot

    def choose(self, *records: AgentRecord, **options: Any) -> Choice:
        return slots.choose(self.root, slots.scan(self.root, self.common_dir), records, **options)

    def record(self, agent_id: str, number: int | None, status: AgentStatus, **values: Any) -> AgentRecord:
        path = None if number is None else str(self.path(number))
        return AgentRecord(id=agent_id, status=status, worktree_path=path, **values)

    def reserved(self, agent_id: str, number: int) -> AgentRecord:
        return self.record(agent_id, number, AgentStatus.ALLOCATING_WORKTREE)


def make_repository(root: Path) -> Path:
    for folder in ("objects", "refs"):
        (root / ".git" / folder).mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(make_repository(tmp_path.resolve() / "project"))


# Choosing


def test_f_a1_starts_in_series_get_slots_one_and_two(pool: Pool) -> None:
    first = pool.choose()
    second = pool.choose(pool.reserved("a", first.number))
    assert first == Choice(pool.path(1), 1, True)
    assert second == Choice(pool.path(2), 2, True)


def test_f_a2_a_slot_that_is_only_reserved_is_somebody_elses(pool: Pool) -> None:
    assert pool.choose(pool.reserved("a", 1)).path == pool.path(2)
    assert pool.choose(pool.reserved("a", 7)).path == pool.path(8)


def test_f_a3_a_clean_slot_is_taken_by_the_first_and_not_by_the_second(pool: Pool) -> None:
    pool.slot(1)
    first = pool.choose()
    second = pool.choose(pool.reserved("a", 1))
    assert (first.path, first.is_new) == (pool.path(1), False)
    assert (second.path, second.is_new) == (pool.path(2), True)


def test_f_a4_a_slot_that_turned_out_dirty_is_left_for_a_new_one(pool: Pool) -> None:
    pool.slot(1)
    choice = pool.choose(excluded={pool.path(1)})
    assert (choice.path, choice.is_new) == (pool.path(2), True)


def test_f_a5_a_failed_start_gives_back_its_own_slot_only(pool: Pool) -> None:
    pool.slot(1)
    pool.slot(2)
    first, second = pool.reserved("a", 1), pool.reserved("b", 2)
    assert pool.choose(first, second).path == pool.path(3)
    failed = replace(first, status=AgentStatus.FAILED, worktree_path=None)
    choice = pool.choose(failed, second)
    assert (choice.path, choice.is_new, choice.warnings) == (pool.path(1), False, ())


@pytest.mark.parametrize("status", [AgentStatus.FAILED, AgentStatus.CRASHED])
def test_f_a6_an_ended_agent_blocks_its_slot_by_its_lease_and_not_by_its_row(pool: Pool, status: AgentStatus) -> None:
    pool.slot(1)
    pool.slot(2, held_by="b")
    ended = pool.record("a", 1, status, launcher=LAUNCHER)
    assert pool.choose(ended).path == pool.path(1)
    assert pool.choose(replace(ended, id="b", worktree_path=str(pool.path(2))), excluded={pool.path(1)}).number == 3


def test_f_a6_an_agent_whose_start_was_cut_off_keeps_its_slot_without_a_lease(pool: Pool) -> None:
    pool.slot(1)
    assert pool.choose(pool.record("a", 1, AgentStatus.CRASHED)).path == pool.path(2)


def test_f_a7_a_locked_slot_and_a_dirty_one_lead_to_the_third(pool: Pool) -> None:
    pool.slot(1, held_by="a")
    pool.slot(2)
    running = pool.record("a", 1, AgentStatus.RUNNING, launcher=LAUNCHER)
    choice = pool.choose(running, excluded={pool.path(2)})
    assert choice == Choice(pool.path(3), 3, True)


def test_f_a8_ten_starts_get_ten_slots_the_usable_one_first(pool: Pool) -> None:
    pool.slot(4)
    taken: list[AgentRecord] = []
    for number in range(10):
        taken.append(pool.reserved(f"a{number}", pool.choose(*taken).number))
    numbers = [int((record.worktree_path or "")[-4:]) for record in taken]
    assert numbers == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13]


def test_f_a9_reservations_of_another_repository_do_not_count(pool: Pool) -> None:
    parent = pool.root.parent
    others = [
        AgentRecord(id=f"a{number}", status=AgentStatus.RUNNING, worktree_path=path)
        for number, path in enumerate(
            [
                str(parent / "other-agent-worktree-0050"),
                f"/elsewhere/{pool.root.name}-agent-worktree-0060",
                str(pool.path(70) / "sub"),
                "",
            ]
        )
    ]
    assert pool.choose(*others).number == 1


def test_a_number_follows_the_highest_on_disk_and_in_rows(pool: Pool) -> None:
    pool.slot(3, held_by="a")
    holder = pool.record("a", 3, AgentStatus.RUNNING, launcher=LAUNCHER)
    assert pool.choose(holder).number == 4
    assert pool.choose(holder, pool.reserved("b", 9)).number == 10


# What is passed over, and whether the user hears of it


def warned(choice: Choice) -> str:
    return "\n".join(choice.warnings)


def test_i3_a_lease_of_nobody_known_is_passed_over_with_a_warning(pool: Pool) -> None:
    pool.slot(1, held_by="ghost")
    choice = pool.choose()
    assert choice.number == 2
    assert "locked by ghost, which is not tracked" in warned(choice)


def test_i4_a_plain_folder_with_a_lease_is_passed_over_with_a_warning(pool: Pool) -> None:
    pool.path(1).mkdir()
    leases.take(pool.path(1), Lease(agent_id="ghost"))
    assert "ghost" in warned(pool.choose())


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b'{"agentId": 5}', b"\xff"])
def test_a_lease_that_cannot_be_read_still_guards_its_slot(pool: Pool, raw: bytes) -> None:
    slot = pool.slot(1)
    lease_path(slot).parent.mkdir()
    lease_path(slot).write_bytes(raw)
    choice = pool.choose()
    assert choice.number == 2
    assert "names no agent" in warned(choice)


def test_a_lease_that_is_a_link_to_nowhere_still_guards_its_slot(pool: Pool) -> None:
    slot = pool.slot(1)
    lease_path(slot).parent.mkdir()
    lease_path(slot).symlink_to("nowhere")
    assert pool.choose().number == 2
    assert not leases.take(slot, Lease(agent_id="a"))


def test_a_live_agent_keeps_its_slot_when_its_lease_is_missing(pool: Pool) -> None:
    pool.slot(1)
    choice = pool.choose(pool.record("a", 1, AgentStatus.WAITING_USER, launcher=LAUNCHER))
    assert choice.number == 2
    assert "claimed by a" in warned(choice)


def test_the_slot_that_a_live_nested_agent_merges_into_is_passed_over(pool: Pool) -> None:
    slot = pool.slot(1)
    nested = AgentRecord(id="in", status=AgentStatus.RUNNING, launcher=LAUNCHER, parent_worktree_path=str(slot))
    choice = pool.choose(nested)
    assert choice.number == 2
    assert "the nested agent in merges into it" in warned(choice)
    assert pool.choose(replace(nested, status=AgentStatus.CRASHED)).number == 1


def test_what_is_no_worktree_of_this_repository_is_passed_over_with_a_warning(pool: Pool) -> None:
    pool.path(1).mkdir()
    (pool.path(1) / "mine.txt").write_text("precious")
    pool.path(2).write_text("a file")
    pool.path(3).symlink_to(pool.root)
    make_repository(pool.path(4))
    other = Pool(make_repository(pool.root.parent / "other"))
    other.slot(1).rename(pool.path(5))
    pool.slot(6)
    (pool.path(6) / ".git").write_text("gitdir: /nowhere\n")
    choice = pool.choose()
    assert (choice.number, choice.is_new) == (7, True)
    assert [f"worktree-000{number} was passed over" in warned(choice) for number in range(1, 7)] == [True] * 6


def test_an_empty_folder_is_used_and_a_worktree_made_in_it(pool: Pool) -> None:
    pool.path(1).mkdir()
    assert pool.choose() == Choice(pool.path(1), 1, True)


def test_a_worktree_that_the_user_locked_is_passed_over(pool: Pool) -> None:
    pool.slot(1, locked=True)
    choice = pool.choose()
    assert choice.number == 2
    assert "git worktree lock" in warned(choice)


# Order


def ordered(pool: Pool, preferred: str | Path | None) -> list[int]:
    return [slot.number for slot in slots.in_order(slots.scan(pool.root, pool.common_dir), preferred)]


def test_n18_the_preferred_slot_comes_first_and_the_others_keep_their_order(pool: Pool) -> None:
    for number in (10, 2, 3):
        pool.slot(number)
    assert ordered(pool, f"{pool.path(3)}/") == [3, 2, 10]
    assert ordered(pool, pool.path(2)) == [2, 3, 10]
    assert ordered(pool, "/somewhere/else") == [2, 3, 10]
    assert ordered(pool, pool.path(4)) == [2, 3, 10]
    assert ordered(pool, None) == [2, 3, 10]
    assert ordered(pool, "") == [2, 3, 10]


def test_n18_a_preferred_slot_that_is_held_is_not_taken(pool: Pool) -> None:
    pool.slot(1)
    pool.slot(2, held_by="ghost")
    assert pool.choose(preferred=pool.path(2)).number == 1


def test_scanning_sees_kinds_and_only_names_of_the_pool(pool: Pool) -> None:
    pool.slot(1)
    pool.slot(2, locked=True)
    pool.path(3).mkdir()
    for name in (
        "x",
        f"{pool.root.name}-agent-worktree-1",
        f"{pool.root.name}-agent-worktree-\uff10\uff10\uff10\uff11",
    ):
        (pool.root.parent / name).mkdir()
    found = slots.scan(pool.root, pool.common_dir)
    assert [(slot.number, slot.kind) for slot in found] == [
        (1, SlotKind.WORKTREE), (2, SlotKind.LOCKED_WORKTREE), (3, SlotKind.EMPTY)
    ]  # fmt: skip


# Leases


def test_u17_releasing_twice_removes_once_and_does_not_fail(pool: Pool) -> None:
    slot = pool.slot(1, held_by="a")
    assert [leases.release(slot, "a"), leases.release(slot, "a")] == [True, False]
    assert not lease_path(slot).exists()


def test_u18_releasing_without_a_path_or_without_a_lease_is_no_error(pool: Pool) -> None:
    assert not leases.release(None, "a")
    assert not leases.release(pool.slot(1), "a")
    assert not leases.release(pool.root / "nowhere", "a")


@pytest.mark.parametrize(
    ("release", "is_removed"),
    [
        pytest.param(lambda slot: leases.release(slot, "b"), False, id="f_l1_of_another_agent"),
        pytest.param(lambda slot: leases.release(slot, "a"), True, id="f_l2_its_own"),
        pytest.param(leases.release, True, id="f_l3_no_id_given"),
    ],
)
def test_f_l1_f_l2_f_l3_only_its_own_lease_goes_unless_the_caller_knows_better(
    pool: Pool, release: Callable[[Path], bool], is_removed: bool
) -> None:
    slot = pool.slot(1, held_by="a")
    assert release(slot) is is_removed
    assert lease_path(slot).exists() is not is_removed


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b'{"agentId": 5}'])
def test_f_l1_a_lease_that_names_nobody_is_nobodys_to_remove(pool: Pool, raw: bytes) -> None:
    slot = pool.slot(1, held_by="a")
    lease_path(slot).write_bytes(raw)
    assert not leases.release(slot, "a")
    leases.update(slot, Lease(agent_id="a"))
    leases.update(slot, Lease())
    assert lease_path(slot).read_bytes() == raw


def test_a_lease_is_taken_by_one_only(pool: Pool) -> None:
    slot = pool.slot(1)
    assert leases.take(slot, Lease(agent_id="a"))
    assert not leases.take(slot, Lease(agent_id="a"))
    assert not leases.take(slot, Lease(agent_id="b"))
    assert leases.read(slot) == Lease(agent_id="a")


def test_a_lease_is_updated_by_its_holder_only_and_keeps_what_others_wrote(pool: Pool) -> None:
    slot = pool.slot(1, held_by="a")
    lease_path(slot).write_text('{"agentId": "a", "pid": "77", "note": {"by": "other"}}')
    held = leases.read(slot)
    assert held is not None
    assert held.pid == 77
    leases.update(slot, Lease(agent_id="b", pid=1))
    leases.update(slot, replace(held, tmux_window_id="@3"))
    assert json.loads(lease_path(slot).read_bytes()) == {
        "agentId": "a", "pid": 77, "startedAt": "", "tmuxWindowId": "@3", "note": {"by": "other"}
    }  # fmt: skip


def test_a_lease_that_was_released_is_not_brought_back(pool: Pool) -> None:
    slot = pool.slot(1, held_by="a")
    leases.release(slot, "a")
    leases.update(slot, Lease(agent_id="a", pid=5))
    assert leases.read(slot) is None


def test_a_lease_with_a_text_that_is_no_unicode_can_be_read_again(pool: Pool) -> None:
    slot = pool.slot(1)
    leases.take(slot, Lease(agent_id="a", session_id="caf\udce9 \ud83d"))
    held = leases.read(slot)
    assert held is not None
    assert held.session_id == "caf\udce9 \ud83d"
