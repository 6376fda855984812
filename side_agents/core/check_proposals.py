"""Which command tells whether a project still works, judged by the files it has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from side_agents.core.bootstrap import (
    VENV,
    Folder,
    first_of,
    gradle_command,
    maven_command,
    node_manager,
    python_runner,
    python_steps,
    read_json,
    read_toml,
    task_targets,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of shell, and why it is likely to be the project's check."""

    command: str
    reason: str


def propose_checks(folder: Folder) -> tuple[Check, ...]:
    """Commands that could be the project's check, the likeliest first."""
    found: list[Check] = []
    for find in (_task_checks, _node_checks, _python_checks, _other_checks):
        found += find(folder)
    return tuple(found)


def _task_checks(folder: Folder) -> list[Check]:
    return [
        Check(f"{runner} {target}", f"a task in {name}")
        for runner, name, targets in task_targets(folder)
        for target in ("check", "test", "ci")
        if target in targets
    ]


def _node_checks(folder: Folder) -> list[Check]:
    scripts = read_json(folder, "package.json").get("scripts")
    found = node_manager(folder)
    test = scripts.get("test") if isinstance(scripts, dict) else None
    if found is None or not isinstance(test, str) or "no test specified" in test or "--watch" in test.split():
        return []
    # What waits for changes when it has a terminal runs once with this.
    return [Check(f"CI=1 {found[0]} {'run ' if found[0] == 'bun' else ''}test", "the script test in package.json")]


def _python_checks(folder: Folder) -> list[Check]:
    tools = read_toml(folder, "pyproject.toml").get("tool", {})
    evidence = first_of(folder.names, "pytest.ini", "conftest.py")
    if evidence is None and isinstance(tools, dict) and "pytest" in tools:
        evidence = "pyproject.toml"
    if (
        evidence is None
        and {"tests", "pyproject.toml"} <= folder.names
        and '"pytest' in folder.texts.get("pyproject.toml", "")
    ):
        evidence = "pyproject.toml"
    if evidence is None:
        return []
    runner = python_runner(folder)
    if runner is not None:
        return [Check(f"{runner} run pytest -q", evidence)]
    has_venv = any(VENV in step.command for step in python_steps(folder))
    return [Check(f"{'.venv/bin/python' if has_venv else 'python3'} -m pytest -q", evidence)]


def _other_checks(folder: Folder) -> list[Check]:
    table: Sequence[tuple[str, Callable[[frozenset[str]], bool], str]] = (
        ("cargo test", lambda names: "Cargo.toml" in names, "Cargo.toml"),
        ("go test ./...", lambda names: "go.mod" in names, "go.mod"),
        ("mix test", lambda names: "mix.exs" in names, "mix.exs"),
        ("bundle exec rspec", lambda names: {"Gemfile", "spec"} <= names, "Gemfile and spec/"),
        ("bundle exec rake test", lambda names: {"Gemfile", "Rakefile", "test"} <= names, "Rakefile and test/"),
        ("dotnet test", lambda names: any(name.endswith((".sln", ".slnx")) for name in names), "a .NET solution"),
    )
    found = [Check(command, reason) for command, applies, reason in table if applies(folder.names)]
    if (gradle := gradle_command(folder)) is not None:
        found.append(Check(f"{gradle} --quiet check", "a Gradle build"))
    if (maven := maven_command(folder)) is not None:
        found.append(Check(f"{maven} --quiet --batch-mode verify", "pom.xml"))
    if "test" in (read_json(folder, "composer.json").get("scripts") or {}):
        found.append(Check("composer test", "the script test in composer.json"))
    return found
