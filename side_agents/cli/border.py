"""Where errors become exit statuses and words; the outermost frame of every command.

Expected errors: two lines on standard error, or with ``--json`` one object on standard output. Unexpected ones: exit
70, a short message and a report file. Ctrl+C 130, other signals 128 + n, a reader that went away 141 and silence. Output
that finds no place (a full disk) cuts no work short: the command is carried out, then that is said, exit 1.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from side_agents import __version__

COMPLETE_VARIABLE = "_SIDE_AGENTS_COMPLETE"
# Status bars ask for these every few seconds; a command line parser would be half of what the answer costs.
_LINES = {
    ("status",): "plain",
    ("status", "--format", "plain"): "plain",
    ("status", "--format", "tmux"): "tmux",
    ("status", "--format=plain"): "plain",
    ("status", "--format=tmux"): "tmux",
}
# Only their output matters, and what was not shown must not count as shown: they end where it finds no place.
_SHOWING = (("log",), ("notices",), ("forum", "events"), ("forum", "catchup"))
# Stands for a command that ended there; no exit status of its own.
_LOST = -1
_DEADLY = (signal.SIGTERM, signal.SIGHUP)


class SignalledError(BaseException):
    """A signal asked us to end; not an Exception, so that only cleaning up stands in its way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _OutputLostError(Exception):
    """Standard output takes nothing, for the reason given, and there is no point in going on."""


class _Output(io.FileIO):
    """A standard stream that takes everything; ``lost`` is why the first write failed. A reader that went away raises."""

    lost: OSError | None = None
    is_ending = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.lost = self.lost or error
            if self.is_ending:
                raise _OutputLostError from error
            return memoryview(data).nbytes


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line and return the exit status; nothing is raised."""
    _reopen_missing()
    with _tolerant("stderr"), _tolerant("stdout") as output:
        status = _carry_out(arguments, output)
        if output is None or output.lost is None:
            return status
        return _say_lost(status, output)


def _carry_out(arguments: Sequence[str], output: _Output | None) -> int:
    if list(arguments) in (["--version"], ["-V"]):
        # Asked by scripts and health checks: not worth loading a command line parser.
        return _guarded([], lambda: _write_line(f"side-agents {__version__}"))
    if list(arguments) in (["--help"], ["-h"]):
        return _guarded([], _help)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if output is not None:
        follows = tuple(arguments[:1]) == ("status",) and "--follow" in arguments
        output.is_ending = follows or any(tuple(arguments[: len(words)]) == words for words in _SHOWING)
    with _signals_raised():
        return _guarded(arguments, lambda: _dispatch(arguments))


def _reopen_missing() -> None:
    """Give closed standard streams the null device, or the next file that is opened would take their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one. Programs that we run inherit it like any other standard stream.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Not the standard number: where that was free at first, it may be somebody else's file by now.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8", closefd=False))


