"""Where errors become exit statuses and words."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from side_agents import __version__, errors
from side_agents.cli import border, root
from side_agents.core import registry
from side_agents.models import AgentStatus
from side_agents.paths import StatePaths
from tests.support.repositories import Repository
from tests.unit.cli_support import record

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = border.run(arguments)
        written = capsys.readouterr()
        return status, written.out, written.err

    return call


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make ``side-agents list`` raise something."""

    def install(error: BaseException) -> None:
        def boom(as_json: bool, words: tuple[str, ...]) -> None:
            raise error

        params = [click.Option(["--json", "as_json"], is_flag=True), click.Argument(["words"], nargs=-1)]
        command = click.Command("list", callback=boom, params=params)
        monkeypatch.setattr(root.LazyGroup, "get_command", lambda self, context, name: command)

    return install


def all_errors() -> list[type[errors.SideAgentsError]]:
    """Those that the hierarchy names; a part may narrow one further for itself."""
    named = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in named if issubclass(each, errors.SideAgentsError)]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.code)
def test_every_kind_of_error_has_its_exit_status_and_two_lines(kind: Any, run: Run, failing: Any) -> None:
    failing(kind("It broke. Nothing was changed.", hint="Mend it."))

    status, out, err = run("list")

    assert (status, out) == (kind.exit_status, "")
    assert err == "error: It broke. Nothing was changed.\nhint: Mend it.\n"


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.code)
def test_with_json_every_kind_of_error_is_one_object_on_standard_output(kind: Any, run: Run, failing: Any) -> None:
    failing(kind("It broke.", hint="Mend it."))

    status, out, err = run("list", "--json")

    assert (status, err) == (kind.exit_status, "")
    more = {"forumCode": "internal"} if kind is errors.ForumError else {}
    assert json.loads(out) == {"ok": False, "error": "It broke.", "code": kind.code, "hint": "Mend it.", **more}


def test_an_error_without_a_hint_has_one_line_and_no_hint_key(run: Run, failing: Any) -> None:
    failing(errors.BusyError("Held."))

    assert run("list")[2] == "error: Held.\n"
    assert "hint" not in json.loads(run("list", "--json")[1])


def test_terminal_sequences_in_an_error_do_not_reach_the_terminal(run: Run, failing: Any) -> None:
    failing(errors.GitError("git says \x1b]0;owned\x07\x1b[31mred\x9bm"))

    assert run("list")[2] == "error: git says red\n"


def test_an_unexpected_exception_is_no_traceback_but_a_private_report(run: Run, failing: Any, home: Path) -> None:
    failing(RuntimeError("secret of the program"))

    status, out, err = run("list", "my private task")

    reports = list((home / ".cache/side-agents/reports").iterdir())
    assert (status, out) == (70, "")
    assert "Traceback" not in err
    assert str(reports[0]) in err
    assert stat.S_IMODE(reports[0].stat().st_mode) == 0o600
    report = reports[0].read_text(encoding="utf-8")
    assert "Traceback" in report
    assert __version__ in report
    assert "my private task" not in report


def test_an_unexpected_exception_with_json_is_an_object_too(run: Run, failing: Any) -> None:
    failing(ZeroDivisionError("x"))

    status, out, _ = run("list", "--json")

    assert status == 70
    assert json.loads(out)["code"] == "internal"


def test_a_report_that_cannot_be_saved_does_not_hide_the_fault(run: Run, failing: Any, home: Path) -> None:
    (home / ".cache").write_text("in the way", encoding="utf-8")
    failing(RuntimeError("the first fault"))

    status, _, err = run("list")

    assert status == 70
    assert "the first fault" in err
    assert "could not be saved" in err


