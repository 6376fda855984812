"""Times as they are stored."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from side_agents.errors import StateError
from side_agents.infra import clock

MOMENT = datetime(2026, 3, 3, 2, 58, tzinfo=UTC)


def test_now_is_aware_and_in_utc() -> None:
    assert clock.now().utcoffset() == timedelta(0)


def test_times_are_written_in_utc_with_milliseconds_and_z() -> None:
    assert clock.iso(MOMENT) == "2026-03-03T02:58:00.000Z"
    assert clock.iso(MOMENT.astimezone(timezone(timedelta(hours=8)))) == "2026-03-03T02:58:00.000Z"
    assert clock.iso(MOMENT.replace(microsecond=123999)) == "2026-03-03T02:58:00.123Z"


def test_without_a_moment_the_current_time_is_written() -> None:
    before = clock.now() - timedelta(milliseconds=1)
    assert before <= clock.parse_iso(clock.iso()) <= clock.now()


@pytest.mark.parametrize(
    "text",
    ["2026-03-03T02:58:00.000Z", "2026-03-03T02:58:00Z", "2026-03-03T10:58:00+08:00", "2026-03-03T02:58:00"],
)
def test_all_usual_forms_are_read_as_utc(text: str) -> None:
    moment = clock.parse_iso(text)
    assert moment == MOMENT
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="not a time"):
        clock.parse_iso(text)


def test_a_stamp_is_a_safe_file_name_and_sorts_by_age() -> None:
    first, second = clock.stamp(), clock.stamp()
    assert re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z", first)
    assert first <= second


def test_the_monotonic_clock_does_not_go_back() -> None:
    assert clock.monotonic() <= clock.monotonic()
