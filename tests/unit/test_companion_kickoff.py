"""What ``/agent`` passes on of the conversation that it is typed in (reference/side-agents 2.5, 2.6)."""

from __future__ import annotations

import pytest

from side_agents.core import kickoff
from side_agents.core.kickoff import NestedParent, kickoff_prompt, passed_on, relevant_summary
from side_agents.core.results import Handover
from side_agents.infra import text
from side_agents.models import Handoff

SESSION = "/home/me/.pi/sessions/s.jsonl"
LINE = f"Parent Pi session: {SESSION}"
NESTED = NestedParent("outer", 1, "side-agent/outer", "/pool/slot-0001")


def prompt(
    handover: Handover | None, handoff: Handoff = Handoff.SUMMARY, session: str | None = SESSION, **more: bool
) -> str:
    passed = passed_on(handover, handoff) if handover is not None else kickoff.TOOL_START
    return kickoff_prompt(
        "Fix it.",
        session,
        summary=passed.summary,
        names_session=passed.names_session,
        boundary=more.get("boundary", False),
    )


@pytest.mark.parametrize(
    ("handover", "handoff", "expected"),
    [
        pytest.param(None, Handoff.SUMMARY, f"Fix it.\n\n{LINE}", id="u36_u39_tool_start"),
        pytest.param(Handover(has_messages=False), Handoff.SUMMARY, "Fix it.", id="no_messages"),
        pytest.param(Handover(), Handoff.SUMMARY, f"Fix it.\n\n{LINE}", id="empty_summary"),
        pytest.param(Handover(summary="NONE"), Handoff.SUMMARY, f"Fix it.\n\n{LINE}", id="none"),
        pytest.param(Handover(summary_failed=True), Handoff.SUMMARY, f"Fix it.\n\n{LINE}", id="failed"),
        pytest.param(
            Handover(summary="- keep the API"),
            Handoff.SUMMARY,
            f"Fix it.\n\n## Parent session\n- {SESSION}\n\n## Relevant parent context\n- keep the API",
            id="summary",
        ),
        pytest.param(Handover(summary="- keep"), Handoff.SESSION, f"Fix it.\n\n{LINE}", id="only_the_session"),
        pytest.param(Handover(summary="- keep"), Handoff.NONE, "Fix it.", id="nothing"),
    ],
)
def test_each_case_has_its_prompt(handover: Handover | None, handoff: Handoff, expected: str) -> None:
    assert prompt(handover, handoff) == expected


@pytest.mark.parametrize("session", [None, ""])
def test_u37_u38_without_a_session_there_is_only_the_task_and_a_summary_says_that_it_is_unknown(
    session: str | None,
) -> None:
    assert prompt(None, session=session) == "Fix it."
    assert prompt(Handover(), session=session) == "Fix it."
    assert "## Parent session\n- (unknown)\n\n" in prompt(Handover(summary="- x"), session=session)


def test_a_failed_summary_is_a_warning_and_an_empty_one_is_none() -> None:
    assert passed_on(Handover(summary_failed=True), Handoff.SUMMARY).warnings == (kickoff.SUMMARY_FAILED,)
    assert passed_on(Handover(summary="none"), Handoff.SUMMARY).warnings == ()
    assert passed_on(Handover(summary_failed=True), Handoff.SESSION).warnings == ()


def test_a_boundary_names_no_conversation_and_says_what_may_be_used() -> None:
    for handover in (None, Handover(), Handover(summary="- keep the API")):
        text_ = prompt(handover, boundary=True)
        assert SESSION not in text_
        assert "## Parent session" not in text_
        assert text_.startswith("Fix it.\n\n")
        assert "## Context boundary" in text_
        assert "stop and report" in text_
    assert "- keep the API" in prompt(Handover(summary="- keep the API"), boundary=True)


def test_a_nested_agent_gets_its_section_after_the_context_and_before_the_boundary() -> None:
    found = kickoff_prompt("Fix it.", SESSION, NESTED, summary="- keep", boundary=True)
    places = [found.index(part) for part in ("Fix it.", "## Relevant", "## You are a nested", "## Context boundary")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "raw",
    ["", "  \n", "NONE", "none.", "N/A", "n/a", "Unrelated", "No relevant context", "no relevant context from parent session.",
     "```\nNONE\n```", "**None**", "\x1b[31mNONE\x1b[0m"],
)  # fmt: skip
def test_what_says_nothing_counts_as_nothing(raw: str) -> None:
    assert relevant_summary(raw) == ""


@pytest.mark.parametrize(
    ("raw", "summary"),
    [
        ("- keep the API", "- keep the API"),
        ("```markdown\n- a\n- b\n```", "- a\n- b"),
        ("```md\r\n- a\r\n```", "- a"),
        ("before ```code``` after", "before ```code``` after"),
        ("- a   \n\n\n\n- b", "- a\n\n- b"),
        ("\x1b]0;t\x07- \x1b[1ma", "- a"),
        ("none of the tests may change", "none of the tests may change"),
    ],
)
def test_a_summary_is_cleaned(raw: str, summary: str) -> None:
    assert relevant_summary(raw) == summary


def test_a_summary_is_bounded_by_lines_and_by_characters() -> None:
    many = relevant_summary("\n".join(f"- {number}" for number in range(50)))
    assert many.split("\n") == [f"- {number}" for number in range(10)]
    long = relevant_summary("x" * 5000)
    assert len(long) == 700
    assert long.endswith(text.ELLIPSIS)
