"""The coding agents that side-agents can start, by name."""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False  # as in typing, whose import the script agent's start can do without
if TYPE_CHECKING:
    from pathlib import Path

    from side_agents.clients.interface import Client, SessionStore
    from side_agents.clients.pi_install import Remark, State
    from side_agents.config import Config

BUILT_IN = ("pi", "script")
PREFERRED = ("pi", "claude", "codex")


def find_client(name: str, config: Config) -> Client:
    """Return the client called ``name``: one from the configuration, else a built-in one.

    Raises NotFoundError naming those that exist, UsageError for a configuration that cannot work.
    """
    spec = config.clients.get(name)
    if spec is not None:
        from side_agents.clients.custom import CustomClient

        return CustomClient(spec)
    if name == "pi":
        from side_agents.clients.pi import PiClient

        return PiClient()
    if name == "script":
        from side_agents.clients.script import ScriptClient

        return ScriptClient()
    from side_agents.errors import NotFoundError

    known = ", ".join([*BUILT_IN, *sorted(set(config.clients) - set(BUILT_IN))])
    raise NotFoundError(
        f"There is no client called {name!r}. Nothing was started.",
        hint=f"Known clients: {known}. Add your own as [clients.NAME] in the configuration.",
    )


def choose_client(requested: str | None, environment: Mapping[str, str], config: Config) -> Client:
    """Return the client to use: as requested, by ``SIDE_AGENTS_CLIENT``, as configured, else the first installed.

    A named client is returned whether installed or not (``locate`` tells). Raises NotFoundError for an unknown name and
    ToolMissingError when none is named and none is installed.
    """
    from side_agents.errors import ToolMissingError

    name = requested or environment.get("SIDE_AGENTS_CLIENT") or config.client
    if name:
        return find_client(name, config)
    for candidate in PREFERRED:
        if candidate not in BUILT_IN and candidate not in config.clients:
            continue
        client = find_client(candidate, config)
        try:
            client.locate(environment)
        except ToolMissingError:
            continue
        return client
    raise ToolMissingError(
        "No coding agent is installed (looked for pi on PATH). Nothing was started.",
        hint="Install Pi, or name one: --client script needs nothing and follows simple directives.",
    )


def session_stores() -> dict[str, SessionStore]:
    """The conversations of each client that keeps them in files, by the client's name."""
    from side_agents.clients.pi_sessions import PiSessions
    from side_agents.clients.script_sessions import ScriptSessions

    return {"pi": PiSessions(), "script": ScriptSessions()}


def pi_extension(environment: Mapping[str, str]) -> tuple[Path, State, tuple[Remark, ...]]:
    """What `side-agents install pi` has put into the user's Pi: the file, how it stands, and what is wrong with it."""
    from side_agents.clients import pi_install

    return pi_install.survey(environment)
