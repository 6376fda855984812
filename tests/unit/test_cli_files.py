"""Commands that show files and settings: config, log, diff, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from side_agents.cli import config as config_command
from side_agents.cli import output
from side_agents.config import Config, load
from side_agents.core.registry import Registry
from side_agents.models import AgentStatus
from side_agents.paths import StatePaths
from tests.support.repositories import Repository
from tests.unit.cli_support import CommandLine, record, tombstone

CHECKOUT = Path(output.__file__).parents[2]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository) -> CommandLine:
    monkeypatch.chdir(repo.path)
    return CommandLine(capsys, monkeypatch)


def put(repo: Repository, *agents: Any) -> StatePaths:
    paths = StatePaths(repo.path)
    with Registry(paths).transaction("test") as state:
        for agent in agents:
            state.put(agent)
    return paths


def log_of(repo: Repository, content: bytes) -> Path:
    paths = put(repo, record("a", AgentStatus.FAILED))
    folder = paths.runtime("a").directory
    folder.mkdir(parents=True)
    paths.runtime("a").backlog.write_bytes(content)
    return paths.runtime("a").backlog


def test_config_shows_every_setting_as_toml_that_reads_back(cli: CommandLine, repo: Repository) -> None:
    project = repo.path / ".pi/side-agents/config.toml"
    project.parent.mkdir(parents=True)
    project.write_text('client = "own"\nmax_depth = 3\n[clients.own]\nargv = ["my tool", "a\\"b"]\nenv = {K = "v"}\n')

    shown = cli("config").out

    assert shown == cli("config", "show").out
    data = tomllib.loads(shown)
    assert (data["client"], data["max_depth"], data["lock_timeout"]) == ("own", 3, 10.0)
    assert data["clients"]["own"]["argv"] == ["my tool", 'a"b']
    project.write_text(shown)
    assert load((project,)).clients["own"].env == {"K": "v"}


def test_config_shows_the_same_with_json(cli: CommandLine) -> None:
    answer = json.loads(cli("config", "show", "--json").out)

    assert answer["ok"] is True
    assert answer["config"]["max_depth"] == Config().max_depth


def test_config_path_names_both_files(cli: CommandLine, home: Path, repo: Repository) -> None:
    files = json.loads(cli("config", "path", "--json").out)["files"]

    assert [file["path"] for file in files] == [
        str(home / ".config/side-agents/config.toml"),
        str(repo.path / ".pi/side-agents/config.toml"),
    ]
    assert "yours, none yet" in cli("config", "path").out


def test_config_works_outside_of_a_repository(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert cli("config", "show").status == 0
    assert len(json.loads(cli("config", "path", "--json").out)["files"]) == 1
    assert cli("config", "init").status == 8
    assert cli("config", "init", "--user").status == 0


def test_config_check_names_the_fault_and_the_file(cli: CommandLine, repo: Repository) -> None:
    project = repo.path / ".pi/side-agents/config.toml"
    project.parent.mkdir(parents=True)
    project.write_text("max_dept = 3\n")

    ran = cli("config", "check")

    assert ran.status == 2
    assert "max_dept" in ran.err
    assert str(project) in ran.err
    assert cli("config", "path").status == 0


def test_config_init_writes_a_valid_file_that_changes_nothing_and_keeps_an_old_one(
    cli: CommandLine, repo: Repository
) -> None:
    project = repo.path / ".pi/side-agents/config.toml"

    first = cli("config", "init")
    second = cli("config", "init")

    assert first.status == 0
    assert load((project,)) == Config()
    assert (project.stat().st_mode & 0o777) == 0o600
    assert second.status == 4
    assert repo.status() == ""


def test_the_template_is_all_comments_with_every_setting() -> None:
    lines = config_command.template().splitlines()

    assert all(line.startswith("#") for line in lines)
    assert "# max_depth = 2" in lines


def test_log_shows_the_last_lines_without_anything_a_terminal_acts_on(cli: CommandLine, repo: Repository) -> None:
    log_of(repo, b"one\r\n\x1b[31mtwo\x1b[0m\n\n-----\n\x1b]0;title\x07three \xff\xe2\x80\xae\n")

    ran = cli("log", "a", "--lines", "2")

    assert (ran.status, ran.out) == (0, "two\nthree \ufffd\n")
    assert json.loads(cli("log", "a", "--json").out)["lines"] == ["one", "two", "three \ufffd"]


def test_log_raw_is_the_file_byte_for_byte(repo: Repository) -> None:
    content = b"\x1b[31m\xff\x00\r\n" * 40_000
    log_of(repo, content)

    done = subprocess.run(
        [sys.executable, "-m", "side_agents", "log", "a", "--raw"],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        timeout=30,
        check=True,
    )

    assert done.stdout == content


def append_until(path: Path, seen: Callable[[], bool]) -> None:
    """Let a log grow line by line until it is seen; the reader may notice the cut at any of these moments."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            with path.open("ab") as file:
                file.write(b"end\n")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert any(seen() for _ in range(20))
    finally:
        stop.set()
        writer.join()


