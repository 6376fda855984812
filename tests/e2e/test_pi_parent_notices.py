"""What a real Pi tells its user and its model of its agents: when, to whom, and without waking anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pi_parent_support import WAIT, ParentPi, open_parent
from tests.support.waiting import eventually


@pytest.fixture
def neighbour(parent: ParentPi, tmp_path: Path) -> Iterator[ParentPi]:
    """A second Pi in the same repository, with conversations of its own."""
    other = open_parent(parent.rig, parent.repo, tmp_path / "other-home")
    yield other
    other.end()


def start(parent: ParentPi, name: str, task: str = "SAY: ready") -> None:
    assert parent.calls_tool("agent-start", {"description": task, "branchHint": name})["ok"]


def test_x20_of_two_main_sessions_each_hears_only_of_its_own_agents(parent: ParentPi, neighbour: ParentPi) -> None:
    start(parent, "mine")
    start(neighbour, "theirs")
    for who, own in ((parent, "mine"), (neighbour, "theirs")):
        who.agent(own)
        who.sees(f"● side-agent {own} ", "waiting_user (tmux #")
    # The other one's agent has settled for as long, and stands in the line, after a bar.
    assert "side-agent theirs" not in parent.screen()
    assert "side-agent mine" not in neighbour.screen()
    line = parent.sees("mine:wait@", "theirs:wait@").split("\n")[-1]
    assert line.index("mine:") < line.index("|") < line.index("theirs:")


def test_n6_nothing_is_told_while_the_parent_works_and_then_everything_at_no_cost(
    parent: ParentPi, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    start(parent, "quick")
    parent.agent("quick")
    parent.settled().paste(f"WAIT: {gate}\nSAY: the long turn is over")
    parent.model.wait_for(str(gate), deadline=WAIT)
    parent.rig.tmux("kill-pane", "-t", parent.window("quick"))
    # The person hears of a crash at once, the model not yet.
    parent.sees("Error: side-agent quick crashed")
    parent.agent("quick", "crashed")
    assert not any(notice["toStatus"] == "crashed" for notice in parent.notices("quick"))
    gate.touch()
    parent.sees("the long turn is over")
    notice = eventually(lambda: next((n for n in parent.notices("quick") if n["toStatus"] == "crashed"), None), WAIT)
    assert notice is not None
    assert {"agentId", "fromStatus", "toStatus", "observedAt", "emittedAt", "coalescedCount"} <= set(notice)
    assert len(parent.model.requests(str(gate))) == 1
    assert parent.model.requests("side-agent quick") == []
    # It is in the conversation for the next time that the person says something.
    parent.settled().type("SAY: what is new")
    request = parent.model.wait_for("SAY: what is new", deadline=WAIT)
    [told] = [text for text in request["userTexts"] if text.startswith("side-agent quick") and "crashed" in text]
    assert "\x1b" not in told


def test_a_notice_wakes_the_model_where_the_user_wants_that(parent: ParentPi) -> None:
    settings = parent.folder / "config" / "side-agents" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("wake_on_notice = true\n")
    start(parent, "loud", "SAY: I need somebody")
    request = parent.model.wait_for("side-agent loud: ", deadline=WAIT)
    assert request["tools"]
    assert "waiting_user" in request["lastUser"]
    parent.sees("ECHO: side-agent loud: ")


def test_b33_the_line_shows_each_status_in_its_colour_and_is_cleared(parent: ParentPi, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    start(parent, "busy", f"WAIT: {gate}")
    parent.agent("busy", "running")
    parent.sees("busy:run@")
    colours = {"run": colour_before(parent, "busy:run@")}
    gate.touch()
    parent.sees("busy:wait@")
    colours["wait"] = colour_before(parent, "busy:wait@")
    parent.rig.tmux("kill-pane", "-t", parent.window("busy"))
    parent.sees("busy:crash")
    colours["crash"] = colour_before(parent, "busy:crash")
    assert len(set(colours.values())) == 3, colours
    parent.settled().type("/agents")
    parent.sees("Remove 1 failed")
    parent.keys("Enter")
    eventually(lambda: "busy:crash" not in parent.screen().split("\n")[-1], WAIT)


def colour_before(parent: ParentPi, text: str) -> tuple[str, bool]:
    """The colour of a text on the screen, and whether it is dimmed."""
    colour, is_dim = "", False
    for style in re.findall(r"\x1b\[([0-9;]*)m", parent.screen(styled=True).rpartition(text)[0]):
        if style in {"", "0"}:
            colour, is_dim = "", False
        elif style in {"2", "22"}:
            is_dim = style == "2"
        elif style.startswith(("3", "9")):
            colour = "" if style == "39" else style
    return colour, is_dim
