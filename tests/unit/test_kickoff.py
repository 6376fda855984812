"""The first prompt of an agent."""

from __future__ import annotations

import pytest

from side_agents.core.kickoff import NestedParent, as_log_entry, kickoff_prompt

TASK = '  Fix the login.\n\n- with "quotes" and $HOME\n'
SESSION = "/home/me/.pi/sessions/s.jsonl"


def test_u36_the_prompt_starts_with_the_task_and_names_the_session() -> None:
    prompt = kickoff_prompt(TASK, SESSION)
    assert prompt.startswith(TASK)
    assert SESSION in prompt


@pytest.mark.parametrize(
    "session", [pytest.param(None, id="u37_no_session"), pytest.param("", id="u38_an_empty_session")]
)
def test_u37_u38_without_a_session_the_prompt_is_exactly_the_task(session: str | None) -> None:
    assert kickoff_prompt(TASK, session) == TASK


def test_u39_the_session_line_comes_third_after_an_empty_one() -> None:
    assert kickoff_prompt("Fix it.", SESSION).split("\n") == ["Fix it.", "", f"Parent Pi session: {SESSION}"]


def test_a_session_of_another_client_is_not_called_one_of_pi() -> None:
    assert kickoff_prompt("Fix it.", "0af3-11").endswith("\n\nParent session: 0af3-11")


def test_a_nested_agent_learns_who_started_it_and_where_its_work_goes() -> None:
    prompt = kickoff_prompt("Fix it.", None, NestedParent("outer", 1, "side-agent/outer", "/pool/slot-0001"))
    task, heading, *facts = prompt.split("\n\n", 1)[0], *prompt.split("\n\n", 1)[1].split("\n")
    assert task == "Fix it."
    assert heading.startswith("## ")
    text = "\n".join(facts)
    assert "`outer`" in text
    assert "your depth is 2" in text
    assert "`side-agent/outer`" in text
    assert "/pool/slot-0001" in text


def test_the_log_shows_every_line_of_the_prompt_between_two_marks() -> None:
    lines = as_log_entry("one\n\nthree", "fix", "2026-03-03T02:58:00.000Z").split("\n")
    assert lines == [
        "[side-agent][prompt] 2026-03-03T02:58:00.000Z fix begin",
        "[side-agent][prompt] one",
        "[side-agent][prompt] ",
        "[side-agent][prompt] three",
        "[side-agent][prompt] 2026-03-03T02:58:00.000Z fix end",
        "",
    ]
