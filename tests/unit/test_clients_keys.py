"""Bytes of a terminal to keys, however the reads cut them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents.clients.script_keys import Key, KeyKind, KeyReader

PASTE = b"\x1b[200~%s\x1b[201~"


def keys_of(*chunks: bytes) -> list[Key]:
    reader = KeyReader()
    return [key for chunk in chunks for key in reader.feed(chunk)] + reader.flush()


def joined(keys: list[Key]) -> list[Key]:
    """Merge neighbouring texts, which depend on how the reads were cut."""
    merged: list[Key] = []
    for key in keys:
        if merged and key.kind is merged[-1].kind is KeyKind.TEXT:
            merged[-1] = Key(KeyKind.TEXT, merged[-1].text + key.text)
        else:
            merged.append(key)
    return merged


@given(st.text(), st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_a_stream_means_the_same_however_it_is_cut(text: str, step: int) -> None:
    stream = b"a\x1b[A" + PASTE % text.encode("utf-8", "replace") + "中\r👩‍👩‍👧\x1bOP\x1b[1;5Cz\n".encode()
    chunks = [stream[start : start + step] for start in range(0, len(stream), step)]
    assert joined(keys_of(*chunks)) == joined(keys_of(stream))


def test_a_paste_is_one_key_with_newlines_and_without_controls() -> None:
    assert keys_of(PASTE % b"a\rb\r\nc\x07\x1b[31m\td") == [Key(KeyKind.PASTE, "a\nb\nc[31m\td")]


def test_keys_inside_a_paste_are_text() -> None:
    assert [key.kind for key in keys_of(PASTE % b"\x03\x04y\r")] == [KeyKind.PASTE]


def test_an_escape_before_a_paste_is_the_escape_key() -> None:
    assert keys_of(b"\x1b" + PASTE % b"x") == [Key(KeyKind.ESCAPE), Key(KeyKind.PASTE, "x")]


def test_a_lone_escape_waits_for_what_may_follow() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.undecided
    assert reader.flush() == [Key(KeyKind.ESCAPE)]
    assert not reader.undecided
    assert reader.feed(b"\x1b") + reader.feed(b"[A") == []


def test_an_endless_sequence_is_dropped_and_typing_goes_on() -> None:
    assert keys_of(b"\x1b[" + b"1" * 40 + b"\r")[-1] == Key(KeyKind.ENTER)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x03", KeyKind.INTERRUPT),
        (b"\x04", KeyKind.END),
        (b"\n", KeyKind.NEWLINE),
        (b"\r", KeyKind.ENTER),
        (b"\x1a", KeyKind.SUSPEND),
        (b"\x7f", KeyKind.BACKSPACE),
        (b"\x15", KeyKind.DELETE_LINE),
    ],
)
def test_control_keys(data: bytes, kind: KeyKind) -> None:
    assert keys_of(data) == [Key(kind)]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert keys_of(b"a\xff\xe4\r") == [Key(KeyKind.TEXT, "a\ufffd\ufffd"), Key(KeyKind.ENTER)]
