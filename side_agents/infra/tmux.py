"""The only door to tmux.

Panes, windows and sessions are addressed by id (%1, @1, $1), never by name: ``-t name`` falls back to prefixes and
globs. An id means something only together with the server it came from, see ``tmux_sweep``. Every call has a deadline;
a server that does not answer raises TmuxUnreachableError, after which nothing is known: the command may still run when
the server wakes up.

Changes go through libtmux's ``Server.cmd``. Looking (``sweep``, ``capture``) and delivering text (``paste``,
``send_keys``) start tmux directly: libtmux cannot feed a program's standard input, and its import (80 ms) would be the
largest part of what a ``check`` or ``send`` may cost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from side_agents.errors import NotInTmuxError, RefusedError, TmuxError, TmuxUnreachableError, UsageError
from side_agents.infra import proc, processes
from side_agents.infra.tmux_call import (
    DEADLINE,
    argument,
    change,
    checked,
    client,
    ended_meanwhile,
    failure,
    pipe_command,
    raw,
    target,
    unanswered,
    unformatted,
    untimed,
)
from side_agents.infra.tmux_sweep import Outcome, PaneInfo, Presence, ServerIdentity, Sweep, SweepQuery

__all__ = ["CallerPane", "Outcome", "PaneInfo", "Presence", "ServerIdentity", "Sweep", "Tmux", "WindowRef", "version"]

TAG_OPTION = "@side_agent_id"
_PASTE_DEADLINE = 15.0
# What a fresh window runs until its options are set; it ends by itself should we die in between.
_PLACEHOLDER = ("sleep", "30")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_IN_TMUX_HINT = "Start tmux (for example `tmux new -s work`) and run the command in one of its windows."


def version() -> tuple[int, int]:
    """The version of the installed tmux, (3, 3) for "3.3a"; a development build counts as the newest."""
    text = proc.run(["tmux", "-V"], deadline=DEADLINE).text
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (99, 0)


@dataclass(frozen=True, slots=True)
class CallerPane:
    """The pane that a process runs in, checked against its server."""

    socket: Path
    server: ServerIdentity
    session_id: str
    pane_id: str
    window_id: str


@dataclass(frozen=True, slots=True)
class WindowRef:
    """A window as it was when it was opened; ``window_index`` and ``session_name`` are for people only."""

    window_id: str
    window_index: int
    pane_id: str
    pane_pid: int
    session_id: str
    session_name: str


@dataclass(frozen=True, slots=True)
class Tmux:
    """One tmux server, named by its socket. Making this value starts and asks nothing."""

    socket: Path

    @staticmethod
    def current(environ: Mapping[str, str]) -> CallerPane:
        """The pane that ``$TMUX`` and ``$TMUX_PANE`` name.

        Raises NotInTmuxError when they are unset or stale; a tmux that runs elsewhere is no excuse (X16).
        """
        socket, _, pid = environ.get("TMUX", "").rpartition(",")[0].rpartition(",")
        pane_id = environ.get("TMUX_PANE", "")
        if not socket or not pane_id:
            raise NotInTmuxError("This has to run inside a tmux pane, and it does not.", hint=_IN_TMUX_HINT)
        sweep = Tmux(Path(socket)).sweep()
        if sweep.outcome is not Outcome.ANSWERED and _is_living_tmux(pid):
            raise TmuxUnreachableError(
                f"The tmux server of this pane (pid {pid}) lives and does not answer; nothing was done. {sweep.detail}",
                hint=f"If its socket was deleted, `kill -USR1 {pid}` makes tmux create it again.",
            )
        pane = sweep.panes.get(pane_id)
        if pane is None or sweep.server is None or str(sweep.server.pid) != pid:
            raise NotInTmuxError(
                f"TMUX and TMUX_PANE name a pane ({pane_id}) that its tmux server no longer has.", hint=_IN_TMUX_HINT
            )
        return CallerPane(Path(socket), sweep.server, pane.session_id, pane_id, pane.window_id)

    def sweep(self, *, deadline: float = DEADLINE) -> Sweep:
        """Look at every pane of the server in one tmux call; never raises for a server that is gone or wedged."""
        query = SweepQuery()
        try:
            done = raw(self.socket, *query.argv(), deadline=deadline)
        except TmuxUnreachableError as error:
            return Sweep(Outcome.NO_ANSWER, detail=str(error))
        try:
            # A server without any pane answers the first of the two commands and refuses the second.
            return query.parse(done.text)
        except ValueError:
            return Sweep(unanswered(done.error_text) or Outcome.NO_ANSWER, detail=done.error_text)

    def capture(self, pane_id: str, *, history: int = 0, escapes: bool = False, join: bool = False) -> list[str]:
        """The visible lines of a pane, after up to ``history`` lines of its scrollback; trailing blank lines are kept.

        ``escapes`` keeps colours, ``join`` undoes wrapping. An alternate screen has no history.
        """
        flags = ["-e"] if escapes else []
        flags += ["-J"] if join else []
        flags += ["-S", str(-history)] if history else []
        done = _read(self.socket, "capture-pane", "-p", *flags, "-t", target(pane_id, "%"))
        return done.text.split("\n")

    def paste(self, pane_id: str, text: bytes) -> None:
        """Put text into a pane's program as one bracketed paste; it is not submitted.

        The buffer has a name of its own (senders to other panes cannot mix) and is gone afterwards. tmux sends every LF
        as CR, as terminals do, and the brackets only if the program asked for them. Up to some megabytes.
        """
        if not text:
            return
        pane = target(pane_id, "%")
        buffer = f"side-agents-{os.urandom(8).hex()}"
        commands = ("load-buffer", "-b", buffer, "-", ";", "paste-buffer", "-p", "-d", "-b", buffer, "-t", pane)
        try:
            checked(raw(self.socket, *commands, deadline=_PASTE_DEADLINE, input=text))
        except TmuxError:
            with suppress(TmuxError):
                raw(self.socket, "delete-buffer", "-b", buffer, deadline=1.0)
            raise

    def send_keys(self, pane_id: str, *keys: str) -> None:
        """Press keys by their tmux names, such as "Enter", "Escape", "C-u"."""
        _read(self.socket, "send-keys", "-t", target(pane_id, "%"), "--", *map(argument, keys))

    def new_window(
        self,
        *,
        session_id: str,
        name: str,
        cwd: Path,
        argv: Sequence[str],
        tag: str,
        env: Mapping[str, str] | None = None,
        pipe_to: Sequence[str] | None = None,
    ) -> WindowRef:
        """Open a background window that runs ``argv`` (two items or more; one would be shell text to tmux).

        Before the first byte of the program the pane carries ``tag``, the window keeps its name and closes with the
        program, and output goes to ``pipe_to`` (tmux may drop what a program writes just before it ends).

        The user's after-new-window hooks may split or rename the window before a chained command could name it, so a
        placeholder is opened first and everything else is done by its ids, in one second call. tmux takes at most 16 kB
        of arguments.
        """
        if len(argv) < 2:
            raise UsageError("A window needs a program with at least one argument.")
        fields = "#{window_id} #{window_index} #{pane_id} #{session_id} #{session_name}"
        place = ("-t", f"{target(session_id, '$')}:", "-n", argument(unformatted(name)))
        opened = change(self.socket, "new-window", "-d", "-P", "-F", fields, *place, "--", *_PLACEHOLDER)
        window_id, index, pane_id, session_id, session_name = opened.split(" ", 4)
        try:
            program = _program(pane_id, cwd=cwd, argv=argv, env=env or {}, pipe_to=pipe_to)
            answer = change(self.socket, *_chain(*_options(window_id, pane_id, tag), *program))
            answered_pane, _, pane_pid = answer.partition(" ")
            if answered_pane != pane_id:
                raise TmuxError(f"The new window {window_id} was closed by something else.")
        except TmuxUnreachableError:
            # The placeholder ends by itself; asking again would only wait again.
            raise
        except TmuxError:
            with suppress(TmuxError):
                change(self.socket, "kill-pane", "-t", pane_id)
            raise
        return WindowRef(window_id, int(index), pane_id, int(pane_pid), session_id, session_name)

    def kill_window(self, window_id: str, *, expect_pane: str, expect_tag: str) -> bool:
        """Close an agent's pane, and its window with it unless somebody has split it. False: it was closed already.

        tmux itself compares pane, window and tag in the same step. Raises RefusedError when they do not fit.
        """
        pane, window = target(expect_pane, "%"), target(window_id, "@")
        if not _TAG.fullmatch(expect_tag):
            raise UsageError(f"{expect_tag!r} cannot be the tag of a pane.")
        # if-shell with a dead target judges the pane that a human looks at instead, so the pane's id is compared too.
        facts = (("pane_id", pane), ("window_id", window), (TAG_OPTION, expect_tag))
        checks = [f"#{{==:#{{{name}}},{value}}}" for name, value in facts]
        same = f"#{{&&:{checks[0]},#{{&&:{checks[1]},{checks[2]}}}}}"
        close = f"display-message -p closed ; kill-pane -t '{pane}'"
        if change(self.socket, "if-shell", "-F", "-t", pane, same, close, "display-message -p kept") == "closed":
            return True
        if pane not in _existing(self.sweep()):
            return False
        raise RefusedError(f"The pane {pane} in window {window} is not that of {expect_tag}; it was left alone.")

    def pipe_pane(self, pane_id: str, command: Sequence[str] | None) -> None:
        """Send what the pane prints to a program's standard input, in place of any earlier one; None ends it."""
        text = () if command is None else (argument(pipe_command(command)),)
        change(self.socket, "pipe-pane", "-t", target(pane_id, "%"), *text)

    def set_option(self, pane_id: str, name: str, value: str) -> None:
        """Set an option of one pane; user options begin with ``@``."""
        change(self.socket, "set-option", "-p", "-t", target(pane_id, "%"), "--", name, argument(value))

    def rename_window(self, window_id: str, name: str) -> None:
        """Give a window a name, literally."""
        change(self.socket, "rename-window", "-t", target(window_id, "@"), "--", argument(unformatted(name)))

    def select_window(self, window_id: str) -> None:
        """Make a window the current one of its session."""
        change(self.socket, "select-window", "-t", target(window_id, "@"))

    def show_pane(self, pane_id: str) -> None:
        """Take the caller's terminal to a pane, in whatever session that is. Only from inside this server."""
        change(self.socket, "switch-client", "-t", target(pane_id, "%"))

    def attach(self, pane_id: str, session_id: str, *, env: Mapping[str, str] | None = None) -> NoReturn:
        """Become a tmux client that shows a pane. Only from outside of tmux; does not return."""
        pane = target(pane_id, "%")
        change(self.socket, "select-window", "-t", pane, ";", "select-pane", "-t", pane)
        proc.replace_process([*client(self.socket, "attach-session", "-t", target(session_id, "$"))], env=env)

    def display_message(self, pane_id: str, text: str) -> None:
        """Show a line in the status line of the terminals that look at a pane's session, literally."""
        change(self.socket, "display-message", "-t", target(pane_id, "%"), "--", argument(untimed(text)))

    def run_shell_true(self) -> None:
        """Make tmux notice ended children: without it a dead pane's exit status may never appear (clients 1 item 1)."""
        change(self.socket, "run-shell", "true")

    def start_server(
        self,
        session: str,
        *,
        cwd: Path,
        argv: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        size: tuple[int, int] = (200, 50),
        config: Path | None = None,
    ) -> CallerPane:
        """Open a detached session, starting the server if need be; ``env`` becomes that server's environment.

        Raw, because libtmux gives its own environment to what it starts.
        """
        command = [
            *client(self.socket), *(("-f", str(config)) if config else ()),
            "new-session", "-d", "-s", unformatted(session), "-c", unformatted(str(cwd)),
            "-x", str(size[0]), "-y", str(size[1]), "-P", "-F", "#{session_id} #{window_id} #{pane_id}",
            *(("--", *map(argument, argv)) if argv else ()),
        ]  # fmt: skip
        done = proc.run(command, deadline=DEADLINE, env=env, check=False)
        session_id, window_id, pane_id = checked(done).text.split(" ")
        server = self.sweep().server
        if server is None:
            raise TmuxUnreachableError("The tmux server was started and does not answer.")
        return CallerPane(self.socket, server, session_id, pane_id, window_id)

    def kill_server(self) -> None:
        """End the server behind this very socket; no error when there is none."""
        done = raw(self.socket, "kill-server", deadline=DEADLINE)
        gone = unanswered(done.error_text) is Outcome.NO_SERVER or ended_meanwhile(done.error_text)
        if done.returncode != 0 and not gone:
            raise failure(done.argv, done.returncode, done.error_text)


