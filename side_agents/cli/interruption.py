"""When signals may cut in. One Ctrl+C is enough: from the first one on, only cleaning up goes on, and no further one cuts
that short.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held() -> Iterator[None]:
    """Signals that come meanwhile take effect afterwards; for what must happen as a whole and cannot block for long."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class Shield:
    """Lets the first signal through to whoever handled it before, and none from then on or once it is ``closed``."""

    is_closed: bool = False
    was_hit: bool = False
    _before: dict[int, Callable[[int, FrameType | None], object]] = field(default_factory=dict)

    def close(self) -> None:
        """From here on only cleaning up is left, which has its own deadlines: signals no longer count."""
        self.is_closed = True

    def raise_it(self) -> None:
        """Take the signals over."""
        for number in _ASKING:
            handler = signal.getsignal(number)
            # One that was ignored from the start (nohup) stays ignored; the default would end us uncleaned.
            if callable(handler):
                self._before[number] = handler
                signal.signal(number, self._take)

    def lower(self) -> None:
        """Give the signals back. After a hit they stay ignored: the process is about to end and has said why."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.was_hit else handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.is_closed:
            return
        self.is_closed = self.was_hit = True
        try:
            self._before[number](number, frame)
        finally:
            # It may have put the default in our place.
            signal.signal(number, self._take)


@contextmanager
def shielded() -> Iterator[Shield]:
    """A shield around work that has to be cleaned up after; without effect outside the main thread."""
    shield = Shield()
    is_own = threading.current_thread() is threading.main_thread()
    try:
        if is_own:
            shield.raise_it()
        yield shield
    finally:
        with suppress(ValueError):
            shield.lower()
