"""What a terminal sends, as keys: bytes in, keys out. Pure."""

from __future__ import annotations

import codecs
from enum import StrEnum
from typing import NamedTuple

from side_agents.clients.script_text import drop_controls

# How long a lone ESC may be the start of a longer sequence, in seconds.
ESCAPE_WAIT = 0.05

_ESC = 0x1B
_PASTE_START = b"\x1b[200~"
_PASTE_END = b"\x1b[201~"
_LONGEST_SEQUENCE = 32


class KeyKind(StrEnum):
    """Kinds of input. ``TEXT`` and ``PASTE`` carry text, ``TEXT`` being all characters that came at once."""

    TEXT = "text"
    PASTE = "paste"
    ENTER = "enter"
    NEWLINE = "newline"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    DELETE_LINE = "delete-line"
    DELETE_WORD = "delete-word"
    INTERRUPT = "interrupt"
    END = "end"
    SUSPEND = "suspend"
    REDRAW = "redraw"


class Key(NamedTuple):
    """One key, or one run of text."""

    kind: KeyKind
    text: str = ""


_CONTROL_KEYS = {
    0x03: Key(KeyKind.INTERRUPT),
    0x04: Key(KeyKind.END),
    0x08: Key(KeyKind.BACKSPACE),
    0x09: Key(KeyKind.TEXT, "\t"),
    0x0A: Key(KeyKind.NEWLINE),
    0x0C: Key(KeyKind.REDRAW),
    0x0D: Key(KeyKind.ENTER),
    0x15: Key(KeyKind.DELETE_LINE),
    0x17: Key(KeyKind.DELETE_WORD),
    0x1A: Key(KeyKind.SUSPEND),
    0x7F: Key(KeyKind.BACKSPACE),
}


class KeyReader:
    """Turns the byte stream of a terminal with bracketed paste into keys, wherever the reads happen to cut it."""

    def __init__(self) -> None:
        self._pending = b""
        self._paste: bytearray | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def undecided(self) -> bool:
        """True while a lone ESC waits for more; after ``ESCAPE_WAIT`` call ``flush``."""
        return self._paste is None and self._pending[:1] == b"\x1b"

    def flush(self) -> list[Key]:
        """Decide that a waiting ESC was the Escape key."""
        if not self.undecided:
            return []
        rest, self._pending = self._pending[1:], b""
        return [Key(KeyKind.ESCAPE), *self.feed(rest)]

    def feed(self, data: bytes) -> list[Key]:
        """Return the keys completed by ``data``; the rest is kept for the next call."""
        data, self._pending = self._pending + data, b""
        keys: list[Key] = []
        while data:
            rest = self._paste_end(data, keys) if self._paste is not None else self._key(data, keys)
            if len(rest) == len(data):
                self._pending = data
                break
            data = rest
        return keys

    def _paste_end(self, data: bytes, keys: list[Key]) -> bytes:
        assert self._paste is not None
        end = data.find(_PASTE_END)
        if end < 0:
            # The end mark may have been cut by the read, so its longest possible start is looked at again.
            split = max(0, len(data) - len(_PASTE_END) + 1)
            self._paste += data[:split]
            return data[split:]
        text = (bytes(self._paste) + data[:end]).decode("utf-8", "replace")
        self._paste = None
        keys.append(Key(KeyKind.PASTE, drop_controls(text)))
        return data[end + len(_PASTE_END) :]

    def _key(self, data: bytes, keys: list[Key]) -> bytes:
        first = data[0]
        if first == _ESC:
            return self._escape(data, keys)
        if first < 0x20 or first == 0x7F:
            key = _CONTROL_KEYS.get(first)
            if key:
                keys.append(key)
            return data[1:]
        length = _printable_length(data)
        text = self._decoder.decode(data[:length], length < len(data))
        if text:
            keys.append(Key(KeyKind.TEXT, drop_controls(text)))
        return data[length:]

    def _escape(self, data: bytes, keys: list[Key]) -> bytes:
        if len(data) == 1:
            return data
        if data[1] not in b"[O":
            keys.append(Key(KeyKind.ESCAPE))
            return data[1:]
        length = _sequence_length(data)
        if length == 0:
            return data
        if data[:length] == _PASTE_START:
            self._paste = bytearray()
        return data[length:]


def _printable_length(data: bytes) -> int:
    for index, byte in enumerate(data):
        if byte < 0x20 or byte == 0x7F:
            return index
    return len(data)


def _sequence_length(data: bytes) -> int:
    """Length of the CSI or SS3 sequence at the start of ``data``, 0 while it is incomplete."""
    if data[1] == ord("O"):
        return 3 if len(data) >= 3 else 0
    for index in range(2, min(len(data), _LONGEST_SEQUENCE)):
        if 0x40 <= data[index] <= 0x7E:
            return index + 1
    return 0 if len(data) < _LONGEST_SEQUENCE else _LONGEST_SEQUENCE
