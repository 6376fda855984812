"""Where errors become exit statuses and words; the outermost frame of every command.

Expected errors: two lines on standard error, or with ``--json`` one object on standard output. Unexpected ones: exit
70, a short message and a report file. Ctrl+C 130, other signals 128 + n, a reader that went away 141 and silence.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

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
_DEADLY = (signal.SIGTERM, signal.SIGHUP)


class SignalledError(BaseException):
    """A signal asked us to end; not an Exception, so that only cleaning up stands in its way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line and return the exit status; nothing is raised."""
    if list(arguments) in (["--version"], ["-V"]):
        # Asked by scripts and health checks: not worth loading a command line parser.
        return _guarded([], lambda: _write_line(f"side-agents {__version__}"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    style = _LINES.get(tuple(arguments))
    with _signals_raised():
        if style is not None and not sys.stdout.isatty():
            return _guarded(arguments, lambda: _show_line(style))
        return _guarded(arguments, lambda: _invoke(list(arguments)))


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
        status = action()
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except KeyboardInterrupt:
        return _ended(130, "Interrupted.", as_json)
    except SignalledError as error:
        return _ended(128 + error.number, f"Ended by {signal.Signals(error.number).name}.", as_json)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever it is, the user gets words, not a traceback
        return _refused(error, arguments, as_json)
    return status


def _refused(error: Exception, arguments: Sequence[str], as_json: bool) -> int:
    if isinstance(error.__context__, KeyboardInterrupt):
        # click turns a Ctrl+C at a question into an exception of its own.
        return _ended(130, "Interrupted.", as_json)
    from side_agents.cli.failures import describe

    failure = describe(error, arguments)
    try:
        if as_json:
            import json

            _write_line(json.dumps(failure.as_json(), ensure_ascii=False))
            sys.stdout.flush()
        else:
            sys.stderr.write(failure.as_text() + "\n")
            sys.stderr.flush()
    except BrokenPipeError:
        return _pipe_closed()
    return failure.exit_status


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
