"""Ctrl+Z, and the project's start script: neither can end, break or outlive the launcher."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_support import (
    TELLER,
    Bench,
    ends_cleanly,
    env_of,
    eventually,
    in_foreground,
    is_stopped,
    opened_bench,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened_bench(tmp_path / "repo") as made:
        yield made


def test_ctrl_z_gives_a_shell_in_the_worktree_and_fg_returns_twice(bench: Bench) -> None:
    (bench.home / ".bashrc").write_text("MINE=from-bashrc\nPS1='prompt> '\n")
    bench.launch(bench.client('echo ready; while read -r line; do echo "got $line"; [ "$line" = end ] && exit 4; done'))
    client = bench.event("client")["pid"]
    bench.shows("ready")
    for count, back in ((1, "fg"), (2, "exit")):
        eventually(lambda: in_foreground(client), what="client in the foreground")
        bench.press("C-z")
        bench.event("suspended", count)
        bench.shows('"fg" or "exit" returns')
        assert is_stopped(client)
        bench.type(f"clear; (pwd; echo $MINE $PI_SIDE_AGENT_ID) > where{count}.tmp; mv where{count}.tmp where{count}\n")
        assert bench.told(f"where{count}").splitlines() == [str(bench.worktree), "from-bashrc fix"]
        assert is_stopped(client)
        bench.type(f"{back}\n")
        bench.event("continued", count)
        eventually(lambda: in_foreground(client), what="client in the foreground")
        bench.type(f"line{count}\n")
        bench.shows(f"got line{count}")
    bench.type("end\n")
    assert bench.marker()["exitCode"] == 4
    ends_cleanly(bench)


FULL_SCREEN = """
import os, signal, sys, termios, tty
cooked = termios.tcgetattr(0)
tty.setraw(0); os.write(1, b"raw 0 ")
for count in (1, 2):
    while os.read(0, 1) != b"\\x1a": pass
    termios.tcsetattr(0, termios.TCSADRAIN, cooked); os.kill(0, signal.SIGTSTP)
    tty.setraw(0); os.write(1, b"raw %d " % count)
