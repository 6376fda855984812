"""The little language of the script agent: one directive a line. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verb(StrEnum):
    """What a line may ask for; ``ECHO`` is any other line."""

    SAY = "say"
    RUN = "run"
    WRITE = "write"
    COMMIT = "commit"
    SLEEP = "sleep"
    ASK = "ask"
    PERMIT = "permit"
    FAIL = "fail"
    TURN = "turn"
    CRASH = "crash"
    QUIT = "quit"
    ECHO = "echo"


class Directive(NamedTuple):
    """One line: ``argument`` is the text behind the colon without the one blank after it."""

    verb: Verb
    argument: str = ""


_BARE = {verb.value: Directive(verb) for verb in (Verb.TURN, Verb.CRASH, Verb.QUIT)}
_WITH_ARGUMENT = frozenset(Verb) - {Verb.TURN, Verb.CRASH, Verb.QUIT, Verb.ECHO}


def parse(message: str) -> list[Directive]:
    """Return the directives of a message in order; blank lines are skipped."""
    return [_parse_line(line) for line in message.replace("\r\n", "\n").split("\n") if line.strip()]


def split_write(argument: str) -> tuple[str, str]:
    """Return path and text of a ``write:``; a written ``\\n`` in the text is a newline."""
    path, _, text = argument.strip().partition(" ")
    return path, text.replace("\\n", "\n")


def seconds(argument: str) -> float | None:
    """Return the seconds of a ``sleep:``, None when the argument is no sensible number."""
    try:
        value = float(argument)
    except ValueError:
        return None
    return value if 0 <= value <= 86_400 else None


def exit_code(argument: str) -> int:
    """Return the status of a ``fail:``, 1 when the argument is no status."""
    text = argument.strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) <= 255 else 1


def _parse_line(line: str) -> Directive:
    bare = _BARE.get(line.strip())
    if bare:
        return bare
    word, colon, argument = line.partition(":")
    if colon and word in _WITH_ARGUMENT:
        return Directive(Verb(word), argument.removeprefix(" "))
    return Directive(Verb.ECHO, line)
