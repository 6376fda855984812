"""The status line (reference/side-agents 6.7), the table and what is done to text on its way to a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from side_agents.cli import agent_table, output, status_line
from side_agents.clients.script_text import text_width
from side_agents.core import windows
from side_agents.core.registry import Registry
from side_agents.infra import processes
from side_agents.models import AgentStatus, WaitingFor
from side_agents.paths import StatePaths
from tests.support.repositories import Repository
from tests.unit.cli_support import CommandLine, record, tombstone

CHECKOUT = Path(output.__file__).parents[2]


def line(records: list[Any], own: str | None = None, lingering: tuple[str, ...] = ()) -> str:
    return status_line.as_plain(status_line.pieces(records, own, lingering))


@pytest.mark.parametrize(
    ("status", "short"),
    [
        (AgentStatus.ALLOCATING_WORKTREE, "alloc"),
        (AgentStatus.SPAWNING_TMUX, "tmux"),
        (AgentStatus.RUNNING, "run"),
        (AgentStatus.WAITING_USER, "wait"),
        (AgentStatus.DONE, "done"),
        (AgentStatus.FAILED, "fail"),
        (AgentStatus.CRASHED, "crash"),
    ],
)
def test_each_status_has_its_short_word(status: AgentStatus, short: str) -> None:
    assert line([record(status=status)], lingering=("fix-login",)) == f"fix-login:{short}@3"


def test_the_number_of_a_window_that_is_gone_is_never_shown_because_it_may_be_another_agents_now() -> None:
    agents = [record("a", AgentStatus.CRASHED), record("b", AgentStatus.FAILED), record("c", AgentStatus.FAILED)]
    agents += [record("d")]
    inside = [record("top", AgentStatus.FAILED), record("me", parent_agent_id="top")]

    assert line(agents, lingering=("b",)) == "a:crash b:fail@3 c:fail d:run@3"
    assert line(inside, "me") == "parent:top:fail"
    assert [row.cells[3] for row in agent_table.rows_of(agents, ("b",))] == ["-", "#3", "-", "#3"]


LIVES = processes.current()
DEAD = processes.ended(LIVES.pid)


@pytest.mark.parametrize(
    ("values", "is_there"),
    [
        ({}, True),
        ({"launcher": DEAD}, False),
        ({"launcher": None}, False),
        ({"tmux_server": DEAD}, False),
        # A launcher that outlived its window, or has not yet noticed that it was closed.
        ({"exit_code": None, "status": AgentStatus.CRASHED}, False),
        ({"status": AgentStatus.RUNNING}, False),
    ],
)
def test_a_failed_agent_lingers_while_its_launcher_waits_for_a_key(values: dict[str, Any], is_there: bool) -> None:
    facts = {"launcher": LIVES, "tmux_server": LIVES, "tmux_pane_id": "%3", "exit_code": 3}
    agent = replace(record(status=AgentStatus.FAILED, **facts), **values)

    assert windows.lingering([agent]) == (frozenset([agent.id]) if is_there else frozenset())


def test_an_unknown_window_is_left_out() -> None:
    assert line([record(tmux_window_index=None)]) == "fix-login:run"


def test_main_sees_its_own_agents_and_orphans_which_are_marked() -> None:
    agents = [record("a"), record("b", parent_agent_id="a"), record("c", parent_agent_id="gone")]

    assert line(agents) == "a:run@3 c:run@3[orphan]"


def test_an_agent_sees_parent_children_and_siblings_in_groups() -> None:
    agents = [
        record("top"),
        record("me", parent_agent_id="top"),
        record("sister", parent_agent_id="top"),
        record("child", parent_agent_id="me"),
        record("stranger"),
    ]

    assert line(agents, "me") == "parent:top:run@3 | child:run@3 | sister:run@3"


def test_a_parent_that_is_gone_is_an_error() -> None:
    pieces = status_line.pieces([record("me", parent_agent_id="top")], "me")

    assert [(piece.text, piece.role) for piece in pieces] == [("parent:top:gone", status_line.Role.ERROR)]


def test_an_agent_of_main_alone_sees_nothing() -> None:
    assert line([record("me")], "me") == ""


def test_tmux_gets_its_own_colours_and_nothing_to_expand() -> None:
    pieces = [status_line.Piece("a#(rm):wait", status_line.Role.ACCENT)]

    assert status_line.as_tmux(pieces) == "#[fg=cyan]a##(rm):wait#[default]"
    assert status_line.as_tmux([]) == ""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository) -> CommandLine:
    monkeypatch.chdir(repo.path)
    return CommandLine(capsys, monkeypatch)


def put(repo: Repository, *records: Any) -> None:
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        for each in records:
            state.put(each)


def test_status_reads_the_registry_and_asks_no_program(
    cli: CommandLine, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repo, record("a", AgentStatus.FAILED), record("b", AgentStatus.CRASHED))
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda *a, **k: pytest.fail("a program was started"))

    assert cli("status").out == "a:fail b:crash\n"
    assert cli("status", "--format", "ansi").out == "\x1b[31ma:fail\x1b[0m \x1b[31mb:crash\x1b[0m\n"
    assert cli("status", "--format", "tmux").out.startswith("#[fg=red]a:fail ")
    answer = json.loads(cli("status", "--json").out)
    assert answer["line"] == "a:fail b:crash"
    assert answer["agents"][0] == {"id": "a", "status": "failed", "tmuxWindowIndex": 3}


def test_status_without_agents_is_empty_and_creates_nothing(cli: CommandLine, repo: Repository) -> None:
    assert cli("status").out == ""
    assert not (repo.path / ".pi").exists()


def test_status_inside_an_agent_is_seen_from_that_agent(
    cli: CommandLine, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = AgentStatus.FAILED
    put(repo, record("me", failed), record("child", failed, parent_agent_id="me"), record("other", failed))
    monkeypatch.setenv("PI_SIDE_AGENT_ID", "me")

    assert cli("status").out == "child:fail | other:fail\n"


def test_follow_streams_a_snapshot_and_then_each_change(repo: Repository) -> None:
    put(repo, record("a", AgentStatus.FAILED))
    process = subprocess.Popen(
        [sys.executable, "-m", "side_agents", "status", "--follow"],
        cwd=repo.path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        put(repo, record("b", AgentStatus.CRASHED))
        second = json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)

    assert (first["type"], [agent["id"] for agent in first["agents"]]) == ("snapshot", ["a"])
    assert {key: second[key] for key in ("type", "id", "from", "to", "tmuxWindowIndex")} == {
        "type": "transition",
        "id": "b",
        "from": "allocating_worktree",
        "to": "crashed",
        "tmuxWindowIndex": 3,
    }
    assert process.returncode == 143
    assert "Traceback" not in errors


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(text) for text in lines]


def test_the_table_is_cut_to_the_width_of_the_terminal_whatever_the_script() -> None:
    agents = [
        record("fix-login", task="修复登录测试" * 30),
        record("b", AgentStatus.WAITING_USER, waiting_for=WaitingFor.QUESTION, waiting_text="选择哪一个？" * 40),
    ]
    for width in (40, 60, 80, 120, 200):
        lines = plain(agent_table.render(agent_table.rows_of(agents), width))
        assert max(map(text_width, lines)) <= width, width
        assert lines[1].startswith("fix-login")


def test_a_wide_table_has_every_column_and_a_narrow_one_keeps_the_task() -> None:
    rows = agent_table.rows_of([record(turn=2)])

    wide = plain(agent_table.render(rows, 160))
    narrow = plain(agent_table.render(rows, 60))

    assert wide[0].split() == ["AGENT", "STATUS", "TURN", "WIN", "WORKTREE", "AGE", "TASK"]
    assert "app-agent-worktree-0001" in wide[1]
    assert "WORKTREE" not in narrow[0]
    assert "Fix the login" in narrow[1]


def test_columns_stay_aligned_when_wide_characters_are_in_them() -> None:
    rows = agent_table.rows_of([record("a", worktree_path="/repos/店-agent-worktree-0001"), record("b")])

    first, second = plain(agent_table.render(rows, None))[1:]

    assert text_width(first[: first.index("Fix")]) == text_width(second[: second.index("Fix")])


def test_the_table_shows_no_control_characters_of_tasks_and_errors() -> None:
    rows = agent_table.rows_of(
        [record(task="a\x1b]0;t\x07b\x1b[2J\rc", error="e\x9b31mf", worktree_path="/x/\x1b[31my")]
    )

    text = "\n".join(plain(agent_table.render(rows, None)))

    assert not [character for character in text if character in "\x1b\x07\r\x9b"]


def test_a_task_of_several_lines_is_shown_by_its_first() -> None:
    rows = agent_table.rows_of([record(task="\nTitle\n\nbody"), record("b", task="only\n")])

    assert [row.cells[-1] for row in rows] == ["Title …", "only"]


def test_finished_agents_say_how_they_ended() -> None:
    rows = agent_table.rows_of_finished([tombstone(), tombstone("b", ended_by="stopped")])

    assert [row.cells[1] for row in rows] == ["done", "done (stopped)"]


def test_no_agents_no_table() -> None:
    assert agent_table.render([], 80) == []


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("修复", 4, "修复"),
        ("修复登", 5, "修复…"),
        ("修复登", 4, "修…"),
        ("a b c", 3, "a…"),
        ("abc", 0, ""),
    ],
)
def test_fit_counts_columns_and_not_characters(text: str, columns: int, expected: str) -> None:
    assert output.fit(text, columns) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-5, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (200_000, "2d")]
)
def test_age_has_one_unit(seconds: float, expected: str) -> None:
    assert output.age(seconds) == expected


def test_an_unreadable_time_has_no_age() -> None:
    assert output.age_since("") == ""


def test_no_color_is_honoured_on_a_terminal(repo: Repository) -> None:
    put(repo, record("a", AgentStatus.FAILED))
    with_colour = run_on_terminal(repo, {})
    without = run_on_terminal(repo, {"NO_COLOR": "1"})

    assert "\x1b[31m" in with_colour
    assert "\x1b" not in without
    assert "failed" in without


def run_on_terminal(repo: Repository, extra: dict[str, str]) -> str:
    """What ``side-agents list`` writes to a terminal."""
    import pty

    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **extra}
    command = [sys.executable, "-m", "side_agents", "list"]
    process = subprocess.Popen(command, cwd=repo.path, env=environment, stdout=follower, stderr=follower)
    os.close(follower)
    chunks: list[bytes] = []
    try:
        while chunk := os.read(leader, 65536):
            chunks.append(chunk)
    except OSError:
        pass  # Linux says EIO when the other side has closed
    finally:
        os.close(leader)
    assert process.wait(timeout=20) == 0
    return b"".join(chunks).decode()
