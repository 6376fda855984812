"""Pi's modes: names for a model with a thinking level, kept in ``modes.json`` (reference/side-agents 8.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents.infra import fs
from side_agents.paths import pi_folder

_SIZE_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode as it stands in the file; parts that are missing or no texts are None."""

    provider: str | None = None
    model: str | None = None
    thinking: str | None = None

    @property
    def spec(self) -> str | None:
        """What ``pi --model`` takes; None when a part that is needed is missing."""
        return model_spec(self.provider, self.model, self.thinking)


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """The model for a child; ``spec`` None leaves it to the client. ``name`` is the mode that it comes from."""

    spec: str | None
    name: str | None = None
    warnings: tuple[str, ...] = ()


def model_spec(provider: str | None, model: str | None, thinking: str | None) -> str | None:
    """``provider/model:level``; None without provider or model."""
    if not provider or not model:
        return None
    return f"{provider}/{model}:{thinking}" if thinking else f"{provider}/{model}"


def load(cwd: Path, environment: Mapping[str, str]) -> dict[str, Mode]:
    """The modes of the first file that has one: the project's, then the user's (F-M1, F-M2)."""
    for path in (cwd / ".pi" / "modes.json", pi_folder(environment) / "modes.json"):
        modes = _modes_in(path)
        if modes:
            return modes
    return {}


def choose(name: str, modes: Mapping[str, Mode]) -> ModeChoice:
    """A mode that was asked for by its name; where it cannot be used, a warning says why and the choice is empty."""
    if not modes:
        return _unusable(name, "there is no modes.json with a mode in it")
    mode = modes.get(name)
    if mode is None:
        return _unusable(name, f"modes.json has only {', '.join(sorted(modes))}")
    if mode.spec is None:
        return _unusable(name, "it names no provider or no model")
    return ModeChoice(mode.spec, name)


def inherit(session: Mode, modes: Mapping[str, Mode]) -> ModeChoice:
    """What a child takes over from its parent's session: its model and level, and the name of the mode that is just that."""
    same = next((name for name, mode in modes.items() if mode == session and mode.spec is not None), None)
    return ModeChoice(session.spec, same)


def _unusable(name: str, why: str) -> ModeChoice:
    return ModeChoice(None, None, (f"The mode {name!r} was not used: {why}.",))


def _modes_in(path: Path) -> dict[str, Mode]:
    try:
        data = json.loads(fs.read_slice(path, 0, _SIZE_LIMIT))
    except (ValueError, RecursionError):
        return {}
    table = data.get("modes") if isinstance(data, dict) else None
    if not isinstance(table, dict):
        return {}
    return {name: _mode(entry) for name, entry in table.items() if isinstance(entry, dict)}


def _mode(entry: Mapping[str, Any]) -> Mode:
    provider, model, level = (entry.get(key) for key in ("provider", "modelId", "thinkingLevel"))
    return Mode(*(part if isinstance(part, str) and part else None for part in (provider, model, level)))
