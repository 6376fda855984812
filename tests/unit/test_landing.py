"""What the facts of a landing lead to: pure."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from side_agents.core.landing import (
    Facts,
    Outcome,
    TargetState,
    Verdict,
    judge,
)
from side_agents.core.landing_words import merge_message, shown_files, squash_message, worktree_words
from side_agents.models import AgentRecord, AgentStatus, EndedBy, FinishPolicy, Tombstone

FINE = Facts(
    agent_id="fix",
    slot="/w/app-agent-worktree-0001",
    own_branch="side-agent/fix",
    branch="side-agent/fix",
    target="main",
    policy=FinishPolicy.REBASE_FF,
    head="b" * 40,
    target_head="a" * 40,
    ahead=2,
    base="a" * 40,
    target_state=TargetState.CHECKED_OUT,
    checkout="/w/app",
)
NESTED = replace(
    FINE, target="side-agent/outer", is_nested=True, parent_checkout="/w/outer", parent_branch="side-agent/outer"
)


def test_the_exit_statuses_are_those_of_the_table() -> None:
    statuses = {outcome: outcome.exit_status for outcome in Outcome}

    fine = (Outcome.LANDED, Outcome.ALREADY_LANDED, Outcome.REQUESTED, Outcome.PUSHED, Outcome.READY)
    assert {statuses.pop(outcome) for outcome in fine} == {0}
    assert [outcome for outcome, _ in sorted(statuses.items(), key=lambda item: item[1])] == [
        Outcome.MISUSE,
        Outcome.CONFLICT,
        Outcome.LOCK_TIMEOUT,
        Outcome.PARENT_MOVED,
        Outcome.DIRTY,
        Outcome.UNFINISHED,
        Outcome.CHECK_FAILED,
        Outcome.OVERLAP,
        Outcome.NOT_MOVED,
        Outcome.NOTHING,
    ]
    assert sorted(statuses.values()) == list(range(1, 11))


CASES = [
    ({}, Outcome.READY),
    ({"behind": 3}, Outcome.READY),
    ({"conflicts": ()}, Outcome.READY),
    ({"target_state": TargetState.NOT_CHECKED_OUT, "checkout": None}, Outcome.READY),
    ({"operation": "rebase", "branch": None, "dirty": ("a",)}, Outcome.UNFINISHED),
    ({"branch": None}, Outcome.MISUSE),
    ({"branch": "main"}, Outcome.MISUSE),
    ({"target": "side-agent/fix"}, Outcome.MISUSE),
    ({"branch": "feature"}, Outcome.MISUSE),
    ({"dirty": ("a", "b")}, Outcome.DIRTY),
    ({"dirty": ("a",), "ahead": 0}, Outcome.DIRTY),
    ({"target_state": TargetState.MISSING}, Outcome.MISUSE),
    ({"ahead": 0, "head": "a" * 40}, Outcome.NOTHING),
    ({"ahead": 0, "behind": 4, "head": "a" * 40}, Outcome.NOTHING),
    ({"ahead": 0}, Outcome.ALREADY_LANDED),
    ({"contained": True, "behind": 1}, Outcome.ALREADY_LANDED),
    ({"covered": ("a",), "behind": 1}, Outcome.DIRTY),
    ({"foreign": 2}, Outcome.MISUSE),
    ({"foreign": 2, "target_is_chosen": True}, Outcome.READY),
    ({"target_state": TargetState.BUSY, "obstacle": "a merge is in progress"}, Outcome.NOT_MOVED),
    ({"conflicts": ("a",), "overlap": ("a",)}, Outcome.CONFLICT),
    ({"overlap": ("a",)}, Outcome.OVERLAP),
    ({"policy": FinishPolicy.PR, "overlap": ("a",), "target_state": TargetState.BUSY}, Outcome.READY),
]


@pytest.mark.parametrize(("changes", "outcome"), CASES)
def test_the_first_reason_against_a_landing_wins(changes: dict[str, object], outcome: Outcome) -> None:
    verdict = judge(replace(FINE, **changes))

    assert verdict.outcome is outcome
    assert bool(verdict.plan) == (outcome is Outcome.READY)
    assert verdict.already_landed == (outcome is Outcome.ALREADY_LANDED)
    assert verdict.message.endswith(".")


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.READY),
        ({"parent_branch": "main"}, Outcome.PARENT_MOVED),
        ({"parent_branch": None}, Outcome.PARENT_MOVED),
        ({"target_state": TargetState.MISSING}, Outcome.PARENT_MOVED),
        ({"parent_branch": None, "ahead": 0}, Outcome.ALREADY_LANDED),
        ({"parent_branch": None, "policy": FinishPolicy.PR}, Outcome.READY),
    ],
)
def test_a_nested_agent_lands_only_where_its_parent_stands(changes: dict[str, object], outcome: Outcome) -> None:
    assert judge(replace(NESTED, **changes)).outcome is outcome


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick", "revert", "am", "bisect"])
def test_x7_an_unfinished_operation_is_named_with_the_way_out(operation: str) -> None:
    verdict = judge(replace(FINE, operation=operation, branch=None))

    assert f"A {operation} is in progress" in verdict.message
    assert f"git {operation}" in (verdict.hint or "")


@pytest.mark.parametrize("policy", FinishPolicy)
@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("check", [None, "make test"])
def test_the_plan_names_the_check_before_anything_moves(policy: FinishPolicy, behind: int, check: str | None) -> None:
    plan = judge(replace(FINE, policy=policy, behind=behind, check=check)).plan
    moves = next(n for n, step in enumerate(plan) if step.startswith(("fast-forward", "push")))

    assert [step for step in plan[:moves] if "check" in step] == (["run the check: make test"] if check else [])
    assert not any("check" in step and "checkout" not in step for step in plan[moves:])


def test_the_plan_of_a_nested_request_pushes_the_parents_branch_first() -> None:
    plan = judge(replace(NESTED, policy=FinishPolicy.PR)).plan

    assert plan[:2] == ("push side-agent/outer", "push side-agent/fix")


def test_a_verdict_shows_what_it_was_made_from() -> None:
    facts = replace(FINE, dirty=("a b",), behind=7)
    verdict = judge(facts)
    shared = {f.name for f in fields(Verdict)} & {f.name for f in fields(Facts)} - {"conflicts", "overlap"}

    assert {name: getattr(verdict, name) for name in shared} == {name: getattr(facts, name) for name in shared}


def test_many_files_are_counted() -> None:
    assert shown_files(["a"]) == "a"
    assert shown_files([str(n) for n in range(9)]) == "0, 1, 2, 3, 4 and 4 more"


def test_one_message_stays_as_it_is_and_several_become_a_list() -> None:
    assert squash_message(["Fix it\n\nBecause.\n"]) == "Fix it\n\nBecause.\n"
    assert squash_message(["Fix it\n\nBecause.\n", "Test it\n"]) == "Fix it\n\n* Fix it\n\nBecause.\n\n* Test it\n"
    assert squash_message([]) == "Squashed changes\n"
    assert merge_message("side-agent/x", "main") == "Merge branch 'side-agent/x' into main\n"


def test_only_of_an_agent_that_lives_it_is_said_that_the_worktree_stays_with_it() -> None:
    words = {
        status: worktree_words(AgentRecord(id="fix", status=status, task="x"))
        for status in (AgentStatus.RUNNING, AgentStatus.WAITING_USER, AgentStatus.FAILED, AgentStatus.CRASHED)
    }
    assert [bool(said) for said in words.values()] == [True, True, False, False]
    assert worktree_words(Tombstone(id="fix", status=AgentStatus.DONE, ended_by=EndedBy.EXIT)) is None
