"""How a tmux command is started, and what its failures mean.

tmux reports everything by text, so the few sentences that decide anything are recognised here and nowhere else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from side_agents.errors import DeadlineError, TmuxError, TmuxUnreachableError, ToolMissingError, UsageError
from side_agents.infra import proc
from side_agents.infra.tmux_sweep import Outcome

if TYPE_CHECKING:
    from libtmux.common import tmux_cmd

DEADLINE = 5.0


def load_changes() -> None:
    """Load what ``change`` needs now (80 ms once in a process), so that a later change is made without delay."""
    import libtmux  # noqa: F401 - for its effect


def raw(socket: Path, *args: str, deadline: float = DEADLINE, input: bytes | None = None) -> proc.Completed:  # noqa: A002
    """Run tmux directly, whatever its status. Raises TmuxUnreachableError at the deadline."""
    try:
        return proc.run(client(socket, *args), deadline=deadline, input=input, check=False)
    except DeadlineError as error:
        raise _no_answer(socket, deadline, error.argv) from error


def change(socket: Path, *args: str, deadline: float = DEADLINE) -> str:
    """Run tmux through libtmux and return what it printed. Raises TmuxError with tmux's own words."""
    return _LibtmuxCall(socket, ("-u", *args)).answer(deadline)


def client(socket: Path, *args: str) -> tuple[str, ...]:
    """The argv of a tmux client of this server."""
    # -u: in the C locale (cron, some ssh) tmux would print "_" for every byte that is not ASCII.
    return ("tmux", "-u", "-S", str(socket), *args)


def checked(done: proc.Completed) -> proc.Completed:
    """The same if tmux succeeded; otherwise TmuxError, or TmuxUnreachableError when no server answered."""
    if done.returncode != 0:
        raise failure(done.argv, done.returncode, done.error_text)
    return done


def failure(argv: Sequence[str], returncode: int, words: str) -> TmuxError:
    """The error for a tmux command that failed."""
    words = words.strip()
    kind = TmuxUnreachableError if unanswered(words) or returncode < 0 else TmuxError
    said = words or f"tmux ended with status {returncode} and said nothing."
    return kind(f"tmux: {said}", argv=tuple(argv), returncode=returncode, stderr=words)


def unanswered(words: str) -> Outcome | None:
    """What tmux's client says when no server answered; None for every other failure.

    NO_SERVER is a socket that is absent or refuses; "lost server" and a socket we may not use prove nothing.
    """
    # client.c of tmux 1.9 to 3.6 prints these, untranslated; there is no exit status of their own.
    if re.search(r"no server running on|error connecting to .* \(No such file or directory\)", words):
        return Outcome.NO_SERVER
    if re.search(r"error connecting to|lost server|server exited|protocol version mismatch", words):
        return Outcome.NO_ANSWER
    return None


def ended_meanwhile(words: str) -> bool:
    """Whether the server went away while it was asked: what happens to who asks twice for its end."""
    return re.search(r"lost server|server exited", words) is not None


def target(value: str, sigil: str) -> str:
    """The id itself. Anything else would be looked up as a name, by prefix and glob, so UsageError is raised."""
    if not re.fullmatch(rf"{re.escape(sigil)}[0-9]+", value):
        raise UsageError(f"{value!r} is not a tmux id of the form {sigil}1.")
    return value


def argument(text: str) -> str:
    """An argument that tmux takes as it is: an unescaped ``;`` at its end would begin the next command."""
    return f"{text[:-1]}\\;" if text.endswith(";") else text


def unformatted(text: str) -> str:
    """Text that tmux's format expansion turns back into ``text``; ``#`` before ``[`` already stands for itself."""
    return re.sub(r"#+(?![#\[])", lambda run: run[0] * 2, text)


def untimed(text: str) -> str:
    """The same for the places where tmux expands strftime sequences too."""
    return unformatted(text.replace("%", "%%"))


def pipe_command(argv: Sequence[str]) -> str:
    """Shell text for pipe-pane that runs ``argv`` exactly.

    tmux expands ``%`` (strftime) and ``#`` (formats, even running ``#(...)``) in that text, by rules that differ
    between versions (reference/side-agents 1.5 item 6). So neither character occurs in it: printf puts them in.
    """
    return "exec " + " ".join(map(_shell_word, argv))


class _LibtmuxCall(Thread):
    """One ``Server.cmd`` with the deadline that libtmux has not: it waits for its tmux client without end."""

    def __init__(self, socket: Path, args: Sequence[str]) -> None:
        from libtmux import Server  # 80 ms, needed only for changes

        super().__init__(name="tmux-call", daemon=True)
        self._server = Server(socket_path=socket)
        self._args = args
        self._result: tmux_cmd | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """The thread's part: whatever happens is kept for ``answer``."""
        try:
            self._result = self._server.cmd(*self._args)
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that asked
            self._error = error

    def answer(self, deadline: float) -> str:
        """Wait for the result. At the deadline the tmux client that libtmux started is ended."""
        from libtmux.exc import TmuxCommandNotFound  # loaded already

        self.start()
        self.join(deadline)
        argv = ("tmux", f"-S{self._server.socket_path}", *self._args)
        if self.is_alive():
            _end_client(argv[1:])
            self.join(1.0)
            raise _no_answer(Path(str(self._server.socket_path)), deadline, argv)
        if isinstance(self._error, TmuxCommandNotFound):
            raise ToolMissingError(
                "tmux is needed and was not found.", hint="Install tmux 3.0 or newer."
            ) from self._error
        if self._error is not None:
            raise TmuxError(f"tmux could not be run: {self._error}", argv=argv) from self._error
        assert self._result is not None
        if self._result.returncode != 0 or self._result.stderr:
            raise failure(argv, self._result.returncode or 0, "\n".join(self._result.stderr))
        return "\n".join(self._result.stdout)


def _end_client(args: Sequence[str]) -> None:
    # libtmux gives out its process only when that has ended; the command line tells ours from the others. Two threads
    # that hang in one and the same command on one server are both past hope.
    import psutil  # 50 ms, needed only once a server hangs

    for child in psutil.Process().children():
        try:
            if tuple(child.cmdline()[1:]) == tuple(args):
                child.kill()
        except psutil.Error:
            continue


def _no_answer(socket: Path, deadline: float, argv: Sequence[str]) -> TmuxUnreachableError:
    return TmuxUnreachableError(
        f"The tmux server on {socket} did not answer within {deadline:g} s. Nothing is known about its windows; "
        "a change that was asked for may still happen when it wakes up.",
        hint="If tmux hangs in your terminal too, find out what holds it before you end it: its windows end with it.",
        argv=argv,
    )


def _shell_word(text: str) -> str:
    if "#" not in text and "%" not in text:
        return shlex.quote(text)
    quoted = "'" + text.replace("'", "'\"'\"'") + "'"
    for char, octal in (("#", "043"), ("%", "045")):
        quoted = quoted.replace(char, f"'\"$(printf '\\{octal}')\"'")
    return quoted
