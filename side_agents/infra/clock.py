"""Time as the product writes it: aware UTC, ISO 8601 with milliseconds and ``Z``."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from side_agents.errors import StateError


def now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never goes back; only differences mean anything."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Let time pass where nothing can be waited for, such as between two looks at a screen."""
    time.sleep(seconds)


def iso(moment: datetime | None = None) -> str:
    """``2026-03-03T02:58:00.000Z`` for an aware datetime, or for now."""
    utc = (moment or now()).astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"


def parse_iso(text: str) -> datetime:
    """An aware UTC datetime from ISO 8601 text, taken as UTC when it names no zone. Raises StateError."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise StateError(f"{text!r} is not a time in ISO 8601 form.") from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def stamp() -> str:
    """The current time as a file name that sorts by age: ``20260303T025800.123456Z``."""
    return now().strftime("%Y%m%dT%H%M%S.%fZ")
