"""What a project needs before somebody can work in a fresh worktree of it, judged by the files it has. Pure.

A proposal is a line of shell with the reason for it. It never changes what git tracks: lock files are obeyed, not written.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

# Files whose text is looked at; the caller reads those that exist.
READ = (
    "package.json", "pyproject.toml", "Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", ".gitattributes",
    ".yarnrc.yml", "yarn.lock", "composer.json", ".justfile",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Folder:
    """The names in one folder of a project, and the texts of those in ``READ`` that could be read."""

    names: frozenset[str]
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of shell. ``chosen``: part of the default; the others are only offered."""

    command: str
    reason: str
    chosen: bool = True


def propose(folder: Folder) -> tuple[Step, ...]:
    """The steps for a project with these files at its top, in the order in which they should run."""
    steps: list[Step] = []
    for find in (_git_parts, _node, python_steps, _compiled, _scripting, _java, _project_scripts):
        steps += find(folder)
    return tuple(steps)


def propose_below(folders: Mapping[str, Folder]) -> tuple[Step, ...]:
    """Steps for folders one level down. Only those with a lock file count: the others are parts of a workspace."""
    found: list[Step] = []
    for name, folder in sorted(folders.items()):
        if folder.names & _LOCKS:
            for find in (_node, python_steps, _compiled, _scripting):
                found += [_inside(name, step) for step in find(folder) if step.chosen]
    return tuple(found)


def worth_copying(ignored: Iterable[str]) -> tuple[str, ...]:
    """Those of the ignored paths that are settings or secrets which nobody can make anew."""
    return tuple(path for path in ignored if not path.endswith("/") and _is_private_setting(PurePosixPath(path)))


_LOCKS = frozenset(
    (
        "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb", "package-lock.json", "npm-shrinkwrap.json", "uv.lock",
        "poetry.lock", "pdm.lock", "Pipfile.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock", "mix.lock",
        "requirements.txt", "packages.lock.json",
    )
)  # fmt: skip
_PRIVATE_NAMES = frozenset(
    (
        ".env", ".envrc", ".dev.vars", ".npmrc", ".pypirc", ".secrets", "local.settings.json", "local.properties",
        "master.key", "secrets.toml", "secrets.yml", "secrets.yaml", "secrets.json", "credentials.json",
        "terraform.tfvars", "google-services.json", "GoogleService-Info.plist", "key.properties", "wp-config.php",
        ".mise.local.toml", "mise.local.toml", "docker-compose.override.yml", "compose.override.yaml",
    )
)  # fmt: skip
_PRIVATE_SHAPE = re.compile(
    r"\.env\..+|.+\.env|.+\.local|.*\.local\.(json|ya?ml|toml|ini|env|py|js|ts|php)|.+\.auto\.tfvars"
    r"|.*secrets?\.(env|ini|cfg|conf)"
)
# Editors and tools leave their own state under names of that shape.
_NEVER_PRIVATE = re.compile(r".*(~|\.swp|\.bak|\.orig|\.log|\.pyc)|settings\.local\.json")
_CREDENTIALS = re.compile(r"config/credentials/[^/]+\.key")
_BUILT = frozenset(("node_modules", ".venv", "venv", "vendor", "target", "dist", "build", ".git", ".pi"))


def _is_private_setting(path: PurePosixPath) -> bool:
    if _BUILT & set(path.parts[:-1]) or _NEVER_PRIVATE.fullmatch(path.name):
        return False
    shaped = _PRIVATE_SHAPE.fullmatch(path.name) is not None
    return path.name in _PRIVATE_NAMES or shaped or _CREDENTIALS.search(str(path)) is not None


def _inside(name: str, step: Step) -> Step:
    return replace(step, command=f"(cd -- {shlex.quote(name)} && {step.command})", reason=f"{name}/{step.reason}")


def first_of(names: frozenset[str], *wanted: str) -> str | None:
    """The first of the wanted names that is there."""
    return next((name for name in wanted if name in names), None)


