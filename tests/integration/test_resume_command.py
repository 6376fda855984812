"""``side-agents resume`` as it is typed: the list, the picker in a real terminal, and its answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.infra.tmux import WindowRef
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

PROGRAM = (sys.executable, "-m", "side_agents")


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        for name in ("login", "docs"):
            made.start(f"write: {name}.txt {name}\ncommit: work on {name}", branch_hint=name)
            made.eventually_idle(name)
            made.quit(name)
        yield made


def run(stage: Orchestra, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=stage.cwd,
        env=stage.environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def typed(stage: Orchestra, *variables: str) -> WindowRef:
    """``side-agents resume`` in a window of its own, which stays when it has ended."""
    stage.server.tmux.set_option(stage.pane.pane_id, "@unused", "1")
    kept = 'echo "ended with $?"; exec cat -u'
    return stage.server.tmux.new_window(
        session_id=stage.pane.session_id,
        name="typed",
        cwd=stage.cwd,
        argv=("env", *variables, "sh", "-c", f'"$@"; {kept}', "sh", *PROGRAM, "resume"),
        tag="typed",
    )


def shown(stage: Orchestra, window: WindowRef) -> str:
    return "\n".join(stage.server.tmux.capture(window.pane_id))


def wait_for(stage: Orchestra, window: WindowRef, text: str) -> str:
    try:
        return eventually(lambda: shown(stage, window) if text in shown(stage, window) else "", SLOW)
    except AssertionError as error:
        raise AssertionError(shown(stage, window)) from error


def test_the_list_is_newest_first_and_complete_as_json(stage: Orchestra) -> None:
    listed = run(stage, "resume", "--list")
    assert [line.split()[1] for line in listed.stdout.splitlines()] == ["docs", "login"]
    answer = json.loads(run(stage, "resume", "--list", "--json").stdout)
    assert [each["agentId"] for each in answer["sessions"]] == ["docs", "login"]
    [docs, login] = answer["sessions"]
    assert (docs["branch"], docs["note"], docs["client"], docs["cwd"]) == (
        "side-agent/docs", "", "script", str(stage.slot(1)),
    )  # fmt: skip
    assert login["title"].startswith("write: login.txt")
    assert set(docs) == {
        "agentId", "branch", "client", "cwd", "file", "isNamed", "text", "messages", "modified", "note", "sessionId", "title",
    }  # fmt: skip


def test_by_id_and_the_last_one(stage: Orchestra) -> None:
    done = run(stage, "resume", "login", "--json")
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["id"], answer["branch"], answer["forked"]) == (
        True,
        "login",
        "side-agent/login",
        False,
    )
    assert answer["session"].endswith(".jsonl")
    assert stage.eventually_idle("login").child_session_file == answer["session"]
    last = run(stage, "resume", "--last")
    assert last.returncode == 0, last.stderr
    assert last.stdout.startswith("resumed docs")
    assert "a copy of" in last.stdout
    stage.eventually_idle("docs")
    again = run(stage, "resume", "--last", "--json")
    assert json.loads(again.stdout)["ok"] is True, "the conversation that docs was copied from is still there"


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ((), 2, "usage"),
        (("login", "--last"), 2, "usage"),
        (("nobody",), 3, "unknown-agent"),
        (("--session", "no.jsonl"), 3, "not-found"),
        (("--session", "README.md"), 8, "refused"),
    ],
)
def test_what_cannot_be_resumed_has_a_code(
    stage: Orchestra, arguments: tuple[str, ...], status: int, code: str
) -> None:
    done = run(stage, "resume", *arguments, "--json")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (status, code)


def test_the_picker_is_searched_by_typing(stage: Orchestra) -> None:
    window = typed(stage)
    screen = wait_for(stage, window, "2 of 2")
    assert screen.index("docs") < screen.index("login")
    stage.server.tmux.send_keys(window.pane_id, "l", "o", "g")
    assert "docs" not in wait_for(stage, window, "1 of 2").split("search")[1]
    stage.server.tmux.send_keys(window.pane_id, "Enter")
    wait_for(stage, window, "resumed login")
    assert "search:" not in wait_for(stage, window, "ended with 0")
    stage.eventually_idle("login")


def test_the_picker_moves_by_arrow_keys_and_is_left_by_escape(stage: Orchestra) -> None:
    window = typed(stage)
    wait_for(stage, window, "› ")
    stage.server.tmux.send_keys(window.pane_id, "Down")
    eventually(lambda: "login" in shown(stage, window).split("›")[1].splitlines()[0], SLOW)
    stage.server.tmux.send_keys(window.pane_id, "Escape")
    wait_for(stage, window, "Nothing was started.\nended with 0")
    assert stage.context.registry.read().ids == set()


def test_ctrl_c_leaves_the_picker_and_the_terminal_as_it_was(stage: Orchestra) -> None:
    window = typed(stage)
    wait_for(stage, window, "2 of 2")
    stage.server.tmux.send_keys(window.pane_id, "C-c")
    eventually(lambda: "2 of 2" not in shown(stage, window) or "Interrupted" in shown(stage, window), SLOW)
    assert stage.context.registry.read().ids == set()


@pytest.mark.parametrize("variable", ["NO_COLOR=1", "TERM=dumb"])
def test_without_a_full_terminal_it_is_a_numbered_list(stage: Orchestra, variable: str) -> None:
    window = typed(stage, variable)
    screen = wait_for(stage, window, "Number")
    assert "  2  " in screen
    stage.server.tmux.send_keys(window.pane_id, "2", "Enter")
    wait_for(stage, window, "resumed login")
    stage.eventually_idle("login")


def test_list_all_says_paused_until_it_is_back(stage: Orchestra) -> None:
    def words() -> dict[str, str]:
        return {line.split()[0]: line.split()[1] for line in run(stage, "list", "--all").stdout.splitlines()[1:]}

    assert words() == {"login": "paused", "docs": "paused"}
    finished = json.loads(run(stage, "list", "--all", "--json").stdout)["finished"]
    assert [(each["id"], each["status"], each["paused"]) for each in finished] == [
        ("login", "done", True),
        ("docs", "done", True),
    ]
    run(stage, "resume", "docs")
    stage.eventually_idle("docs")
    stopped = run(stage, "stop", "docs", "--quit", "--yes", "--json")
    assert json.loads(stopped.stdout)["ok"] is True, stopped.stdout
    stage.repo.git("merge", "--quiet", "side-agent/login")
    assert words() == {"login": "done", "docs": "paused"}
