"""Text for the script agent: what a message is once taken, what may be shown, how wide it is. Pure."""

from __future__ import annotations

import re

_KEPT = "\n\t"
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in _KEPT}
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC, also without an end
    r"|\x1b[ -/]*[0-~]"
)
_NO_BREAK_SPACE = "\u00a0"


def take_message(text: str) -> str:
    """Return the message that the input box hands over for pasted or typed ``text``.

    Line ends become ``\\n``, other control characters but tab are dropped, undecodable bytes become U+FFFD, and
    newlines at the end are cut. Everything else stays, so that both sides can hash it.
    """
    decoded = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return drop_controls(decoded).rstrip("\n")


def drop_controls(text: str) -> str:
    """Return text with ``\\n`` line ends and no control characters but newline and tab."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def clean_output(text: str) -> str:
    """Return a program's output as plain text: escape sequences and control characters removed, tabs widened."""
    return drop_controls(_SEQUENCE.sub("", text)).expandtabs(8)


def text_width(text: str) -> int:
    """Return how many terminal columns one line of text takes."""
    return len(text) if text.isascii() else sum(_character_width(character) for character in text)


def clip(text: str, columns: int) -> str:
    """Return the start of ``text`` that fits into ``columns``, characters whole."""
    return wrap(text, columns)[0]


def wrap(text: str, columns: int) -> list[str]:
    """Cut one line into pieces of at most ``columns`` columns (at least one character each); "" gives [""]."""
    if text.isascii():
        step = max(1, columns)
        return [text[start : start + step] for start in range(0, len(text), step)] or [""]
    pieces: list[str] = []
    piece, used = "", 0
    for character in text:
        width = _character_width(character)
        if piece and used + width > columns:
            pieces.append(piece)
            piece, used = "", 0
        piece += character
        used += width
    return [*pieces, piece]


def show_trailing_blanks(line: str) -> str:
    """Make blanks at the end visible to a screen capture, which cuts ordinary ones."""
    kept = line.rstrip(" ")
    return kept + _NO_BREAK_SPACE * (len(line) - len(kept))


def read_trailing_blanks(line: str) -> str:
    """Undo ``show_trailing_blanks``."""
    kept = line.rstrip(_NO_BREAK_SPACE)
    return kept + " " * (len(line) - len(kept))


def _character_width(character: str) -> int:
    if character < "\x7f":
        return 1
    # Most sessions never show such a character, and the tables cost a millisecond at start.
    import unicodedata

    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
