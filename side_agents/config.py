"""One frozen Config from TOML: the user's file, then the project's; unknown keys are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from side_agents.client_spec import CustomClientSpec
from side_agents.errors import UsageError
from side_agents.models import WindowClose


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting with its default. Times are in seconds, sizes in bytes.

    Raises UsageError from :func:`load` for an unknown key or a value of the wrong kind.
    """

    client: str | None = None
    model: str | None = None
    max_depth: int = 2
    window_close: WindowClose = WindowClose.KEY
    backlog_max_bytes: int = 1_048_576
    lock_timeout: float = 10.0
    git_timeout: float = 600.0
    git_hooks: bool = False
    send_timeout: float = 10.0
    start_owner_timeout: float = 600.0
    parent_session_in_prompt: bool = True
    clients: Mapping[str, CustomClientSpec] = field(default_factory=dict)

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


DESCRIPTIONS: dict[str, str] = {
    "client": "coding agent to start: pi, script or a name from [clients.NAME]; without it the first installed one",
    "model": "model to ask the client for when a start names none",
    "max_depth": "how deep agents may start agents; 1 forbids nesting",
    "window_close": "window of an agent that ended well: key (closes on a key), close, keep",
    "backlog_max_bytes": "size at which an agent's backlog.log is trimmed to its last part",
    "lock_timeout": "how long a command waits for a lock before it names the holder and gives up",
    "git_timeout": "deadline of a git command that copies files",
    "git_hooks": "run the repository's git hooks in the worktree commands of side-agents itself",
    "send_timeout": "how long send looks for proof that the agent took a message",
    "start_owner_timeout": "age at which a start that never finished counts as crashed",
    "parent_session_in_prompt": "name the parent's conversation file in an agent's first prompt",
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
    from side_agents.schemas import validate

    prepared = dict(data)
    tables = prepared.pop("clients", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"{path}: clients must be tables such as [clients.mytool]. Nothing was changed.")
    prepared["clients"] = {name: {"name": name, **table} for name, table in tables.items()}
    for name, table in prepared["clients"].items():
        if table["name"] != name:
            raise UsageError(f"{path}: [clients.{name}] is called {table['name']!r}; leave the name out.")
    config = validate(Config, prepared, what=str(path))
    _check_ranges(config, path)
    return config


_LEAST = {
    "max_depth": 0,
    "backlog_max_bytes": 4096,
    "lock_timeout": 0,
    "git_timeout": 1,
    "send_timeout": 0,
    "start_owner_timeout": 1,
}


def _check_ranges(config: Config, path: Path) -> None:
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if value < least:
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
