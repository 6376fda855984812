"""One frozen Config from TOML: the user's file, then the project's; unknown keys are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from side_agents.client_spec import CustomClientSpec, PromptDelivery, StatusSource
from side_agents.errors import UsageError
from side_agents.models import FinishPolicy, Handoff, WindowClose

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting with its default. Times are in seconds, sizes in bytes.

    Raises UsageError from :func:`load` for an unknown key or a value of the wrong kind.
    """

    client: str | None = None
    model: str | None = None
    max_depth: int = 2
    max_agents: int | None = None
    max_agents_per_parent: int | None = None
    window_close: WindowClose = WindowClose.KEY
    backlog_max_bytes: int = 1_048_576
    lock_timeout: float = 10.0
    git_timeout: float = 600.0
    git_hooks: bool = False
    send_timeout: float = 10.0
    start_owner_timeout: float = 600.0
    finish_policy: FinishPolicy = FinishPolicy.REBASE_FF
    finish_target: str | None = None
    finish_check: str | None = None
    finish_check_timeout: float = 1800.0
    finish_lock_timeout: float = 120.0
    finish_tries: int = 5
    handoff: Handoff = Handoff.SUMMARY
    parent_session_in_prompt: bool = True
    context_boundary: bool = False
    forum: bool = True
    slots_kept: int | None = None
    wake_on_notice: bool = False
    notify_journal: bool = True
    notify_tmux: bool = False
    notify_desktop: bool = False
    notify_command: str | None = None
    clients: Mapping[str, CustomClientSpec] = field(default_factory=dict)

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


DESCRIPTIONS: dict[str, str] = {
    "client": "coding agent to start: pi, script or a name from [clients.NAME]; without it the first installed one",
    "model": "model to ask the client for when a start names none",
    "max_depth": "how deep agents may start agents; 1 forbids nesting",
    "max_agents": "how many agents may run in this repository at a time; without it any number",
    "max_agents_per_parent": "how many agents that one session started may run at a time",
    "window_close": "window of an agent that ended well: key (closes on a key), close, keep",
    "backlog_max_bytes": "size at which an agent's backlog.log is trimmed to its last part",
    "lock_timeout": "how long a command waits for a lock before it names the holder and gives up",
    "git_timeout": "deadline of a git command that copies files",
    "git_hooks": "run the repository's git hooks in the worktree commands of side-agents itself",
    "send_timeout": "how long send looks for proof that the agent took a message",
    "start_owner_timeout": "age at which a start that never finished counts as crashed",
    "finish_policy": "how finished work lands: rebase-ff, squash, merge or pr",
    "finish_target": "branch that finished work lands on; without it the repository's main branch",
    "finish_check": "shell command that must succeed in the agent's worktree before its work lands",
    "finish_check_timeout": "how long finish_check may take",
    "finish_lock_timeout": "how long finish waits while another agent lands",
    "finish_tries": "how often finish starts over when the target branch moves under it",
    "handoff": "what /agent passes on of its conversation: summary (what bears on the task), session (its file), none",
    "parent_session_in_prompt": "name the parent's conversation file in an agent's first prompt",
    "context_boundary": "tell agents to use only what they were given, and name no conversation to look things up in",
    "forum": "give each agent an identity of its own in the project's forum",
    "slots_kept": "how many idle slots `clean` leaves; without it all of them",
    "wake_on_notice": "let a notice begin a turn of the conversation that it is told in",
    "notify_journal": "keep what each session is told of its agents in a notices.jsonl of its own",
    "notify_tmux": "show a line in tmux to whoever looks at the pane that an agent was started from",
    "notify_desktop": "show a desktop notification, where notify-send or osascript is installed",
    "notify_command": "shell command that is given each notice as one JSON object on its standard input",
    "clients": "tables of your own clients, see the README",
}


