"""Who is asking, and whether they may start agents."""

from __future__ import annotations

import pytest

from side_agents.core.identity import Caller, identify, may_start, require_start_allowed
from side_agents.errors import DepthError


@pytest.mark.parametrize(
    ("environment", "agent_id", "depth", "parent"),
    [
        ({}, None, 0, None),
        ({"PI_SIDE_AGENT_ID": "", "PI_SIDE_AGENT_DEPTH": "2", "PI_SIDE_PARENT_AGENT_ID": "a"}, None, 0, None),
        ({"PI_SIDE_AGENT_ID": "a", "PI_SIDE_AGENT_DEPTH": "1", "PI_SIDE_PARENT_AGENT_ID": ""}, "a", 1, None),
        ({"PI_SIDE_AGENT_ID": "a1", "PI_SIDE_AGENT_DEPTH": "2", "PI_SIDE_PARENT_AGENT_ID": "a"}, "a1", 2, "a"),
        ({"PI_SIDE_AGENT_ID": "old"}, "old", 1, None),
    ],
)
def test_n19_main_child_grandchild_and_a_child_of_an_old_version_are_told_apart(
    environment: dict[str, str], agent_id: str | None, depth: int, parent: str | None
) -> None:
    assert identify(environment) == Caller(agent_id, depth, parent)


@pytest.mark.parametrize("junk", ["", "x", "-1", "0", "1.5", " 2", "2\n", "\u0662", "\u00b2", "+2", "100", "9" * 5000])
def test_n19_junk_for_a_depth_counts_as_one(junk: str) -> None:
    assert identify({"PI_SIDE_AGENT_ID": "a", "PI_SIDE_AGENT_DEPTH": junk}).depth == 1


def test_the_own_conversation_is_known_where_the_client_names_it() -> None:
    assert identify({"PI_SESSION_FILE": "/s.jsonl"}).session == "/s.jsonl"
    assert identify({"PI_SESSION_FILE": "/s.jsonl", "SIDE_AGENTS_SESSION": "abc"}).session == "abc"
    assert identify({"PI_SIDE_AGENT_ID": "a", "SIDE_AGENTS_SESSION": ""}).session is None


def test_n22_main_and_its_child_may_start_agents_and_a_grandchild_may_not() -> None:
    main, a, a1 = Caller(), Caller("a", 1), Caller("a1", 2, "a")
    assert [may_start(caller, 2) for caller in (main, a, a1)] == [True, True, False]


def test_n22_the_refusal_names_the_limit_and_says_what_to_do() -> None:
    with pytest.raises(DepthError, match="a1 is at depth 2 of at most 2") as caught:
        require_start_allowed(Caller("a1", 2, "a"), 2)
    assert caught.value.hint
    require_start_allowed(Caller("a", 1), 2)


def test_a_limit_of_one_forbids_nesting_only() -> None:
    assert may_start(Caller(), 1)
    assert not may_start(Caller("a", 1), 1)
