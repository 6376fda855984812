"""Agents as a tree."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents.core import tree
from side_agents.models import AgentRecord, AgentStatus


def agent(agent_id: str, parent: str | None = None) -> AgentRecord:
    return AgentRecord(id=agent_id, status=AgentStatus.RUNNING, parent_agent_id=parent)


def order(*records: AgentRecord) -> list[str]:
    return [record.id for record in tree.in_order(records)]


FAMILY = [agent("a"), agent("a1", "a"), agent("a2", "a"), agent("b"), agent("z1", "gone")]


def test_children_follow_their_parent_and_siblings_are_sorted() -> None:
    for records in itertools.permutations(FAMILY):
        assert order(*records) == ["a", "a1", "a2", "b", "z1"]


def test_a_child_that_sorts_before_its_parent_still_follows_it() -> None:
    assert order(agent("a", "z"), agent("m"), agent("z")) == ["m", "z", "a"]


def test_agents_that_name_each_other_as_parents_are_shown_once() -> None:
    assert order(agent("a", "b"), agent("b", "a"), agent("c", "b"), agent("d", "d"), agent("e")) == [
        "d", "e", "a", "b", "c"
    ]  # fmt: skip


def test_a_very_deep_chain_is_no_obstacle() -> None:
    chain = [agent("00000"), *(agent(f"{n:05}", f"{n - 1:05}") for n in range(1, 3000))]
    assert order(*reversed(chain)) == [record.id for record in chain]


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("abcdefghx") | st.none()))
def test_whoever_names_whom_everybody_is_shown_exactly_once(parents: dict[str, str | None]) -> None:
    assert sorted(order(*(agent(name, parent) for name, parent in parents.items()))) == sorted(parents)


def test_an_orphan_is_an_agent_whose_starter_is_gone() -> None:
    assert [record.id for record in FAMILY if tree.is_orphan(record, (other.id for other in FAMILY))] == ["z1"]


def test_those_below_come_furthest_down_first_and_without_the_ones_given() -> None:
    family = [*FAMILY, agent("a11", "a1"), agent("a12", "a1")]
    assert tree.below(["a"], family) == ["a2", "a12", "a11", "a1"]
    assert tree.below(["a", "a1"], family) == ["a2", "a12", "a11"]
    assert tree.below(["b", "nobody"], family) == []
    assert tree.below(["a"], [agent("a", "b"), agent("b", "a")]) == ["b"]


def test_whoever_was_started_by_another_comes_before_it() -> None:
    assert tree.children_first(["a", "b", "unknown", "a1", "a"], FAMILY) == ["b", "a1", "a", "unknown"]
