"""A few lines that redraw in place below a growing story; on anything but a terminal only the story is written."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import click

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


class LiveArea:
    """Context manager around the area. ``draw`` replaces it, ``say`` writes above it; both take finished lines.

    Without ``enabled`` there is no area, with ``silent`` no story either.
    """

    def __init__(self, *, enabled: bool, silent: bool = False) -> None:
        self._enabled = enabled and not silent
        self._silent = silent
        self._lines: list[str] = []

    @property
    def is_live(self) -> bool:
        """Whether ``draw`` shows anything."""
        return self._enabled

    @property
    def width(self) -> int | None:
        """Columns to use; None when nothing has to be cut."""
        # One column is left free: a full line would wrap on some terminals, and the way back up would be wrong.
        return shutil.get_terminal_size().columns - 1 if self._enabled else None

    def __enter__(self) -> Self:
        if self._enabled:
            self._write(_HIDE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._write(_SHOW)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines in place of the last ones."""
        if not self._enabled or list(lines) == self._lines:
            return
        room = max(1, shutil.get_terminal_size().lines - 1)
        self._redraw("", list(lines[:room]))

    def say(self, line: str = "") -> None:
        """Write one line above the area."""
        if self._enabled:
            self._redraw(f"{line}\n", self._lines)
        elif not self._silent:
            click.echo(line)

    def _redraw(self, above: str, lines: list[str]) -> None:
        clear = f"\x1b[{len(self._lines)}F\x1b[J" if self._lines else ""
        text = above + "".join(f"{line}\n" for line in lines)
        self._write(clear + (text if _has_colour() else click.unstyle(text)))
        self._lines = lines

    def _write(self, text: str) -> None:
        # Not click.echo: it would take the cursor movements out together with the colours.
        sys.stdout.write(text)
        sys.stdout.flush()


def _has_colour() -> bool:
    context = click.get_current_context(silent=True)
    return context is None or context.color is not False
