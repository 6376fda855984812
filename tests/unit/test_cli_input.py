"""What is read from files and standard input: never more than one byte beyond the limit."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from side_agents.cli import options
from side_agents.core import start_plan
from side_agents.core.send import MESSAGE_LIMIT_BYTES
from side_agents.core.start_plan import TASK_LIMIT_BYTES
from side_agents.errors import UsageError
from tests.support.repositories import Repository
from tests.unit.cli_support import CommandLine

CHECKOUT = Path(options.__file__).parents[2]
# Enough for the program and its limits, far too little for an endless source.
_MEMORY = 1024**3


def shell(repo: Repository, line: str) -> subprocess.CompletedProcess[bytes]:
    """A shell line in which ``sa`` is this command line, with little memory."""
    return subprocess.run(
        ["bash", "-c", f'sa() {{ "$PYTHON" -m side_agents "$@"; }}; {line}'],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHON": sys.executable},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("sa send a -F /dev/zero", MESSAGE_LIMIT_BYTES),
        ("sa send a,b --file /dev/full", MESSAGE_LIMIT_BYTES),
        ("yes | sa send a -", MESSAGE_LIMIT_BYTES),
        ("sa start -F /dev/zero", TASK_LIMIT_BYTES),
        ("yes | sa start --file -", TASK_LIMIT_BYTES),
        ("sa start --each /dev/zero", TASK_LIMIT_BYTES),
        ("yes | sa start --each -", TASK_LIMIT_BYTES),
        ("cat /dev/zero | sa tool agent-send", TASK_LIMIT_BYTES),
    ],
)
def test_s5_an_endless_source_is_refused_with_the_limit(repo: Repository, line: str, limit: int) -> None:
    done = shell(repo, line)

    assert done.returncode == UsageError.exit_status
    assert f"the limit is {limit} bytes" in (done.stdout + done.stderr).decode()


def test_s5_the_refusal_of_a_tool_is_its_answer(repo: Repository) -> None:
    answer = json.loads(shell(repo, "cat /dev/zero | sa tool agent-send").stdout)

    assert (answer["ok"], answer["code"]) == (False, "usage")


def test_s5_a_template_that_is_endless_or_too_long_is_refused(repo: Repository) -> None:
    folder = repo.path / ".pi/side-agents/prompts"
    folder.mkdir(parents=True)
    (folder / "endless.md").symlink_to("/dev/zero")
    with (folder / "long.md").open("wb") as file:
        file.truncate(TASK_LIMIT_BYTES + 1)

    endless, long = shell(repo, "sa start --template endless"), shell(repo, "sa start --template long")

    assert (endless.returncode, long.returncode) == (2, 2)
    assert b"no ordinary file" in endless.stderr
    assert f"the limit is {TASK_LIMIT_BYTES} bytes".encode() in long.stderr


class Counted(io.BytesIO):
    """Remembers how much was asked for."""

    asked: list[int | None]

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked.append(size)
        return super().read(size)


def test_s5_not_one_byte_more_than_needed_is_read_and_the_limit_itself_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    whole.write_bytes(b"x" * 10)

    assert options.read_text((), str(whole), what="task", limit=10) == "x" * 10
    with pytest.raises(UsageError, match="the limit is 9 bytes"):
        options.read_text((), str(whole), what="task", limit=9)

    source = Counted(b"y" * 100)
    source.asked = []
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(source))
    with pytest.raises(UsageError):
        options.read_text(("-",), None, what="task", limit=9)
    assert source.asked == [10]


def test_a_standard_input_that_cannot_be_read_is_a_usage_error(repo: Repository) -> None:
    done = shell(repo, "sa start - 0>written")

    assert done.returncode == UsageError.exit_status
    assert done.stderr.startswith(b"error: Standard input cannot be read: ")


def test_a_tool_takes_input_up_to_the_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository
) -> None:
    monkeypatch.chdir(repo.path)
    given = json.dumps({"id": "nobody"}).encode()
    monkeypatch.setattr(start_plan, "TASK_LIMIT_BYTES", len(given))
    cli = CommandLine(capsys, monkeypatch)

    assert json.loads(cli("tool", "agent-check", feed=given).out)["code"] == "unknown-agent"
    assert json.loads(cli("tool", "agent-check", feed=given + b" ").out)["code"] == "usage"
