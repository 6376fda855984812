"""Waiting for something to become true, with a deadline; never a bare sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(predicate: Callable[[], T], deadline: float = 30.0) -> T:
    """The first truthy answer of ``predicate``; fails the test when there is none within ``deadline`` seconds."""
    end = time.monotonic() + deadline
    while True:
        answer = predicate()
        if answer:
            return answer
        assert time.monotonic() < end, f"still {answer!r} after {deadline:g} s"
        time.sleep(0.01)
