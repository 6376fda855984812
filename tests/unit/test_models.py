"""Stored values: what goes into JSON comes out of it, and what is no such value is refused."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents.models import (
    AgentRecord,
    AgentStatus,
    EndedBy,
    ExitMarker,
    ForumIdentity,
    Lease,
    ProcessRef,
    Tombstone,
    TurnOutcome,
    WaitingFor,
    json_text,
)

TERMINAL = {AgentStatus.DONE, AgentStatus.FAILED, AgentStatus.CRASHED}
RETIRED = ("starting", "finishing", "waiting_merge_lock", "retrying_reconcile")
MINIMAL = {"id": "fix", "status": "running"}

# Lone surrogates are what bytes of a non-UTF-8 argument and halves of an emoji become.
texts = st.text(st.characters(), max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
processes = st.builds(ProcessRef, pid=st.integers(1, 2**22), started=texts)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": st.integers(0, 2**40),
    "bool": st.booleans(),
    "ProcessRef": processes,
    "ForumIdentity": st.builds(ForumIdentity, name=texts, agent_id=texts, session_id=texts, state=texts),
    "AgentStatus": st.sampled_from(AgentStatus),
    "EndedBy": st.sampled_from(EndedBy),
    "WaitingFor": st.sampled_from(WaitingFor),
    "TurnOutcome": st.sampled_from(TurnOutcome),
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "Mapping[str, Any]": st.dictionaries(texts.map("x-{}".format), plain.filter(lambda v: v is not None), max_size=2),
}


def values_of(shape: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a stored dataclass, also with fields that are added later."""
    chosen = {}
    for field in fields(shape):
        name = str(field.type)
        strategy = BY_TYPE[name.removesuffix(" | None")]
        chosen[field.name] = st.none() | strategy if name.endswith(" | None") else strategy
    return st.builds(shape, **chosen)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_u1_ended_statuses_are_terminal(status: AgentStatus) -> None:
    assert status.is_terminal


@pytest.mark.parametrize("status", sorted(set(AgentStatus) - TERMINAL))
def test_u2_all_other_statuses_are_not_terminal(status: AgentStatus) -> None:
    assert not status.is_terminal


@pytest.mark.parametrize("word", RETIRED)
def test_u2_a_retired_status_is_never_taken_for_a_terminal_one(word: str) -> None:
    with pytest.raises(ValueError, match=word):
        AgentRecord.from_json({**MINIMAL, "status": word})


def test_the_starting_process_owns_the_two_start_states() -> None:
    assert [status for status in AgentStatus if status.is_starting] == ["allocating_worktree", "spawning_tmux"]


def test_the_short_words_are_those_of_the_status_line() -> None:
    assert [status.short for status in AgentStatus] == ["alloc", "tmux", "run", "wait", "fail", "crash", "done"]


@settings(max_examples=50, deadline=None)
@given(st.one_of(values_of(AgentRecord), values_of(Tombstone), values_of(Lease), values_of(ExitMarker)))
def test_every_stored_value_survives_the_way_through_a_file(value: Any) -> None:
    stored = json_text(value.to_json(), indent=2).encode()
    assert type(value).from_json(json.loads(stored)) == value


@pytest.mark.parametrize("text", ["caf\udce9", "\ud83d", "cut \ud83d here", "ok \u2028 \U0001f600 é"])
def test_a_text_that_is_no_unicode_makes_no_file_unreadable(text: str) -> None:
    stored = json_text({"task": text}).encode()
    assert json.loads(stored) == {"task": text}


def test_stored_json_stays_legible() -> None:
    assert json_text({"task": "größer \U0001f600"}) == '{"task": "größer \U0001f600"}'


def test_keys_are_camel_case_and_absent_values_are_left_out() -> None:
    record = AgentRecord(id="fix", status=AgentStatus.RUNNING, tmux_window_id="@3", owner=ProcessRef(4, "s"))
    data = record.to_json()
    assert data["tmuxWindowId"] == "@3"
    assert data["owner"] == {"pid": 4, "started": "s"}
    assert "exitCode" not in data
    assert "extra" not in data


