"""What is over before anybody looks is noticed and reported like what takes long, in a real Pi."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.pi_parent_support import WAIT, ParentPi
from tests.support.waiting import eventually

ENDED = ("failed", "crashed")
# The client of the agent, or what is there of it so early; the launcher in the pane lives on and records the end.
KILL_EARLY = (
    "sleep 0.1; pane=$(tmux list-panes -a -F '#{window_name} #{pane_pid}' | sed -n 's/^agent-early //p'); "
    'kill -KILL $(cat "/proc/$pane/task/$pane/children")'
)


def call(tool: str, **given: Any) -> str:
    return f"TOOL: {tool} {json.dumps(given)}"


def test_an_agent_killed_at_once_and_turns_of_50_ms_are_reported(parent: ParentPi) -> None:
    script = [
        call("agent-start", description="SAY: never said", branchHint="early"),
        f"RUN: {KILL_EARLY}",
        call("agent-wait-any", ids=["early"], states=list(ENDED)),
        call("agent-start", description="SAY: a first quick turn", branchHint="quick"),
        call("agent-wait-any", ids=["quick"]),
        call("agent-send", id="quick", prompt="SAY: a second quick turn"),
        call("agent-wait-any", ids=["quick"]),
        "SAY: all of it is over",
    ]
    parent.settled().paste("\n".join(script))
    eventually(lambda: any(line.strip() == "all of it is over" for line in parent.screen().split("\n")), WAIT)

    # Pi writes its conversation a moment after it has shown it.
    eventually(lambda: len(parent.tool_results("agent-wait-any")) == 3, WAIT)
    early, first, second = parent.tool_results("agent-wait-any")
    assert early["agent"]["status"] in ENDED
    assert "never said" not in json.dumps(early["agent"].get("text", ""))
    assert (first["agent"]["status"], second["agent"]["status"]) == ("waiting_user", "waiting_user")
    assert "a first quick turn" in json.dumps(first)
    assert "a second quick turn" in json.dumps(second)

    # The person is told, and the model with the next message.
    parent.sees("✗ side-agent early ", "● side-agent quick ")
    eventually(lambda: [notice["toStatus"] in ENDED for notice in parent.notices("early")] == [True], WAIT)
    eventually(lambda: "said: a second quick turn" in "".join(n["content"] for n in parent.notices("quick")), WAIT)
