"""The demo, run for real, and the live area that it draws in."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from side_agents.cli import live, output
from side_agents.cli.border import SignalledError
from side_agents.cli.interruption import shielded
from side_agents.core import demo_stage
from side_agents.infra import processes
from side_agents.infra.tmux import Tmux

CHECKOUT = Path(output.__file__).parents[2]
COMMAND = [sys.executable, "-m", "side_agents", "demo"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT)}


def folder_of(demo: int) -> Path:
    """The folder of the demo with this pid, once agents are started: others may run at the same time."""
    registries = Path("/tmp").glob("side-agents-demo-*/shop/.pi/side-agents/registry.json")
    (mine,) = [path for path in registries if re.search(rf"\b{demo}\b", path.read_text(encoding="utf-8"))]
    return mine.parents[3]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one whole demo says of itself; that it takes less than 30 seconds is its deadline."""
    base = tmp_path_factory.mktemp("demo")
    home = base / "home"
    home.mkdir()
    done = subprocess.run(
        [*COMMAND, "--json"],
        cwd=base, env=environment() | {"HOME": str(home)}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert list(home.iterdir()) == []
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_nothing_is_left_of_the_demo(answer: dict[str, Any]) -> None:
    folders = {Path(each["agent"]["worktreePath"]).parent for each in answer["agents"]}
    assert [folder.name.startswith("side-agents-demo-") for folder in folders] == [True]
    assert not any(folder.exists() for folder in folders)


def by_name(answer: dict[str, Any]) -> dict[str, Any]:
    return {each["agent"]["id"]: each for each in answer["agents"]}


def subjects(commits: list[str]) -> list[str]:
    assert all(re.match(r"[0-9a-f]{7,} ", commit) for commit in commits)
    return [commit.partition(" ")[2] for commit in commits]


LICENCE = ["Name the licence in the README", "Choose the MIT licence"]
VAT = ["Add VAT, with a test"]


def test_the_agents_of_the_demo_really_work(answer: dict[str, Any]) -> None:
    agents = by_name(answer)
    assert subjects(agents["add-vat"]["commits"]) == VAT
    assert subjects(agents["pick-licence"]["commits"]) == LICENCE
    assert agents["add-vat"]["agent"]["status"] == agents["pick-licence"]["agent"]["status"] == "done"
    crashed = agents["speed-up"]
    assert (crashed["agent"]["status"], crashed["commits"], crashed["uncommittedFiles"]) == ("crashed", [], 1)
    assert "KILL" in crashed["agent"]["error"]


def test_two_agents_of_the_demo_land_in_one_line(answer: dict[str, Any]) -> None:
    agents = by_name(answer)
    assert {name: each["landedBy"] for name, each in agents.items()} == {
        "add-vat": "agent", "pick-licence": "you", "speed-up": None,
    }  # fmt: skip
    assert subjects(answer["main"]) == [*LICENCE, *VAT, "A very small shop"]
    own, other, *_ = (each.split()[0] for each in agents["pick-licence"]["commits"])
    assert answer["main"][0].startswith(own)
    assert agents["pick-licence"]["agent"]["landedCommit"].startswith(own)
    assert agents["add-vat"]["agent"]["landedCommit"].startswith(answer["main"][2].split()[0])
    assert answer["graph"][1:4] == [f"| * {line}" for line in (
        f"{own} (main) {LICENCE[0]}", f"{other} {LICENCE[1]}", answer["main"][2],
    )]  # fmt: skip


def test_the_demo_resumes_the_conversation_and_the_branch_of_one_that_quit(answer: dict[str, Any]) -> None:
    resumed = answer["resumed"]
    assert (resumed["id"], resumed["branch"]) == ("pick-licence", "side-agent/pick-licence")
    assert resumed["said"] == ["Give the shop a licence", "MIT", "Name the licence in the README too"]


def test_the_clean_up_of_the_demo_spares_what_is_not_committed(answer: dict[str, Any]) -> None:
    crashed = by_name(answer)["speed-up"]["agent"]
    (refused,) = answer["refused"]
    assert (refused["kind"], refused["name"]) == ("slot", Path(crashed["worktreePath"]).name)
    (reason,) = refused["reasons"]
    assert reason["code"] == "dirty"
    assert "fast.py" in reason["text"]
    gone = [(each["kind"], each["name"]) for each in answer["cleaned"]]
    assert gone[0] == ("record", "speed-up")
    assert [kind for kind, _ in gone].count("window") == 3
    assert {name for kind, name in gone if kind == "slot"} == {f"shop-agent-worktree-000{n}" for n in (1, 2, 3)}
    assert gone.index(("slot", refused["name"])) > max(gone.index(each) for each in gone if each[0] == "window")
    assert {name for kind, name in gone if kind == "branch"} == {"side-agent/add-vat", "side-agent/pick-licence"}
    assert re.fullmatch(r"\* [0-9a-f]{7,} \(side-agent/speed-up\) Half of a faster total", answer["graph"][0])


@pytest.mark.parametrize("presses", [1, 30], ids=["once", "impatiently"])
def test_an_interrupted_demo_cleans_up(tmp_path: Path, presses: int) -> None:
    process = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if b"started on" in line:
                break
        mine = folder_of(process.pid)
        server = Tmux(mine / "tmux").sweep().server
        assert server is not None
        process.send_signal(signal.SIGINT)
        for _ in range(presses - 1):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()

    assert (process.returncode, errors) == (130, b"\nInterrupted.\n")
    assert not mine.exists()
    assert not processes.is_alive(server)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_only_the_first_signal_gets_through(number: signal.Signals) -> None:
    def end(number: int, _frame: object) -> None:
        # As the border does, so that a second one would end us.
        signal.signal(number, signal.SIG_DFL)
        raise SignalledError(number)

    def interrupted() -> None:
        with shielded():
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(number)

    before = signal.signal(number, end)
    try:
        with pytest.raises(SignalledError):
            interrupted()
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_no_signal_gets_through_once_cleaning_up_has_begun() -> None:
    before = signal.getsignal(signal.SIGINT)
    with shielded() as shield:
        shield.close()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stage_that_is_kept_can_be_torn_down_by_hand() -> None:
    with demo_stage.stage(os.environ, keep=True) as stage:
        pass
    try:
        assert stage.repository.is_dir()
        assert stage.tmux.sweep().server is not None
        assert demo_stage.git_graph(stage)[0].endswith("A very small shop")
    finally:
        demo_stage.tear_down(stage.folder, stage.tmux)

    assert not stage.folder.exists()
    assert stage.tmux.sweep().server is None


def test_a_stage_is_not_kept_when_something_went_wrong() -> None:
    seen: list[Path] = []

    def fail() -> None:
        with demo_stage.stage(os.environ, keep=True) as stage:
            seen.append(stage.folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert not seen[0].exists()


Screen = Callable[[], str]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Screen:
    """Gives what was written since it was last asked."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "10")
    return lambda: capsys.readouterr().out


def test_the_area_redraws_in_place_and_the_story_grows_above_it(screen: Screen) -> None:
    with live.LiveArea(enabled=True) as area:
        area.draw(["a", "b"])
        area.say("story")
        area.draw(["c"])

    assert screen() == "\x1b[?25la\nb\n\x1b[2F\x1b[Jstory\na\nb\n\x1b[2F\x1b[Jc\n\x1b[?25h"


def test_what_did_not_change_is_not_drawn_again(screen: Screen) -> None:
    area = live.LiveArea(enabled=True)
    area.draw(["a"])
    area.draw(["a"])

    assert screen() == "a\n"


def test_an_area_higher_than_the_terminal_is_cut(screen: Screen) -> None:
    area = live.LiveArea(enabled=True)
    area.draw([str(number) for number in range(50)])

    assert screen().count("\n") == 9


def test_the_cursor_comes_back_after_an_error(screen: Screen) -> None:
    with pytest.raises(KeyboardInterrupt), live.LiveArea(enabled=True):
        raise KeyboardInterrupt

    assert screen().endswith("\x1b[?25h")


def test_without_a_terminal_only_the_story_is_written(screen: Screen) -> None:
    with live.LiveArea(enabled=False) as area:
        area.draw(["a"])
        area.say("story")
        assert area.width is None

    assert screen() == "story\n"


def test_a_silent_area_writes_nothing(screen: Screen) -> None:
    with live.LiveArea(enabled=True, silent=True) as area:
        area.draw(["a"])
        area.say("story")

    assert screen() == ""
