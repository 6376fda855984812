"""Choosing one of several lines: the picker on a full terminal, else a numbered list and a question."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from side_agents.cli.here import environment
from side_agents.cli.live import LiveArea
from side_agents.cli.output import fit
from side_agents.cli.picker import Picker, Press, presses

# A lone Escape is followed by nothing for this long, the beginning of an arrow key is not.
_ESCAPE_WAIT = 0.05
_MOST_ROWS = 15
_KEYS = "type to search · ↑↓ choose · Enter takes it · Esc leaves"


def choose(rows: Sequence[str], title: str) -> int | None:
    """Let the user choose; the number of a row, None when they leave. Needs a terminal on both sides."""
    return _pick(rows, title) if _is_full_terminal() else _ask(rows, title)


def _is_full_terminal() -> bool:
    plain = environment().get("NO_COLOR") or environment().get("TERM", "dumb") == "dumb"
    return not plain and sys.stdin.isatty() and sys.stdout.isatty()


def _ask(rows: Sequence[str], title: str) -> int | None:
    click.echo(title)
    for number, row in enumerate(rows, start=1):
        click.echo(f"{number:3}  {row}")
    answer = click.prompt("Number (nothing to leave)", default="", show_default=False, err=True)
    if not answer.strip():
        return None
    if not answer.strip().isdecimal() or not 1 <= int(answer) <= len(rows):
        raise click.UsageError(f"{answer.strip()!r} is none of the numbers. Nothing was started.")
    return int(answer) - 1


def _pick(rows: Sequence[str], title: str) -> int | None:
    picker = Picker(tuple(rows))
    with LiveArea(enabled=True) as area, _keys_at_once(sys.stdin.fileno()):
        while True:
            area.draw(lines_of(picker, title, area.width or 80, shutil.get_terminal_size().lines))
            for press in presses(_read(sys.stdin.fileno())):
                if press in (Press.ENTER, Press.LEAVE):
                    chosen = picker.chosen if press is Press.ENTER else None
                    if chosen is not None or press is Press.LEAVE:
                        area.draw([])
                        return chosen
                picker = picker.after(press)


def lines_of(picker: Picker, title: str, width: int, height: int) -> list[str]:
    """The picker as finished lines of at most ``width`` columns."""
    room = max(1, min(_MOST_ROWS, height - 5))
    matches = len(picker.matches)
    shown = [
        click.style(fit(f"› {picker.rows[number]}", width), fg="cyan", bold=True)
        if number == picker.chosen
        else fit(f"  {picker.rows[number]}", width)
        for number in picker.visible(room)
    ]
    return [
        click.style(fit(title, width), bold=True),
        fit(f"search: {picker.query}▏", width),
        *(shown or [click.style(fit("  nothing matches", width), dim=True)]),
        click.style(fit(f"{matches} of {len(picker.rows)} · {_KEYS}", width), dim=True),
    ]


def _read(descriptor: int) -> str:
    data = os.read(descriptor, 4096)
    if not data:
        return "\x04"
    while data.endswith(b"\x1b") or (data[-2:] in (b"\x1b[", b"\x1bO")) or _is_cut(data):
        if not select.select([descriptor], [], [], _ESCAPE_WAIT)[0]:
            break
        data += os.read(descriptor, 4096)
    return data.decode("utf-8", "replace")


def _is_cut(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


@contextmanager
def _keys_at_once(descriptor: int) -> Iterator[None]:
    """Let each key arrive at once and unseen; Ctrl+C stays an interrupt."""
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
