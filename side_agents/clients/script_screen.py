"""The terminal of the script agent: raw mode, a transcript that scrolls in the normal buffer, an input box below it."""

from __future__ import annotations

import os
import termios
from collections.abc import Sequence
from typing import Any, NamedTuple

from side_agents.clients.script_text import clip, show_trailing_blanks, text_width, wrap

PROMPT = "› "
INDENT = "  "

_PASTE_ON = "\x1b[?2004h"
_PASTE_OFF = "\x1b[?2004l"
# Without automatic wrapping a character that is wider than we believe cannot break the count of rows.
_WRAP_OFF = "\x1b[?7l"
_WRAP_ON = "\x1b[?7h"
_TALLEST_BOX = 8
_DRAWN_DRAFT = 4096


class View(NamedTuple):
    """What stands below the transcript: a dialog instead of the input box when ``dialog`` is set."""

    draft: str
    dialog: str | None
    footer: str


def box_lines(draft: str, columns: int, rows: int) -> list[str]:
    """Return the input box for a draft, at most ``rows`` lines; of a long draft the end is visible."""
    width = max(1, columns - len(PROMPT) - 1)
    tail = draft[-_DRAWN_DRAFT:]
    pieces = [piece for line in tail.split("\n") for piece in wrap(line.expandtabs(4), width)]
    if len(pieces) > rows or len(tail) < len(draft):
        pieces = [f"[{len(draft)} characters]", *pieces[-(rows - 1) :]][-rows:]
    shown = [show_trailing_blanks(piece) for piece in pieces]
    return [PROMPT + shown[0], *(INDENT + piece for piece in shown[1:])]


class Screen:
    """Draws on a terminal; nothing is written before ``draw``."""

    def __init__(self, descriptor: int) -> None:
        self._terminal = descriptor
        self._saved: list[Any] | None = None
        self._transcript: list[str] = []
        self._waiting_size = 0
        # The drawn lines down to the cursor, as widths: after a resize they take another number of rows.
        self._drawn: list[int] = []

    @property
    def backlog(self) -> int:
        """Characters that wait to be drawn; with many of them output should not be read on."""
        return self._waiting_size

    def open(self) -> None:
        """Switch to raw mode with bracketed paste. Input that was typed before stays."""
        self._saved = self._saved or termios.tcgetattr(self._terminal)
        raw = termios.tcgetattr(self._terminal)
        raw[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON)
        raw[1] &= ~termios.OPOST
        raw[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._terminal, termios.TCSANOW, raw)
        self._drawn = []
        self._write(_PASTE_ON)

    def reopen(self) -> None:
        """Take the terminal back if somebody changed its mode meanwhile, as a shell does when we were stopped."""
        if termios.tcgetattr(self._terminal)[3] & termios.ICANON:
            self.open()

    def close(self) -> None:
        """Leave the transcript standing, remove the rest and give the terminal back as it was."""
        if self._saved is None:
            return
        self._write(self._to_top() + self._take_transcript() + _PASTE_OFF)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._saved)
        self._saved = None

    def show(self, text: str) -> None:
        """Add lines to the transcript, from the next drawing on."""
        lines = text.split("\n")
        self._transcript += lines
        self._waiting_size += sum(map(len, lines)) + len(lines)

    def draw(self, view: View) -> None:
        """Draw the new transcript lines and everything below."""
        columns, rows = self.size()
        divider = "─" * columns
        if view.dialog is None:
            box = box_lines(view.draft, columns, max(1, min(_TALLEST_BOX, rows - 4)))
            cursor = (len(box), text_width(box[-1].rstrip("\u00a0")) + _trailing(box[-1]))
        else:
            box = [clip(f"Allow: {view.dialog}", columns), clip("  y yes · n no", columns)]
            cursor = (len(box), 0)
        lines = [divider, *box, divider, clip(view.footer, columns)]
        if rows <= len(lines):
            lines, cursor = box[-1:], (0, cursor[1])
        up = len(lines) - 1 - cursor[0]
        back = (f"\x1b[{up}A" if up else "") + "\r" + (f"\x1b[{cursor[1]}C" if cursor[1] else "")
        drawing = self._to_top() + self._take_transcript() + _WRAP_OFF + "\r\n".join(lines) + _WRAP_ON + back
        self._drawn = [text_width(line) for line in lines[: cursor[0]]]
        self._write(drawing)

    def size(self) -> tuple[int, int]:
        """Return columns and rows of the terminal, never less than 1."""
        try:
            size = os.get_terminal_size(self._terminal)
        except OSError:
            return 80, 24
        return (size.columns or 80), (size.lines or 24)

    def _to_top(self) -> str:
        columns = self.size()[0]
        up = sum(max(1, -(-width // columns)) for width in self._drawn)
        self._drawn = []
        return (f"\x1b[{up}A" if up else "") + "\r\x1b[J"

    def _take_transcript(self) -> str:
        text = "".join(f"{line}\r\n" for line in self._transcript)
        self._transcript = []
        self._waiting_size = 0
        return text

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._terminal, data) :]


def read_box(screen: Sequence[str]) -> str | None:
    """Return the draft in the input box at the bottom of a captured screen, None when there is no box.

    A long draft is cut to what is visible, and a wrapped line comes back as two.
    """
    lines = [line.rstrip(" ") for line in screen]
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) < 4 or footer_state(lines) is None or not _is_divider(lines[-2]):
        return None
    box: list[str] = []
    for line in reversed(lines[:-2]):
        if _is_divider(line):
            break
        box.insert(0, line)
    else:
        return None
    if not box or not box[0].startswith(PROMPT.rstrip()):
        return None
    return "\n".join(line[len(PROMPT) :].replace("\u00a0", " ") for line in box)


def footer_state(screen: Sequence[str]) -> str | None:
    """Return ``idle``, ``busy``, ``question`` or ``permission`` from the last line that is not blank, else None."""
    for line in reversed(screen):
        if line.strip():
            parts = line.strip().split(" · ")
            state = parts[1].split(" ")[0] if parts[0] == "script" and len(parts) > 1 else ""
            return state if state in ("idle", "busy", "question", "permission") else None
    return None


def _is_divider(line: str) -> bool:
    return bool(line) and not line.strip("─")


def _trailing(line: str) -> int:
    return len(line) - len(line.rstrip("\u00a0"))
