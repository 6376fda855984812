"""From lists, matrices and templates to tasks: what is filled in, what is refused, and what agents are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_agents.core import batch, parallel
from side_agents.core.batch import expand, lines_of, parse_matrix, parse_settings, read_template
from side_agents.errors import BusyError, NotFoundError, UsageError


def tasks(*given: str, matrix: tuple[str, ...] = (), **more: Any) -> list[str]:
    return [item.task for item in expand(given, parse_matrix(matrix), **more)]


def names(*given: str, matrix: tuple[str, ...] = (), **more: Any) -> list[str]:
    return [item.name for item in expand(given, parse_matrix(matrix), **more)]


def test_each_line_is_a_task_but_for_blank_ones_and_comments() -> None:
    assert lines_of("\n# first\nfix login\r\n   \n  #x\n  write # docs  \nfix login\n") == [
        "fix login",
        "write # docs",
        "fix login",
    ]


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n"])
def test_a_list_without_a_task_is_refused(content: str) -> None:
    with pytest.raises(UsageError, match="no task"):
        lines_of(content)


def test_a_matrix_gives_every_combination_in_order() -> None:
    assert tasks("test {PY} on {OS}", matrix=("PY=3.11,3.12", "OS=a,b")) == [
        "test 3.11 on a",
        "test 3.11 on b",
        "test 3.12 on a",
        "test 3.12 on b",
    ]


def test_a_list_and_a_matrix_give_every_task_with_every_value() -> None:
    assert tasks("fix {X}", "test {X}", matrix=("X=a,b",)) == ["fix a", "fix b", "test a", "test b"]


def test_other_braces_and_values_with_braces_stay_as_they_are() -> None:
    assert tasks('f"{x}" {{A}} {A} {B}', matrix=("A={B},2", "B=b,c"))[:2] == [
        'f"{x}" {{A}} {B} b',
        'f"{x}" {{A}} {B} c',
    ]


@pytest.mark.parametrize(
    "given",
    ["", "A", "=a", "A=", "A=a,", "A=a,,b", "A=a,a", "1=a", "A B=c", "A-B=c"],
    ids=lambda given: given or "(empty)",
)
def test_a_malformed_matrix_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="Nothing was started"):
        parse_matrix([given])


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="once"):
        parse_matrix(["A=a", "A=b"])
    with pytest.raises(UsageError, match="twice"):
        parse_settings(["A=a", "A=b"])


def test_a_key_that_stands_nowhere_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no \{A\}"):
        tasks("fix it", matrix=("A=1,2",))


def test_too_many_agents_are_refused() -> None:
    numbers = ",".join(map(str, range(batch.LIMIT + 1)))
    with pytest.raises(UsageError, match="at most"):
        tasks("fix {N}", matrix=(f"N={numbers}",))


def test_a_template_is_filled_in_from_settings_task_and_matrix() -> None:
    template = "You review {{AREA}} on {PY}.\n\n{{task}}\n{{AREA}}!"
    assert tasks("look at {PY}", matrix=("PY=3.11",), template=template, settings={"AREA": "a {PY} {{task}}"}) == [
        "You review a {PY} {{task}} on 3.11.\n\nlook at 3.11\na {PY} {{task}}!"
    ]


def test_what_only_looks_like_a_field_is_left_alone() -> None:
    text = "${{ matrix.os }} {{ x }} {{1}} {{}} {{{A}}}"
    assert tasks(template=text, settings={"A": "a"}) == ["${{ matrix.os }} {{ x }} {{1}} {{}} {a}"]


def test_everything_that_is_missing_is_named_before_anything_is_started() -> None:
    with pytest.raises(UsageError, match="needs A, B") as caught:
        tasks("x", template="{{B}} {{A}} {{task}}")
    assert caught.value.hint == "Add --set A=... --set B=..."


@pytest.mark.parametrize(
    ("given", "template", "settings", "words"),
    [
        (("x",), "no field", {}, "would be lost"),
        ((), "{{task}}", {}, "needs a task"),
        ((), "plain", {"A": "1"}, "no {{A}}"),
        (("x",), None, {"A": "1"}, "--template"),
        ((), "  \n", {}, "empty"),
    ],
)
def test_what_would_be_lost_or_is_empty_is_refused(
    given: tuple[str, ...], template: str | None, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        tasks(*given, template=template, settings=settings)
    assert words in caught.value.message


def test_the_task_is_no_setting() -> None:
    with pytest.raises(UsageError, match="task"):
        parse_settings(["task=x"])
    assert parse_settings(["A=b=c", "B="]) == {"A": "b=c", "B": ""}


def test_a_template_is_read_by_its_name_only(tmp_path: Path) -> None:
    (tmp_path / "review.md").write_text("\nDo it\n\n", encoding="utf-8")
    (tmp_path.parent / "secret.md").write_text("x", encoding="utf-8")
    assert read_template(tmp_path, "review") == "Do it"
    for odd in ("../secret", "/etc/passwd", "", ".", "..", "a/b", "a\nb"):
        with pytest.raises(UsageError):
            read_template(tmp_path, odd)
    with pytest.raises(NotFoundError) as caught:
        read_template(tmp_path, "rewiev")
    assert caught.value.hint == "There are: review."


def test_no_two_agents_of_a_batch_are_called_the_same() -> None:
    assert names("fix the login bug", "fix a login bug", "fix login bug in docs") == [
        "fix-login-bug",
        "fix-login-2",
        "fix-login-3",
    ]
    assert names("review the whole parser for {WHO}", matrix=("WHO=ann,bob",)) == [
        "ann-review-whole",
        "bob-review-whole",
    ]
    assert names("test {PY} please", matrix=("PY=3.11,3.12",)) == ["test-3-11", "test-3-12"]
    assert names("a", "b", name="Same Name") == ["same-name", "same-name-2"]


def test_an_agent_of_a_template_is_called_after_its_task() -> None:
    assert names("check logs", template="You are a careful reviewer.\n{{task}}") == ["check-logs"]


@given(st.lists(st.text(min_size=1).filter(lambda text: bool(text.strip())), min_size=1, max_size=12))
def test_whatever_the_tasks_are_the_names_differ(given: list[str]) -> None:
    found = names(*given)
    assert len(set(found)) == len(given)
    assert all(0 < len(name.split("-")) <= 3 for name in found)


@pytest.mark.parametrize("jobs", [1, 3, 50])
def test_results_come_in_the_order_of_the_items_and_a_failure_hinders_no_other(jobs: int) -> None:
    def work(number: int) -> int:
        if number == 2:
            raise BusyError("busy")
        return number * number

    outcomes = parallel.for_each(range(5), work, jobs=jobs)
    assert [each for each in outcomes if not isinstance(each, BusyError)] == [0, 1, 9, 16]
    assert isinstance(outcomes[2], BusyError)
    assert parallel.worst_status(outcomes) == 5
    assert parallel.worst_status([1, 2]) == 0


def test_an_interrupt_begins_nothing_more() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            raise KeyboardInterrupt
        return number

    with pytest.raises(KeyboardInterrupt):
        parallel.for_each(range(1000), _slowly(work), jobs=1)
    assert len(begun) < 1000


def _slowly(work: Callable[[int], int]) -> Callable[[int], int]:
    from side_agents.infra import clock

    def slow(number: int) -> int:
        clock.pause(0.002)
        return work(number)

    return slow


def test_a_template_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "huge.md").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="longer than 1 MiB"):
        read_template(tmp_path, "huge")
