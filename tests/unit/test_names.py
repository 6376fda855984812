"""Slugs, ids, branches and slot names."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents import names

QUICK = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize("hint", ["Fix-Login", "  fix login  ", "fix---login", "FIX_login", "--fix.login--"])
def test_u40_a_hint_becomes_kebab_case(hint: str) -> None:
    assert names.sanitise_slug(hint) == "fix-login"


def test_u41_a_hint_keeps_its_first_three_words() -> None:
    assert names.sanitise_slug("one two three four five") == "one-two-three"


def test_u42_punctuation_and_dots_are_stripped_from_a_hint() -> None:
    assert names.sanitise_slug("..(fix: login)!..") == "fix-login"


@pytest.mark.parametrize("hint", ["", "   ", "...", "-_-", "!?"])
def test_u43_a_hint_without_a_word_is_empty(hint: str) -> None:
    assert names.sanitise_slug(hint) == ""


@pytest.mark.parametrize(
    ("task", "slug"),
    [
        ("Fix the login of the admin page", "fix-login-admin"),
        ("Do it with an AND in the tests", "tests"),
        ("add (unit) tests, please", "add-unit-tests"),
        ("don't break it", "don-t-break"),
        ("upgrade\n\tto\npython 3.11 now", "upgrade-python-3"),
    ],
)
def test_u44_a_slug_is_the_first_three_meaningful_words_of_a_task(task: str, slug: str) -> None:
    assert names.slug_from_task(task) == slug


@pytest.mark.parametrize("task", ["", "   ", "the to and of", "?!"])
def test_u45_a_task_without_a_meaningful_word_gives_agent(task: str) -> None:
    assert names.slug_from_task(task) == "agent"


@pytest.mark.parametrize("taken", [set(), {"other", "fix-login-2", "fix"}])
def test_u46_an_id_that_is_free_stays_as_it_is(taken: set[str]) -> None:
    assert names.distinct_id("fix-login", taken) == "fix-login"


@pytest.mark.parametrize(
    ("taken", "given"),
    [
        ({"fix"}, "fix-2"),
        ({"fix", "fix-2"}, "fix-3"),
        ({"fix", "fix-3"}, "fix-2"),
        ({"FIX", "Fix-2"}, "fix-3"),
    ],
)
def test_u47_an_id_that_is_taken_in_any_letter_case_gets_the_first_free_number(taken: set[str], given: str) -> None:
    assert names.distinct_id("fix", taken) == given


def test_u48_the_branch_of_an_agent_carries_its_id() -> None:
    branch = names.branch_of("fix-login")
    assert branch == "side-agent/fix-login"
    assert branch[0] not in "/."


def test_a_long_word_gives_a_bounded_slug_without_a_dash_at_its_end() -> None:
    assert names.slug_from_task("x" * 300) == "x" * 48
    assert names.sanitise_slug("x" * 47 + " yz") == "x" * 47


@QUICK
@given(st.text())
def test_whatever_is_typed_the_slug_is_a_valid_id(text: str) -> None:
    slug = names.slug_from_task(text)
    hint = names.sanitise_slug(text)
    assert names.is_valid_id(slug)
    assert hint == "" or names.is_valid_id(hint)
    assert names.sanitise_slug(hint) == hint
    assert names.id_of_branch(names.branch_of(slug)) == slug


@QUICK
@given(st.text(alphabet="ab", min_size=1, max_size=2), st.sets(st.text(alphabet="abAB-23", max_size=4)))
def test_a_distinct_id_is_never_taken(candidate: str, taken: set[str]) -> None:
    found = names.distinct_id(candidate, taken)
    assert found.casefold() not in {name.casefold() for name in taken}
    assert found == candidate or found.startswith(f"{candidate}-")


@pytest.mark.parametrize(
    ("branch", "agent_id"),
    [
        ("side-agent/fix", "fix"),
        ("refs/heads/side-agent/fix", "fix"),
        ("side-agent/", None),
        ("side-agents/fix", None),
        ("main", None),
        ("x/side-agent/fix", None),
        ("", None),
    ],
)
def test_only_branches_of_agents_name_an_agent(branch: str, agent_id: str | None) -> None:
    assert names.id_of_branch(branch) == agent_id


def test_an_id_given_to_a_tool_ends_at_the_first_blank() -> None:
    assert names.normalise_id("  fix-login (running) ") == "fix-login"
    assert names.normalise_id("side-agent/fix\n") == "fix"
    assert names.normalise_id(" \n ") == ""


def test_ids_given_to_a_tool_are_each_taken_once_in_their_order() -> None:
    assert names.normalise_ids(["b", " a x", "", "b ", "side-agent/a"]) == ("b", "a")


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a/b", "../x", "a..b", "-x", ".x", "a.lock", "a.", "A", "a b", "a\n", "é", "a\0", "a" * 201],
)
def test_what_is_no_safe_folder_and_branch_part_is_no_id(text: str) -> None:
    assert not names.is_valid_id(text)


@pytest.mark.parametrize("text", ["a", "fix-login-2", "v1.2", "0", "a" * 200])
def test_slugs_and_older_ids_are_valid(text: str) -> None:
    assert names.is_valid_id(text)


POOL = PurePath("/home/me/my.repo")


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/home/me/my.repo-agent-worktree-0007", 7),
        ("/home/me/my.repo-agent-worktree-0007/", 7),
        (PurePath("/home/me/my.repo-agent-worktree-9999"), 9999),
        ("/home/me/my.repo-agent-worktree-10000", 10000),
        ("/home/me/my_repo-agent-worktree-0007", None),
        ("/home/me/other-agent-worktree-0007", None),
        ("/home/you/my.repo-agent-worktree-0007", None),
        ("/home/me/my.repo-agent-worktree-0007/sub", None),
        ("/home/me/my.repo-agent-worktree-007", None),
        ("/home/me/my.repo-agent-worktree-00007", None),
        ("/home/me/my.repo-agent-worktree-0007.bak", None),
        ("/home/me/my.repo-agent-worktree-0007\n", None),
        ("/home/me/my.repo-agent-worktree-\uff10\uff10\uff10\uff17", None),
        ("/home/me/my.repo-agent-worktree-" + "9" * 5000, None),
        ("", None),
        (None, None),
    ],
)
def test_f_a10_only_a_slot_of_this_pool_has_a_number(path: str | PurePath | None, number: int | None) -> None:
    assert names.slot_number(POOL, path) == number


@QUICK
@given(st.integers(min_value=1, max_value=99_999))
def test_f_a10_the_name_of_a_slot_gives_its_number_back(number: int) -> None:
    assert names.slot_number(POOL, POOL.parent / names.slot_name(POOL.name, number)) == number


def test_the_nearest_names_are_different_ones() -> None:
    assert names.nearest("fix-logn", ["fix-login"] * 5 + ["fix-logins", "other"]) == ["fix-login", "fix-logins"]
    assert names.nearest("zzz", ["fix-login"]) == []
