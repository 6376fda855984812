"""The only place that starts programs (libtmux and GitPython excepted, which bring their own door).

Programs are argv lists, never shell text. Each runs in its own session, so that a deadline, or an interrupt of ours,
can end everything it started; each gets /dev/null as input unless bytes are given.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from side_agents.errors import CommandFailedError, DeadlineError, NotFoundError, ToolMissingError, UsageError

Argument = str | os.PathLike[str]

# git removes its lock files on TERM; KILL would leave an index.lock behind that blocks the user.
_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended; the output is exactly what it wrote."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output without its final newline; bytes that are not UTF-8 survive a round trip."""
        return _decode(self.stdout)

    @property
    def error_text(self) -> str:
        """Standard error, decoded like ``text``."""
        return _decode(self.stderr)


def run(
    argv: Sequence[Argument],
    *,
    deadline: float = 10.0,
    input: bytes | None = None,  # noqa: A002 - the name subprocess gives it
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> Completed:
    """Run a program to its end and return what it wrote. ``env`` replaces the whole environment.

    Raises ToolMissingError when it cannot be started, DeadlineError after ``deadline`` seconds (the whole process group
    has been ended then) and, with ``check``, CommandFailedError for any status but 0.
    """
    command = _argv(argv)
    signals = _HeldSignals()
    try:
        process = _spawn(command, cwd, env, has_input=input is not None)
    except BaseException:
        signals.release()
        raise
    try:
        signals.release()
        stdout, stderr = process.communicate(input, timeout=deadline)
    except subprocess.TimeoutExpired:
        stderr = _end_group(process)
        raise DeadlineError(
            f"{_shown(command)} did not answer within {deadline:g} s and was ended.",
            argv=command,
            returncode=process.returncode,
            stderr=_decode(stderr),
        ) from None
    except BaseException:
        _end_group(process)
        raise
    done = Completed(command, process.returncode, stdout, stderr)
    if check and done.returncode != 0:
        raise _failure(done)
    return done


def call_interactive(argv: Sequence[Argument], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run a program on our own terminal and return its status, 128 + n if signal n ended it. Main thread only.

    Ctrl+C and Ctrl+\\ are for the program; we outlive them to report what it made of them.
    """
    command = _argv(argv)
    # A handler, not SIG_IGN: an ignored signal would stay ignored in the program.
    previous = {number: signal.signal(number, _pass_over) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        with _startable(command, cwd):
            status = subprocess.call(command, cwd=cwd, env=env)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def replace_process(argv: Sequence[Argument], *, env: Mapping[str, str] | None = None) -> NoReturn:
    """Become another program; returns only by raising ToolMissingError or CommandFailedError."""
    command = _argv(argv)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with _startable(command, None):
        if env is None:
            os.execvp(command[0], command)
        os.execvpe(command[0], command, env)


def find_program(name: str, *, path: str | None = None) -> Path | None:
    """Where a program is, looked up in ``path`` (colon separated; None: the PATH of this process) or None."""
    if os.sep in name:
        return Path(name) if _is_program(Path(name)) else None
    folders = os.get_exec_path() if path is None else path.split(os.pathsep)
    candidates = (Path(folder, name) for folder in folders if folder)
    return next((candidate for candidate in candidates if _is_program(candidate)), None)


class _HeldSignals:
    """Keeps Ctrl+C and its like until the program just started is in hands that will end it.

    Otherwise an interrupt in the middle of starting it would leave it running with nobody to know of it. Our Python
    handlers are replaced, not the signal mask, which the program would inherit.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
            self._before = {number: handler for number, handler in handlers.items() if callable(handler)}
        for number in self._before:
            signal.signal(number, lambda came, _frame: self._came.append(came))

    def release(self) -> None:
        """Give the handlers back and let what came meanwhile happen now."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        came, self._came = self._came, []
        for number in came:
            signal.raise_signal(number)


def _spawn(
    command: tuple[str, ...], cwd: Path | None, env: Mapping[str, str] | None, *, has_input: bool
) -> subprocess.Popen[bytes]:
    with _startable(command, cwd):
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def _end_group(process: subprocess.Popen[bytes]) -> bytes:
    """End everything in the program's process group and return what it had written to standard error."""
    stderr = b""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # macOS answers EPERM for a group of which only a zombie is left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            _, stderr = process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired as error:
            # A grandchild in a session of its own may keep the pipes open for ever; nobody waits for that.
            stderr = error.stderr or stderr
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE)
    return stderr


class _startable:  # noqa: N801 - used like a function
    """Turns the ways in which the system refuses to start a program into our errors."""

    def __init__(self, command: tuple[str, ...], cwd: Path | None) -> None:
        self._command = command
        self._cwd = cwd

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        program = self._command[0]
        if self._cwd is not None and not self._cwd.is_dir():
            raise NotFoundError(f"{program} was not started: the folder {self._cwd} does not exist.") from error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise ToolMissingError(
                f"{program} is needed and was not found.", hint=f"Install {program} or put it on PATH."
            ) from error
        if isinstance(error, PermissionError):
            raise ToolMissingError(f"{program} is not a program that may be run.") from error
        raise CommandFailedError(
            f"{_shown(self._command)} could not be started: {error.strerror}.", argv=self._command
        ) from error


def _argv(argv: Sequence[Argument]) -> tuple[str, ...]:
    command = tuple(os.fspath(item) for item in argv)
    if not command or not command[0]:
        raise UsageError("There is no program to run.")
    if any("\0" in item for item in command):
        raise UsageError(f"An argument for {command[0]} contains a NUL character, which no program can receive.")
    return command


def _failure(done: Completed) -> CommandFailedError:
    code = done.returncode
    ending = f"failed with status {code}" if code >= 0 else f"was ended by signal {-code}"
    words = done.error_text.strip()
    message = f"{_shown(done.argv)} {ending}" + (f":\n{words}" if words else ".")
    return CommandFailedError(message, argv=done.argv, returncode=code, stderr=done.error_text)


def _shown(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 200 else text[:199] + "…"


def _decode(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape").removesuffix("\n")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    """Let the program on the terminal have the signal."""
