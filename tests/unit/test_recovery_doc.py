"""Every command that the runbooks, and what ``doctor`` says, tell a person to type exists with its options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from side_agents.cli import border
from side_agents.cli.root import COMMANDS, root

CHECKOUT = Path(border.__file__).parents[2]
RUNBOOKS = CHECKOUT / "docs" / "recovery.md"
CORE = CHECKOUT / "side_agents" / "core"
SOURCES = [
    *sorted(CORE.glob("doctor*.py")), CORE / "repair.py", CORE / "registry.py", CHECKOUT / "side_agents" / "cli" / "doctor.py"
]  # fmt: skip


def fault(command: str) -> str | None:
    """Why a command line could not be typed as it stands; None when click takes it."""
    words = shlex.split(command)[1:]
    if not words:
        return None
    if words[0] not in COMMANDS:
        return f"there is no command {words[0]}"
    with click.Context(root, info_name="side-agents") as context:
        found = root.get_command(context, words[0])
        assert found is not None
        rest = words[1:]
        if isinstance(found, click.Group) and rest:
            inner = found.get_command(context, rest[0])
            if inner is None:
                return f"{words[0]} has no {rest[0]}"
            found, rest = inner, rest[1:]
        try:
            found.make_context(words[0], rest, parent=context, resilient_parsing=False)
        except click.exceptions.Exit:
            return None
        except click.ClickException as error:
            return error.format_message()
    return None


def commands(text: str) -> Iterator[str]:
    yield from re.findall(r"`(side-agents[^`]*)`", text)


def steps() -> list[str]:
    return [line for line in RUNBOOKS.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]


def test_every_step_of_a_runbook_begins_with_a_command_of_ours() -> None:
    assert [line for line in steps() if not line.startswith("- `side-agents ")] == []
    assert len(steps()) > 60


def test_every_command_in_the_runbooks_exists_with_its_options() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    faults = {command: why for command in commands(text) if (why := fault(command)) is not None}
    assert faults == {}


def test_the_check_itself_sees_commands_and_options_that_do_not_exist() -> None:
    assert fault("side-agents doctor --repair --yes") is None
    assert fault("side-agents mend") is not None
    assert fault("side-agents doctor --everything") is not None
    assert fault("side-agents config chekc") is not None
    assert fault("side-agents clean --only everything") is not None
    assert fault("side-agents check") is not None


RUNBOOKS_WANTED = (
    "unknown", "crashed", "registry lock", "leased", "only looking", "start that never", "tmux was restarted",
    "missing on disk", "merge lock", "checkout is dirty", "never merged", "logs are too large", "trust", "cannot be read",
)  # fmt: skip


@pytest.mark.parametrize("topic", RUNBOOKS_WANTED)
def test_each_runbook_of_the_reference_is_there(topic: str) -> None:
    headings = re.findall(r"^## (.*)$", RUNBOOKS.read_text(encoding="utf-8").lower(), re.MULTILINE)
    assert any(topic in heading for heading in headings)


def test_every_section_has_steps() -> None:
    sections = RUNBOOKS.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections if "\n- " not in section] == []


def _texts(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in node.values}
    for node in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "ID" for part in node.values)
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in parts:
            yield each.value


def _named(text: str) -> Iterator[str]:
    """A command of ours in a sentence, as far as it can be told from the words around it."""
    for found in re.finditer(
        r"side-agents ([a-z]+)((?: --?[a-z-]+| ID\b| (?:lease|slot|window|branch|check|path)\b)*)", text
    ):
        if found[1] in COMMANDS or "`" in text[max(0, found.start() - 1) : found.start()]:
            yield f"side-agents {found[1]}{found[2]}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_command_that_a_finding_names_exists(path: Path) -> None:
    named = {command for text in _texts(path) for command in _named(text)}
    assert {command: why for command in named if (why := fault(command)) is not None} == {}
