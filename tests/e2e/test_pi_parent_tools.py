"""The four tools as the model of a real Pi calls them, and an agent that starts one of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from side_agents import resources
from side_agents.clients.pi import EXTENSION
from tests.e2e.pi_parent_support import WAIT, ParentPi
from tests.support.repositories import Repository
from tests.support.waiting import eventually

NAMES = ("alpha", "beta", "gamma")


def start(name: str, task: str = "SAY: ready") -> str:
    return f"agent-start {json.dumps({'description': task, 'branchHint': name})}"


def test_i8_several_starts_in_one_message_then_wait_check_and_send(parent: ParentPi) -> None:
    first, *others = [start(name, f"SAY: {name} is ready") for name in NAMES]
    parent.paste(f"TOOL: {first}\n" + "".join(f"ALSO: {other}\n" for other in others) + "SAY: all three are started")
    parent.sees("all three are started", "✓ alpha in window #", "✓ gamma in window #")
    # Pi writes its conversation a moment after it has shown it.
    eventually(lambda: len(parent.tool_results("agent-start")) == len(NAMES), WAIT)
    started = parent.tool_results("agent-start")
    assert sorted(answer["id"] for answer in started) == sorted(NAMES)
    assert all(answer["ok"] and answer["warnings"] == [] for answer in started)
    for key in ("worktreePath", "tmuxWindowId", "tmuxWindowIndex", "branch"):
        assert len({answer[key] for answer in started}) == 3, key
    for name in NAMES:
        assert parent.agent(name)["model"] == "fake/fake-model"
        kickoff = (parent.state / "runtime" / name / "kickoff.md").read_text()
        assert kickoff.startswith(f"SAY: {name} is ready\n\nParent Pi session: /")

    waited = parent.calls_tool("agent-wait-any", {"ids": ["beta"]})
    assert (waited["ok"], waited["agent"]["id"], waited["agent"]["status"]) == (True, "beta", "waiting_user")
    checked = parent.calls_tool("agent-check", {"id": "beta trailing words"})
    assert checked["agent"]["worktreePath"] == parent.agents()["beta"]["worktreePath"]
    assert any("beta is ready" in line for line in checked["backlog"])
    sent = parent.calls_tool("agent-send", {"id": "beta", "prompt": "-- a second\nmessage 你好 🙂"})
    assert sent["ok"], sent
    after = parent.calls_tool("agent-wait-any", {"ids": ["beta"], "after": waited["cursor"]})
    assert (after["agent"]["turn"], after["agent"]["lastTurnText"]) == (2, "ECHO: -- a second")
    assert parent.model.requests("a second\nmessage 你好 🙂")[0]["userTexts"][-1] == "-- a second\nmessage 你好 🙂"


def call_eight(parent: ParentPi, number: int) -> None:
    """One message of the model with eight calls; returns when Pi has written all answers."""
    first, *others = ['agent-check {"id": "alpha"}', 'agent-wait-any {"ids": ["alpha"]}'] * 4
    parent.paste(f"TOOL: {first}\n" + "".join(f"ALSO: {other}\n" for other in others) + f"SAY: round {number} over")
    parent.sees(f"round {number} over")
    eventually(lambda: len(parent.tool_results("agent-wait-any")) == 4 * number, WAIT)


def test_rounds_of_eight_calls_in_one_message_are_all_clean(parent: ParentPi) -> None:
    parent.calls_tool("agent-start", {"description": "SAY: ready", "branchHint": "alpha"})
    parent.agent("alpha")
    for number in range(1, 15):
        call_eight(parent, number)
    answers = [*parent.tool_results("agent-check"), *parent.tool_results("agent-wait-any")]
    assert len(answers) == 14 * 8
    assert [answer for answer in answers if not answer["ok"] or answer["agent"]["id"] != "alpha"] == []


def test_i7_i9_unknown_ids_and_missing_arguments_are_answers_and_nothing_breaks(parent: ParentPi) -> None:
    unknown = parent.calls_tool("agent-check", {"id": "nobody"})
    assert (unknown["ok"], "nobody" in unknown["error"]) == (False, True)
    assert "nobody" in parent.calls_tool("agent-wait-any", {"ids": ["nobody"]})["error"]
    assert parent.calls_tool("agent-wait-any", {"ids": []})["ok"] is False
    empty = parent.calls_tool("agent-start", {"description": "  ", "branchHint": "", "model": "fake-model"})
    assert (empty["ok"], empty["code"]) == (False, "usage")
    assert parent.agents() == {}


def test_x19_a_bare_interrupt_at_idle_does_not_make_a_wait_hang(parent: ParentPi) -> None:
    assert parent.calls_tool("agent-start", {"description": "SAY: ready", "branchHint": "alpha"})["ok"]
    parent.agent("alpha")
    parent.calls_tool("agent-send", {"id": "alpha", "prompt": "!"})
    assert parent.calls_tool("agent-wait-any", {"ids": ["alpha"]})["agent"]["status"] == "waiting_user"


def test_escape_ends_a_wait_and_the_agent_goes_on(parent: ParentPi, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    parent.calls_tool("agent-start", {"description": f"WAIT: {gate}\nSAY: at last", "branchHint": "slow"})
    parent.agent("slow", "running")
    parent.settled().paste('TOOL: agent-wait-any {"ids": ["slow"]}')
    parent.sees("waiting…")
    began = time.monotonic()
    parent.keys("Escape")
    parent.sees("aborted")
    assert time.monotonic() - began < 20
    [ended] = eventually(lambda: parent.tool_results("agent-wait-any"), WAIT)
    assert (ended["ok"], ended["code"]) == (False, "cancelled")
    gate.touch()
    assert parent.agent("slow")["lastTurnText"] == "at last"


def test_a_companion_that_is_killed_says_unknown_once_and_comes_back(parent: ParentPi, tmp_path: Path) -> None:
    parent.calls_tool("agent-start", {"description": f"WAIT: {tmp_path / 'gate'}\nSAY: at last", "branchHint": "slow"})
    parent.agent("slow", "running")
    parent.settled().paste('TOOL: agent-wait-any {"ids": ["slow"]}\nSAY: the wait is over')
    parent.sees("waiting…")
    [companion] = parent.companions()
    os.kill(companion, signal.SIGKILL)
    [lost] = eventually(lambda: parent.tool_results("agent-wait-any"), WAIT)
    assert (lost["ok"], lost["code"]) == (False, "unknown-outcome")
    assert "unknown whether" in lost["error"]
    [again] = eventually(parent.companions, WAIT)
    assert again != companion
    assert parent.calls_tool("agent-check", {"id": "slow"})["agent"]["status"] == "running"
    assert parent.companions() == [again]
    parent.sees("slow:run@")


def test_i11_an_agent_starts_one_of_its_own_and_only_it_is_told(parent: ParentPi) -> None:
    commit = "RUN: echo outer > outer.txt && git add outer.txt && git commit -qm outer\nSAY: outer is ready"
    outer_start = parent.calls_tool("agent-start", {"description": commit, "branchHint": "outer"})
    assert (outer_start["depth"], "parentAgentId" in outer_start) == (1, False)
    parent.agent("outer")
    outer = parent.child("outer")
    assert outer.companions() == []

    # What the outer agent's model does, told by the parent's.
    inner_start = f"TOOL: {start('inner', 'SAY: inner is ready')}\nSAY: inner is started"
    assert parent.calls_tool("agent-send", {"id": "outer", "prompt": inner_start})["ok"]
    row = parent.agent("inner")
    assert (row["depth"], row["parentAgentId"]) == (2, "outer")
    inner_tree, outer_tree = (Repository(Path(parent.agents()[name]["worktreePath"])) for name in ("inner", "outer"))
    assert inner_tree.head() == outer_tree.head() != parent.repo.head()
    kickoff = (parent.state / "runtime" / "inner" / "kickoff.md").read_text()
    assert "nested side agent" in kickoff
    assert "side-agent/outer" in kickoff
    eventually(lambda: any(n["toStatus"] == "waiting_user" for n in outer.notices("inner")), WAIT)
    assert outer.notices("inner")[-1]["parentAgentId"] == "outer"
    outer.sees("inner:wait@")

    inner = parent.child("inner")
    inner.settled().type("/agent start one more")
    inner.sees("Error: Agent inner is at depth 2 of at most 2")
    assert sorted(parent.agents()) == ["inner", "outer"]
    inner.type("/quit")
    eventually(lambda: [n["toStatus"] for n in outer.notices("inner")][-1:] == ["done"], WAIT)
    parent.calls_tool("agent-check", {"id": "outer"})
    assert parent.notices("inner") == []
    assert parent.notices("outer")


def test_x23_a_second_pi_in_the_agents_shell_is_not_the_agent(parent: ParentPi) -> None:
    parent.calls_tool("agent-start", {"description": "SAY: ready", "branchHint": "alpha"})
    before = parent.agent("alpha")
    shell = (parent.state / "runtime" / "alpha").resolve()
    pid = json.loads((shell / "claim.json").read_text())["pid"]
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    extension = str(resources.template_path(EXTENSION))
    exports = [part for line in variables if "=" in line and not line.startswith("TMUX") for part in ("-e", line)]
    window = ["new-window", "-d", "-P", "-F", "#{pane_id}", "-t", f"{parent.session}:", "-c", before["worktreePath"]]
    pane = parent.rig.tmux(*window, *exports, "--", "pi", "-e", extension).strip()
    second = parent.in_window(pane, Path(before["worktreePath"])).settled()
    second.type("SAY: I am somebody else")
    second.sees("I am somebody else")
    second.settled().type("/agents")
    second.sees("alpha", "choose one")
    second.keys("Escape")
    second.settled().type("/quit")
    panes = ["list-panes", "-s", "-t", parent.session, "-F", "#{pane_id}"]
    eventually(lambda: pane not in parent.rig.tmux(*panes).split(), WAIT)
    after = parent.agents()["alpha"]
    for key in ("status", "childSessionId", "childSessionFile", "turn"):
        assert after.get(key) == before.get(key), key