def test_log_follow_goes_on_and_survives_a_trimmed_log(repo: Repository) -> None:
    path = log_of(repo, b"old\nfirst\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "side_agents", "log", "a", "-n", "1", "--follow"],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    killer = threading.Timer(30, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        with path.open("ab") as file:
            file.write(b"sec\x1b[1mond\nunfin")
        assert process.stdout.readline() == "second\n"
        path.write_bytes(b"kept\n")
        append_until(path, lambda: process.stdout is not None and process.stdout.readline() == "end\n")
    finally:
        killer.cancel()
        process.terminate()
        assert process.wait(timeout=20) == 143
        assert process.stdout is not None
        process.stdout.close()


def test_log_of_an_agent_without_one_says_so(cli: CommandLine, repo: Repository) -> None:
    put(repo, record("a", AgentStatus.FAILED))

    ran = cli("log", "a")

    assert ran.status == 3
    assert "left no log" in ran.err


def test_log_and_json_do_not_stream(cli: CommandLine, repo: Repository) -> None:
    log_of(repo, b"x\n")

    assert cli("log", "a", "--follow", "--json").status == 2


@pytest.mark.parametrize("command", ["log", "diff", "attach", "check", "send"])
def test_an_unknown_agent_is_an_error_with_the_nearest_name(cli: CommandLine, repo: Repository, command: str) -> None:
    put(repo, record("fix-login", AgentStatus.FAILED))

    ran = cli(command, "fix-logn", *(["x"] if command == "send" else []))

    assert ran.status == 3
    assert "fix-login" in ran.err


def worktree(repo: Repository, agent_id: str) -> Repository:
    path = repo.path.with_name("slot")
    repo.git("worktree", "add", "--quiet", "-b", f"side-agent/{agent_id}", str(path))
    return Repository(path)


def test_diff_has_committed_uncommitted_and_untracked_changes_and_touches_nothing(
    cli: CommandLine, repo: Repository
) -> None:
    base = repo.head()
    slot = worktree(repo, "a")
    slot.commit("committed.txt", "one\n")
    slot.write("README.md", "changed\n")
    slot.write("untracked.txt", "new\n")
    before = slot.status()
    put(repo, record("a", AgentStatus.FAILED, worktree_path=str(slot.path), base_commit=base))

    text = cli("diff", "a").out
    answer = json.loads(cli("diff", "a", "--json").out)

    for name in ("committed.txt", "README.md", "untracked.txt"):
        assert f"b/{name}" in text
    assert answer["diff"] == text
    assert answer["base"] == base
    assert "3 files changed" in cli("diff", "a", "--stat").out
    assert slot.status() == before


def test_diff_can_be_applied(cli: CommandLine, repo: Repository) -> None:
    base = repo.head()
    slot = worktree(repo, "a")
    slot.write("new.txt", "new\n")
    put(repo, record("a", AgentStatus.FAILED, worktree_path=str(slot.path), base_commit=base))

    repo.write("../patch", cli("diff", "a").out)
    repo.git("apply", "../patch")

    assert (repo.path / "new.txt").read_text() == "new\n"


def test_diff_of_one_that_has_ended_comes_from_its_branch_or_its_last_commit(
    cli: CommandLine, repo: Repository
) -> None:
    base = repo.head()
    slot = worktree(repo, "old")
    head = slot.commit("work.txt", "work\n")
    repo.git("worktree", "remove", str(slot.path))
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        state.bury(tombstone("old", base_commit=base, branch_head=head))

    assert "b/work.txt" in cli("diff", "old").out
    repo.git("branch", "-D", "side-agent/old")
    assert "b/work.txt" in cli("diff", "old").out


def test_diff_of_a_branch_that_is_gone_says_so(cli: CommandLine, repo: Repository) -> None:
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        state.bury(tombstone("old", base_commit=repo.head(), branch_head="1" * 40))

    ran = cli("diff", "old")

    assert ran.status == 3
    assert "does not exist any more" in ran.err


def test_attach_to_one_that_has_ended_points_to_its_work(cli: CommandLine, repo: Repository) -> None:
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        state.bury(tombstone("old"))

    ran = cli("attach", "old")

    assert ran.status == 3
    assert "side-agents diff old" in ran.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_us_and_say_how_to_install_them(cli: CommandLine, shell: str) -> None:
    ran = cli("completion", shell)

    assert ran.status == 0
    assert "# To install: " in ran.out
    assert f"_SIDE_AGENTS_COMPLETE={shell}_complete" in ran.out
    assert shell != "zsh" or ran.out.startswith("#compdef side-agents\n")
    assert json.loads(cli("completion", shell, "--json").out)["shell"] == shell


def test_the_bash_completion_script_is_valid_bash(cli: CommandLine) -> None:
    script = cli("completion", "bash").out

    subprocess.run(["bash", "-n"], input=script.encode(), check=True, timeout=20)


def test_a_diff_without_changes_says_so_where_a_pipe_does_not_see_it(cli: CommandLine, repo: Repository) -> None:
    slot = worktree(repo, "a")
    put(repo, record("a", AgentStatus.FAILED, worktree_path=str(slot.path), base_commit=repo.head()))

    ran = cli("diff", "a")

    assert (ran.status, ran.out, ran.err) == (0, "", "No changes against its base.\n")
    assert cli("diff", "a", "--json").err == ""
