"""Every value that is stored: agent records, leases, tombstones, exit markers, journal events.

Pure data: no I/O and no validation library, because ``status``, ``check`` and ``list`` parse these on every call.
Borders that take input from elsewhere validate it through :mod:`side_agents.schemas`. On disk, keys are camelCase as in
reference/side-agents 0.3; keys that this version does not know survive in ``extra``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Self

REGISTRY_VERSION = 1

_SURROGATE = re.compile("[\ud800-\udfff]")


class AgentStatus(StrEnum):
    """Where an agent is in its life (seed 001 7.3)."""

    ALLOCATING_WORKTREE = "allocating_worktree"
    SPAWNING_TMUX = "spawning_tmux"
    RUNNING = "running"
    WAITING_USER = "waiting_user"
    FAILED = "failed"
    CRASHED = "crashed"
    DONE = "done"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more will happen without somebody's doing."""
        return self in (AgentStatus.DONE, AgentStatus.FAILED, AgentStatus.CRASHED)

    @property
    def is_starting(self) -> bool:
        """Whether the process that starts the agent still owns the record."""
        return self in (AgentStatus.ALLOCATING_WORKTREE, AgentStatus.SPAWNING_TMUX)

    @property
    def short(self) -> str:
        """The word shown in a status line (reference/side-agents 6.7)."""
        return _SHORT[self]


_SHORT = {
    AgentStatus.ALLOCATING_WORKTREE: "alloc",
    AgentStatus.SPAWNING_TMUX: "tmux",
    AgentStatus.RUNNING: "run",
    AgentStatus.WAITING_USER: "wait",
    AgentStatus.DONE: "done",
    AgentStatus.FAILED: "fail",
    AgentStatus.CRASHED: "crash",
}


class WaitingFor(StrEnum):
    """What an agent in ``waiting_user`` needs."""

    PROMPT = "prompt"
    PERMISSION = "permission"
    QUESTION = "question"
    TRUST = "trust"


class TurnOutcome(StrEnum):
    """How the last turn ended."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    ERROR = "error"


class Handoff(StrEnum):
    """What ``/agent`` tells a new agent of the conversation that it is started from."""

    SUMMARY = "summary"
    SESSION = "session"
    NONE = "none"


class WindowClose(StrEnum):
    """What happens to the window of an agent that ended well."""

    KEY = "key"
    KEEP = "keep"
    CLOSE = "close"


class FinishPolicy(StrEnum):
    """How finished work reaches its target branch."""

    REBASE_FF = "rebase-ff"
    SQUASH = "squash"
    MERGE = "merge"
    PR = "pr"


class DeliveryState(StrEnum):
    """What became of a message (reference/field-reports 30)."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    TYPED_NOT_SUBMITTED = "typed_not_submitted"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"


class EndedBy(StrEnum):
    """Why an agent left the registry."""

    EXIT = "exit"
    STOPPED = "stopped"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """A process that cannot be mistaken for another with the same pid; ``started`` is opaque."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForumIdentity:
    """Who an agent is in the forum: public name and ids, and its private file, whose path alone is no secret."""

    name: str
    agent_id: str
    session_id: str
    state: str


@cache
def camel_name(name: str) -> str:
    """``tmux_window_id`` as ``tmuxWindowId``."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def stored_fields(cls: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of attribute name and JSON key of a stored dataclass, without ``extra``."""
    return tuple((f.name, camel_name(f.name)) for f in dataclasses.fields(cls) if f.name != "extra")


@cache
def _readers(cls: Any) -> dict[str, tuple[str, type | None, Callable[[Any], Any] | None]]:
    """By JSON key: attribute name, the primitive type to insist on, the conversion to it."""
    kinds: dict[str, type] = {"str": str, "int": int, "bool": bool}
    types = {f.name: str(f.type).split(" ", 1)[0] for f in dataclasses.fields(cls)}
    convert = converters(cls)
    return {key: (name, kinds.get(types[name]), convert.get(name)) for name, key in stored_fields(cls)}


def _is_a(value: object, expected: type) -> bool:
    return isinstance(value, expected) and (expected is bool or not isinstance(value, bool))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON as it is stored: legible, and valid UTF-8 whatever the strings hold.

    A lone surrogate (a byte of an argument that was no UTF-8, half of an emoji that a client cut in two) is written as
    an escape: raw, it could not be encoded or would make the whole file unreadable.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text


class Stored:
    """Reading and writing of a dataclass as a JSON object; absent values are left out."""

    __slots__ = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build from a parsed object; unknown keys go to ``extra``. Raises ValueError or TypeError on a bad value."""
        if not isinstance(data, Mapping):
            raise TypeError(f"not an object: {data!r:.60}")
        shape: Any = cls
        readers = _readers(shape)
        values: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for key, value in data.items():
            reader = readers.get(key)
            if reader is None:
                extra[key] = value
            elif value is not None:
                name, expected, convert = reader
                values[name] = converted = value if convert is None else convert(value)
                if expected is not None and not _is_a(converted, expected):
                    raise ValueError(f"{key} is not {expected.__name__}: {converted!r:.60}")
        if "extra" in cls.__dataclass_fields__:  # type: ignore[attr-defined]  # only dataclasses mix this in
            values["extra"] = extra
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The object to store: known keys in a fixed order, then the unknown ones as they were."""
        data: dict[str, Any] = {}
        shape: Any = type(self)
        for name, key in stored_fields(shape):
            value = getattr(self, name)
            if value is None:
                continue
            data[key] = _plain(value)
        return data | dict(getattr(self, "extra", {}))


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel_name(f.name): _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def _process(value: Any) -> ProcessRef:
    if not isinstance(value, Mapping) or not _is_a(value.get("pid"), int) or not isinstance(value.get("started"), str):
        raise ValueError(f"not a process: {value!r:.60}")
    return ProcessRef(pid=value["pid"], started=value["started"])


