"""The border: untrusted data becomes a value of the right shape or a readable error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from side_agents.errors import UsageError
from side_agents.models import AgentStatus
from side_agents.schemas import BORDER, json_schema, validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A border value."""

    agent_id: str
    wait_ids: tuple[str, ...] = ()
    limit: int | None = None
    seconds: float | None = None
    state: AgentStatus | None = None
    is_dry: bool = field(default=False, metadata={"description": "Do nothing."})

    __pydantic_config__ = BORDER


def test_names_are_camel_case_outside_and_lists_and_words_become_what_they_mean() -> None:
    data = {"agentId": "fix", "waitIds": ["a", "b"], "limit": 3, "seconds": 2, "state": "running", "isDry": True}
    assert validate(Order, data, what="the input") == Order(
        agent_id="fix", wait_ids=("a", "b"), limit=3, seconds=2.0, state=AgentStatus.RUNNING, is_dry=True
    )


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({}, "agentId"),
        ({"agentId": None}, "agentId"),
        ({"agentId": 5}, "agentId"),
        ({"agentId": "x", "limit": "3"}, "limit"),
        ({"agentId": "x", "limit": True}, "limit"),
        ({"agentId": "x", "limit": 3.0}, "limit"),
        ({"agentId": "x", "isDry": 1}, "isDry"),
        ({"agentId": "x", "waitIds": "abc"}, "waitIds"),
        ({"agentId": "x", "waitIds": ["a", 1]}, "waitIds.1"),
        ({"agentId": "x", "state": "paused"}, "state"),
        ({"agentId": "x", "colour": "red"}, "colour"),
        ({"agentId": "half \ud83d"}, "surrogate"),
        ({"agentId": "x", "seconds": float("nan")}, "float"),
        ({"agentId": "x", "seconds": float("inf")}, "float"),
        ({"agentId": {1, 2}}, "serializable"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(data: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate(Order, data, what="the input")
    assert caught.value.message.startswith("the input is not valid: ")
    assert named in caught.value.message


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        validate(Order, {"limit": "3", "colour": "red"}, what="the input")
    assert all(name in caught.value.message for name in ("agentId", "limit", "colour"))


def test_the_schema_has_the_outer_names_and_says_what_is_required() -> None:
    schema = json_schema(Order)
    assert set(schema["properties"]) == {"agentId", "waitIds", "limit", "seconds", "state", "isDry"}
    assert schema["required"] == ["agentId"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["isDry"]["description"] == "Do nothing."
