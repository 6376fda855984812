"""Messages, widths, directives and the captured input box of the script agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_agents.clients.script import ScriptClient
from side_agents.clients.script_directives import Directive, Verb, exit_code, parse, seconds, split_write
from side_agents.clients.script_screen import box_lines, footer_state, read_box
from side_agents.clients.script_text import clean_output, clip, take_message, text_width, wrap

DIVIDER = "─" * 40


@given(st.text(), st.integers(2, 40))
def test_wrapping_loses_nothing_and_keeps_the_width(text: str, columns: int) -> None:
    line = text.replace("\n", "")
    pieces = wrap(line, columns)
    assert "".join(pieces) == line
    assert all(text_width(piece) <= columns for piece in pieces)


def test_clipping_never_splits_a_wide_character() -> None:
    assert clip("a中文", 4) == "a中"
    assert clip("e\u0301x", 1) == "e\u0301"


@given(st.text())
def test_taking_a_message_twice_changes_nothing(text: str) -> None:
    assert take_message(take_message(text)) == take_message(text)


def test_a_message_keeps_all_but_line_ends_and_controls() -> None:
    assert take_message("  -a\tb \r\nc\rd\x1b[1m\x00\x9b\n\n") == "  -a\tb \nc\nd[1m"
    assert take_message("bad \udcff") == "bad \ufffd"


def test_output_loses_its_escape_sequences() -> None:
    assert clean_output("\x1b]0;t\x07a\x1b[1;31mb\x1b(Bc\r\n\x1b]8;;never ended\nd\te") == "abc\n\nd       e"


def test_directives_are_read_line_by_line() -> None:
    message = "say:  two blanks\nrun:ls: -l\n\n  \nturn\nquit \nsay what\nunknown: x\ncrash: no\nSAY: x\r\nask: q?"
    assert parse(message) == [
        Directive(Verb.SAY, " two blanks"),
        Directive(Verb.RUN, "ls: -l"),
        Directive(Verb.TURN),
        Directive(Verb.QUIT),
        Directive(Verb.ECHO, "say what"),
        Directive(Verb.ECHO, "unknown: x"),
        Directive(Verb.ECHO, "crash: no"),
        Directive(Verb.ECHO, "SAY: x"),
        Directive(Verb.ASK, "q?"),
    ]


def test_arguments_of_directives() -> None:
    assert split_write("a/b.txt one\\ntwo  ") == ("a/b.txt", "one\ntwo")
    assert split_write("only") == ("only", "")
    assert [seconds(text) for text in ("0.5", " 2 ", "-1", "nan", "inf", "x")] == [0.5, 2.0, None, None, None, None]
    assert [exit_code(text) for text in ("0", " 7", "256", "-1", "x", "²")] == [0, 7, 1, 1, 1, 1]


@given(st.text(alphabet="ab ─›中\n", max_size=60).filter(lambda text: text == take_message(text)))
def test_a_draft_can_be_read_back_from_the_screen(draft: str) -> None:
    screen = ["old line", DIVIDER, *box_lines(draft, 200, 100), DIVIDER, "script · idle", "", ""]
    captured = [line.rstrip(" ") for line in screen]
    if not any(line.strip("─") == "" for line in draft.split("\n") if line):
        assert read_box(captured) == draft


@pytest.mark.parametrize(
    "screen",
    [
        [],
        ["$ "],
        [DIVIDER, "›", DIVIDER],
        [DIVIDER, "›", DIVIDER, "script · idle", "shell$"],
        [DIVIDER, "Allow: x", "  y yes · n no", DIVIDER, "script · permission"],
        ["›", DIVIDER, "script · idle"],
    ],
)
def test_without_a_box_at_the_bottom_the_draft_is_unknown(screen: list[str]) -> None:
    assert ScriptClient().draft(screen) is None


@pytest.mark.parametrize(
    ("footer", "state", "busy"),
    [
        ("script · idle", "idle", False),
        ("script · busy 12s · esc to interrupt · m", "busy", True),
        ("script · question · esc to interrupt", "question", True),
        ("script · permission", "permission", True),
        ("script · dreaming", None, None),
        ("scripts", None, None),
    ],
)
def test_the_footer_tells_the_state(footer: str, state: str | None, busy: bool | None) -> None:
    assert footer_state(["x", footer, ""]) == state
    assert ScriptClient().is_busy([footer]) is busy
