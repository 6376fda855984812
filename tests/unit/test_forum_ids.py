"""Identifiers, credentials, and the canonical form of requests."""

from __future__ import annotations

import base64
import secrets
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_agents.forum import ids
from tests.support.forum import refusal

URL_SAFE = string.ascii_letters + string.digits + "-_"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_t030_a_credential_is_af_and_43_characters_that_decode_to_32_bytes() -> None:
    credential = ids.new_credential()

    assert credential.startswith("af_")
    assert len(credential) == 46
    assert set(credential[3:]) <= set(URL_SAFE)
    assert len(base64.urlsafe_b64decode(credential[3:] + "=")) == 32


def test_t031_a_thousand_credentials_are_distinct_and_from_the_systems_generator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len({ids.new_credential() for _ in range(1000)}) == 1000

    monkeypatch.setattr(secrets, "token_bytes", lambda count: b"\xff" * count)
    assert ids.new_credential() == "af_" + "_" * 42 + "8"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "af_",
        "af_" + "A" * 42,
        "af_" + "A" * 44,
        "af_" + "A" * 43 + "=",
        "af_" + "A" * 42 + "+",
        "af_" + "A" * 42 + "/",
        "af_" + "A" * 43 + "\n",
        "AF_" + "A" * 43,
        " af_" + "A" * 43,
        "af_" + "A" * 42 + "é",
    ],
)
def test_t041_a_malformed_credential_is_refused_without_being_repeated(text: str) -> None:
    error = refusal("bad_credential_format", lambda: ids.credential_hash(text), field="body.credential")

    assert text == "" or text.strip() == "af_" or text not in str(error)


@given(st.binary(min_size=32, max_size=32))
def test_t041_of_the_spellings_that_decode_to_the_same_bytes_one_is_accepted(raw: bytes) -> None:
    canonical = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    position = URL_SAFE_ORDER.index(canonical[-1])
    others = [URL_SAFE_ORDER[position + step] for step in (1, 2, 3)]

    assert len(ids.credential_hash("af_" + canonical)) == 32
    for last in others:
        assert base64.urlsafe_b64decode(canonical[:-1] + last + "=") == raw
        refusal("bad_credential_format", lambda last=last: ids.credential_hash("af_" + canonical[:-1] + last))


URL_SAFE_ORDER = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


def test_identifiers_have_the_form_that_is_asked_for_and_no_other() -> None:
    one, two = ids.ulid("ag"), ids.ulid("ag")

    assert one != two
    assert ids.is_ulid("ag", one)
    assert not ids.is_ulid("as", one)
    for broken in (one.lower(), one + "0", one[:-1], one.replace("ag_", "ag-"), one + "\n", "ag_8" + one[4:]):
        assert not ids.is_ulid("ag", broken)


def test_the_time_in_an_identifier_is_the_time_of_its_making(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "now_ms", lambda: 0)
    assert ids.ulid("ag").startswith("ag_0000000000")

    monkeypatch.setattr(ids, "now_ms", lambda: 2**48 - 1)
    assert ids.ulid("ag").startswith("ag_7ZZZZZZZZZ")


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_the_digest_ignores_the_order_of_keys_and_nothing_else(value: dict[str, object]) -> None:
    turned = dict(reversed(value.items()))

    assert ids.digest(value) == ids.digest(turned)
    assert ids.digest({**value, "another": 1}) != ids.digest(value) or value.get("another") == 1


def test_lists_and_types_are_part_of_the_digest() -> None:
    values = [[1, 2], [2, 1], ["1", 2], [True, 2], [1.0, 2], [None, 2], [[1], 2], {"1": 2}]

    assert len({ids.digest(value) for value in values}) == len(values)
