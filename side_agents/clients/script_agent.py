# pathlib would cost the program a quarter of its start.
# ruff: noqa: PTH100, PTH110, PTH118, PTH120, PTH123
"""A coding agent without a model, for the demo and for tests: an interactive terminal program that follows directives.

    python -m side_agents.clients.script_agent [--prompt-file PATH] [--session-id ID | --session PATH]
        [--fork PATH] [--model NAME] [--startup-delay SECONDS]

It reads its first prompt, and later each message, line by line: ``say:``, ``run:``, ``write:``, ``commit:``,
``sleep:``, ``ask:``, ``permit:``, ``turn``, ``fail:``, ``crash``, ``quit``; other lines are echoed. It may also be run
by its path, so that no directory named ``side_agents`` on somebody's module path can come first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from side_agents.clients.script_session import Session

_OPTIONS = ("--prompt-file", "--session-id", "--session", "--fork", "--model", "--startup-delay")
_ALLOWED_IN_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class _UsageError(Exception):
    """The command line cannot be carried out."""


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the agent on the terminal of this process; returns its exit status."""
    from side_agents import __version__
    from side_agents.clients import script_journal, script_program, script_session

    try:
        options = _parse(arguments)
        prompt = _read_prompt(options.get("--prompt-file"))
        delay = float(options.get("--startup-delay", "0"))
        if not (os.isatty(0) and os.isatty(1)):
            raise _UsageError("it needs a terminal as its standard input and output")
        time.sleep(delay)
        session, reason = _open_session(options, environment)
        journal = script_journal.open_journal(environment)
        notice = _introduce(session, environment) if journal.is_agent else ""
    except (_UsageError, ValueError, script_session.SessionError) as problem:
        sys.stderr.write(f"script agent: {problem}\n")
        return 2
    settings = script_program.Settings(prompt, options.get("--model"), reason, __version__, notice)
    return script_program.run(0, journal, session, settings)


def _introduce(session: Session, environment: Mapping[str, str]) -> str:
    """Link the conversation to the agent that this process is; returns what there is to know after a resume."""
    from side_agents.clients import script_notice

    agent_id = environment.get("PI_SIDE_AGENT_ID", "")
    if agent_id:
        session.link(agent_id, environment.get("PI_SIDE_PARENT_SESSION", ""))
    return script_notice.take(environment, session, os.path.realpath("."))


def _parse(arguments: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in _OPTIONS:
            raise _UsageError(f"unknown option {name}; it knows {' '.join(_OPTIONS)}")
        if not equals and not rest:
            raise _UsageError(f"{name} needs a value")
        options[name] = value if equals else rest.pop(0)
    if "--session" in options and ("--session-id" in options or "--fork" in options):
        raise _UsageError("--session goes with neither --session-id nor --fork")
    session_id = options.get("--session-id", "x")
    if not session_id or session_id.startswith(".") or not _ALLOWED_IN_ID.issuperset(session_id):
        raise _UsageError("a session id is made of letters, digits and . _ -")
    return options


def _read_prompt(path: str | None) -> str:
    if path is None:
        return ""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        raise _UsageError(f"prompt file {path} cannot be read: {error.strerror}") from error


def _open_session(options: dict[str, str], environment: Mapping[str, str]) -> tuple[Session, str]:
    from side_agents.clients import script_session

    if "--session" in options:
        path = os.path.abspath(options["--session"])
        return script_session.Session.resumed(path), "resume"
    cwd = os.path.realpath(".")
    session_id = options.get("--session-id") or script_session.new_session_id()
    path = script_session.session_path(environment, cwd, session_id)
    if "--fork" in options:
        source = os.path.abspath(options["--fork"])
        return script_session.Session.forked(source, path, session_id, cwd), "fork"
    return script_session.Session.resumed(path), "resume" if os.path.exists(path) else "startup"


def _load_own_package() -> None:
    """Make ``side_agents`` mean the package that this file lies in, whatever the module path says."""
    from importlib.util import module_from_spec, spec_from_file_location

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = os.path.join(here, "__init__.py")
    spec = spec_from_file_location("side_agents", start, submodule_search_locations=[here])
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["side_agents"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    if not __package__:
        _load_own_package()
    sys.exit(main(sys.argv[1:], os.environ))
