"""Notices for a parent: merged, in time, and never in the middle of its work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents.core import notices
from side_agents.core.notices import Notice
from side_agents.core.status import Transition
from side_agents.models import AgentStatus

SPAWNING, RUNNING, WAITING = AgentStatus.SPAWNING_TMUX, AgentStatus.RUNNING, AgentStatus.WAITING_USER
DONE, FAILED, CRASHED = AgentStatus.DONE, AgentStatus.FAILED, AgentStatus.CRASHED
START = datetime(2026, 3, 3, 2, 58, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def buffer_of(
    steps: Sequence[AgentStatus], *, agent_id: str = "fix", window: int | None = None, pace: float = 1.0
) -> dict[str, Notice]:
    """A buffer after one agent went through ``steps``, one each ``pace`` seconds from START on."""
    buffer: dict[str, Notice] = {}
    for number, (before, after) in enumerate(pairwise(steps)):
        index = window if number == 0 else None
        buffer = notices.merge(buffer, [Transition(agent_id, before, after, index)], at(number * pace))
    return buffer


def test_n1_a_burst_that_ends_is_told_at_once_and_as_one() -> None:
    buffer = buffer_of([SPAWNING, RUNNING, WAITING, RUNNING], window=17)
    assert notices.drain(buffer, at(3), idle=True) == ([], buffer)

    buffer = notices.merge(buffer, [Transition("fix", RUNNING, DONE, None)], at(3))
    told, left = notices.drain(buffer, at(3), idle=True)

    assert [(n.from_status, n.to_status, n.window_index, n.count) for n in told] == [(SPAWNING, DONE, 17, 4)]
    assert left == {}


def test_n2_equal_ends_are_told_with_the_way_between_them() -> None:
    buffer = buffer_of([WAITING, RUNNING, WAITING])
    told, left = notices.drain(buffer, at(6), idle=True)
    assert [(n.from_status, n.to_status, n.path) for n in told] == [(WAITING, WAITING, (RUNNING, WAITING))]
    assert left == {}


def test_n3_eight_flips_keep_the_origin_and_the_latest() -> None:
    (notice,) = buffer_of([WAITING, RUNNING, WAITING, RUNNING, WAITING, RUNNING, WAITING, RUNNING, FAILED]).values()
    assert notice.from_status is WAITING
    assert notice.to_status is FAILED
    assert notice.path == (RUNNING, WAITING, RUNNING, WAITING, RUNNING, FAILED)
    assert notice.count == 8


def test_n4_agents_that_ended_are_told_at_once_sorted_by_id() -> None:
    ends = [Transition("b", RUNNING, FAILED, 2), Transition("a", RUNNING, CRASHED, 1)]
    told, left = notices.drain(notices.merge({}, ends, START), START, idle=True)
    assert [notice.agent_id for notice in told] == ["a", "b"]
    assert left == {}


def test_n5_what_is_not_an_end_is_told_after_five_quiet_seconds() -> None:
    buffer = buffer_of([RUNNING, WAITING])
    assert notices.drain(buffer, at(4.999), idle=True) == ([], buffer)
    told, left = notices.drain(buffer, at(5), idle=True)
    assert [notice.to_status for notice in told] == [WAITING]
    assert left == {}


def test_n5_every_further_change_begins_the_quiet_anew() -> None:
    buffer = buffer_of([RUNNING, WAITING, RUNNING], pace=4)
    assert notices.drain(buffer, at(8.999), idle=True)[0] == []
    assert len(notices.drain(buffer, at(9), idle=True)[0]) == 1


def test_n6_a_busy_parent_is_told_nothing_until_it_is_idle() -> None:
    buffer = buffer_of([RUNNING, WAITING])
    assert notices.drain(buffer, at(3600), idle=False) == ([], buffer)

    buffer = notices.merge(buffer, [Transition("fix", WAITING, DONE, None)], at(3600))
    assert notices.drain(buffer, at(7200), idle=False) == ([], buffer)

    told, left = notices.drain(buffer, at(7200), idle=True)
    assert [(n.from_status, n.to_status, n.count) for n in told] == [(RUNNING, DONE, 2)]
    assert left == {}


def test_an_end_does_not_take_others_with_it() -> None:
    both = buffer_of([RUNNING, WAITING], agent_id="a") | buffer_of([RUNNING, FAILED], agent_id="b")
    told, left = notices.drain(both, START, idle=True)
    assert [notice.agent_id for notice in told] == ["b"]
    assert list(left) == ["a"]


def test_an_agent_that_runs_again_is_not_told_as_ended() -> None:
    buffer = buffer_of([RUNNING, CRASHED, RUNNING])
    assert notices.drain(buffer, at(1), idle=True)[0] == []


def test_the_parents_own_end_waits_for_no_quiet_but_for_its_idleness() -> None:
    buffer = buffer_of([RUNNING, WAITING])
    assert notices.drain(buffer, START, idle=False, settle=timedelta(0))[0] == []
    assert len(notices.drain(buffer, START, idle=True, settle=timedelta(0))[0]) == 1


def test_a_notice_says_when_it_was_first_and_last_observed() -> None:
    (notice,) = buffer_of([RUNNING, WAITING, RUNNING], pace=2).values()
    assert (notice.first_observed_at, notice.observed_at) == (at(0), at(2))


def test_the_latest_known_window_is_kept() -> None:
    moved = notices.merge(buffer_of([SPAWNING, RUNNING], window=1), [Transition("fix", RUNNING, WAITING, 9)], at(1))
    assert moved["fix"].window_index == 9


def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    assert len(notices.drain(buffer_of([RUNNING, WAITING]), at(-3600), idle=True)[0]) == 1


def test_merging_leaves_the_given_buffer_as_it_was() -> None:
    buffer = buffer_of([RUNNING, WAITING])
    before = dict(buffer)
    notices.merge(buffer, [Transition("fix", WAITING, RUNNING, None), Transition("b", RUNNING, DONE, 1)], at(1))
    assert buffer == before


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(AgentStatus)), max_size=4), max_size=6))
def test_every_transition_is_counted_in_exactly_one_notice(batches: list[list[tuple[str, AgentStatus]]]) -> None:
    buffer: dict[str, Notice] = {}
    counted = 0
    for number, batch in enumerate(batches):
        steps = [Transition(agent_id, RUNNING, status, None) for agent_id, status in batch]
        buffer = notices.merge(buffer, steps, at(number))
        told, buffer = notices.drain(buffer, at(number), idle=number % 2 == 0)
        counted += sum(notice.count for notice in told)
        assert all(1 <= len(notice.path) <= 6 and notice.path[-1] is notice.to_status for notice in told)
    assert counted + sum(notice.count for notice in buffer.values()) == sum(map(len, batches))