while os.read(0, 1) != b"q": pass
termios.tcsetattr(0, termios.TCSADRAIN, cooked); sys.exit(0)
"""


def test_a_full_screen_client_that_suspends_itself_comes_back(bench: Bench) -> None:
    bench.launch(bench.client(FULL_SCREEN, "python3"))
    client = bench.event("client")["pid"]
    for count in (1, 2):
        bench.shows(f"raw {count - 1}")
        bench.press("C-z")
        bench.event("suspended", count)
        bench.shows('"fg" or "exit" returns')
        assert is_stopped(client)
        bench.type("clear; fg\n")
        bench.event("continued", count)
    bench.shows("raw 2")
    bench.type("q")
    assert bench.marker()["exitCode"] == 0
    ends_cleanly(bench)


def test_a_client_killed_while_suspended_is_recorded_as_killed(bench: Bench) -> None:
    bench.launch(bench.client("echo ready; read -r _"))
    client = bench.event("client")["pid"]
    bench.shows("ready")
    bench.press("C-z")
    bench.shows('"fg" or "exit" returns')
    bench.type(f"kill -KILL {client}; exit\n")
    assert bench.marker()["signal"] == "KILL"
    ends_cleanly(bench)


def test_a_client_continued_from_outside_while_suspended_is_brought_back(bench: Bench) -> None:
    bench.launch(bench.client("trap '' TTIN; echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 6"))
    client = bench.event("client")["pid"]
    bench.shows("ready")
    bench.press("C-z")
    bench.shows('"fg" or "exit" returns')
    os.kill(client, signal.SIGCONT)
    eventually(lambda: not is_stopped(client), what="client runs")
    bench.type("exit\n")
    eventually(lambda: in_foreground(client), what="client in the foreground")
    (bench.worktree / "go").touch()
    assert bench.marker()["exitCode"] == 6


@pytest.mark.parametrize("how", ["window", "TERM"])
def test_x1_the_end_of_a_suspended_agent_ends_its_shell_and_what_runs_in_it(bench: Bench, how: str) -> None:
    bench.launch(bench.client("echo ready; read -r _"))
    bench.shows("ready")
    bench.press("C-z")
    bench.shows('"fg" or "exit" returns')
    bench.type("touch in-shell; trap '' HUP; sleep 1000\n")
    bench.told("in-shell")
    if how == "window":
        bench.tmux("kill-window", "-t", bench.pane)
    else:
        os.kill(bench.event("launcher")["pid"], signal.SIGTERM)
    assert bench.marker()["signal"] == ("HUP" if how == "window" else "TERM")
    if how == "TERM":
        ends_cleanly(bench)
    bench.only_the_server_is_left()


def test_exports_of_the_start_script_reach_the_client(bench: Bench) -> None:
    bench.start_script(
        'export MULTI=$\'two\\nlines "quoted" $HOME `id` \\\' end\\n\' EMPTY= IFS=: PATH="$PATH:/extra bin"\n'
        "export PI_SIDE_AGENT_ID=evil SIDE_AGENTS_LAUNCH_TOKEN=evil TMUX_PANE=%99 CODEX_HOME=evil\n"
        "unset GONE\ncd /\nprintf '%s|' \"$@\" > \"$2/args\"\nset -euo pipefail\ntrap 'echo bye' EXIT\n"
        "printf() { :; }; cd() { :; }; unalias -a; readonly PINNED=1; export PINNED\n"
    )
    bench.environment["GONE"] = "still here"
    bench.launch(bench.client(TELLER, "python3"), client_env={"CODEX_HOME": "/plan"})
    env = env_of(bench)
    assert env["MULTI"] == 'two\nlines "quoted" $HOME `id` \' end\n'
    assert (env["EMPTY"], env["PINNED"]) == ("", "1")
    assert env["PATH"].endswith(":/extra bin")
    assert "GONE" not in env
    assert (env["PI_SIDE_AGENT_ID"], env["SIDE_AGENTS_LAUNCH_TOKEN"]) == ("fix", "token-1")
    assert (env["TMUX_PANE"], env["CODEX_HOME"]) == (bench.pane, "/plan")
    assert json.loads(bench.told("told"))["cwd"] == str(bench.worktree)
    assert (bench.worktree / "args").read_text() == f"{bench.folder}|{bench.worktree}|fix|"
    assert bench.exports.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "script",
    [
        "export X=1; exit 0",
        "export X=1; exit",
        "export X=1; return 0",
        "trap 'echo mine' EXIT; export X=1; exit 0",
        "export X=1; ( exit 3 ); true",
        "set -e; export X=1; exit 0",
        "set -C -u; export X=1",
        "#!/bin/sh\nexport X=1",
        "read -r X; export X",
    ],
)
def test_x2_a_start_script_that_ends_well_hands_over_its_exports(bench: Bench, script: str) -> None:
    bench.start_script(f"{script}\n")
    bench.launch(bench.client(TELLER, "python3"))
    if "read" in script:
        bench.type("1\n")
    assert env_of(bench)["X"] == "1"


def test_x2_a_start_script_that_replaces_itself_loses_only_its_exports(bench: Bench) -> None:
    bench.start_script("export X=1\nexec true\n")
    bench.launch(bench.client(TELLER, "python3"))
    assert "X" not in env_of(bench)
    bench.shows("without handing over its exports")


def test_a_start_script_in_another_language_is_run(bench: Bench) -> None:
    bench.start_script("#!/usr/bin/env python3\nimport sys\nprint('python with', sys.argv[3])\n")
    bench.launch(bench.client(TELLER, "python3"))
    bench.told("told")
    bench.shows("python with fix")


def test_a_start_script_that_is_not_executable_is_not_run(bench: Bench) -> None:
    bench.start_script("exit 7\n", mode=0o644)
    bench.launch(("true",))
    assert bench.marker()["exitCode"] == 0


@pytest.mark.parametrize(
    ("script", "code", "name"),
    [
        ("echo reason here; exit 7", 7, None),
        ("echo reason here; set -e; false; exit 0", 1, None),
        ("echo reason here; return 9", 9, None),
        ("echo reason here; trap 'echo' EXIT; exit 8", 8, None),
        ("echo reason here; exec false", 1, None),
        ("echo reason here; kill -9 $$", 137, "KILL"),
        ("echo reason here; if", 2, None),
    ],
)
def test_x2_a_start_script_that_fails_is_recorded_and_leaves_no_shell(
    bench: Bench, script: str, code: int, name: str | None
) -> None:
    bench.start_script(f"{script}\n")
    bench.launch(("touch", "ran"))
    marker = bench.marker()
    assert (marker["exitCode"], marker["phase"], marker.get("signal")) == (code, "start-script", name)
    if "if" not in script:
        bench.shows("reason here")
    bench.shows("the agent was not started")
    bench.shows("Press any key")
    bench.paste("touch pwned\n")
    bench.window_closes()
    bench.only_the_server_is_left()
    assert not (bench.worktree / "pwned").exists()
    assert not (bench.worktree / "ran").exists()


def test_ctrl_c_ends_a_hanging_start_script(bench: Bench) -> None:
    bench.start_script("echo hanging; sleep 1000\n")
    bench.launch(("touch", "ran"))
    bench.shows("hanging")
    bench.press("C-c")
    marker = bench.marker()
    assert (marker["exitCode"], marker["phase"], marker["signal"]) == (130, "start-script", "INT")
    ends_cleanly(bench)


@pytest.mark.parametrize("how", ["window", "TERM"])
def test_x1_a_hanging_start_script_ends_with_its_window(bench: Bench, how: str) -> None:
    bench.start_script("echo hanging; trap '' HUP; sleep 1000; exit 0\n")
    bench.launch(("touch", "ran"))
    bench.shows("hanging")
    if how == "window":
        bench.tmux("kill-window", "-t", bench.pane)
    else:
        os.kill(bench.event("launcher")["pid"], signal.SIGTERM)
    marker = bench.marker()
    assert (marker["phase"], marker["signal"]) == ("start-script", "HUP" if how == "window" else "TERM")
    if how == "TERM":
        ends_cleanly(bench)
    bench.only_the_server_is_left()
    assert not (bench.worktree / "ran").exists()