def test_an_interrupt_is_130_and_says_so(run: Run, failing: Any) -> None:
    failing(KeyboardInterrupt())

    assert run("list") == (130, "", "\nInterrupted.\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_128_and_its_number_after_cleaning_up(
    number: int, status: int, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    cleaned: list[bool] = []

    def raise_signal() -> None:
        try:
            signal.raise_signal(number)
        finally:
            cleaned.append(True)

    command = click.Command("list", callback=raise_signal)
    monkeypatch.setattr(root.LazyGroup, "get_command", lambda self, context, name: command)
    before = signal.getsignal(number)

    assert run("list")[0] == status
    assert cleaned
    assert signal.getsignal(number) is before


def test_an_unanswered_question_is_an_error_without_a_traceback(run: Run, failing: Any) -> None:
    failing(click.Abort())

    status, _, err = run("list")

    assert status == 1
    assert err.startswith("error: Nothing was done")


def test_an_interrupt_at_a_question_is_an_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise click.Abort from None

    command = click.Command("list", callback=ask)
    monkeypatch.setattr(root.LazyGroup, "get_command", lambda self, context, name: command)

    assert run("list")[0] == 130


def test_a_reader_that_went_away_is_silent() -> None:
    code = (
        "import os, sys\n"
        "from side_agents.cli import border\n"
        "r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
        "sys.stdout = open(1, 'w')\n"
        "sys.exit(border.run(['--help']))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (141, b"")


def test_the_version_comes_from_the_constant_without_a_parser(run: Run) -> None:
    assert run("--version") == (0, f"side-agents {__version__}\n", "")
    assert run("-V")[1] == f"side-agents {__version__}\n"


def test_a_typo_is_answered_with_the_nearest_command(run: Run) -> None:
    status, _, err = run("sttaus")

    assert status == 2
    assert err == "error: There is no command sttaus.\nhint: Did you mean `side-agents status`?\n"


def test_a_typo_with_json_is_one_object(run: Run) -> None:
    status, out, _ = run("nothing-like-it", "--json")

    assert status == 2
    assert json.loads(out)["code"] == "usage"


def test_an_unknown_option_is_a_usage_error_with_a_way_out(run: Run) -> None:
    status, _, err = run("start", "-x")

    assert status == 2
    assert err.startswith("error: No such option")
    assert "after `--`" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["check", "x", "--json"], True),
        (["--json"], True),
        (["send", "x", "--", "--json"], False),
        (["list"], False),
        (["tool", "agent-check"], True),
        (["send", "x", "tool"], False),
    ],
)
def test_json_is_asked_for_before_the_double_dash_only(arguments: list[str], expected: bool) -> None:
    assert border.wants_json(arguments) is expected


def test_without_a_terminal_and_a_command_the_help_is_shown(run: Run) -> None:
    status, out, _ = run()

    assert status == 0
    assert out.startswith("Usage: side-agents")


