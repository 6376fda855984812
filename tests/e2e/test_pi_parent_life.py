"""The companion process of a real Pi: only where it is needed, and gone with its session however that ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.pi_parent_support import WAIT, ParentPi, is_gone, open_parent
from tests.support.waiting import eventually


def kill(parent: ParentPi) -> None:
    os.kill(parent.pid(), signal.SIGKILL)


def typed(command: str) -> Callable[[ParentPi], None]:
    return lambda parent: parent.settled().type(command)


AGAIN = {"reload": "Reloaded", "new": "New session started"}
ENDS = {"quit": typed("/quit"), "reload": typed("/reload"), "new": typed("/new"), "kill": kill}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_however_a_session_ends_its_companion_is_gone(parent: ParentPi, how: str) -> None:
    assert parent.calls_tool("agent-check", {"id": "nobody"})["ok"] is False
    [companion] = parent.companions()
    ENDS[how](parent)
    eventually(lambda: is_gone(companion), WAIT)
    if how in AGAIN:
        parent.sees(AGAIN[how])
        assert parent.settled().calls_tool("agent-check", {"id": "nobody"})["ok"] is False
        [again] = parent.companions()
        assert again != companion


def test_b35_nothing_is_started_or_written_before_it_is_used(parent: ParentPi) -> None:
    parent.type("SAY: hello")
    parent.sees("hello")
    parent.settled()
    assert parent.companions() == []
    assert not parent.state.exists()
    parent.type("/agents")
    parent.sees("There are no side agents now")
    assert len(parent.companions()) == 1
    assert not parent.state.exists()


def test_a_session_where_agents_are_at_work_shows_them_and_a_child_needs_no_process_for_that(parent: ParentPi) -> None:
    for name in ("one", "two"):
        assert parent.calls_tool("agent-start", {"description": "SAY: ready", "branchHint": name})["ok"]
        parent.agent(name)
    child = parent.child("one")
    assert "one:" not in child.sees("two:wait@").split("\n")[-1]
    assert child.companions() == []
    other = open_parent(parent.rig, parent.repo, parent.folder)
    other.sees("one:wait@", "two:wait@")
    assert len(other.companions()) == 1
    other.end()


def test_without_a_user_interface_reports_are_printed_and_pi_ends(parent: ParentPi) -> None:
    assert "There are no side agents now" in parent.prints("/agents").stderr
    started = parent.prints("/agent -model fake-model -- SAY: by print")
    assert "Side agent short-answer is running." in started.stdout
    assert "    SAY: by print" in started.stdout
    waited = parent.prints('TOOL: agent-wait-any {"ids": ["short-answer"]}\nSAY: waited')
    assert waited.stdout.strip() == "waited"
    assert "waiting_user (prompt)  win:#" in parent.prints("/agents").stdout


def test_a_missing_program_is_said_with_the_way_out(parent: ParentPi) -> None:
    environment = {**parent.environment, "SIDE_AGENTS_PROGRAM": "/nonexistent/side-agents"}
    lost = open_parent(parent.rig, parent.repo, parent.folder, environment=environment)
    lost.type("/agent do something")
    lost.sees("side-agents is not on the PATH", "pipx install side-agents")
    assert lost.calls_tool("agent-check", {"id": "x"})["code"] == "tool-missing"
    lost.end()


def test_a_quit_agent_is_chosen_and_its_conversation_goes_on(parent: ParentPi) -> None:
    task = "RUN: echo kept > kept.txt && git add kept.txt && git commit -qm kept\nSAY: first words"
    assert parent.calls_tool("agent-start", {"description": task, "branchHint": "sleeper"})["ok"]
    parent.agent("sleeper")
    parent.child("sleeper").settled().type("/quit")
    eventually(lambda: "sleeper" not in parent.agents(), WAIT)
    parent.settled().type("/agent-resume")
    parent.sees("sleeper ·", "Resume Session")
    parent.keys("Enter")
    parent.sees("Side agent sleeper is open again.")
    row = eventually(lambda: parent.agents().get("sleeper"), WAIT)
    assert row["branch"] == "side-agent/sleeper"
    child = parent.child("sleeper")
    child.sees("first words")
    child.settled().type("SAY: second words")
    texts = parent.model.wait_for("SAY: second words", deadline=WAIT)["userTexts"]
    assert any(text.startswith("RUN: echo kept") for text in texts)
