"""Options, arguments and input that several commands share; the only reader of the environment besides the border."""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from side_agents.cli.here import open_here
from side_agents.errors import SideAgentsError, UsageError
from side_agents.names import normalise_id, normalise_ids

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")


def complete_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of live agents for a shell's completion; none where there is nothing to offer."""
    try:
        known = open_here().registry.read().ids
    except SideAgentsError:
        return []
    return sorted(name for name in known if name.startswith(incomplete))


def _one_id(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    found = normalise_id(value)
    if not found:
        raise UsageError("The agent's id is empty. Nothing was done.", hint="`side-agents list` shows the ids.")
    return found


def _each_id(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return normalise_ids(values)


def _several_ids(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    found = normalise_ids(value.split(","))
    if not found:
        raise UsageError("The agent's id is empty. Nothing was done.", hint="`side-agents list` shows the ids.")
    return found


def _complete_list(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in complete_ids(context, parameter, last)]


# The branch name side-agent/<id> is taken for the id too.
agent_argument = click.argument("agent_id", metavar="ID", callback=_one_id, shell_complete=complete_ids)
# No id has a comma in it.
recipients_argument = click.argument(
    "agent_ids", metavar="ID[,ID...]", callback=_several_ids, shell_complete=_complete_list
)
agents_argument = click.argument("agent_ids", metavar="ID...", nargs=-1, callback=_each_id, shell_complete=complete_ids)


def read_text(words: Sequence[str], file: str | None, *, what: str, limit: int, hint: str | None = None) -> str:
    """The text of a task or message from the words of the command line, a file, or with ``-`` standard input.

    Raises UsageError unless exactly one of them is given and says something, and with ``hint`` for a file or input of more
    than ``limit`` bytes, of which no more than one further byte is read; bytes that are not UTF-8 survive.
    """
    if file is not None and words:
        raise UsageError(f"The {what} was given twice: as words and with --file. Nothing was done.")
    if file is None and not words:
        advice = "Give it as words, with --file FILE, or as - to read standard input."
        raise UsageError(f"There is no {what}.", hint=advice)
    if file is not None and file != "-":
        content = _decoded(_read_file(Path(file), limit + 1), what, limit, hint)
    elif file == "-" or list(words) == ["-"]:
        content = _decoded(_read_input(limit + 1), what, limit, hint)
    else:
        content = " ".join(words)
    if not content.strip():
        raise UsageError(f"The {what} is empty. Nothing was done.")
    return content


def read_input(*, what: str, limit: int) -> bytes:
    """All of standard input. Raises UsageError when it cannot be read or goes on for more than ``limit`` bytes."""
    data = _read_input(limit + 1)
    _refuse_longer(len(data), what, limit, None)
    return data


def require_ordinary(path: Path, *, what: str, limit: int) -> None:
    """Raises UsageError for a device, a pipe and the like, and for more than ``limit`` bytes; a missing file passes."""
    try:
        facts = path.stat()
    except OSError:
        # Whoever reads it has better words.
        return
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
        raise UsageError(f"The {what} {path} is no ordinary file. Nothing was done.")
    _refuse_longer(facts.st_size, what, limit, None)


def _decoded(data: bytes, what: str, limit: int, hint: str | None) -> str:
    _refuse_longer(len(data), what, limit, hint)
    return data.decode("utf-8", "surrogateescape")


def _refuse_longer(size: int, what: str, limit: int, hint: str | None) -> None:
    if size > limit:
        raise UsageError(f"The {what} is too long; the limit is {limit} bytes. Nothing was done.", hint=hint)


def _read_input(size: int) -> bytes:
    try:
        return sys.stdin.buffer.read(size)
    except OSError as error:
        raise UsageError(f"Standard input cannot be read: {error.strerror or error}. Nothing was done.") from error


def _read_file(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Nothing was done.") from error


def require_confirmation(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask on a terminal; without one, or for a program, ``--yes`` is needed. Raises UsageError or click.Abort."""
    if yes:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("This needs a yes, and there is no terminal to ask on. Nothing was done.", hint="Add --yes.")
    click.confirm(question, abort=True, err=True)