def _options(window_id: str, pane_id: str, tag: str) -> list[list[str]]:
    ours = (("automatic-rename", "off"), ("allow-rename", "off"), ("remain-on-exit", "off"))
    return [
        ["set-option", "-p", "-t", pane_id, "--", TAG_OPTION, argument(tag)],
        *(["set-option", "-w", "-t", window_id, name, value] for name, value in ours),
    ]


def _program(
    pane_id: str, *, cwd: Path, argv: Sequence[str], env: Mapping[str, str], pipe_to: Sequence[str] | None
) -> list[list[str]]:
    variables = [part for key, value in env.items() for part in ("-e", argument(f"{key}={value}"))]
    place = ["-c", argument(unformatted(str(cwd))), "-t", pane_id]
    commands = [["respawn-pane", "-k", *place, *variables, "--", *map(argument, argv)]]
    if pipe_to is not None:
        commands.append(["pipe-pane", "-t", pane_id, argument(pipe_command(pipe_to))])
    return [*commands, ["display-message", "-p", "-t", pane_id, "#{pane_id} #{pane_pid}"]]


def _chain(*commands: list[str]) -> list[str]:
    return [part for command in commands for part in (*command, ";")][:-1]


def _read(socket: Path, *args: str) -> proc.Completed:
    return checked(raw(socket, *args))


def _existing(sweep: Sweep) -> Mapping[str, PaneInfo]:
    if sweep.outcome is not Outcome.ANSWERED:
        raise TmuxUnreachableError(f"tmux stopped answering: {sweep.detail}")
    return sweep.panes


def _is_living_tmux(pid: str) -> bool:
    return pid.isdigit() and processes.identify(int(pid)) is not None and "tmux" in processes.command_line(int(pid))
