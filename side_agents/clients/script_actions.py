# pathlib would cost the program a quarter of its start.
# ruff: noqa: PTH103, PTH118, PTH120, PTH123
"""What the directives of the script agent do to the world: files written, commands to run."""

from __future__ import annotations

import os

from side_agents.clients.script_command import Command

# User text is only ever the positional parameter, never part of the program.
_COMMIT = """
set -e
git add -A --
set -- "$1" -q
if ! git var GIT_COMMITTER_IDENT >/dev/null 2>&1 || ! git var GIT_AUTHOR_IDENT >/dev/null 2>&1; then
    git -c user.name='Script Agent' -c user.email='script-agent@localhost' commit "$2" --message="$1" --
else
    git commit "$2" --message="$1" --
fi
git log -1 --format='%h %s'
"""


class ActionRefusedError(Exception):
    """The directive was not carried out; the text says why."""


def run_shell(text: str, answer: str | None) -> Command:
    """Start shell text with the environment of this process; the last answer is ``$ANSWER``."""
    return _spawn([b"sh", b"-c", b"--", _encode(text)], answer)


def commit(message: str) -> Command:
    """Start a commit of everything in the worktree; without a configured identity a neutral one is used."""
    if not message.strip():
        raise ActionRefusedError("an empty commit message")
    return _spawn([b"sh", b"-c", _COMMIT.encode(), b"commit", _encode(message)], None)


def write(path: str, text: str) -> str:
    """Write a file below the current directory and return its path; links may not lead outside.

    Raises ActionRefusedError.
    """
    root = os.path.realpath(b".")
    relative = _encode(path.replace("\0", ""))
    target = os.path.realpath(os.path.join(root, relative))
    inside = os.path.relpath(target, root)
    if not path or inside == b"." or inside.split(b"/")[0] in (b"..", b".git"):
        raise ActionRefusedError(f"{path or 'no path'} is not a file of this worktree")
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(_encode(text))
    except OSError as error:
        raise ActionRefusedError(f"{path}: {error.strerror}") from error
    return inside.decode("utf-8", "replace")


def _spawn(argv: list[bytes], answer: str | None) -> Command:
    environment = dict(os.environb)
    if answer is not None:
        environment[b"ANSWER"] = _encode(answer)
    try:
        return Command("sh", argv, environment)
    except (OSError, ValueError) as error:
        raise ActionRefusedError(f"the command cannot be started: {error}") from error


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