def test_the_fields_of_the_seed_have_their_names() -> None:
    texts_of_seed = re.findall(
        r"\w+",
        "id parentSessionId parentAgentId parentWorktreePath childSessionId tmuxSession tmuxWindowId worktreePath branch "
        "model task startedAt updatedAt finishedAt runtimeDir logPath promptPath exitFile error",
    )
    others = {"depth": 2, "tmuxWindowIndex": 7, "exitCode": 3, "warnings": ["w"], "status": "failed"}
    row = dict.fromkeys(texts_of_seed, "x") | others
    record = AgentRecord.from_json(row)
    assert record.extra == {}
    assert row.items() <= record.to_json().items()


def test_an_absent_depth_means_one_and_null_means_absent() -> None:
    record = AgentRecord.from_json({**MINIMAL, "error": None, "exitCode": None})
    assert record.depth == 1
    assert record.exit_code is None


def test_unknown_keys_survive_even_when_one_is_called_extra() -> None:
    row = {**MINIMAL, "extra": {"a": 1}, "pull_request": [1, None], "Task": "no"}
    data = AgentRecord.from_json(row).to_json()
    assert {key: data[key] for key in ("extra", "pull_request", "Task")} == {
        "extra": {"a": 1}, "pull_request": [1, None], "Task": "no"
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": 5},
        {"turn": "5"},
        {"turn": True},
        {"exitCode": 1.0},
        {"suspended": 1},
        {"status": ["running"]},
        {"status": "paused"},
        {"warnings": "a text"},
        {"warnings": {"a": 1}},
        {"warnings": [1]},
        {"owner": "12"},
        {"owner": {"pid": 12}},
        {"owner": {"pid": "12", "started": "s"}},
        {"owner": {"pid": float("inf"), "started": "s"}},
        {"owner": {"pid": True, "started": "s"}},
        {"owner": {"pid": 12, "started": 5}},
        {"waitingFor": "lunch"},
        {"lastTurnOutcome": {}},
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_and_never_bent(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        AgentRecord.from_json({**MINIMAL, **wrong})


@pytest.mark.parametrize("data", [[], "text", 5, None, True])
def test_what_is_no_object_is_no_stored_value(data: Any) -> None:
    with pytest.raises(TypeError):
        Tombstone.from_json(data)


@pytest.mark.parametrize(("pid", "read"), [(7, 7), ("7", 7)])
def test_the_pid_of_a_lease_may_be_digits_in_a_text(pid: Any, read: int) -> None:
    assert Lease.from_json({"agentId": "fix", "pid": pid}).pid == read


@pytest.mark.parametrize("pid", ["", "-1", "7x", "\u0667", "9" * 5000, True])
def test_any_other_text_is_no_pid(pid: Any) -> None:
    with pytest.raises(ValueError):
        Lease.from_json({"agentId": "fix", "pid": pid})


@pytest.mark.parametrize(
    ("status", "launcher", "holds"),
    [
        (AgentStatus.ALLOCATING_WORKTREE, None, True),
        (AgentStatus.RUNNING, ProcessRef(1, "s"), True),
        (AgentStatus.FAILED, ProcessRef(1, "s"), False),
        (AgentStatus.CRASHED, ProcessRef(1, "s"), False),
        (AgentStatus.CRASHED, None, True),
    ],
)
def test_f_a6_an_agent_that_ran_and_ended_holds_its_slot_by_its_lease_only(
    status: AgentStatus, launcher: ProcessRef | None, holds: bool
) -> None:
    record = AgentRecord(id="fix", status=status, launcher=launcher, worktree_path="/pool/x")
    assert record.holds_slot is holds


def test_a_record_without_a_worktree_holds_no_slot() -> None:
    assert not AgentRecord(id="fix", status=AgentStatus.RUNNING).holds_slot
