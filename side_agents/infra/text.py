"""Terminal text made safe and short: pure functions, linear in the length of their input.

Whatever an agent prints is data. ``strip_controls`` removes every escape sequence a terminal could act on, including
unfinished ones, and it never lets one sequence swallow more than its own line (reference/side-agents 3.3).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

ELLIPSIS = "…"

# Every alternative takes a fixed introducer, then a greedy class, then an optional end: it always succeeds where it
# starts and never backtracks, so hostile text costs linear time. Strings (OSC, DCS, SOS, PM, APC, screen titles) end
# at their terminator, at the next escape or at the end of the line, whichever comes first.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b[PX^_k]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_DIVIDER = re.compile(r"[-─—_=]{5,}")
# Direction overrides and tag characters show something else than what is there; joiners and marks are ordinary text.
_DECEPTIVE = re.compile(r"[\u202a-\u202e\u2066-\u2069\u2028\u2029\U000e0000-\U000e007f]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def strip_controls(text: str) -> str:
    """The text without escape sequences and control characters, tab and newline excepted.

    Bytes that were not UTF-8 (lone surrogates) become U+FFFD, so that the result can always be encoded.
    """
    return _LONE_SURROGATE.sub("\ufffd", _SEQUENCE.sub("", text))


def printable(text: str) -> str:
    """Untrusted text that may go to a terminal: no controls, no direction overrides, no invisible tag characters."""
    return _DECEPTIVE.sub("", strip_controls(text))


def is_divider(line: str) -> bool:
    """Whether a line is nothing but five or more of ``-``, ``─``, ``—``, ``_``, ``=``."""
    return _DIVIDER.fullmatch(line.strip()) is not None


def tail_lines(text: str, n: int) -> list[str]:
    """The last ``n`` lines in order; a final newline begins no further line, empty text has none."""
    if n <= 0 or not text:
        return []
    return text.removesuffix("\n").rsplit("\n", n)[-n:]


def select_backlog(lines: Sequence[str], n: int = 10) -> list[str]:
    """The last ``n`` lines that say something, in order and as they are; blanks and dividers do not count."""
    chosen: list[str] = []
    for line in reversed(lines):
        if len(chosen) >= n:
            break
        if _says_something(strip_controls(line)):
            chosen.append(line)
    chosen.reverse()
    return chosen


def sanitise_backlog(lines: Iterable[str], line_limit: int = 240, total_limit: int = 2400) -> list[str]:
    """Cleaned lines without blanks and dividers, each at most ``line_limit`` characters, ellipsis included.

    Joined by newlines they are at most ``total_limit`` characters; the line that overflows is cut to what remains.
    """
    kept: list[str] = []
    remaining = total_limit
    for line in _cleaned(lines):
        if remaining <= 0:
            break
        short = _cut(_cut(line, line_limit), remaining)
        kept.append(short)
        remaining -= len(short) + 1
    return kept


def one_line(text: str, limit: int) -> str:
    """The text cleaned, on one line, at most ``limit`` characters with the ellipsis among them."""
    return _cut(" ".join(strip_controls(text).split()), limit)


def preview(text: str, limit: int = 200) -> str:
    """The first ``limit`` characters as they are, and an ellipsis after them if there were more."""
    return text if len(text) <= limit else text[:limit] + ELLIPSIS


def to_ascii(text: str) -> str:
    """ASCII words separated by single spaces: accents dropped, other scripts transliterated, emoji named.

    Han is written one word per character (``修复`` gives ``Xiu Fu``), because the script does not mark words; all
    others keep the words of the source. Upper and lower case are left to the caller.
    """
    visible = printable(text)
    words = visible if visible.isascii() else "".join(_ascii_pieces(visible))
    return " ".join(words.split())


def _ascii_pieces(text: str) -> Iterator[str]:
    for character in text:
        plain = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c))
        if plain.isascii():
            yield plain
            continue
        from anyascii import anyascii  # its tables cost 30 ms, accents alone do not need them

        spelled = anyascii(character)
        if spelled.startswith(":") and spelled.endswith(":"):
            yield f" {spelled.strip(':').replace('_', ' ')} "
            continue
        if character.isalpha():
            # A soft sign is spelled as an apostrophe, which would cut the word in two.
            spelled = "".join(c for c in spelled if c.isalnum())
        yield f" {spelled} " if _HAN.match(character) else spelled


def _cleaned(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for part in strip_controls(line).split("\n"):
            if _says_something(part):
                yield part.rstrip()


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not is_divider(line)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[: limit - 1] + ELLIPSIS if limit > 0 else ""
