"""Where the files that ship beside the code are: in the wheel inside the package, in a checkout next to it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from side_agents.errors import NotFoundError


def template_path(name: str) -> Path:
    """The path of ``templates/<name>``. Raises NotFoundError when the installation lacks it."""
    return _shipped("templates", name)


def skill_text(name: str) -> str:
    """The text of ``skills/<name>/SKILL.md``. Raises NotFoundError when the installation lacks it."""
    return _shipped("skills", f"{name}/SKILL.md").read_text(encoding="utf-8")


def skill_path(name: str) -> Path:
    """The folder of the skill ``name``. Raises NotFoundError when the installation lacks it."""
    return _shipped("skills", f"{name}/SKILL.md").parent


def program_path(environment: Mapping[str, str]) -> Path | None:
    """The ``side-agents`` program of this installation, else the first on the caller's PATH, None without any."""
    beside = Path(sys.executable).with_name("side-agents")
    if beside.is_file():
        return beside
    found = shutil.which("side-agents", path=environment.get("PATH", ""))
    return Path(found) if found else None


def _shipped(kind: str, name: str) -> Path:
    package = Path(str(files("side_agents")))
    for folder in (package / kind, package.parent / kind):
        if (folder / name).is_file():
            return folder / name
    raise NotFoundError(
        f"The file {kind}/{name} is missing from this installation of side-agents; nothing was changed.",
        hint="Install side-agents again.",
    )


def template_text(name: str) -> str:
    """The text of ``templates/<name>``. Raises NotFoundError when the installation lacks it."""
    return template_path(name).read_text(encoding="utf-8")
