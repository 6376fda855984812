"""One request to a forum and its answer, however they travel; what both ways of travelling share.

A transport sends exactly one request, follows nothing, retries nothing, and says honestly when it does not know whether
the request arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from side_agents.errors import ForumError

# Codes of what went wrong on the way; none of them is on the wire.
UNREACHABLE = "unreachable"
NO_ANSWER = "no_answer"
BAD_ANSWER = "bad_answer"
CANCELLED = "cancelled"


class Signal:
    """Something that happens once, in any thread: a request to stop, an end."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def fire(self) -> None:
        """It happens; everything that was registered is called once, in this thread."""
        with self._guard:
            if self._is_set:
                return
            self._is_set = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_fire(self, callback: Callable[[], None]) -> None:
        """Call this when it happens, at once when it has already."""
        with self._guard:
            if not self._is_set:
                self._callbacks.append(callback)
                return
        callback()


def nothing() -> None:
    """What happens by default at a point where something could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``target`` is path and query. ``timeout`` bounds the whole exchange, in seconds; ``sent`` is called when the last
    byte has left us."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    timeout: float
    cancellation: Signal = field(default_factory=Signal)
    sent: Callable[[], None] = nothing


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """``origin`` is what a worker is bound to. ``send`` raises ForumError with one of this module's codes."""

    @property
    def origin(self) -> str: ...

    def send(self, request: Request) -> Response: ...

    def close(self) -> None: ...


def unreachable(origin: str, reason: str) -> ForumError:
    """Nothing was sent."""
    return ForumError(
        f"The forum at {origin} cannot be reached ({reason}). Nothing was sent.",
        forum_code=UNREACHABLE,
        status=0,
        retryable=True,
        hint="Start it with `side-agents forum serve`, or set serverUrl to local.",
    )


def no_answer(origin: str, reason: str) -> ForumError:
    """Sent, and nobody knows what became of it."""
    return ForumError(
        f"The forum at {origin} gave no answer ({reason}). What was asked may or may not have happened.",
        forum_code=NO_ANSWER,
        status=0,
        retryable=True,
    )


def bad_answer(origin: str, reason: str, *, status: int = 0) -> ForumError:
    """Something answered that is no forum, or a broken one."""
    return ForumError(
        f"The answer from {origin} makes no sense ({reason}). What was asked may or may not have happened.",
        forum_code=BAD_ANSWER,
        status=status,
        retryable=True,
    )


def cancelled(origin: str) -> ForumError:
    """We gave up on our own account."""
    return ForumError(
        f"The request to {origin} was given up.",
        forum_code=CANCELLED,
        status=0,
        retryable=True,
    )