def test_outside_a_repository_a_command_refuses(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    status, out, _ = run("list", "--json")

    assert status == errors.NotARepositoryError.exit_status
    assert json.loads(out)["code"] == "not-a-repository"


def test_a_folder_that_was_removed_is_an_ordinary_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    status, _, err = run("list")

    assert status == errors.NotFoundError.exit_status
    assert "no longer exists" in err


def test_completion_offers_commands_and_options_without_importing_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(border.COMPLETE_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "side-agents st")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setattr(root.LazyGroup, "get_command", lambda self, context, name: pytest.fail(f"imported {name}"))

    status, out, _ = run()

    assert status == 0
    assert out.split() == ["plain,start", "plain,stop", "plain,status"]


def test_completion_offers_the_ids_of_live_agents(run: Run, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    state = registry.RegistryState(foreign={"fix-login": {}, "fix-docs": {}, "other": {}})
    monkeypatch.setattr(registry.Registry, "read", lambda self: state)
    monkeypatch.chdir(repo.path)
    monkeypatch.setenv(border.COMPLETE_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "side-agents check fix")
    monkeypatch.setenv("COMP_CWORD", "2")

    assert run()[1].split() == ["plain,fix-docs", "plain,fix-login"]


def shell(repo: Repository, line: str, *, timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
    """What a shell line does in which ``sa`` is this command line."""
    return subprocess.run(
        ["bash", "-c", f'sa() {{ "$PYTHON" -m side_agents "$@"; }}; {line}'],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(Path(border.__file__).parents[2]), "PYTHON": sys.executable},
        capture_output=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "status"), [("status", 0), ("list", 0), ("--version", 0), ("lst", 2), ("check x --json", 3)]
)
def test_s6_a_closed_stream_is_no_traceback_and_changes_no_status(
    words: str, status: int, closed: str, repo: Repository
) -> None:
    done = shell(repo, f"sa {words} {closed}")

    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert b"fault of its own" not in done.stderr + done.stdout


def test_s6_a_task_from_a_closed_standard_input_is_an_empty_one(repo: Repository) -> None:
    done = shell(repo, "sa start - <&-")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"error: The task is empty. Nothing was done.\n"


def test_s6_nothing_that_is_opened_later_takes_the_place_of_a_closed_stream_and_programs_inherit_it(
    repo: Repository,
) -> None:
    code = (
        "import os, subprocess, sys\n"
        "from side_agents.cli import border\n"
        "border.run(['--version'])\n"
        "opened = os.open(sys.argv[1], os.O_RDONLY)\n"
        "inherited = subprocess.run(['sh', '-c', 'cat && echo x && echo x >&2']).returncode\n"
        "sys.exit(10 * (opened > 2) + inherited)\n"
    )
    done = shell(repo, f'"$PYTHON" -c "{code}" "{repo.path}" <&- >&- 2>&-')

    assert done.returncode == 10


LOST = b"error: The command was carried out, but its output could not be written (No space left on device).\n"


@pytest.mark.parametrize("buffering", ["", "1"])
@pytest.mark.parametrize("words", ["list", "list --json", "--version", "--help", "status --json", "config path"])
def test_s6_output_that_finds_no_place_is_an_error_of_its_own(
    words: str, buffering: str, repo: Repository, home: Path
) -> None:
    done = shell(repo, f"export PYTHONUNBUFFERED={buffering}; sa {words} >/dev/full")

    assert done.returncode == 1
    assert done.stderr.startswith(LOST)
    assert not (home / ".cache/side-agents/reports").exists()


def test_s6_what_is_done_one_after_the_other_is_done_to_the_end_without_room_for_the_output(repo: Repository) -> None:
    with registry.Registry(StatePaths(repo.path)).transaction("test") as state:
        for name in ("a", "b"):
            state.put(record(name, AgentStatus.FAILED, worktree_path=None))

    done = shell(repo, "sa stop a b --yes >/dev/full")

    assert done.returncode == 1
    assert done.stderr.startswith(LOST)
    assert registry.Registry(StatePaths(repo.path)).read().ids == set()


def test_s6_a_refusal_that_finds_no_place_on_standard_output_is_told_on_standard_error(repo: Repository) -> None:
    done = shell(repo, "sa check nobody --json >/dev/full")

    assert done.returncode == errors.UnknownAgentError.exit_status
    assert b"nobody" in done.stderr
    assert b"carried out" not in done.stderr


def test_s6_a_refusal_of_a_command_that_only_shows_is_told_too(repo: Repository) -> None:
    done = shell(repo, "sa log nobody --json >/dev/full")

    assert done.returncode == errors.UnknownAgentError.exit_status
    assert b"Traceback" not in done.stderr
    assert b"nobody" in done.stderr


@pytest.mark.parametrize("words", ["lst", "check nobody", "list"])
def test_s6_errors_that_find_no_place_change_no_status(words: str, repo: Repository) -> None:
    expected = shell(repo, f"sa {words}")
    done = shell(repo, f"sa {words} 2>/dev/full")

    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)


def test_s6_a_stream_of_changes_ends_when_it_finds_no_place(repo: Repository) -> None:
    done = shell(repo, "sa status --follow >/dev/full", timeout=20)

    assert done.returncode == 1
    assert done.stderr.startswith(b"error: The output could not be written (No space left on device).\n")


def test_a_reader_finds_the_entry_point_usable_as_a_module(repo: Repository) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "side_agents", "list", "--json"],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(Path(border.__file__).parents[2])},
        capture_output=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["agents"] == []
    assert not (repo.path / ".pi").exists()