@contextmanager
def _tolerant(name: str) -> Iterator[_Output | None]:
    """Put an ``_Output`` below a standard stream; None where that is no file of the system (a test's buffer)."""
    stream = getattr(sys, name)
    if not isinstance(stream, io.TextIOWrapper) or type(_raw(stream)) is not io.FileIO:
        yield None
        return
    output = _Output(stream.fileno(), "w", closefd=False)
    own = io.TextIOWrapper(
        io.BufferedWriter(output),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    setattr(sys, name, own)
    try:
        yield output
    finally:
        with suppress(OSError, ValueError):
            own.flush()
        setattr(sys, name, stream)


def _say_lost(status: int, output: _Output) -> int:
    """Say on standard error that output was lost; a command that has failed says only that, which counts for more."""
    if status not in (0, _LOST):
        return status
    reason = output.lost.strerror if output.lost is not None else ""
    done = "The output" if status == _LOST else "The command was carried out, but its output"
    with suppress(OSError, ValueError):
        sys.stderr.write(f"error: {done} could not be written ({reason}).\n")
        sys.stderr.flush()
    return 1


def _dispatch(arguments: Sequence[str]) -> int:
    style = _LINES.get(tuple(arguments))
    if style is not None and not sys.stdout.isatty():
        return _show_line(style)
    return _invoke(list(arguments))


def _show_line(style: str) -> int:
    from side_agents.cli import status_line

    return _write_line(line) if (line := status_line.read_here(style)) else 0


def _invoke(arguments: list[str]) -> int:
    import click

    from side_agents.cli.root import root

    instruction = os.environ.get(COMPLETE_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "side-agents", COMPLETE_VARIABLE, instruction)
    color = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
    # Not Command.main, which turns a broken pipe into status 1 and an interrupt into words of its own.
    try:
        with root.make_context("side-agents", arguments, color=color) as context:
            status = root.invoke(context)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    return status if isinstance(status, int) else 0


def _guarded(arguments: Sequence[str], action: Callable[[], int]) -> int:
    as_json = wants_json(arguments)
    try:
        status = _exit_status(action)
    except BrokenPipeError:
        return _pipe_closed()
    except _OutputLostError:
        return _LOST
    except KeyboardInterrupt:
        return _ended(130, "Interrupted.", as_json)
    except SignalledError as error:
        return _ended(128 + error.number, f"Ended by {signal.Signals(error.number).name}.", as_json)
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever it is, the user gets words, not a traceback
        return _refused(error, arguments, as_json)
    return status


def _exit_status(action: Callable[[], int]) -> int:
    try:
        status = action()
        sys.stdout.flush()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    finally:
        raw = _raw(sys.stdout)
        if isinstance(raw, _Output):
            # What is still to be said about an end must not raise another.
            raw.is_ending = False
    return status


def _refused(error: Exception, arguments: Sequence[str], as_json: bool) -> int:
    if isinstance(error.__context__, KeyboardInterrupt):
        # click turns a Ctrl+C at a question into an exception of its own.
        return _ended(130, "Interrupted.", as_json)
    from side_agents.cli.failures import describe

    failure = describe(error, arguments)
    is_told = False
    try:
        if as_json:
            import json

            _write_line(json.dumps(failure.as_json(), ensure_ascii=False))
            sys.stdout.flush()
            is_told = not _has_lost()
        if not is_told:
            sys.stderr.write(failure.as_text() + "\n")
            sys.stderr.flush()
    except BrokenPipeError:
        return _pipe_closed()
    return failure.exit_status


def _has_lost() -> bool:
    raw = _raw(sys.stdout)
    return isinstance(raw, _Output) and raw.lost is not None


def _raw(stream: object) -> object:
    # Under PYTHONUNBUFFERED nothing lies between the text and the file.
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the answer is to be JSON: ``--json`` before any ``--``; the ``tool`` command always speaks it."""
    words = list(arguments)
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own or own[:1] == ["tool"]


def _ended(status: int, message: str, as_json: bool) -> int:
    with suppress(OSError, ValueError):
        if as_json:
            _write_line(f'{{"ok": false, "error": "{message}", "code": "interrupted"}}')
        else:
            sys.stderr.write(f"\n{message}\n")
        sys.stdout.flush()
    return status


def _pipe_closed() -> int:
    # Python flushes once more at exit and would complain about the same pipe.
    with suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
    return 128 + signal.SIGPIPE


def _help() -> int:
    from side_agents.cli.command_table import help_page

    try:
        columns = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size().columns
    except (ValueError, OSError):
        columns = 80
    sys.stdout.write(help_page(columns))
    return 0


def _write_line(line: str) -> int:
    sys.stdout.write(line + "\n")
    return 0


@contextmanager
def _signals_raised() -> Iterator[None]:
    import threading

    # Outside the main thread the host decides about signals.
    own = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _raise_signalled) for number in _DEADLY} if own else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_signalled(number: int, _frame: FrameType | None) -> None:
    # A second one ends us at once: cleaning up may be what does not end.
    signal.signal(number, signal.SIG_DFL)
    raise SignalledError(number)
