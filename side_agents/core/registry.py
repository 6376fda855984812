"""The locked registry: the truth about live agents, and ``history.jsonl``, the memory of those that left.

Invariants: readers take no lock, because a replaced file is whole; a mutation re-reads under the lock, does memory work
only and writes only real changes; a file that cannot be read is kept and refused; no row goes away unless it was
removed by name. Behaviour after reference/side-agents 4.1-4.2 and reference/field-reports 6.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from side_agents import names
from side_agents.core import transitions
from side_agents.errors import ConflictError, StateError, StateFromFutureError, UnknownAgentError
from side_agents.infra import fs
from side_agents.models import REGISTRY_VERSION, AgentRecord, Tombstone, json_text
from side_agents.paths import StatePaths


@dataclass(slots=True)
class RegistryState:
    """The registry in memory; lives inside one transaction or one read.

    ``sequence`` counts the stops of all agents, so that a wait cursor is one number. ``foreign`` holds rows that this
    version cannot read: they are kept, and their ids count as taken. ``rows`` holds what was read of each record: a row
    that nobody changes is written as it was, with everything in it that this version does not know.
    """

    agents: dict[str, AgentRecord] = field(default_factory=dict)
    sequence: int = 0
    foreign: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, tuple[AgentRecord, Any]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    buried: list[Tombstone] = field(default_factory=list)

    @property
    def ids(self) -> set[str]:
        """Every id that is taken by a row, readable or not."""
        return {*self.agents, *self.foreign}

    def put(self, record: AgentRecord) -> None:
        """Insert or replace one row. Raises ConflictError for an id whose row this version cannot read."""
        if record.id in self.foreign:
            raise ConflictError(
                f"The registry holds an entry {record.id} that this version cannot read. Nothing was changed.",
                hint="It was written by another version of side-agents: use that one, or upgrade this one.",
            )
        self.agents[record.id] = record
        self.removed.discard(record.id)

    def bury(self, tombstone: Tombstone) -> None:
        """Remove the row, readable or not, and remember the agent in the history."""
        self.agents.pop(tombstone.id, None)
        self.foreign.pop(tombstone.id, None)
        self.removed.add(tombstone.id)
        self.buried.append(tombstone)

    def next_sequence(self) -> int:
        """A number larger than that of every stop so far."""
        self.sequence += 1
        return self.sequence


class Registry:
    """``registry.json`` and ``history.jsonl`` of one state root."""

    def __init__(self, paths: StatePaths, *, lock_timeout: float = 10.0) -> None:
        self.paths = paths
        self._lock_timeout = lock_timeout

    def read(self) -> RegistryState:
        """The rows as they are; an empty state, and nothing created, where side agents were never used (F-R1).

        Raises StateError for a file that is no registry, StateFromFutureError for one of a newer version.
        """
        data = self._load()
        return self._parse(data) if data is not None else RegistryState()

    def read_backup(self) -> RegistryState | None:
        """The rows before the last change; None when there is no copy. Raises StateError like ``read``."""
        data = fs.read_json(self.paths.registry_backup)
        if data is None:
            return None
        is_ours = isinstance(data, dict) and isinstance(data.get("agents"), dict)
        if not isinstance(data, dict) or not is_ours or data.get("version") != REGISTRY_VERSION:
            raise StateError(f"{self.paths.registry_backup} is no registry of this version. It is kept as it is.")
        try:
            return self._parse(data)
        except StateError as error:
            raise StateError(
                f"{self.paths.registry_backup} holds numbers that cannot be. It is kept as it is."
            ) from error

    def rebuild(self, state: RegistryState, aside: Path) -> None:
        """Write a registry anew where there is none that can be read; what is there gets the second name ``aside``.

        Raises ConflictError when it can be read after all, and StateError; nothing was changed then.
        """
        fs.make_private_dir(self.paths.meta)
        with fs.locked(self.paths.registry_lock, purpose="rebuild the registry", timeout=self._lock_timeout):
            if self.paths.registry.exists() and self._is_readable():
                raise ConflictError(f"{self.paths.registry} can be read by now. Nothing was changed.")
            fs.keep_previous(self.paths.registry, aside)
            fs.replace(self.paths.registry, json_text(_content(state), indent=2) + "\n")

    def _is_readable(self) -> bool:
        try:
            self.read()
        except StateFromFutureError:
            # Readable, only not by us: not to be written over.
            return True
        except StateError:
            return False
        return True

    @contextmanager
    def transaction(self, purpose: str) -> Iterator[RegistryState]:
        """Re-read under the lock, let the caller edit, write if it did; an exception leaves the file as it was.

        Memory work only inside: no git, no tmux. Raises BusyError naming the holder after the lock timeout.
        """
        fs.make_private_dir(self.paths.meta)
        with fs.locked(self.paths.registry_lock, purpose=purpose, timeout=self._lock_timeout):
            state = self.read()
            before = json_text(_content(state))
            ids = state.ids
            yield state
            self._refuse_silent_loss(ids, state)
            self._note_changes(state)
            content = _content(state)
            for tombstone in state.buried:
                fs.append_line(self.paths.history, json_text(tombstone.to_json()))
            if json_text(content) != before:
                fs.keep_previous(self.paths.registry, self.paths.registry_backup)
                fs.replace(self.paths.registry, json_text(content, indent=2) + "\n")

    def _note_changes(self, state: RegistryState) -> None:
        before = {agent_id: record for agent_id, (record, _) in state.rows.items()}
        changes = transitions.between(before, state.agents, state.buried, self.tombstone, unreadable=state.foreign)
        if changes:
            transitions.note(self.paths.transitions, changes, state.extra)

    def history(self) -> list[Tombstone]:
        """Tombstones, oldest first; lines that cannot be read are passed over."""
        return [stone for line in self._history_lines() if (stone := _tombstone(line)) is not None]

    def tombstone(self, agent_id: str) -> Tombstone | None:
        """The newest tombstone of an id, None if it never finished here."""
        needle = json.dumps(agent_id)
        for line in reversed(self._history_lines()):
            if needle in line and (stone := _tombstone(line)) is not None and stone.id == agent_id:
                return stone
        return None

    def unknown(self, *agent_ids: str) -> UnknownAgentError:
        """The error for ids that this repository has never seen, with the nearest names."""
        state = self.read()
        unreadable = [name for name in agent_ids if name in state.foreign]
        if unreadable:
            return UnknownAgentError(
                f"The registry's entry of {', '.join(unreadable)} cannot be read by this version; it is kept as it is.",
                hint="It was written by another version of side-agents: use that one, or upgrade this one.",
            )
        known = [*state.ids, *(stone.id for stone in self.history())]
        close = list(dict.fromkeys(near for name in agent_ids for near in names.nearest(name, known)))
        listed = ", ".join(agent_ids)
        hint = f"Did you mean {' or '.join(close)}?" if close else "`side-agents list --all` shows every known agent."
        return UnknownAgentError(f"No agent is called {listed} in this repository.", hint=hint)

    def _history_lines(self) -> list[str]:
        try:
            content = self.paths.history.read_text(encoding="utf-8", errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StateError(f"{self.paths.history} could not be read ({error.strerror}).") from error
        # Not splitlines: texts may hold U+2028 and its like, which end no line here.
        return content.split("\n")

    def _load(self) -> dict[str, Any] | None:
        data = self._read_json()
        if data is None:
            if not self.paths.registry.exists():
                return None
            # It came into being just now, or holds the JSON word null, which reads like no file.
            data = self._read_json()
        if not isinstance(data, dict) or not isinstance(data.get("agents"), dict):
            raise self._corrupt("it is not a registry")
        version = data.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self._corrupt(f"its version is {version!r}")
        if version > REGISTRY_VERSION:
            raise StateFromFutureError(
                f"{self.paths.registry} was written by a newer side-agents (format {version}). Nothing was changed.",
                hint="Upgrade side-agents on this machine, e.g. `pipx upgrade side-agents`.",
            )
        return data

    def _read_json(self) -> object | None:
        try:
            return fs.read_json(self.paths.registry)
        except StateError as error:
            if isinstance(error.__cause__, OSError):
                raise
            raise self._corrupt(f"it is not valid JSON ({error.__cause__})") from error

    def _corrupt(self, why: str) -> StateError:
        return StateError(
            f"{self.paths.registry} cannot be used: {why}. It is kept as it is and nothing was changed.",
            hint="`side-agents doctor --repair` rebuilds it, keeps this one aside and shows first what it will do; the state "
            f"before the last change is in {self.paths.registry_backup}.",
        )

    def _parse(self, data: Mapping[str, Any]) -> RegistryState:
        state = RegistryState(extra={key: value for key, value in data.items() if key not in _OWN_KEYS})
        sequence = data.get("sequence", 0)
        if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
            raise self._corrupt(f"its sequence is {sequence!r}")
        state.sequence = sequence
        for agent_id, row in data["agents"].items():
            record = _record(agent_id, row)
            if record is None:
                state.foreign[agent_id] = row
            else:
                state.agents[agent_id] = record
                state.rows[agent_id] = (record, row)
        return state

    def _refuse_silent_loss(self, ids: set[str], state: RegistryState) -> None:
        lost = ids - state.ids - state.removed
        if lost:
            raise StateError(
                f"A change would have dropped {', '.join(sorted(lost))} from the registry without being asked to. "
                "Nothing was changed.",
                hint="This is a fault in side-agents: please report it with the command that you ran.",
            )


_OWN_KEYS = ("version", "agents", "sequence")


def _record(agent_id: str, row: Any) -> AgentRecord | None:
    # Ids become folder and branch names, so one that leads elsewhere is not taken for an agent.
    if not isinstance(row, dict) or row.get("id") != agent_id or not names.is_valid_id(agent_id):
        return None
    try:
        return AgentRecord.from_json(row)
    except (ValueError, TypeError):
        return None


def _tombstone(line: str) -> Tombstone | None:
    try:
        return Tombstone.from_json(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None


def _content(state: RegistryState) -> dict[str, Any]:
    rows = {agent_id: _row(record, state.rows.get(agent_id)) for agent_id, record in state.agents.items()}
    return {"version": REGISTRY_VERSION, "sequence": state.sequence, "agents": {**rows, **state.foreign}, **state.extra}


def _row(record: AgentRecord, read: tuple[AgentRecord, Any] | None) -> Any:
    # Identity first: comparing a thousand records field by field is what a change would mostly consist of.
    if read is not None and (read[0] is record or read[0] == record):
        return read[1]
    return record.to_json()