def _git_parts(folder: Folder) -> list[Step]:
    steps = []
    if ".gitmodules" in folder.names:
        reason = ".gitmodules; every start fills what is checked out in the main checkout, this fetches the rest"
        steps.append(Step("git submodule update --init --recursive", reason, chosen=False))
    if "filter=lfs" in folder.texts.get(".gitattributes", ""):
        reason = ".gitattributes; only needed where `git lfs install --skip-smudge` is in use"
        steps.append(Step("git lfs pull", reason, chosen=False))
    return steps


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """The object in one of the texts, empty when there is none or it is broken."""
    try:
        found = json.loads(folder.texts.get(name, ""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_toml(folder: Folder, name: str) -> dict[str, Any]:
    """The table in one of the texts, empty when there is none or it is broken."""
    try:
        return tomllib.loads(folder.texts.get(name, ""))
    except (ValueError, RecursionError):
        return {}


def node_manager(folder: Folder) -> tuple[str, str] | None:
    """The package manager of a Node project and the file that says so."""
    named = read_json(folder, "package.json").get("packageManager")
    by_lock = (
        ("pnpm", "pnpm-lock.yaml"), ("yarn", "yarn.lock"), ("bun", "bun.lock"), ("bun", "bun.lockb"),
        ("npm", "package-lock.json"), ("npm", "npm-shrinkwrap.json"),
    )  # fmt: skip
    declared = named.partition("@")[0] if isinstance(named, str) else ""
    locks = [pair for pair in by_lock if pair[1] in folder.names]
    for pair in (*(pair for pair in locks if pair[0] == declared), *locks):
        return pair
    if "package.json" not in folder.names:
        return None
    return (declared, "package.json") if declared in {"pnpm", "yarn", "bun", "npm"} else ("npm", "package.json")


def _node(folder: Folder) -> list[Step]:
    found = node_manager(folder)
    if found is None:
        return []
    manager, evidence = found
    if evidence == "package.json":
        commands = {
            "npm": "npm install --no-package-lock --no-audit --no-fund",
            "pnpm": "pnpm install --no-lockfile",
            "yarn": "yarn install --no-lockfile",
            "bun": "bun install --no-save",
        }
        return [Step(commands[manager], "package.json, without a lock file")]
    is_berry = ".yarnrc.yml" in folder.names or "__metadata:" in folder.texts.get("yarn.lock", "")
    commands = {
        "npm": "npm ci --prefer-offline --no-audit --no-fund",
        "pnpm": "pnpm install --frozen-lockfile --prefer-offline",
        "yarn": "yarn install --immutable" if is_berry else "yarn install --frozen-lockfile --prefer-offline",
        "bun": "bun install --frozen-lockfile",
    }
    return [Step(commands[manager], evidence)]


VENV = "[ -d .venv ] || python3 -m venv .venv"


def python_runner(folder: Folder) -> str | None:
    """The tool that runs this Python project, None for a plain virtual environment."""
    for lock, tool in (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm"), ("Pipfile.lock", "pipenv")):
        if lock in folder.names:
            return tool
    tools = read_toml(folder, "pyproject.toml").get("tool", {})
    return next((tool for tool in ("uv", "poetry", "pdm") if isinstance(tools, dict) and tool in tools), None)


def python_steps(folder: Folder) -> list[Step]:
    """How the packages of a Python project are installed."""
    locked = {
        "uv": ("uv sync --frozen", "uv.lock"),
        "poetry": ("poetry install --no-interaction", "poetry.lock"),
        "pdm": ("pdm sync", "pdm.lock"),
        "pipenv": ("pipenv sync --dev", "Pipfile.lock"),
    }
    tool = python_runner(folder)
    if tool is not None and locked[tool][1] in folder.names:
        return [Step(*locked[tool])]
    lists = [n for n in ("requirements.txt", "requirements-dev.txt", "dev-requirements.txt") if n in folder.names]
    if lists:
        args = " ".join(f"-r {name}" for name in lists)
        install = f".venv/bin/python -m pip install --quiet --disable-pip-version-check {args}"
        return [Step(f"{VENV} && {install}", " and ".join(lists))]
    if "build-system" in read_toml(folder, "pyproject.toml") or "setup.py" in folder.names:
        install = ".venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ."
        evidence = "pyproject.toml" if "pyproject.toml" in folder.names else "setup.py"
        return [Step(f"{VENV} && {install}", f"{evidence}; .venv has to be ignored by git")]
    return []


def _compiled(folder: Folder) -> list[Step]:
    steps = []
    if "Cargo.toml" in folder.names:
        locked = "Cargo.lock" in folder.names
        steps.append(
            Step("cargo fetch --locked" if locked else "cargo fetch", "Cargo.lock" if locked else "Cargo.toml")
        )
    if "go.mod" in folder.names:
        steps.append(Step("go mod download", "go.mod"))
    project = next((n for n in sorted(folder.names) if n.endswith((".sln", ".slnx", ".csproj", ".fsproj"))), None)
    if project is not None:
        mode = " --locked-mode" if "packages.lock.json" in folder.names else ""
        steps.append(Step(f"dotnet restore{mode}", project))
    return steps


def _scripting(folder: Folder) -> list[Step]:
    steps = []
    if (name := first_of(folder.names, "Gemfile.lock", "Gemfile")) is not None:
        steps.append(Step("BUNDLE_FROZEN=true bundle install" if name == "Gemfile.lock" else "bundle install", name))
    if (name := first_of(folder.names, "composer.lock", "composer.json")) is not None:
        steps.append(Step("composer install --no-interaction", name))
    if "mix.exs" in folder.names:
        steps.append(Step("mix deps.get", "mix.exs"))
    return steps


def gradle_command(folder: Folder) -> str | None:
    """How Gradle is called here, None when this is no Gradle build."""
    if first_of(folder.names, "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts") is None:
        return None
    return "./gradlew" if "gradlew" in folder.names else "gradle"


def maven_command(folder: Folder) -> str | None:
    """How Maven is called here, None when this is no Maven build."""
    if "pom.xml" not in folder.names:
        return None
    return "./mvnw" if "mvnw" in folder.names else "mvn"


def _java(folder: Folder) -> list[Step]:
    # Their caches are shared by all worktrees and filled by the first build; fetching ahead is only of use offline.
    steps = []
    if (gradle := gradle_command(folder)) is not None:
        steps.append(Step(f"{gradle} --quiet dependencies", "a Gradle build", chosen=False))
    if (maven := maven_command(folder)) is not None:
        steps.append(Step(f"{maven} --quiet --batch-mode dependency:go-offline", "pom.xml", chosen=False))
    return steps


_PREPARE = ("bootstrap", "setup", "deps", "install-deps", "init", "install")


def task_targets(folder: Folder) -> list[tuple[str, str, frozenset[str]]]:
    """The task runners of a project: command, file, names of the tasks."""
    found = []
    if (name := first_of(folder.names, "GNUmakefile", "makefile", "Makefile")) is not None:
        rules = re.findall(r"^([\w.-]+(?:[ \t]+[\w.-]+)*)[ \t]*::?(?!=)", folder.texts.get(name, ""), re.MULTILINE)
        found.append(("make", name, frozenset(word for rule in rules for word in rule.split())))
    if (name := first_of(folder.names, "justfile", "Justfile", ".justfile")) is not None:
        recipes = re.findall(r"^@?([A-Za-z_][\w-]*)(?:[ \t][^:\n]*)?:(?!=)", folder.texts.get(name, ""), re.MULTILINE)
        found.append(("just", name, frozenset(recipes)))
    return found


def _project_scripts(folder: Folder) -> list[Step]:
    # They may do anything, to a database for instance: offered, never taken unasked.
    steps = []
    for runner, name, targets in task_targets(folder):
        target = next((each for each in _PREPARE if each in targets), None)
        if target is not None:
            steps.append(Step(f"{runner} {target}", f"a task in {name}", chosen=False))
    return steps
