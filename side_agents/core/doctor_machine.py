"""Checks of what is installed and set: tmux, git, clients, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from side_agents.clients import BUILT_IN, choose_client, find_client, pi_extension
from side_agents.core.doctor_site import Machine, socket_of
from side_agents.core.findings import Finding, Severity
from side_agents.errors import NotFoundError, NotInTmuxError, SideAgentsError, TmuxError, ToolMissingError
from side_agents.infra import proc, tmux
from side_agents.infra.tmux import Tmux

TMUX_LEAST = (3, 0)
GIT_LEAST = (2, 31)
_AGAIN = "then run `side-agents doctor` again"


def tmux_works(machine: Machine) -> Iterator[Finding]:
    """Installed, new enough, answering, and able to show every character."""
    program = proc.find_program("tmux", path=machine.environment.get("PATH"))
    if program is None:
        mend = f"Install tmux (Debian: apt install tmux, macOS: brew install tmux), {_AGAIN}."
        yield _problem("tmux-missing", "tmux is not on PATH, so no agent can be started.", mend)
        return
    try:
        found = tmux.version()
    except SideAgentsError as error:
        yield _problem("tmux-broken", f"{program} does not say its version: {error.message}", f"Mend it, {_AGAIN}.")
        return
    if found < TMUX_LEAST:
        yield _problem("tmux-old", f"tmux {_text(found)} is older than {_text(TMUX_LEAST)}.", f"Upgrade it, {_AGAIN}.")
    yield from _server(machine)
    named = next(
        (machine.environment[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if machine.environment.get(key)), ""
    )
    if not re.search("utf-?8", named, re.IGNORECASE):
        yield Finding(
            code="not-utf8",
            severity=Severity.NOTE,
            what=f"Your locale ({named or 'none is set'}) is not UTF-8: your terminal may show other scripts as `_`.",
            safe="Agents get a UTF-8 locale of their own; nothing that is stored is affected.",
            mend="Set one, for example: export LANG=C.UTF-8",
        )


def _server(machine: Machine) -> Iterator[Finding]:
    if not socket_of(machine.environment):
        yield Finding(
            code="tmux-outside",
            severity=Severity.NOTE,
            what="You are not in tmux: `side-agents start` and `resume` need it, everything else works.",
            mend="Start it: tmux new -s work",
        )
        return
    try:
        Tmux.current(machine.environment)
    except NotInTmuxError as error:
        yield Finding(
            code="tmux-stale",
            severity=Severity.WARNING,
            what=error.message,
            safe="Agents on other tmux servers go on.",
            mend=f"{error.hint} `side-agents list` shows what became of the agents.",
        )
    except TmuxError as error:
        yield Finding(
            code="tmux-silent",
            severity=Severity.PROBLEM,
            what=error.message,
            safe="What cannot be asked is unknown, and nothing is concluded from it: no agent is taken for dead.",
            mend=f"{error.hint or 'Mend tmux'}, {_AGAIN}.",
        )


def git_works(machine: Machine) -> Iterator[Finding]:
    """Installed and new enough."""
    if proc.find_program("git", path=machine.environment.get("PATH")) is None:
        yield _problem("git-missing", "git is not on PATH.", f"Install git, {_AGAIN}.")
        return
    found = re.search(r"(\d+)\.(\d+)", proc.run(["git", "--version"], check=False).text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < GIT_LEAST:
        yield _problem("git-old", f"git {_text(version)} is older than {_text(GIT_LEAST)}.", f"Upgrade it, {_AGAIN}.")


def clients_are_there(machine: Machine) -> Iterator[Finding]:
    """Each client is located; only one that somebody has named has to be there."""
    wanted = machine.environment.get("SIDE_AGENTS_CLIENT") or machine.config.client
    for name in dict.fromkeys([*BUILT_IN, *sorted(machine.config.clients), *([wanted] if wanted else [])]):
        try:
            path: Path = find_client(name, machine.config).locate(machine.environment)
        except (ToolMissingError, NotFoundError) as error:
            is_named = name == wanted or name in machine.config.clients
            yield Finding(
                code="client-missing",
                severity=Severity.PROBLEM if name == wanted else Severity.WARNING if is_named else Severity.NOTE,
                what=error.message.replace(" Nothing was started.", ""),
                safe="Agents of other clients are not affected.",
                mend=error.hint or "side-agents config check",
                subject=name,
            )
        else:
            yield Finding(code="client", severity=Severity.OK, what=f"{name} is {path}.", subject=name)
    if not wanted and machine.config_error is None:
        yield from _default_client(machine)


# They work; that they are not what this installation would write may be just what the user wants.
_WORKING = ("edited", "elsewhere")


def extension_is_current(machine: Machine) -> Iterator[Finding]:
    """What was installed into Pi is of this installation and all there; it need not be installed."""
    path, state, remarks = pi_extension(machine.environment)
    for remark in remarks:
        yield Finding(
            code=f"extension-{state}" if state != "current" else "extension-hindered",
            severity=Severity.NOTE if state in _WORKING else Severity.WARNING,
            what=f"{path}: {remark.what}",
            safe="Agents that run, their work and everything else in Pi are not affected.",
            mend=remark.mend,
            subject="pi",
            place=path,
        )


def _default_client(machine: Machine) -> Iterator[Finding]:
    """Without a client in the settings, a start takes the first that is installed: there has to be one."""
    try:
        choose_client(None, machine.environment, machine.config)
    except ToolMissingError as error:
        own = [name for name in sorted(machine.config.clients) if _obstacle(name, machine) is None]
        pi = _obstacle("pi", machine)
        how = " ".join(((pi.hint if pi else None) or "see its documentation").split())
        yield Finding(
            code="client-none",
            severity=Severity.WARNING,
            what=f"No default client: {error.message.replace(' Nothing was started.', '')} "
            "`side-agents start` needs --client NAME.",
            safe="Agents that run are not affected.",
            mend=f"Install Pi ({how}), or choose one: "
            f'client = "{own[0] if own else "script"}" in the settings (side-agents config path), or --client with each start.',
        )


def _obstacle(name: str, machine: Machine) -> SideAgentsError | None:
    """Why a client cannot be used, None when it can."""
    try:
        find_client(name, machine.config).locate(machine.environment)
    except SideAgentsError as error:
        return error
    return None


def settings_are_valid(machine: Machine) -> Iterator[Finding]:
    """The settings files parse, and every key in them is known."""
    if machine.config_error is not None:
        yield Finding(
            code="config-invalid",
            severity=Severity.PROBLEM,
            what=machine.config_error.message.replace(" Nothing was changed.", ""),
            safe="The file is left as it is; this examination goes on with the defaults.",
            mend="Correct the file, then `side-agents config check`; `side-agents config path` shows which files there are.",
        )


def _problem(code: str, what: str, mend: str) -> Finding:
    return Finding(code=code, severity=Severity.PROBLEM, what=what, safe="Work and state are untouched.", mend=mend)


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
