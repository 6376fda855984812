"""The wheel in an empty environment away from the checkout, with the dependencies it declares and no others."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from side_agents import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

_IMPORT_ALL = """
import importlib, pkgutil, side_agents
for module in pkgutil.walk_packages(side_agents.__path__, "side_agents."):
    if "__main__" not in module.name:
        importlib.import_module(module.name)
print(side_agents.__file__)
"""


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own; ``home`` is an empty home folder."""

    wheel: Path
    bin: Path
    home: Path

    def run(self, *argv: str, deadline: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, from a folder that is no repository, without a terminal."""
        env = {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TMUX_TMPDIR": str(self.home),
            "TMPDIR": str(self.home),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/sh",
        }
        command = [str(self.bin / argv[0]), *argv[1:]]
        return subprocess.run(
            command, env=env, cwd=self.home, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=deadline,
        )  # fmt: skip


def _declared_distributions() -> Iterator[importlib.metadata.Distribution]:
    todo = [Requirement(text) for text in PROJECT["dependencies"]]
    seen: set[str] = set()
    while todo:
        requirement = todo.pop()
        extras = requirement.extras or {""}
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if canonicalize_name(requirement.name) in seen:
            continue
        seen.add(canonicalize_name(requirement.name))
        found = importlib.metadata.distribution(requirement.name)
        todo += [Requirement(text) for text in found.requires or ()]
        yield found


def _link_declared_dependencies(folder: Path) -> None:
    folder.mkdir()
    for distribution in _declared_distributions():
        tops = {Path(file.parts[0]) for file in distribution.files or () if file.parts[0] != ".."}
        for top in tops:
            source = Path(str(distribution.locate_file(top)))
            if top.name != "__pycache__" and not (folder / top).exists():
                (folder / top).symlink_to(source)


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """Built, installed without an index, and given links to exactly the declared dependencies."""
    # Short, because tmux sockets below it have paths of at most 100 characters.
    with tempfile.TemporaryDirectory(prefix="sa-wheel-", dir="/tmp", ignore_cleanup_errors=True) as name:
        base = Path(name)
        _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(base / "dist"), str(CHECKOUT))
        (wheel,) = (base / "dist").glob("*.whl")
        venv = base / "venv"
        _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
        python = venv / "bin" / "python"
        _run(
            sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "-q", str(wheel)
        )
        _link_declared_dependencies(base / "dependencies")
        (site,) = venv.glob("lib/python3*/site-packages")
        (site / "declared.pth").write_text(f"{base / 'dependencies'}\n", encoding="utf-8")
        (base / "home").mkdir()
        yield Installed(wheel, venv / "bin", base / "home")


def _run(*argv: str) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}"


def test_templates_and_skills_are_in_the_wheel(installed: Installed) -> None:
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    for folder in ("templates", "skills"):
        shipped = {path.relative_to(CHECKOUT) for path in (CHECKOUT / folder).rglob("*") if path.is_file()}
        assert shipped
        assert {f"side_agents/{path}" for path in shipped} <= packed


def test_only_the_package_and_its_metadata_are_in_the_wheel(installed: Installed) -> None:
    tops = {name.split("/", 1)[0] for name in zipfile.ZipFile(installed.wheel).namelist()}
    assert tops == {"side_agents", f"side_agents-{__version__}.dist-info"}


def test_the_version_is_printed(installed: Installed) -> None:
    done = installed.run("side-agents", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"side-agents {__version__}\n", "")


def test_every_module_imports_with_the_declared_dependencies_alone(installed: Installed) -> None:
    done = installed.run("python", "-W", "error", "-c", _IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.bin.parent)


def test_the_demo_runs_from_the_wheel(installed: Installed) -> None:
    done = installed.run("side-agents", "demo", "--json", deadline=110)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    answer = json.loads(done.stdout)
    ended = {entry["agent"]["id"]: entry["agent"]["status"] for entry in answer["agents"]}
    assert ended == {"add-vat": "done", "pick-licence": "done", "speed-up": "crashed"}
    landed = {entry["agent"]["id"]: entry["landedBy"] for entry in answer["agents"]}
    assert landed == {"add-vat": "agent", "pick-licence": "you", "speed-up": None}


def test_a_tool_answers_in_json_outside_of_a_repository(installed: Installed) -> None:
    done = installed.run("side-agents", "tool", "agent-check")
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    assert answer["code"]
