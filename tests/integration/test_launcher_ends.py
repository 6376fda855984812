"""How every kind of end is recorded and shown, that no crash looks like a success, and that nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from launcher_support import (
    Bench,
    ends_cleanly,
    eventually,
    is_running,
    opened_bench,
)

from side_agents.core import launcher
from side_agents.models import WindowClose


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened_bench(tmp_path / "repo") as made:
        yield made


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("exit 0", {"exitCode": 0, "phase": "client"}),
        ("exit 7", {"exitCode": 7, "phase": "client"}),
        ("exit 255", {"exitCode": 255, "phase": "client"}),
        ("kill -KILL $$", {"exitCode": 137, "phase": "client", "signal": "KILL"}),
        ("kill -SEGV $$", {"exitCode": 139, "phase": "client", "signal": "SEGV"}),
        ("kill -TERM $$", {"exitCode": 143, "phase": "client", "signal": "TERM"}),
    ],
)
def test_the_end_of_the_client_is_recorded_by_code_or_signal(bench: Bench, program: str, expected: object) -> None:
    bench.launch(bench.client(program))
    marker = bench.marker()
    assert marker.pop("finishedAt").endswith("Z")
    assert marker == expected
    ends_cleanly(bench)
    assert sorted(path.name for path in bench.runtime.iterdir()) == [
        "backlog.log",
        "events.jsonl",
        "exit.json",
        "launch.sh",
    ]


@pytest.mark.parametrize(("program", "code"), [("no-such-program-here", 127), ("/", 126)])
def test_a_client_that_cannot_be_run_is_a_failure_with_a_visible_reason(bench: Bench, program: str, code: int) -> None:
    bench.launch((program,))
    assert bench.marker()["exitCode"] == code
    bench.shows(f"ended with exit code {code}")
    ends_cleanly(bench)


POLITE = 'trap "exit 0" HUP TERM INT; echo ready; while :; do sleep 0.05; done'
DEAF = 'trap "" HUP TERM INT; echo ready; while :; do sleep 0.05; done'
DEAF_TO_HUP = 'trap "" HUP; echo ready; while :; do sleep 0.05; done'
PLAIN = "echo ready; sleep 1000"
READER = "echo ready; cat > /dev/null; exit 0"
TOOLS = "(trap '' HUP; setsid sleep 1000) & set -m; sleep 1000 & echo ready; wait"


@pytest.mark.parametrize("program", [POLITE, DEAF, DEAF_TO_HUP, PLAIN, READER, TOOLS])
def test_x1_a_killed_window_is_never_a_success_and_leaves_nothing(bench: Bench, program: str) -> None:
    bench.launch(bench.client(program))
    bench.shows("ready")
    bench.tmux("kill-window", "-t", bench.pane)
    marker = bench.marker()
    assert (marker["exitCode"], marker["signal"], marker["phase"]) == (129, "HUP", "client")
    bench.only_the_server_is_left()


@pytest.mark.parametrize("program", [POLITE, DEAF, READER])
@pytest.mark.parametrize("how", ["kill-server", "SIGKILL"])
def test_x1_a_killed_server_is_never_a_success_and_leaves_nothing(bench: Bench, program: str, how: str) -> None:
    bench.launch(bench.client(program))
    bench.shows("ready")
    if how == "kill-server":
        bench.tmux("kill-server")
    else:
        os.kill(bench.server, signal.SIGKILL)
    marker = bench.marker()
    assert (marker["exitCode"], marker["signal"]) == (129, "HUP")
    eventually(lambda: not bench.processes(), what=f"all ended: {bench.processes()}")


@pytest.mark.parametrize("program", [POLITE, DEAF, TOOLS])
@pytest.mark.parametrize(("name", "code"), [("HUP", 129), ("INT", 130), ("TERM", 143)])
def test_x1_a_signal_to_the_launcher_ends_the_client_at_once_and_is_no_success(
    bench: Bench, program: str, name: str, code: int
) -> None:
    bench.launch(bench.client(program))
    bench.shows("ready")
    launcher_pid = bench.event("launcher")["pid"]
    client = bench.event("client")["pid"]
    os.kill(launcher_pid, signal.Signals[f"SIG{name}"])
    marker = bench.marker(deadline=4.0 if program == POLITE else 15.0)
    assert (marker["exitCode"], marker["signal"], marker["phase"]) == (code, name, "client")
    assert not is_running(client)
    bench.shows(f"was ended by SIG{name}")
    ends_cleanly(bench)


def test_a_killed_launcher_and_its_client_do_not_look_like_a_success(bench: Bench) -> None:
    bench.launch(bench.client(POLITE))
    bench.shows("ready")
    os.kill(bench.event("launcher")["pid"], signal.SIGKILL)
    bench.window_closes()
    bench.only_the_server_is_left()
    path = bench.runtime / "exit.json"
    assert not path.exists() or json.loads(path.read_text())["exitCode"] == 137


@pytest.mark.parametrize("moment", [0, 1, 2, 4, 8, 12, 16, 24, 32])
def test_a_stop_in_the_first_milliseconds_leaves_no_client_and_no_success(bench: Bench, moment: int) -> None:
    bench.launch(bench.client(POLITE))
    launcher_pid = int(bench.tmux("display-message", "-p", "-t", bench.pane, "#{pane_pid}"))
    bench.tmux("run-shell", f"sleep 0.{moment:03d}; kill -TERM {launcher_pid}")
    if moment >= 16:
        assert bench.marker()["exitCode"] != 0
    eventually(lambda: (bench.runtime / "exit.json").exists() or not is_running(launcher_pid), what="an end")
    if (bench.runtime / "exit.json").exists():
        assert bench.marker()["signal"] == "TERM"
        ends_cleanly(bench)
    bench.only_the_server_is_left()


@pytest.mark.parametrize("job", ["client", "start", "shell"])
def test_a_job_that_is_born_after_the_stop_does_not_begin(bench: Bench, job: str) -> None:
    bench.start_script("touch ran\n")
    bench.runtime.mkdir(parents=True)
    (bench.runtime / "launcher.stop").touch()
    script = launcher.write(replace(bench.spec, argv=("touch", "ran")))
    done = subprocess.run(
        ("bash", script, job), env=bench.environment, stdin=subprocess.DEVNULL, check=False, timeout=20
    )
    assert done.returncode == 143
    assert not (bench.worktree / "ran").exists()


def test_what_a_crashed_client_leaves_in_its_group_is_ended(bench: Bench) -> None:
    bench.launch(bench.client("(trap '' HUP TERM; sleep 1000) & echo ready; sleep 0.05; kill -KILL $$"))
    assert bench.marker()["signal"] == "KILL"
    ends_cleanly(bench)


def test_a_full_disk_for_the_marker_is_said_and_no_success(bench: Bench) -> None:
    # A directory in the marker's place makes the rename fail as a full disk makes the write fail.
    bench.launch(
        bench.client(f'mkdir -p "{bench.runtime}/exit.json/x"; echo made; chmod 500 "{bench.runtime}"; read -r _')
    )
    bench.shows("made")
    marker = bench.runtime / "exit.json"
    bench.press("Enter")
    bench.shows("Press any key")
    assert not marker.is_file()
    bench.runtime.chmod(0o700)
    ends_cleanly(bench)


def test_close_closes_at_once_on_success_only(bench: Bench) -> None:
    bench.launch(("true",), window_close=WindowClose.CLOSE)
    assert bench.marker()["exitCode"] == 0
    bench.window_closes()
    bench.launch(("false",), window_close=WindowClose.CLOSE)
    bench.shows("ended with exit code 1")
    ends_cleanly(bench)


def test_keep_stays_whatever_is_pressed(bench: Bench) -> None:
    bench.launch(("true",), window_close=WindowClose.KEEP)
    bench.shows("This window stays")
    launcher_pid = bench.event("launcher")["pid"]
    bench.type("touch pwned\n")
    bench.press("Enter", "C-z", "x")
    assert bench.window_exists()
    bench.tmux("kill-window", "-t", bench.pane)
    eventually(lambda: not is_running(launcher_pid), what="launcher ends")
    assert bench.marker()["exitCode"] == 0
    assert not (bench.worktree / "pwned").exists()


def test_a_window_killed_while_it_waits_for_a_key_keeps_its_success(bench: Bench) -> None:
    bench.launch(("true",))
    bench.shows("Press any key")
    bench.tmux("kill-window", "-t", bench.pane)
    bench.only_the_server_is_left()
    assert bench.marker()["exitCode"] == 0


def test_53_remain_on_exit_does_not_keep_the_window_and_other_panes_survive(bench: Bench) -> None:
    bench.launch(bench.client("read -r _; exit 0"))
    bench.event("client")
    bench.tmux("set-option", "-g", "remain-on-exit", "on")
    other = bench.tmux("split-window", "-d", "-P", "-F", "#{pane_id}", "-t", bench.pane, "cat")
    bench.press("Enter")
    bench.shows("Press any key")
    bench.press("x")
    bench.window_closes()
    assert other in bench.tmux("list-panes", "-a", "-F", "#{pane_id}").split()


def test_x3_typed_ahead_and_pasted_text_is_run_by_nobody(bench: Bench) -> None:
    bench.launch(bench.client("echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 3"))
    bench.shows("ready")
    bench.type("touch pwned1; ")
    bench.press("Enter")
    (bench.worktree / "go").touch()
    bench.shows("Press any key")
    with pytest.raises(AssertionError):
        eventually(lambda: not bench.window_exists(), deadline=0.7)
    bench.paste("touch pwned2\ntouch pwned3\n" * 200)
    bench.window_closes()
    bench.only_the_server_is_left()
    assert [path.name for path in bench.worktree.iterdir() if path.name.startswith("pwned")] == []


def test_a_client_killed_in_raw_mode_on_the_alternate_screen_leaves_a_readable_window(bench: Bench) -> None:
    bench.launch(bench.client('stty raw -echo; printf "\\033[?1049h\\033[?2004h\\033[?25lready"; read -r _; sleep 100'))
    bench.shows("ready")
    os.kill(bench.event("client")["pid"], signal.SIGKILL)
    bench.shows("SIGKILL")
    assert bench.tmux("display-message", "-p", "-t", bench.pane, "#{alternate_on}#{cursor_flag}") == "01"
    ends_cleanly(bench)
