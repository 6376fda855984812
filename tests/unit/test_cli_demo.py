"""The demo, run for real, and the live area that it draws in."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from side_agents.cli import live, output
from side_agents.core import demo_stage
from tests.support.waiting import eventually

CHECKOUT = Path(output.__file__).parents[2]
COMMAND = [sys.executable, "-m", "side_agents", "demo"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT)}


def demo_folders() -> set[Path]:
    return set(Path("/tmp").glob("side-agents-demo-*"))


def test_the_demo_shows_three_agents_really_at_work_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    before = demo_folders()

    done = subprocess.run(
        [*COMMAND, "--json"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    by_name = {each["agent"]["id"]: each for each in answer["agents"]}
    assert answer["seconds"] < 20
    assert re.fullmatch(r"[0-9a-f]{7,} Add VAT, with a test", by_name["add-vat"]["commits"][0])
    assert re.fullmatch(r"[0-9a-f]{7,} Choose the MIT licence", by_name["pick-licence"]["commits"][0])
    assert by_name["add-vat"]["agent"]["status"] == by_name["pick-licence"]["agent"]["status"] == "done"
    crashed = by_name["speed-up"]
    assert (crashed["agent"]["status"], crashed["commits"], crashed["uncommittedFiles"]) == ("crashed", [], 1)
    assert "KILL" in crashed["agent"]["error"]
    assert demo_folders() <= before
    assert list(home.iterdir()) == [home / ".run"]


def test_an_interrupted_demo_cleans_up(tmp_path: Path) -> None:
    before = demo_folders()
    process = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if b"started on" in line:
                break
        mine = demo_folders() - before
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()

    assert (process.returncode, errors) == (130, b"\nInterrupted.\n")
    assert mine
    eventually(lambda: not mine & demo_folders())


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
