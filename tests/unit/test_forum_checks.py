"""The rules for what may be stored, at their bounds."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_agents.forum import checks, limits
from side_agents.forum.requests import AttachmentInput, Provenance
from tests.support.forum import refusal

CONTROLS = ["\0", "\x07", "\x1b[31m", "\x7f", "\x85", "\ud800"]


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "9", "x" * 64])
def test_a_name_that_is_allowed_is_kept(name: str) -> None:
    assert checks.name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 65, ".a", "-a", "_a", "a b", "a/b", "ä", "a\n", "a\0"])
def test_another_name_is_refused(name: str) -> None:
    refusal("invalid_argument", lambda: checks.name(name), field="name")


def test_keys_are_any_printable_text_of_1_to_128_characters() -> None:
    assert checks.key("Ünit 7/entry:3", "contextKey") == "Ünit 7/entry:3"
    assert checks.key("k" * 128, "contextKey")
    for bad in ("", "k" * 129, "a\nb", *CONTROLS):
        refusal("invalid_argument", lambda bad=bad: checks.key(bad, "contextKey"), field="contextKey")


def test_a_subforum_key_is_a_slug() -> None:
    assert checks.subforum_key("a-9") == "a-9"
    for bad in ("", "A", "-a", "a_b", "a" * 65, "a\n"):
        refusal("invalid_argument", lambda bad=bad: checks.subforum_key(bad))


def test_a_title_is_trimmed_and_then_has_1_to_200_characters() -> None:
    assert checks.title("  Ein Titel ") == "Ein Titel"
    assert checks.title(" " * 50 + "😀" * 200) == "😀" * 200
    for bad in ("", "   ", "x" * 201, "a\nb", "a\tb", *CONTROLS):
        refusal("invalid_argument", lambda bad=bad: checks.title(f"x{bad}x" if bad in CONTROLS else bad), field="title")


def test_a_body_is_counted_in_bytes_and_kept_exactly() -> None:
    assert checks.body(" \n\ta ") == " \n\ta "
    assert checks.body("ä" * (limits.BODY_BYTES // 2))
    refusal("invalid_argument", lambda: checks.body(""), field="body")
    refusal("invalid_argument", lambda: checks.body("ä" * (limits.BODY_BYTES // 2) + "x"), field="body")
    for bad in ("\r\n", *CONTROLS):
        refusal("invalid_argument", lambda bad=bad: checks.body(f"a{bad}b"), field="body")


def nested(depth: int) -> dict[str, Any]:
    return {"k": nested(depth - 1)} if depth > 1 else {"k": 1}


def test_metadata_may_be_eight_levels_deep() -> None:
    assert checks.metadata(nested(8)) == nested(8)
    refusal("invalid_argument", lambda: checks.metadata(nested(9)), field="metadata")
    refusal("invalid_argument", lambda: checks.metadata({"a": [[[[[[[[1]]]]]]]]}), field="metadata")


def test_metadata_may_have_64_kib_of_json() -> None:
    room = limits.METADATA_BYTES - len('{"k":""}')
    assert checks.metadata({"k": "x" * room})
    refusal("invalid_argument", lambda: checks.metadata({"k": "x" * (room + 1)}), field="metadata")


@pytest.mark.parametrize(
    "value",
    [
        {"": 1},
        {"_own": 1},
        {"a.b": 1},
        {"ä": 1},
        {"a\n": 1},
        {"a": {"_x": 1}},
        {"a": [{"b c": 1}]},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": 2**63},
        {"a": "\0"},
        {"a": ["\ud800"]},
    ],
)
def test_metadata_that_could_not_be_searched_or_repeated_is_refused(value: dict[str, Any]) -> None:
    refusal("invalid_argument", lambda: checks.metadata(value), field="metadata")


def test_absent_metadata_is_empty() -> None:
    assert checks.metadata(None) == {}
    assert checks.terms({}) == []


def test_terms_repeat_the_key_for_arrays_and_join_keys_of_objects_with_dots() -> None:
    value = {"tag": ["x", "y", "x"], "a": {"b": {"c": 1}, "d": [True, None, 1.5]}, "e": {}, "f": [[2]]}

    assert checks.terms(value) == [
        ("a.b.c", "1"),
        ("a.d", "1.5"),
        ("a.d", "null"),
        ("a.d", "true"),
        ("f", "2"),
        ("tag", "x"),
        ("tag", "y"),
    ]


@given(st.dictionaries(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_]{0,5}\Z"), st.integers(-(2**63), 2**63 - 1)))
def test_metadata_that_is_allowed_comes_out_as_it_went_in(value: dict[str, int]) -> None:
    assert checks.metadata(value) == value
    assert checks.terms(value) == sorted((key, str(number)) for key, number in value.items())


def test_t118_provenance_has_nine_fields_of_which_the_open_ones_are_left_out() -> None:
    full = Provenance(
        host_session_id="h",
        transcript_ref="t",
        context_key="c",
        turn_id="u",
        entry_id="e",
        tool_call_id="k",
        provider="p",
        model="m",
        origin="model",
    )
    assert checks.provenance(full) == {
        "hostSessionId": "h",
        "transcriptRef": "t",
        "contextKey": "c",
        "turnId": "u",
        "entryId": "e",
        "toolCallId": "k",
        "provider": "p",
        "model": "m",
        "origin": "model",
    }
    assert checks.provenance(Provenance(origin="user")) == {"origin": "user"}
    assert checks.provenance(None) == {}


def test_t127_oversize_provenance_is_refused() -> None:
    assert checks.provenance(Provenance(model="m" * 256))
    refusal("invalid_argument", lambda: checks.provenance(Provenance(model="m" * 257)), field="provenance.model")
    refusal("invalid_argument", lambda: checks.provenance(Provenance(turn_id="\x1b")), field="provenance.turnId")
    # Eight fields of four-byte characters, each within its bound, are too much together.
    wide = "😀" * 256
    fields = ("host_session_id", "transcript_ref", "context_key", "turn_id", "entry_id")
    refusal(
        "invalid_argument",
        lambda: checks.provenance(Provenance(**dict.fromkeys(fields, wide))),
        field="provenance",
    )


def attachment(data: bytes = b"x", name: str = "a.txt", media_type: str = "text/plain") -> AttachmentInput:
    return AttachmentInput(name=name, media_type=media_type, data=base64.b64encode(data).decode())


def test_attachments_are_decoded_and_hashed_here() -> None:
    (found,) = checks.attachments([attachment(b"\0\xff")])

    assert (found.data, found.size, found.sha256) == (b"\0\xff", 2, hashlib.sha256(b"\0\xff").digest())


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", "\x1b", "ä" * 128])
def test_an_attachment_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    refusal("invalid_argument", lambda: checks.attachments([attachment(name=name)]), field="attachments.0.name")


@pytest.mark.parametrize("media_type", ["", "text", "text/", "/plain", "text/plain; charset=x", "text/html\n", "a b/c"])
def test_a_media_type_that_is_none_is_refused(media_type: str) -> None:
    action = lambda: checks.attachments([attachment(), attachment(media_type=media_type)])  # noqa: E731
    refusal("invalid_argument", action, field="attachments.1.mediaType")


@pytest.mark.parametrize("data", ["x", "eA", "e A=", "eA==\n", "ä===", "e-_="])
def test_data_that_is_not_base64_is_refused(data: str) -> None:
    bad = AttachmentInput(name="a", media_type="a/b", data=data)
    refusal("invalid_argument", lambda: checks.attachments([bad]), field="attachments.0.data")


def test_attachments_are_bounded_one_by_one_by_number_and_together() -> None:
    full = attachment(b"x" * limits.ATTACHMENT_BYTES)
    assert len(checks.attachments([full] * limits.ATTACHMENTS_PER_POST)) == 4
    refusal("invalid_argument", lambda: checks.attachments([attachment()] * 5), field="attachments")
    for excess in (1, 2, 3, 100):
        big = attachment(b"x" * (limits.ATTACHMENT_BYTES + excess))
        refusal("invalid_argument", lambda big=big: checks.attachments([big]), field="attachments.0.data")


@pytest.mark.parametrize("key", ["k" * 16, "k" * 128, "A-z_0.9~AAAAAAAA"])
def test_an_idempotency_key_of_16_to_128_plain_characters_is_taken(key: str) -> None:
    assert checks.idempotency_key(key) == key


def test_a_missing_key_and_a_malformed_one_are_told_apart() -> None:
    for missing in (None, ""):
        refusal("idempotency_key_required", lambda missing=missing: checks.idempotency_key(missing))
    for bad in ("k" * 15, "k" * 129, "k" * 16 + " ", "k" * 16 + "\n", "ä" * 16):
        refusal("invalid_argument", lambda bad=bad: checks.idempotency_key(bad), field="Idempotency-Key")


def test_a_sequence_is_plain_digits_within_the_databases_range() -> None:
    assert checks.sequence("0", "through") == 0
    assert checks.sequence(str(2**63 - 1), "through") == 2**63 - 1
    for bad in ("", "-1", "+1", "01", "1.0", " 1", "١", str(2**63), "1" * 30):
        refusal("invalid_argument", lambda bad=bad: checks.sequence(bad, "through"), field="through")
