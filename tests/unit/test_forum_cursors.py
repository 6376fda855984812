"""Cursors: sealed, bound to one listing of one session, and honest about a store that was put back."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_agents.forum.cursors import Cursors, Kind
from tests.support.forum import refusal

CURSORS = Cursors("in_1", 1, b"k" * 32)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(
    kind=st.sampled_from(Kind),
    session=st.text(max_size=30),
    stream=st.text(max_size=60),
    position=st.lists(st.one_of(st.integers(0, 2**63 - 1), st.text(max_size=20)), max_size=3),
)
def test_a_cursor_gives_back_its_position_to_its_own_listing(
    kind: Kind, session: str, stream: str, position: list[int | str]
) -> None:
    text = CURSORS.encode(kind, session, stream, *position)
    assert CURSORS.decode(text, kind, session, stream) == tuple(position)
    assert set(text) <= set(ALPHABET)


def test_t159_every_edited_character_is_refused() -> None:
    text = CURSORS.encode(Kind.EVENTS, "as_1", "involved;1", 41)
    for place, letter in enumerate(text):
        other = ALPHABET[(ALPHABET.index(letter) + 1) % 64]
        edited = text[:place] + other + text[place + 1 :]
        refusal("invalid_cursor", lambda edited=edited: CURSORS.decode(edited, Kind.EVENTS, "as_1", "involved;1"))


@pytest.mark.parametrize(
    "text", ["", "6", "41", "²", "x", "====", "abc def", "é", "A" * 1025, "AAAA", "\ud800", "bm90LWEtY3Vyc29y"]
)
def test_t156_what_is_no_cursor_is_refused(text: str) -> None:
    refusal("invalid_cursor", lambda: CURSORS.decode(text, Kind.POSTS, "as_1", "th_1"), field="query.cursor")


def test_t156_a_number_is_told_apart_from_a_cursor() -> None:
    error = refusal("invalid_cursor", lambda: CURSORS.decode("6", Kind.POSTS, "as_1", "th_1"))
    assert error.status == 422
    assert "plain number" in error.message
    assert "nextCursor" in (error.hint or "")


@pytest.mark.parametrize("end", ["=", "\n", " "])
def test_a_second_spelling_of_a_cursor_is_refused(end: str) -> None:
    text = CURSORS.encode(Kind.EVENTS, "as_1", "s", 41)
    refusal("invalid_cursor", lambda: CURSORS.decode(text + end, Kind.EVENTS, "as_1", "s"))


def test_t157_no_kind_is_taken_for_another() -> None:
    for kind in Kind:
        text = CURSORS.encode(kind, "as_1", "s", 1)
        for other in set(Kind) - {kind}:
            refusal("invalid_cursor", lambda text=text, other=other: CURSORS.decode(text, other, "as_1", "s"))


def test_invariant_31_another_session_and_another_scope_are_refused() -> None:
    text = CURSORS.encode(Kind.EVENTS, "as_1", "involved;1", 41)
    refusal("invalid_cursor", lambda: CURSORS.decode(text, Kind.EVENTS, "as_2", "involved;1"))
    error = refusal("cursor_scope_mismatch", lambda: CURSORS.decode(text, Kind.EVENTS, "as_1", "watched-threads;1"))
    assert error.status == 422


def test_invariant_31_another_installation_is_refused_even_with_the_same_key() -> None:
    text = CURSORS.encode(Kind.EVENTS, "as_1", "s", 41)
    for other in (Cursors("in_2", 1, b"k" * 32), Cursors("in_1", 1, b"j" * 32)):
        refusal("invalid_cursor", lambda other=other: other.decode(text, Kind.EVENTS, "as_1", "s"))


def test_t231_invariant_57_another_epoch_is_told_as_expired() -> None:
    text = CURSORS.encode(Kind.EVENTS, "as_1", "s", 41)
    later = Cursors("in_1", 2, b"k" * 32)
    error = refusal("cursor_expired", lambda: later.decode(text, Kind.EVENTS, "as_1", "s"))
    assert error.status == 410
    assert not error.retryable


def test_the_epoch_is_inside_the_seal() -> None:
    text = CURSORS.encode(Kind.EVENTS, "as_1", "s", 41)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    named = json.loads(raw[:-16])
    named[3] = 2
    forged = (
        base64.urlsafe_b64encode(json.dumps(named, separators=(",", ":")).encode() + raw[-16:]).decode().rstrip("=")
    )
    refusal("invalid_cursor", lambda: Cursors("in_1", 2, b"k" * 32).decode(forged, Kind.EVENTS, "as_1", "s"))


def test_the_key_is_not_in_what_is_printed() -> None:
    assert "kkkk" not in repr(CURSORS)