def _forum_identity(value: Any) -> ForumIdentity:
    keys = {name: camel_name(name) for name in ("name", "agent_id", "session_id", "state")}
    if not isinstance(value, Mapping) or not all(isinstance(value.get(key), str) for key in keys.values()):
        raise ValueError(f"not an identity in the forum: {value!r:.60}")
    return ForumIdentity(**{name: value[key] for name, key in keys.items()})


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"not a list of texts: {value!r:.60}")
    return tuple(value)


def _pid(value: Any) -> Any:
    # Leases of other writers hold digits as text as well (reference/side-agents 5.5).
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) else value


def converters(cls: type[Any]) -> Mapping[str, Any]:
    """Functions that turn a JSON value into the attribute's type, by attribute name."""
    return _CONVERTERS.get(cls.__name__, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord(Stored):
    """One agent in ``registry.json``; times are ISO UTC, paths absolute (reference/side-agents 0.3).

    ``resumed_from`` is the conversation that it was resumed with. ``branch_existed``: its branch is older than this start,
    so that taking the start back must not touch it.
    """

    id: str
    status: AgentStatus
    task: str = ""
    parent_session_id: str | None = None
    parent_agent_id: str | None = None
    depth: int = 1
    parent_worktree_path: str | None = None
    child_session_id: str | None = None
    tmux_session: str | None = None
    tmux_window_id: str | None = None
    tmux_window_index: int | None = None
    worktree_path: str | None = None
    branch: str | None = None
    model: str | None = None
    started_at: str = ""
    updated_at: str = ""
    finished_at: str | None = None
    runtime_dir: str | None = None
    log_path: str | None = None
    prompt_path: str | None = None
    exit_file: str | None = None
    exit_code: int | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    client: str | None = None
    child_session_file: str | None = None
    base_commit: str | None = None
    resumed_from: str | None = None
    branch_existed: bool | None = None
    owner: ProcessRef | None = None
    launcher: ProcessRef | None = None
    client_pid: int | None = None
    tmux_socket: str | None = None
    tmux_server: ProcessRef | None = None
    tmux_pane_id: str | None = None
    parent_pane_id: str | None = None
    waiting_for: WaitingFor | None = None
    waiting_text: str | None = None
    suspended: bool | None = None
    kickoff_pending: bool | None = None
    turn: int = 0
    turn_open: bool | None = None
    last_turn_outcome: TurnOutcome | None = None
    last_turn_text: str | None = None
    last_turn_ended_at: str | None = None
    journal_offset: int = 0
    stops: int = 0
    stop_seq: int = 0
    landed_commit: str | None = None
    landed_target: str | None = None
    forum: ForumIdentity | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds_slot(self) -> bool:
        """Whether nobody else may be given this record's worktree.

        Agents that ran and ended are guarded by their lease file instead (F-A6); one whose start was cut off may not have
        it yet.
        """
        return self.worktree_path is not None and (not self.status.is_terminal or self.launcher is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(Stored):
    """What ``history.jsonl`` keeps of an agent that left the registry."""

    id: str
    status: AgentStatus
    ended_by: EndedBy
    task: str = ""
    branch: str | None = None
    branch_head: str | None = None
    base_commit: str | None = None
    worktree_path: str | None = None
    client: str | None = None
    model: str | None = None
    child_session_id: str | None = None
    child_session_file: str | None = None
    resumed_from: str | None = None
    parent_agent_id: str | None = None
    parent_session_id: str | None = None
    depth: int = 1
    exit_code: int | None = None
    error: str | None = None
    turn: int = 0
    started_at: str = ""
    finished_at: str = ""
    stop_seq: int = 0
    landed_commit: str | None = None
    landed_target: str | None = None
    forum: ForumIdentity | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Stored):
    """``<slot>/.pi/active.lock``: who has the slot (reference/side-agents 4.3); ``pid`` is the launcher's once it runs."""

    agent_id: str | None = None
    session_id: str | None = None
    parent_session_id: str | None = None
    pid: int | None = None
    branch: str | None = None
    started_at: str = ""
    tmux_window_id: str | None = None
    tmux_window_index: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitMarker(Stored):
    """``exit.json``, written by the launcher; a ``signal`` means that nobody chose to exit."""

    exit_code: int
    finished_at: str = ""
    phase: str = "client"
    signal: str | None = None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


_CONVERTERS: dict[str, dict[str, Any]] = {
    "AgentRecord": {
        "status": AgentStatus,
        "warnings": _strings,
        "owner": _process,
        "launcher": _process,
        "tmux_server": _process,
        "waiting_for": WaitingFor,
        "last_turn_outcome": TurnOutcome,
        "forum": _forum_identity,
    },
    "Tombstone": {"status": AgentStatus, "ended_by": EndedBy, "forum": _forum_identity},
    "Lease": {"pid": _pid},
}
