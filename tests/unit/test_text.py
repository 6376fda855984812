"""Terminal text: what is kept, what is cut, and what may never come through."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_agents.infra import text

FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Hostile text: introducers, terminators, parameters and ordinary characters in any order.
PIECES = st.sampled_from(
    ["\x1b", "[", "]", "P", "_", "\\", "\x07", "\x9b", "\x9d", "\x9c", "\x90", "31m", ";", "\n", "a"]
)
HOSTILE = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))


def test_u3_the_tail_is_the_last_lines_in_order() -> None:
    assert text.tail_lines("a\nb\nc\nd\ne", 3) == ["c", "d", "e"]


def test_u4_a_final_newline_begins_no_line() -> None:
    assert text.tail_lines("a\nb\nc\n", 2) == ["b", "c"]


def test_u5_a_tail_longer_than_the_text_is_the_text() -> None:
    assert text.tail_lines("a\nb", 10) == ["a", "b"]


def test_u6_empty_text_has_no_lines() -> None:
    assert text.tail_lines("", 5) == []


def test_a_tail_of_nothing_is_empty() -> None:
    assert text.tail_lines("a\nb", 0) == []


def test_u7_blanks_and_dividers_do_not_count_as_backlog() -> None:
    lines = [f"line {n}" for n in range(1, 13)]
    noise = ["-----", "──────────", "   =====   ", "", "    "]
    assert text.select_backlog([*lines, *noise], 10) == lines[2:]


def test_a_line_of_nothing_but_colour_does_not_count_as_backlog() -> None:
    assert text.select_backlog(["real", "\x1b[31m\x1b[0m", "\x1b[2m-----\x1b[0m"], 1) == ["real"]


def test_u8_sanitising_drops_dividers_and_keeps_sentences_with_a_dash() -> None:
    lines = ["text", "──────", "-----", "a sentence - with a dash"]
    assert text.sanitise_backlog(lines) == ["text", "a sentence - with a dash"]


def test_u9_sanitising_leaves_no_escape_and_cuts_long_lines() -> None:
    lines = ["\x1b[32mgreen\x1b[0m", "x" * 400, "\x1b]0;a title\x07after the title"]
    kept = text.sanitise_backlog(lines, 80, 200)
    assert kept == ["green", "x" * 79 + "…", "after the title"]
    assert not any("\x1b" in line for line in kept)


def test_u10_a_visible_pane_with_a_footer_still_shows_content() -> None:
    footer = ["─" * 60, "> ", "─" * 60, "~/repo (main)", "12k tokens", "model: large"]
    pane = [f"content {n}" for n in range(20)] + footer
    backlog = text.sanitise_backlog(text.select_backlog(pane, 10))
    assert "content 19" in backlog
    assert not any(text.is_divider(line) for line in backlog)


def test_u11_footer_redraws_hide_the_content_of_a_log_but_not_of_a_pane() -> None:
    footer = ["~/repo (main)", "12k tokens"]
    log = "\n".join(["the answer", *footer * 200]) + "\n"
    pane = ["the answer", *footer]
    assert "the answer" not in text.select_backlog(text.tail_lines(log, 60), 10)
    assert "the answer" in text.select_backlog(pane, 10)


def test_u12_a_long_task_is_summarised_on_one_line_with_an_ellipsis() -> None:
    task = "Fix the login.\n\n  It fails when\tthe name is long. " * 10
    summary = text.one_line(task, 120)
    assert len(summary) == 120
    assert summary.startswith("Fix the login. It fails when the name")
    assert summary.endswith("…")
    assert "\n" not in summary


@pytest.mark.parametrize(("length", "expected"), [(0, 0), (199, 199), (200, 200), (201, 201), (300, 201)], ids=str)
def test_a_preview_is_200_characters_and_an_ellipsis(length: int, expected: int) -> None:
    shown = text.preview("x" * length)
    assert len(shown) == expected
    assert shown.endswith("…") == (length > 200)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[?25l\x1b[2Kgone", "gone"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x1b]0;never ended\x1b[31mred", "red"),
        ("\x1bPq#0;1\x1b\\after", "after"),
        ("\x1bPnever ended\nnext", "\nnext"),
        ("\x1b_apc\x1b\\a\x1b^pm\x1b\\b\x1bXsos\x1b\\c", "abc"),
        ("\x1bkscreen title\x1b\\shown", "shown"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x9d0;title\x9cshown", "shown"),
        ("\x90dcs\x9cshown\x85", "shown"),
        ("\x1b(Bplain\x1b7\x1b=", "plain"),
        ("\x1b\x1b[31mred", "red"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("50%\r100%\r\n", "50%100%\n"),
        ("a\tb\nc", "a\tb\nc"),
        ("bell\x07 null\x00 delete\x7f", "bell null delete"),
        ("raw byte \udc9b31m", "raw byte \ufffd31m"),
        ("é 修复 🐛", "é 修复 🐛"),
    ],
    ids=repr,
)
def test_controls_are_stripped(raw: str, clean: str) -> None:
    assert text.strip_controls(raw) == clean


@given(HOSTILE)
def test_whatever_comes_no_control_is_left_and_the_rest_can_be_encoded(hostile: str) -> None:
    clean = text.strip_controls(hostile)
    assert not FORBIDDEN.search(clean)
    clean.encode("utf-8")
    assert text.strip_controls(clean) == clean


@given(HOSTILE)
def test_no_sequence_swallows_a_line_break(hostile: str) -> None:
    assert text.strip_controls(hostile).count("\n") == hostile.count("\n")


def test_a_megabyte_of_unfinished_sequences_is_cleaned_like_any_text() -> None:
    for piece in ("\x1b]", "\x1b[0;", "\x1bP\x1b", "\x9d\x90", "\x1b[" + "1" * 60):
        assert not FORBIDDEN.search(text.strip_controls(piece * (1_000_000 // len(piece))))


@pytest.mark.parametrize("line", ["-----", "─────", "—————", "_____", "=====", "  ==-==  ", "-" * 300])
def test_five_of_the_divider_characters_make_a_divider(line: str) -> None:
    assert text.is_divider(line)


@pytest.mark.parametrize("line", ["", "----", "----- x", "- - - -", "│────│", "+++++"])
def test_anything_else_is_no_divider(line: str) -> None:
    assert not text.is_divider(line)


def test_the_line_that_overflows_the_total_is_cut_to_what_remains() -> None:
    assert text.sanitise_backlog(["a" * 6, "b" * 6, "c"], 240, 10) == ["aaaaaa", "bb…"]


@given(st.lists(HOSTILE, max_size=20), st.integers(1, 50), st.integers(0, 200))
def test_sanitised_backlog_keeps_its_limits(lines: list[str], line_limit: int, total_limit: int) -> None:
    kept = text.sanitise_backlog(lines, line_limit, total_limit)
    assert all(0 < len(line) <= line_limit for line in kept)
    assert len("\n".join(kept)) <= total_limit
    assert not any("\n" in line or FORBIDDEN.search(line) for line in kept)


def test_one_line_takes_controls_out_before_it_cuts() -> None:
    assert text.one_line("\x1b[31mred\x1b[0m  and\n blue ", 12) == "red and blue"


@pytest.mark.parametrize(
    "raw", ["safe\u202egnp.exe", "tag\U000e0041\U000e0042", "iso\u2066late\u2069d", "line\u2028break"], ids=ascii
)
def test_printable_text_shows_what_is_there(raw: str) -> None:
    assert text.printable(raw).isascii()


def test_printable_text_keeps_what_people_write() -> None:
    for plain in ("tab\tand\nnewline", "été 修复 שלום", "👨‍👩‍👧"):
        assert text.printable(plain) == plain


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("plain  words", "plain words"),
        ("été à Zürich", "ete a zurich"),
        ("e\u0301te\u0301", "ete"),
        ("straße", "strasse"),
        ("修复登录错误", "xiu fu deng lu cuo wu"),
        ("修复 login 错误", "xiu fu login cuo wu"),
        ("Исправить вход", "ispravit vkhod"),
        ("한국어 로그인", "hangugeo logeuin"),
        ("fix🐛now", "fix bug now"),
        ("\x1b[31mred\x1b[0m\U000e0041", "red"),
        ("", ""),
    ],
)
def test_any_script_becomes_ascii_words(raw: str, words: str) -> None:
    assert text.to_ascii(raw).lower() == words


@given(HOSTILE)
def test_transliterated_text_is_ascii_on_one_line(hostile: str) -> None:
    words = text.to_ascii(hostile)
    assert words.isascii()
    assert words == " ".join(words.split())
    assert words.isprintable()
