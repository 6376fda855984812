"""`/agent` and `/agents` as a person types them in a real Pi."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pi_parent_support import WAIT, ParentPi, open_parent
from tests.e2e.pi_support import PiRig
from tests.support.repositories import Repository, make_repository
from tests.support.waiting import eventually

# What the scripted model calls everything that it is asked to name.
NAME = "short-answer"
AWKWARD = "-x @README.md \"quoted\" 'single' $HOME `touch pwned` \\ %s 你好 🙂\n\n/quit is mentioned, too"


@pytest.fixture
def thinking(pi_rig: PiRig, tmp_path: Path) -> Iterator[ParentPi]:
    """A Pi with a model that thinks hard, in a project with a mode."""
    repo = make_repository(tmp_path / "shop")
    modes = {"quick": {"provider": "fake", "modelId": "fake-model", "thinkingLevel": "low"}}
    repo.write(".pi/modes.json", json.dumps({"version": 1, "modes": modes}))
    parent = open_parent(pi_rig, repo, tmp_path / "home", pi_args=("--model", "fake/thinker:high"))
    yield parent
    parent.end()


@pytest.fixture
def speechless(pi_rig: PiRig, tmp_path: Path) -> Iterator[ParentPi]:
    """A Pi whose own model cannot be reached."""
    arguments = ("--model", "broken/silent")
    parent = open_parent(pi_rig, make_repository(tmp_path / "shop"), tmp_path / "home", pi_args=arguments)
    yield parent
    parent.end()


def test_i1_an_agent_typed_in_the_parents_window_works_commits_and_quits(parent: ParentPi) -> None:
    greeting = f"hello from {uuid.uuid4().hex[:8]}"
    parent.type(f"SAY: {greeting}")
    parent.sees(f" {greeting}")
    parent.settled().type("/agent RUN: echo new > new.txt && git add new.txt && git commit -qm 'Add new'")
    screen = parent.sees(
        f"Side agent {NAME} is running.", f"side-agent/{NAME}", "agent-worktree-0001", "its first prompt:"
    )
    assert "\x1b" not in screen

    row = parent.agent(NAME)
    session = str(row["parentSessionId"])
    worktree = Repository(Path(row["worktreePath"]))
    assert worktree.git("log", "--format=%s", "main..HEAD") == "Add new"
    assert (row["model"], row["depth"], row["client"]) == ("fake/fake-model", 1, "pi")
    assert json.loads(Path(session).read_text().split("\n", 1)[0])["type"] == "session"
    runtime = parent.state / "runtime" / NAME
    assert {"kickoff.md", "backlog.log", "launch.sh"} <= {file.name for file in runtime.iterdir()}

    # The kickoff: the task, the parent's conversation, and what the model said bears on it.
    kickoff = (runtime / "kickoff.md").read_text()
    assert kickoff.startswith("RUN: echo new > new.txt")
    assert session in kickoff
    assert "Short answer" in kickoff
    parent.sees(f"{NAME}:wait@")
    [prompt] = parent.messages("side-agent-prompt")
    [report] = parent.messages("side-agents-report")
    assert (prompt["display"], report["display"]) == (False, True)
    assert kickoff.strip() in prompt["content"]
    assert (report["details"]["prompt"], "RUN:" in report["content"]) == (kickoff, False)

    # Told, and not woken by it: the parent's model was asked once with tools, for the person's own message.
    eventually(lambda: any(n["toStatus"] == "waiting_user" for n in parent.notices(NAME)), WAIT)
    assert not any("\x1b" in notice["content"] for notice in parent.notices(NAME))
    asked = [r for r in parent.model.requests() if r["tools"] and f"SAY: {greeting}" in r["userTexts"]]
    assert len(asked) == 1

    parent.type("/agents")
    parent.sees("win:#", "worktree:shop-agent-worktree-0001", "choose one")
    parent.keys("Escape")

    assert parent.calls_tool("agent-check", {"id": NAME})["agent"]["status"] == "waiting_user"
    assert parent.calls_tool("agent-send", {"id": NAME, "prompt": "!/quit"})["ok"]
    eventually(lambda: NAME not in parent.agents(), WAIT)
    assert json.loads((runtime / "exit.json").read_text())["exitCode"] == 0
    assert parent.calls_tool("agent-wait-any", {"ids": [NAME]})["agent"]["status"] == "done"
    eventually(lambda: parent.notices(NAME)[-1]["toStatus"] == "done", WAIT)
    eventually(lambda: f"{NAME}:wait@" not in parent.screen().split("\n")[-1], WAIT)


def test_u36_without_a_conversation_the_prompt_is_exactly_the_task(parent: ParentPi) -> None:
    parent.type("/agent Do a first thing")
    parent.agent(NAME)
    assert (parent.state / "runtime" / NAME / "kickoff.md").read_text().strip() == "Do a first thing"


def test_the_agent_gets_the_model_of_the_session_of_the_mode_or_of_the_flag(thinking: ParentPi) -> None:
    wanted = {
        "/agent as it is": "fake/thinker:high",
        "/agent -mode quick as in the mode": "fake/fake-model:low",
        "/agent -mode quick -model thinker:minimal as asked": "fake/thinker:minimal",
        "/agent -mode nosuch with a mode that is not there": "fake/thinker:high",
    }
    for number, (line, model) in enumerate(wanted.items(), 1):
        name = NAME if number == 1 else f"{NAME}-{number}"
        thinking.type(line)
        eventually(lambda name=name: thinking.agents().get(name, {}).get("tmuxPaneId"), WAIT)
        assert thinking.agents()[name]["model"] == model, line
        thinking.settled()
    thinking.sees("The mode 'nosuch' was not used")
    assert thinking.child(NAME).sees("thinker").count("high") >= 1


def test_b46_without_a_model_that_answers_the_name_comes_from_the_task_and_that_is_said(speechless: ParentPi) -> None:
    speechless.type("/agent -model fake/fake-model Paint the cellar door blue")
    speechless.sees("Side agent paint-cellar-door is running.", "The name was made from the words of the task")
    assert speechless.agent("paint-cellar-door")["model"] == "fake/fake-model"


@pytest.mark.parametrize(
    "task", [AWKWARD, "a line of a very long task\n" * 6000 + "the end"], ids=["awkward", "160-kB"]
)
def test_x13_the_task_arrives_byte_for_byte(parent: ParentPi, task: str) -> None:
    parent.paste(f"/agent -model fake-model -- {task}")
    parent.agent(NAME)
    assert (parent.state / "runtime" / NAME / "kickoff.md").read_text().rstrip("\n") == task
    assert any(task == text.rstrip("\n") for r in parent.model.requests(task[-20:]) for text in r["userTexts"])
    assert not (parent.repo.path / "pwned").exists()


def test_mistakes_are_answered_with_what_to_do(parent: ParentPi) -> None:
    parent.type("/agents")
    parent.sees("There are no side agents now. /agent TASK starts one")
    parent.type("/agent")
    parent.sees("There is no task. Usage: /agent [-model MODEL]")
    parent.type("/agent -model")
    parent.sees("-model needs a value")
    parent.type("/agent-resume")
    parent.sees("There is no conversation of a side agent to resume")
    assert parent.agents() == {}


def test_what_is_typed_while_an_agent_is_being_started_is_not_lost(parent: ParentPi) -> None:
    parent.type("/agent Do one thing")
    parent.type("SAY: not lost")
    parent.sees("not lost", f"Side agent {NAME} is running.")
    assert parent.model.wait_for("SAY: not lost")["tools"]


def test_b5_failed_agents_are_cleared_and_a_living_one_is_shown_and_stopped(parent: ParentPi) -> None:
    parent.type("SAY: hello")
    parent.sees("hello")
    for name in ("broken", "sound"):
        parent.calls_tool("agent-start", {"description": f"SAY: I am {name}", "branchHint": name})
        parent.agent(name)
    parent.rig.tmux("kill-pane", "-t", parent.window("broken"))
    parent.sees("side-agent broken crashed")
    parent.agent("broken", "crashed")

    parent.settled().type("/agents")
    parent.sees("Remove 1 failed or crashed agent from the list?")
    parent.keys("Enter")
    parent.sees("1 of 1 removed.", "choose one")
    assert sorted(parent.agents()) == ["sound"]
    parent.keys("Enter")
    parent.sees("Show what it printed last")
    parent.keys("Down", "Enter")
    parent.sees("sound printed last:", "I am sound")

    parent.type("/agents")
    parent.sees("choose one")
    parent.keys("Enter")
    parent.sees("Jump to its window")
    parent.keys("Down", "Down", "Enter")
    parent.sees("Stop sound?")
    parent.keys("Enter")
    parent.sees("sound is stopped.")
    assert parent.agents() == {}
