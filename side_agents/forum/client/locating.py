"""Which worker acts for whoever is asking.

An agent that was given a private file uses exactly that. Everybody else gets one worker for each conversation in a
project: its id is computed from both, so that the next call finds what the first one made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from side_agents.errors import RefusedError, UsageError
from side_agents.forum.client import host, settings, suspension, worker
from side_agents.forum.client.api import Api
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import HostFacts, Moment
from side_agents.forum.client.settings import Settings
from side_agents.forum.client.worker import Worker
from side_agents.forum.client.worker_document import WorkerDocument, derived_worker_id
from side_agents.forum.client.worker_file import PATIENCE, STATE_VARIABLE, set_aside, state_path, workers_folder
from side_agents.paths import pi_folder

# What a program around the agent may tell of the moment of a tool call; all of it is a claim, none of it is needed.
_MOMENT = {
    "turn_id": "AGENTFORUM_TURN",
    "entry_id": "AGENTFORUM_ENTRY",
    "tool_call_id": "AGENTFORUM_TOOL_CALL",
    "provider": "AGENTFORUM_PROVIDER",
    "model": "AGENTFORUM_MODEL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who is asking: environment, project, and as far as they are known the agent's id and its conversation."""

    environment: Mapping[str, str]
    state_root: Path
    database: Path
    agent_id: str | None = None
    session: str | None = None

    @property
    def home(self) -> Path:
        """The user's home."""
        return Path(self.environment.get("HOME") or "/")

    @property
    def facts(self) -> HostFacts:
        """What is known of the conversation."""
        kind = self.environment.get("SIDE_AGENTS_CLIENT") or ("side-agent" if self.agent_id else "main")
        return host.facts_of_session(kind, self.session)

    @property
    def label(self) -> str:
        """What a name for this asker is made of."""
        return self.agent_id or self.state_root.name

    def defaults(self) -> Settings:
        """The settings of a new worker. Raises UsageError or StateError for a file of defaults that is wrong."""
        return settings.load_defaults(settings.defaults_path(pi_folder(self.environment)))

    @property
    def moment(self) -> Moment:
        """Where in the conversation this is, as far as it was told."""
        return Moment(**{name: self.environment.get(variable) or None for name, variable in _MOMENT.items()})


def given_state(environment: Mapping[str, str]) -> Path | None:
    """The worker file that the asker was handed. Raises UsageError for a path that is not absolute."""
    given = environment.get(STATE_VARIABLE)
    if not given:
        return None
    if not given.startswith("/"):
        raise UsageError(f"{STATE_VARIABLE} must be an absolute path. Nothing was done.")
    return Path(given)


def state_of(asker: Asker) -> Path:
    """Where the asker's worker file is, or would be made."""
    given = given_state(asker.environment)
    if given is not None:
        return given
    whose = f"agent {asker.agent_id}" if asker.agent_id else f"session {asker.facts.session_id}"
    worker_id = derived_worker_id(str(asker.state_root), whose)
    return state_path(workers_folder(asker.environment, asker.home), worker_id)


def open_worker(asker: Asker, *, purpose: str, patience: float = PATIENCE) -> Worker:
    """The asker's worker, made on first use; a file that was handed over must be there. Nothing is sent.

    Raises NotFoundError, BusyError (names the holder), StateError or UsageError.
    """
    is_given = given_state(asker.environment) is not None
    return _open(asker, None if is_given else asker.defaults, purpose, patience)


def renew(asker: Asker, *, purpose: str) -> Path | None:
    """Put the asker's worker aside and make one that is nobody yet, with the user's defaults; where the old one is kept.

    Raises BusyError, StateError or UsageError.
    """
    asker.defaults()
    kept = set_aside(state_of(asker), purpose=purpose)
    _open(asker, asker.defaults, purpose, PATIENCE).close()
    return kept


@contextmanager
def looking_on(asker: Asker, document: WorkerDocument) -> Iterator[Api]:
    """Questions as a worker's author while its file is free for others: for whoever looks on for hours.

    Raises RefusedError for a worker that is nobody yet or suspended.
    """
    suspension.require_active(document)
    identity, server = document["identity"], document["server"]
    if identity is None or server is None:
        raise RefusedError("This worker is not registered with the forum yet. Nothing was sent.")
    transport = worker.transport_to(server["origin"], asker.database)
    try:
        yield Api(Connection(transport, server), identity["credential"])
    finally:
        transport.close()


def _open(asker: Asker, defaults: Callable[[], Settings] | None, purpose: str, patience: float) -> Worker:
    return Worker.open(
        state_of(asker),
        facts=asker.facts,
        transport_to=lambda origin: worker.transport_to(origin, asker.database),
        defaults=defaults,
        purpose=purpose,
        patience=patience,
    )