def load(files: tuple[Path, ...]) -> Config:
    """Read the files that exist, later ones winning key by key; without any file nothing is imported or validated."""
    merged: dict[str, Any] = {}
    for path in files:
        data = _read(path)
        if data is None:
            continue
        _parse(data, path)
        clients = {**merged.get("clients", {}), **data.get("clients", {})}
        merged.update(data)
        if clients:
            merged["clients"] = clients
    return _parse(merged, files[-1]) if merged else Config()


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        # Mostly there is none, and the parser costs as much as reading the registry.
        return None
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}. Nothing was changed.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Nothing was changed.") from error


def _parse(data: Mapping[str, Any], path: Path) -> Config:
    prepared = dict(data)
    tables = prepared.pop("clients", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"{path}: clients must be tables such as [clients.mytool]. Nothing was changed.")
    prepared["clients"] = {name: {"name": name, **table} for name, table in tables.items()}
    for name, table in prepared["clients"].items():
        if table["name"] != name:
            raise UsageError(f"{path}: [clients.{name}] is called {table['name']!r}; leave the name out.")
    config = _built(Config, prepared)
    if config is None:
        from side_agents.schemas import validate

        config = validate(Config, prepared, what=str(path))
    _check_ranges(config, path)
    return config


def _built(cls: type[T], data: Mapping[str, Any]) -> T | None:
    """The value, where every key is known and every item plainly of its kind; None for all else.

    Loading pydantic would be two thirds of what a ``status`` costs, so it is asked only about what is not plain: mostly
    mistakes, which it explains.
    """
    kinds = {f.name: str(f.type) for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # only dataclasses come here
    values: dict[str, Any] = {}
    for key, item in data.items():
        value = _item(kinds[key], item) if key in kinds else None
        if value is None:
            return None
        values[key] = value
    try:
        return cls(**values)
    except TypeError:
        # A required key is missing.
        return None


def _item(kind: str, item: Any) -> Any:
    """One value of the kind that an annotation names; None when it is not plainly of it."""
    reader = _READERS.get(kind.removesuffix(" | None"))
    return reader(item) if reader is not None else None


def _exactly(kind: type) -> Callable[[Any], Any]:
    return lambda item: item if type(item) is kind else None


def _member(kind: type[StrEnum]) -> Callable[[Any], Any]:
    return lambda item: next((member for member in kind if member == item), None)


def _number(item: Any) -> float | None:
    return float(item) if type(item) in (int, float) and abs(item) < float("inf") else None


def _texts(item: Any) -> tuple[str, ...] | None:
    return tuple(item) if isinstance(item, list) and all(type(part) is str for part in item) else None


def _text_table(item: Any) -> dict[str, str] | None:
    return item if isinstance(item, dict) and all(type(part) is str for part in item.values()) else None


def _specs(item: dict[str, Any]) -> dict[str, CustomClientSpec | None] | None:
    specs = {name: _built(CustomClientSpec, table) for name, table in item.items()}
    return specs if all(specs.values()) else None


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": _exactly(str),
    "int": _exactly(int),
    "bool": _exactly(bool),
    "float": _number,
    "tuple[str, ...]": _texts,
    "Mapping[str, str]": _text_table,
    "Mapping[str, CustomClientSpec]": _specs,
    **{kind.__name__: _member(kind) for kind in (WindowClose, FinishPolicy, Handoff, PromptDelivery, StatusSource)},
}


_LEAST = {
    "max_depth": 0,
    "max_agents": 1,
    "max_agents_per_parent": 1,
    "backlog_max_bytes": 4096,
    "lock_timeout": 0,
    "git_timeout": 1,
    "send_timeout": 0,
    "start_owner_timeout": 1,
    "finish_check_timeout": 1,
    "finish_lock_timeout": 0,
    "finish_tries": 1,
    "slots_kept": 0,
}


def _check_ranges(config: Config, path: Path) -> None:
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise UsageError(f"{path}: {name} must be at least {least}, not {value}. Nothing was changed.")


def effective(config: Config) -> dict[str, Any]:
    """Every setting as plain values, for display."""
    return {f.name: _shown(getattr(config, f.name)) for f in dataclasses.fields(config)}


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shown(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _shown(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value
