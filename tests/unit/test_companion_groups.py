"""The groups of a status line, and the tree that ``/agents`` shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from side_agents.companion import session_view
from side_agents.core import status_groups, tree
from side_agents.core.results import Listed
from side_agents.core.routing import Listener
from side_agents.models import AgentRecord, AgentStatus, WaitingFor
from tests.unit.cli_support import record

Shape = list[tuple[str, list[str]]]


def agent(agent_id: str, parent: str | None = None, session: str | None = None, **values: Any) -> AgentRecord:
    return record(agent_id, parent_agent_id=parent, parent_session_id=session, tmux_window_index=None, **values)


TREE = [agent("a"), agent("a1", "a"), agent("a2", "a"), agent("b"), agent("z1", "gone")]


def shape(records: Iterable[AgentRecord], who: Listener, ancestors: Mapping[str, str | None] | None = None) -> Shape:
    groups = status_groups.groups_of(list(records), who, (), ancestors)
    return [(group.kind, [entry.agent_id for entry in group.entries]) for group in groups]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, [("children", ["a", "b", "z1"])]),
        ("a", [("children", ["a1", "a2"]), ("siblings", ["b"])]),
        ("a1", [("parent", ["a"]), ("siblings", ["a2"])]),
        ("b", [("siblings", ["a"])]),
        ("z1", [("parent", ["gone"])]),
    ],
)
def test_n21_each_sees_its_parent_its_children_and_its_siblings(own: str | None, expected: Shape) -> None:
    assert shape(TREE, Listener(own)) == expected


def test_n21_an_only_child_still_shows_its_parent_and_an_orphan_is_no_sibling() -> None:
    assert shape([agent("a"), agent("a1", "a")], Listener("a1")) == [("parent", ["a"])]
    assert "z1" not in dict(shape(TREE, Listener("a")))["siblings"]


def test_x20_agents_of_another_main_session_stand_apart_and_are_not_hidden() -> None:
    rows = [agent("a", session="/one"), agent("b", session="/two"), agent("c"), agent("z", "gone")]
    assert shape(rows, Listener(None, "/one"), {"z": "/two"}) == [("children", ["a", "c"]), ("others", ["b", "z"])]
    assert shape(rows, Listener(None, "/two"), {"z": "/two"}) == [("children", ["b", "c", "z"]), ("others", ["a"])]
    assert shape(rows, Listener()) == [("children", ["a", "b", "c", "z"])]


def test_the_line_has_codes_windows_marks_and_bars() -> None:
    rows = [
        record("a", AgentStatus.WAITING_USER, waiting_for=WaitingFor.QUESTION, tmux_window_index=3),
        record("b", AgentStatus.CRASHED, tmux_window_index=4),
        record("z", parent_agent_id="gone", tmux_window_index=5),
    ]
    groups = status_groups.groups_of(rows, Listener())
    assert status_groups.line_of(groups) == "a:wait@3 b:crash z:run@5[orphan]"
    assert (
        status_groups.line_of(status_groups.groups_of(rows, Listener(), {"b"})) == "a:wait@3 b:crash@4 z:run@5[orphan]"
    )
    assert groups[0].as_json()["entries"][0] == {
        "id": "a", "short": "wait", "window": 3, "status": "waiting_user", "waitingFor": "question",
    }  # fmt: skip
    assert status_groups.line_of(status_groups.groups_of(TREE, Listener("a"))) == "a1:run a2:run | b:run"
    assert status_groups.line_of(status_groups.groups_of(TREE, Listener("z1"))) == "parent:gone:gone"
    assert status_groups.line_of(()) == ""


def test_published_lines_are_those_that_each_agent_would_be_shown() -> None:
    listed = Listed(tuple(tree.in_order(TREE)))
    lines = session_view.published_lines(listed)
    assert set(lines) == {"a", "a1", "a2", "b", "z1"}
    for name, view in lines.items():
        own = status_groups.groups_of(listed.records, Listener(name))
        assert view == session_view.status_view(own), name


def test_published_lines_of_hundreds_of_agents_stay_short() -> None:
    crowd = Listed(tuple(agent(f"n{number:03}") for number in range(300)))
    lines = session_view.published_lines(crowd)
    assert max(len(view["groups"][0]["entries"]) for view in lines.values()) <= 25
    assert "n299" in lines


def test_the_published_facts_change_with_everything_that_a_line_shows() -> None:
    one = record("a", AgentStatus.WAITING_USER, waiting_for=WaitingFor.PROMPT)
    before = session_view.published_facts(Listed((one,)))
    for changes in (
        {"status": AgentStatus.RUNNING},
        {"waiting_for": WaitingFor.QUESTION},
        {"tmux_window_index": 9},
        {"parent_agent_id": "b"},
    ):
        values = {"waiting_for": WaitingFor.PROMPT, "status": AgentStatus.WAITING_USER, **changes}
        status = values.pop("status")
        assert session_view.published_facts(Listed((record("a", status, **values),))) != before
    assert session_view.published_facts(Listed((one,), lingering=frozenset("a"))) != before
