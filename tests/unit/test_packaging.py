"""What is written beside the code stays true: version, change log, README, dependencies, pins."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import side_agents
from side_agents import errors
from side_agents.cli.root import COMMANDS, root
from side_agents.client_spec import CustomClientSpec
from side_agents.config import DESCRIPTIONS, Config
from side_agents.models import AgentStatus, stored_fields
from side_agents.tools.table import TOOLS

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@cache
def _section(title: str) -> str:
    """The README from one heading to the next."""
    found = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#|\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README has no heading {title}"
    return found[1]


def _leaves(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        # A lazy group knows its commands by name only.
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _leaves(child)


def _classes(parent: type[errors.SideAgentsError]) -> Iterator[type[errors.SideAgentsError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from _classes(child)


def _imported_packages() -> set[str]:
    """Top names of everything that the package imports, inside functions too."""
    found: set[str] = set()
    for path in Path(side_agents.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found


def test_the_version_is_the_newest_of_the_change_log() -> None:
    versions = re.findall(r"^## \[(\d\S*)\]", (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == side_agents.__version__


@pytest.mark.parametrize("name", COMMANDS)
def test_readme_describes_every_command_with_all_its_options(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    section = _section(name)
    for leaf in _leaves(command):
        options = [option for option in leaf.params if isinstance(option, click.Option) and not option.hidden]
        for flag in {flag for option in options for flag in option.opts} - {"--json"}:
            assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", section), f"{leaf.name} {flag}"


def test_readme_describes_no_command_that_does_not_exist() -> None:
    commands = README.split("\n## Commands\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^### (.+)$", commands, re.MULTILINE) == list(COMMANDS)


def test_readme_names_every_setting_with_its_default() -> None:
    assert set(DESCRIPTIONS) == {name for name, _ in stored_fields(Config)}
    section = _section("Settings")
    for name, words in DESCRIPTIONS.items():
        assert re.search(rf"^\| `{name}` \|.*\| {re.escape(words)} \|$", section, re.MULTILINE), name


def test_readme_names_every_key_of_a_client_of_ones_own() -> None:
    section = _section("A client of your own")
    for name in {name for name, _ in stored_fields(CustomClientSpec)} - {"name"}:
        assert f"`{name}`" in section, name


def test_readme_names_every_error_code_beside_its_exit_status() -> None:
    section = _section("Exit statuses")
    for error in _classes(errors.SideAgentsError):
        assert re.search(rf"^\| {error.exit_status} \|.*`{error.code}`.*$", section, re.MULTILINE), error.code


def test_readme_names_every_status_and_tool() -> None:
    assert all(f"| `{status}` | `{status.short}` |" in README for status in AgentStatus)
    assert all(f"| `{name}` |" in _section("Tools") for name in TOOLS)


def test_links_in_the_documents_lead_somewhere() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "bench/README.md"):
        document = CHECKOUT / name
        text = document.read_text(encoding="utf-8")
        anchors = {
            re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", text, re.M)
        }
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" not in target:
                assert (document.parent / path).exists(), f"{name}: {target}"
                assert not anchor or path or anchor in anchors, f"{name}: {target}"


def test_every_import_is_a_declared_dependency() -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    owners = importlib.metadata.packages_distributions()
    foreign = _imported_packages() - set(sys.stdlib_module_names) - {"side_agents"}
    undeclared = {
        name for name in foreign if not declared & {canonicalize_name(owner) for owner in owners.get(name, [])}
    }
    assert undeclared == set()


def test_every_declared_dependency_is_imported() -> None:
    owners = importlib.metadata.packages_distributions()
    used = {canonicalize_name(owner) for name in _imported_packages() for owner in owners.get(name, [])}
    # uvicorn loads it by its name.
    used |= {"httptools"} if "uvicorn" in used else set()
    assert {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]} <= used


def test_the_pins_satisfy_the_declared_requirements() -> None:
    lines = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = [text for extra in PROJECT["optional-dependencies"].values() for text in extra]
    for requirement in map(Requirement, (*PROJECT["dependencies"], *extras)):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement
