"""Starts that wait for a free place, as files of ``.pi/side-agents/queue/``: never lost, never carried out twice.

``NNNN.json`` waits. Whoever finds a free place renames it to ``NNNN.claimed.json`` under the lock, with its own process
written into it first, and starts the agent; the agent's record carries the entry's token from its reservation on. So when
a starter is killed, the next one sees in the registry or the history whether there is an agent, and otherwise the entry
goes back to its old place in the order. ``NNNN.failed.json`` could not be started and waits for a person.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from side_agents.core.context import Context
from side_agents.core.results import StartRequest
from side_agents.errors import NotFoundError, RefusedError, StateError, UsageError
from side_agents.infra import clock, fs, processes
from side_agents.models import ProcessRef, json_text

WAITING, CLAIMED, FAILED = "waiting", "claimed", "failed"
_NAME = re.compile(r"([0-9]{4,9})(?:\.(claimed|failed))?\.json")
# What a later start needs of the caller's surroundings; secrets are left out, the tmux server has its own.
_KEPT = re.compile(
    r"TMUX|TMUX_PANE|PATH|HOME|SHELL|LANG|TERM|USER|LOGNAME|TZ|CLAUDE_CONFIG_DIR|CODEX_HOME|(?:LC|XDG|PI|SIDE_AGENTS)_.*"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One start that was asked for: the request, where, by whom and with what environment.

    ``agent_started`` is the start time of the agent that asked, so that a later one of the same id is not taken for it.
    """

    number: int
    state: str
    token: str
    request: StartRequest
    cwd: str
    environment: Mapping[str, str]
    queued_at: str
    agent_id: str | None = None
    agent_started: str | None = None
    error: str | None = None
    claimer: ProcessRef | None = None

    @property
    def id(self) -> str:
        """What a person calls it."""
        return f"q{self.number}"


def entries(folder: Path) -> list[Entry]:
    """All entries in their order; nothing is created. A file that cannot be read is passed over, and kept."""
    found = (_read(path) for path in sorted(folder.glob("*.json")))
    return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.number)


@contextmanager
def locked(context: Context) -> Iterator[None]:
    """Nobody else changes the queue meanwhile."""
    fs.make_private_dir(context.paths.queue)
    with fs.locked(context.paths.meta / "queue.lock", purpose="change the queue", timeout=context.config.lock_timeout):
        yield


def add(context: Context, request: StartRequest) -> Entry:
    """Put a request that could be started now, but for the budget, durably into the queue.

    Its base is what HEAD is now. Raises UsageError for uncommitted changes that were to be taken along.
    """
    from side_agents.core.start_plan import require_startable

    if request.with_changes or request.resume is not None:
        raise UsageError("Uncommitted changes cannot wait in the queue. Nothing was queued.", hint="Commit them first.")
    base = require_startable(context, request)
    caller = context.caller
    me = context.registry.read().agents.get(caller.agent_id or "")
    environment = {
        key: value for key, value in context.environment.items() if _KEPT.fullmatch(key) and not _SECRET.search(key)
    }
    with locked(context):
        number = _next_number(context.paths.queue)
        entry = Entry(
            number=number,
            state=WAITING,
            token=uuid.uuid4().hex,
            request=replace(request, base=base),
            cwd=str(context.cwd),
            environment=environment,
            queued_at=clock.iso(),
            agent_id=caller.agent_id,
            agent_started=me.started_at if me is not None else None,
        )
        if not fs.create_exclusive(_path(context.paths.queue, entry), _to_text(entry)):
            raise StateError(f"{_path(context.paths.queue, entry)} came into being by itself. Nothing was queued.")
    return entry


def _next_number(folder: Path) -> int:
    # Numbers are not used again while anybody may remember them.
    counter = folder / "last"
    known = [int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    last = fs.read_slice(counter, 0, 20).decode("ascii", "replace").strip()
    number = max([*known, int(last) if last.isdigit() else 0]) + 1
    fs.replace(counter, str(number))
    return number


def move(folder: Path, entry: Entry, state: str, **changes: Any) -> Entry:
    """Give an entry another state. Inside the lock; whole at every moment, under the old name or the new one."""
    moved = replace(entry, state=state, **changes)
    old, new = _path(folder, entry), _path(folder, moved)
    fs.replace(old, _to_text(moved))
    if old != new:
        fs.move(old, new)
    return moved


def remove(folder: Path, entry: Entry) -> None:
    """It was carried out, or is no longer wanted."""
    fs.remove_file(_path(folder, entry))


def drop(context: Context, name: str) -> Entry:
    """Take a start that has not begun out of the queue. Raises NotFoundError, RefusedError while it is being started."""
    with locked(context):
        entry = find(context, name)
        if entry.claimer is not None and entry.state == CLAIMED and processes.is_alive(entry.claimer):
            raise RefusedError(f"{entry.id} is being started by process {entry.claimer.pid}. Nothing was dropped.")
        remove(context.paths.queue, entry)
    return entry


def find(context: Context, name: str) -> Entry:
    """The entry with this id. Raises NotFoundError."""
    for entry in entries(context.paths.queue):
        if name in (entry.id, str(entry.number)):
            return entry
    raise NotFoundError(f"Nothing in the queue is called {name}.", hint="`side-agents queue` shows what waits.")


def _path(folder: Path, entry: Entry) -> Path:
    suffix = "" if entry.state == WAITING else f".{entry.state}"
    return folder / f"{entry.number:04d}{suffix}.json"


def _to_text(entry: Entry) -> str:
    data = dataclasses.asdict(entry)
    del data["number"], data["state"]
    return json_text(data, indent=2) + "\n"


def _read(path: Path) -> Entry | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    try:
        data: Any = fs.read_json(path)
        claimer = data.pop("claimer", None)
        return Entry(
            **{**data, "request": StartRequest(**data["request"])},
            number=int(match[1]),
            state=match[2] or WAITING,
            claimer=ProcessRef(**claimer) if claimer else None,
        )
    except (StateError, ValueError, TypeError, KeyError, AttributeError):
        return None
