"""A list to choose from by typing and arrow keys: what is shown and what a key does. Pure; see ``picker_screen``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

PAGE = 10


class Press(StrEnum):
    """Keys with a meaning; any other text is searched for."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page-up"
    PAGE_DOWN = "page-down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    LEAVE = "leave"
    BACKSPACE = "backspace"
    CLEAR = "clear"


_SEQUENCES = {
    "\x1b[A": Press.UP, "\x1bOA": Press.UP, "\x1b[B": Press.DOWN, "\x1bOB": Press.DOWN,
    "\x1b[5~": Press.PAGE_UP, "\x1b[6~": Press.PAGE_DOWN,
    "\x1b[H": Press.HOME, "\x1bOH": Press.HOME, "\x1b[1~": Press.HOME,
    "\x1b[F": Press.END, "\x1bOF": Press.END, "\x1b[4~": Press.END,
    "\r": Press.ENTER, "\n": Press.ENTER, "\x7f": Press.BACKSPACE, "\x08": Press.BACKSPACE,
    "\x10": Press.UP, "\x0e": Press.DOWN, "\x15": Press.CLEAR, "\x04": Press.LEAVE, "\x1b": Press.LEAVE,
}  # fmt: skip
_TOKEN = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f]+")


def presses(typed: str) -> Iterator[Press | str]:
    """What was typed, as keys and runs of text; keys without a meaning are dropped."""
    for token in _TOKEN.findall(typed):
        if token in _SEQUENCES:
            yield _SEQUENCES[token]
        elif token >= " ":
            yield token


@dataclass(frozen=True, slots=True)
class Picker:
    """``rows`` in their order, those that match all words of ``query``, and the chosen one of these."""

    rows: tuple[str, ...]
    query: str = ""
    cursor: int = 0

    @property
    def matches(self) -> list[int]:
        """Numbers of the rows that hold every word of the query, whatever the letter case."""
        words = self.query.casefold().split()
        return [number for number, row in enumerate(self.rows) if all(word in row.casefold() for word in words)]

    @property
    def chosen(self) -> int | None:
        """Number of the row under the cursor, None when nothing matches."""
        matches = self.matches
        return matches[self.cursor] if matches else None

    def after(self, press: Press | str) -> Picker:
        """The list after one key; Enter and leaving change nothing here. A new search begins at its first match."""
        moves = {Press.UP: -1, Press.DOWN: 1, Press.PAGE_UP: -PAGE, Press.PAGE_DOWN: PAGE}
        last = max(0, len(self.matches) - 1)
        if not isinstance(press, Press):
            return replace(self, query=self.query + press, cursor=0)
        if press in moves:
            return replace(self, cursor=min(last, max(0, self.cursor + moves[press])))
        if press in (Press.HOME, Press.END):
            return replace(self, cursor=0 if press is Press.HOME else last)
        if press is Press.BACKSPACE:
            return replace(self, query=self.query[:-1], cursor=0)
        return replace(self, query="", cursor=0) if press is Press.CLEAR else self

    def visible(self, room: int) -> list[int]:
        """At most ``room`` matches around the cursor."""
        matches = self.matches
        start = min(max(0, self.cursor - room // 2), max(0, len(matches) - room))
        return matches[start : start + room]
