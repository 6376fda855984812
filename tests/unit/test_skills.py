"""The skills that are shipped: every command, tool, field and code that they name exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from side_agents import errors, resources
from side_agents.cli.root import root
from side_agents.forum import failures
from side_agents.forum.client import transport
from side_agents.tools.schema_files import schema_of
from side_agents.tools.table import TOOLS

SKILLS = sorted(path.name for path in (Path(__file__).resolve().parents[2] / "skills").iterdir())
_CODE = re.compile(r"```sh\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def code(name: str) -> Iterator[str]:
    """Each line of shell in the skill, and each piece of code in its text."""
    for block, span in _CODE.findall(resources.skill_text(name)):
        yield from (block or span).replace("\\\n", " ").splitlines()


def commands(name: str) -> Iterator[list[str]]:
    """The arguments of every ``side-agents`` that the skill tells to run."""
    for line in code(name):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        for start, word in enumerate(words):
            if word == "side-agents" and words[start + 1 :]:
                rest = words[start + 1 :]
                end = next((at for at, found in enumerate(rest) if re.fullmatch(r"[|&;<>()]+", found)), len(rest))
                yield rest[:end]


def leaf(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and what is left for it."""
    command: click.Command = root
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None and command.params:
            break
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    return command, words


def rows(name: str, heading: str) -> list[list[str]]:
    """The cells of the table under this head of its first column."""
    text = resources.skill_text(name)
    table = text[text.index(f"| {heading} |") :].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


@pytest.mark.parametrize("name", SKILLS)
def test_every_command_that_a_skill_names_is_there_with_its_options(name: str) -> None:
    told = list(commands(name))
    assert told
    for words in told:
        command, rest = leaf(words)
        options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        used = {word.partition("=")[0] for word in rest if word.startswith("-") and len(word) > 1}
        assert used <= options, (words, used - options)
        if command.name == "tool" and rest and not rest[0].startswith("-") and rest[0] != "NAME":
            assert rest[0] in TOOLS, words


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_has_a_name_and_a_description_for_its_reader(name: str) -> None:
    head = resources.skill_text(name).split("---\n")[1]
    assert head.startswith(f"name: {name}\ndescription: ")
    assert len(head) < 1024


@pytest.mark.parametrize("name", ["forum", "side-agents"])
def test_every_field_of_a_tool_is_named_and_no_other(name: str) -> None:
    for tool, given, answer in rows(name, "tool"):
        schema = schema_of(TOOLS[tool.strip("`")])
        fields = set(re.findall(r"`(\w+)`", given))
        assert fields <= set(schema["input"]["properties"]), tool
        if name == "forum":
            assert fields == set(schema["input"]["properties"]), tool
            answered = set(re.findall(r"`(\w+)`", answer))
            assert answered <= set(schema["output"]["properties"]), tool


def test_every_code_that_the_forum_skill_explains_exists() -> None:
    known = set(failures.STATUS) | {found.code for found in _classes(errors.SideAgentsError)}
    known |= {transport.UNREACHABLE, transport.NO_ANSWER, transport.BAD_ANSWER}
    explained = {code for cell, *_ in rows("forum", "code") for code in re.findall(r"`([\w-]+)`", cell)}
    assert len(explained) > 10
    assert explained <= known


def _classes(parent: type[errors.SideAgentsError]) -> Iterator[type[errors.SideAgentsError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from _classes(child)
