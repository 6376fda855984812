"""What the hot commands load, as sets: a budget that never flakes and is reviewed like code (DESIGN 3, 9, 10)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from side_agents.cli import border
from side_agents.cli.command_table import help_page
from side_agents.cli.root import COMMANDS, root
from side_agents.core.registry import Registry
from side_agents.models import AgentStatus
from side_agents.paths import StatePaths
from tests.support.repositories import Repository
from tests.unit.cli_support import record

CHECKOUT = Path(border.__file__).parents[2]
HEAVY = {
    "anyascii", "asyncio", "concurrent", "filelock", "git", "importlib.metadata", "inotify_simple", "libtmux",
    "multiprocessing", "platformdirs", "psutil", "pydantic", "pydantic_core", "unittest", "xml", "zipfile",
}  # fmt: skip
PARSER = {"__init__", "cli", "cli.border", "cli.command_table", "cli.root"}


def modules_after(repo: Repository, *arguments: str) -> set[str]:
    """What a fresh interpreter has loaded when the command has ended; without site, so that only we are counted."""
    code = (
        "import sys; before = set(sys.modules)\n"
        f"sys.argv = ['side-agents', *{list(arguments)!r}]\n"
        "from side_agents.__main__ import main\n"
        "main()\n"
        "sys.stderr.write('\\n@' + ' '.join(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.rpartition("@")[2].split())


def ours(loaded: set[str]) -> set[str]:
    own = {name for name in loaded if name.split(".")[0] == "side_agents" and name != "side_agents.__main__"}
    return {name.removeprefix("side_agents").removeprefix(".") or "__init__" for name in own}


def third_party(loaded: set[str]) -> set[str]:
    known = {*sys.stdlib_module_names, "side_agents"}
    return {name.split(".")[0] for name in loaded} - known


@pytest.fixture
def used(repo: Repository) -> Repository:
    """A repository with two agents that ended badly: no process to look at, nothing to write."""
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        state.put(record("a", AgentStatus.FAILED))
        state.put(record("b", AgentStatus.CRASHED))
    return repo


def test_the_version_loads_no_parser(repo: Repository) -> None:
    loaded = modules_after(repo, "--version")

    assert ours(loaded) == {"__init__", "cli", "cli.border"}
    assert third_party(loaded) == set()


def test_help_loads_neither_parser_nor_command(repo: Repository) -> None:
    loaded = modules_after(repo, "--help")

    assert ours(loaded) == PARSER - {"cli.root"}
    assert third_party(loaded) == set()
    assert not loaded & (HEAVY | {"subprocess"})


@pytest.mark.parametrize("columns", [30, 60, 80, 200])
def test_the_help_page_is_the_same_with_and_without_the_parser(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with click.Context(root) as context:
        page = root.get_help(context)
    assert page + "\n" == help_page(columns)
    assert max(map(len, page.splitlines()[2:-4])) <= max(40, min(columns - 2, 100))
    assert {name for name in COMMANDS if f"\n  {name} " not in page} == set()


def test_a_typo_loads_no_command_either(repo: Repository) -> None:
    loaded = modules_after(repo, "lst")

    assert ours(loaded) - {"cli.failures", "errors", "names", "infra", "infra.text"} == PARSER
    assert third_party(loaded) == {"click"}
    assert not loaded & (HEAVY | {"subprocess"})


@pytest.mark.parametrize(
    "arguments", [("status", "--json"), ("list",), ("list", "--json"), ("check", "a")], ids=" ".join
)
def test_looking_loads_nothing_heavy(used: Repository, arguments: tuple[str, ...]) -> None:
    loaded = modules_after(used, *arguments)

    assert loaded & HEAVY == set()
    assert third_party(loaded) == {"click"}


@pytest.mark.parametrize("arguments", [("status",), ("status", "--format", "tmux"), ("status", "--format=plain")])
def test_the_status_line_loads_no_parser_and_no_tmux(used: Repository, arguments: tuple[str, ...]) -> None:
    loaded = modules_after(used, *arguments)

    assert third_party(loaded) == set()
    assert not loaded & (HEAVY | {"subprocess", "tomllib"})
    assert {name for name in ours(loaded) if name.startswith(("cli.", "infra.", "tools"))} == {
        "cli.border", "cli.here", "cli.status_line",
        "infra.clock", "infra.fs", "infra.git_layout", "infra.git_refs", "infra.processes", "infra.tmux_sweep",
    }  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_loads_under_its_name_and_has_help(name: str) -> None:
    with click.Context(root, info_name="side-agents") as context:
        command = root.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
        page = command.get_help(click.Context(command, parent=context, info_name=name))
    assert page.startswith(f"Usage: side-agents {name}")
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def leaves(command: click.Command) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from leaves(child)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json(name: str) -> None:
    with click.Context(root) as context:
        command = root.get_command(context, name)
    assert command is not None
    for each in leaves(command):
        assert any("--json" in parameter.opts for parameter in each.params), each.name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_heading_in_the_readme(name: str) -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")

    assert re.search(rf"^#+ .*\b{re.escape(name)}\b", readme, re.MULTILINE)


def test_the_help_lines_of_the_table_fit_on_one_line() -> None:
    assert [name for name, (_, line) in COMMANDS.items() if len(line) > 66 or not line.endswith(".")] == []
