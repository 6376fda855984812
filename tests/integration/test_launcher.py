"""The launcher in a real tmux: what the client gets, and that it never starts in the wrong place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_support import (
    TELLER,
    Bench,
    ends_cleanly,
    env_of,
    eventually,
    opened_bench,
)

STRANGE = 'it\'s "a" %Y #{x} #[y] ; $HOME `id` \\ 日本 ü'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened_bench(tmp_path / "repo") as made:
        yield made


def argv_of(bench: Bench) -> list[bytes]:
    return [bytes.fromhex(item) for item in json.loads(bench.told("told"))["argv"]]


def test_x14_a_strange_path_gives_a_log_a_marker_and_the_right_directory(tmp_path: Path) -> None:
    with opened_bench(tmp_path / STRANGE) as bench:
        bench.launch(bench.client("pwd -P > where.tmp; mv where.tmp where; echo hello from the client; exit 0"))
        assert bench.marker() == {"exitCode": 0, "finishedAt": bench.marker()["finishedAt"], "phase": "client"}
        assert bench.told("where").rstrip("\n") == str(bench.worktree)
        eventually(lambda: b"hello from the client" in (bench.runtime / "backlog.log").read_bytes(), what="backlog")
        ends_cleanly(bench)


def test_x13_argv_arrives_byte_for_byte(bench: Bench) -> None:
    words = [
        "-p",
        "--",
        "",
        "two  words ",
        "a'b\"c",
        "$HOME `id` $(id)",
        "line\nline\n",
        ";",
        "a;",
        "@f",
        "/x",
        "*",
        "#{x}%Y",
        "日本\t",
        "\udcff\x01\x7f",
    ]
    words.append("x" * 131_071)
    bench.launch((*bench.client(TELLER, "python3"), *words))
    assert argv_of(bench) == [word.encode("utf-8", "surrogateescape") for word in words]
    bench.type("0")
    bench.press("Enter")
    assert bench.marker()["exitCode"] == 0
    ends_cleanly(bench)


def test_x13_a_large_prompt_file_is_left_as_it_is(bench: Bench) -> None:
    prompt = b"-@/'\"$`\\\n" * 20_000
    (bench.folder / "prompt").write_bytes(prompt)
    bench.launch((*bench.client('cp -- "$1" got.tmp; mv got.tmp got'), str(bench.folder / "prompt")))
    assert bench.told("got").encode() == prompt
    ends_cleanly(bench)


def test_the_client_gets_its_own_coordination_variables_and_no_inherited_ones(bench: Bench) -> None:
    bench.environment |= {
        "PI_SIDE_AGENT_ID": "parent",
        "PI_SIDE_SOMETHING": "parent",
        "SIDE_AGENTS_LAUNCH_TOKEN": "parent",
        "SIDE_AGENTS_OTHER": "parent",
        "CLAUDECODE": "1",
        "GIT_DIR": "/nowhere",
        "BRANCH": "mine",
        "sa_branch": "mine",
        "LC_ALL": "C",
    }
    bench.launch(bench.client(TELLER, "python3"), client_env={"CODEX_HOME": "a b\n;"}, depth=2, parent_branch="main")
    env = env_of(bench)
    told = json.loads(bench.told("told"))
    assert told["tty"] is True
    assert told["pid"] == bench.event("client")["pid"]
    assert [event["type"] for event in bench.journal()] == ["launcher", "client"]
    assert {k: v for k, v in env.items() if k.startswith(("PI_SIDE", "SIDE_AGENTS", "sa_"))} == {
        "PI_SIDE_AGENT_ID": "fix",
        "PI_SIDE_PARENT_SESSION": "/parent session",
        "PI_SIDE_PARENT_REPO": str(bench.folder),
        "PI_SIDE_PARENT_BRANCH": "main",
        "PI_SIDE_PARENT_AGENT_ID": "",
        "PI_SIDE_AGENT_DEPTH": "2",
        "PI_SIDE_AGENTS_ROOT": str(bench.folder),
        "PI_SIDE_RUNTIME_DIR": str(bench.runtime),
        "SIDE_AGENTS_LAUNCH_TOKEN": "token-1",
        "SIDE_AGENTS_CLIENT": "script",
    }
    assert (env["CODEX_HOME"], env["BRANCH"], env["TMUX_PANE"]) == ("a b\n;", "mine", bench.pane)
    assert env["TMUX"].startswith(str(bench.socket))
    assert "CLAUDECODE" not in env
    assert "GIT_DIR" not in env
    assert "LC_ALL" not in env
    assert env["LC_CTYPE"] == "C.UTF-8"


def test_a_utf8_locale_of_the_user_is_left_alone(bench: Bench) -> None:
    bench.environment["LANG"] = "de_DE.UTF-8"
    bench.launch(bench.client(TELLER, "python3"))
    env = env_of(bench)
    assert env["LANG"] == "de_DE.UTF-8"
    assert "LC_CTYPE" not in env


def test_ctrl_c_reaches_a_client_that_runs_in_cooked_mode(bench: Bench) -> None:
    bench.launch(bench.client('trap "exit 5" INT; echo ready; while :; do read -r _; done'))
    bench.shows("ready")
    bench.press("C-c")
    assert bench.marker()["exitCode"] == 5
    ends_cleanly(bench)


@pytest.mark.parametrize("wrong", ["missing", "subdirectory", "no repository", "branch", "detached"])
def test_51_16_no_client_starts_in_a_place_that_is_not_its_worktree(bench: Bench, wrong: str) -> None:
    changes: dict[str, object] = {}
    if wrong == "missing":
        changes["worktree"] = bench.folder / "gone"
    elif wrong == "subdirectory":
        (bench.worktree / "inner").mkdir()
        changes["worktree"] = bench.worktree / "inner"
    elif wrong == "no repository":
        changes["worktree"] = bench.folder
    elif wrong == "branch":
        changes["branch"] = "fix"
    else:
        bench.git("checkout", "-q", "--detach")
    bench.launch(("touch", str(bench.folder / "ran")), **changes)
    marker = bench.marker()
    assert (marker["exitCode"], marker["phase"]) == (70, "launcher")
    assert "the agent was not started" in marker["error"]
    bench.shows("The agent was not started and nothing was changed.")
    ends_cleanly(bench)
    assert not (bench.folder / "ran").exists()
    assert [event["type"] for event in bench.journal()] == ["launcher"]


def test_51_a_worktree_reached_through_a_symlink_is_accepted(bench: Bench) -> None:
    (bench.folder / "link").symlink_to(bench.worktree)
    bench.launch(("true",), worktree=bench.folder / "link")
    assert bench.marker()["exitCode"] == 0


def test_the_backlog_stays_near_its_cap_and_keeps_the_last_lines(bench: Bench) -> None:
    cap = 300_000
    bench.launch(
        bench.client("for i in range(60000): print('line', i, 'x' * 80)\nprint('the last line')", "python3"),
        cap=cap,
    )
    assert bench.marker(deadline=60)["exitCode"] == 0
    log = bench.runtime / "backlog.log"
    before = log.stat().st_ino
    eventually(lambda: b"Press any key" in log.read_bytes(), deadline=30, what="end of the backlog")
    assert cap / 2 - 1024 <= log.stat().st_size <= cap + 256 * 1024
    assert log.stat().st_ino == before
    assert b"the last line" in log.read_bytes()
    assert log.stat().st_mode & 0o777 == 0o600
    ends_cleanly(bench)
