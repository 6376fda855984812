"""The child side of the extension beyond one conversation: notices, other conversations, old scripts, more dialogs."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pi_desk import entries, sit_down
from tests.e2e.pi_support import PiAgent, PiRig
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

NOTICE = "side-agent-resume-notice"
WARNING = "side-agent-finish-warning"
LINK = "side-agent-link"
ESCAPED = "Paths changed.\x1b[31m\x1b]0;title\x07 Mind\x00 them.\r\nNow."

DIALOGS = """
export default function (pi) {
  const ways = {
    select: (ui) => ui.select("Which one?", ["one", "two"]),
    confirm: (ui) => ui.confirm("Really?", "It is only a test."),
    input: (ui) => ui.input("What name?", "name"),
  };
  pi.registerTool({
    name: "ask_any", label: "Ask", description: "Asks the user",
    parameters: { type: "object", properties: { way: { type: "string" } } },
    async execute(_id, { way }, _signal, _update, ctx) {
      await ways[way](ctx.ui);
      return { content: [{ type: "text", text: way }], details: {} };
    },
  });
}
"""


def quit_now(agent: PiAgent) -> Path:
    """End an agent; its conversation."""
    agent.settle()
    agent.send("/quit")
    assert agent.exit_code() == 0
    return Path(agent.events("session")[-1]["sessionFile"])


def relaunch(
    agent: PiAgent, notice: object, *, fork: bool = False, session: Path | None = None, **variables: str
) -> PiAgent:
    """The agent's next process in its directory, with this resume notice, as a resume starts it."""
    rig = agent.rig
    runtime = rig.folder / f"runtime-{uuid.uuid4()}"
    runtime.mkdir()
    if notice is not None:
        (runtime / "resume-notice.json").write_text(notice if isinstance(notice, str) else json.dumps(notice))
    (runtime / "kickoff.md").touch()
    source = session or Path(agent.events("session")[-1]["sessionFile"])
    request = rig._request(agent.name, runtime, agent.worktree, False, {"resume_session": str(source), "fork": fork})
    plan = rig.client.launch_plan(request)
    token = {"SIDE_AGENTS_LAUNCH_TOKEN": uuid.uuid4().hex, "PI_SIDE_RUNTIME_DIR": str(runtime)}
    environment = {**agent.variables, **plan.env, **token, **variables}
    pane = rig.window(plan, environment, agent.worktree, runtime / "exit")
    again = PiAgent(rig, agent.name, plan, environment, runtime, agent.worktree, pane)
    again.wait_event("ready")
    return again


def notice_for(agent: PiAgent, **changes: Any) -> dict[str, Any]:
    source = agent.events("session")[-1]["sessionFile"]
    content = {"noticeId": str(uuid.uuid4()), "targetCwd": str(agent.worktree), "sourceSessionPath": source}
    return {**content, "content": ESCAPED, **changes}


def notices(agent: PiAgent) -> list[dict[str, Any]]:
    return entries(Path(agent.events("session")[-1]["sessionFile"]), NOTICE)


@pytest.fixture(scope="module")
def ended(pi_rig: PiRig) -> PiAgent:
    """An agent that had one turn and quit. Whoever goes on with its conversation does so in a fork."""
    agent = pi_rig.launch("SAY: first life")
    agent.wait_event("turn_end")
    quit_now(agent)
    return agent


def test_b54_a_notice_is_told_once_to_the_conversation_itself_without_waking_the_model(pi_rig: PiRig) -> None:
    agent = pi_rig.launch("SAY: first life")
    agent.wait_event("turn_end")
    quit_now(agent)
    notice = notice_for(agent)
    for number in range(2):
        again = relaunch(agent, notice)
        again.settle()
        assert again.events("session")[0]["reason"] == "startup"
        name = f"life-{number}-{time.monotonic_ns()}"
        again.send(f"SAY: {name}")
        again.wait_event("turn_end")
        assert [event["type"] for event in again.events()].count("turn_start") == 1
        texts = pi_rig.model.requests(name)[-1]["userTexts"]
        told = [text for text in texts if "Paths changed." in text]
        assert len(told) == len(notices(again)) == 1
        assert "Paths changed. Mind them.\nNow." in told[0]
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", told[0])
        assert any("Paths changed. Mind them." in line for line in again.screen()) or number == 1
        quit_now(again)
    assert notices(agent)[0]["details"] == {key: notice[key] for key in ("noticeId", "targetCwd", "sourceSessionPath")}
    # Another notice is another thing to know.
    last = relaunch(agent, notice_for(agent))
    last.settle()
    assert len(notices(last)) == 2
    quit_now(last)


def test_b54_a_direct_fork_is_told_and_nobody_else(ended: PiAgent, tmp_path: Path) -> None:
    fork = relaunch(ended, notice_for(ended), fork=True)
    fork.settle()
    fork.send("SAY: here")
    fork.wait_event("turn_end")
    assert len(notices(fork)) == 1
    child = quit_now(fork)
    cases: list[tuple[dict[str, Any], Path | None]] = [
        (notice_for(ended, targetCwd=str(tmp_path)), None),
        (notice_for(ended, sourceSessionPath=str(tmp_path / "other.jsonl")), None),
        # A fork of the fork is told nothing that was meant for the fork.
        (notice_for(ended), child),
    ]
    for notice, session in cases:
        other = relaunch(ended, notice, fork=True, session=session)
        other.settle()
        other.send("SAY: here")
        other.wait_event("turn_end")
        known = 0 if session is None else 1
        assert len(notices(other)) == known, notice
        assert other.events("extension_error") == []
        quit_now(other)


@pytest.mark.parametrize("text", ['{"noticeId": "x"', '"text"', "null", '{"noticeId": 3}', ""])
def test_b54_a_malformed_notice_is_a_warning_and_nothing_more(ended: PiAgent, text: str) -> None:
    agent = relaunch(ended, text, fork=True)
    eventually(lambda: "cannot be read" in "".join(agent.screen()).replace("\n", " "), 20)
    agent.settle()
    agent.send("SAY: here")
    assert agent.wait_event("turn_end")["outcome"] == "completed"
    assert notices(agent) == []
    quit_now(agent)


OLD_SCRIPT = '#!/bin/sh\ngit -C "$PI_SIDE_PARENT_REPO" merge --ff-only HEAD\n'
NESTED = {"PI_SIDE_PARENT_AGENT_ID": "outer", "PI_SIDE_PARENT_BRANCH": "side-agent/outer", "PI_SIDE_AGENT_DEPTH": "2"}


def launch_with_script(rig: PiRig, script: str, variables: dict[str, str]) -> PiAgent:
    agent = rig.launch("", project={".pi/side-agent-finish.sh": script})
    agent.wait_event("ready")
    agent.settle()
    agent.send("SAY: begun")
    agent.wait_event("turn_end")
    quit_now(agent)
    return relaunch(agent, None, **variables)


def test_6_8_a_nested_agent_is_warned_of_a_finish_script_that_does_not_know_its_parent(pi_rig: PiRig) -> None:
    agent = launch_with_script(pi_rig, OLD_SCRIPT, NESTED)
    agent.settle()
    name = f"asked-{time.monotonic_ns()}"
    agent.send(f"SAY: {name}")
    agent.wait_event("turn_end")
    texts = pi_rig.model.requests(name)[-1]["userTexts"]
    [told] = [text for text in texts if "PI_SIDE_PARENT_BRANCH" in text]
    assert "side-agent/outer" in told
    assert "Do not run it as it is" in told
    assert "setup --upgrade" in " ".join("".join(agent.screen()).split())
    file = quit_now(agent)
    assert len(entries(file, WARNING)) == 1
    # The user is warned each time, the model once.
    again = relaunch(agent, None, **NESTED)
    eventually(lambda: "setup --upgrade" in " ".join("".join(again.screen()).split()), 20)
    again.settle()
    assert len(entries(file, WARNING)) == 1
    quit_now(again)


@pytest.mark.parametrize(
    ("script", "variables"),
    [
        pytest.param(OLD_SCRIPT, {"PI_SIDE_PARENT_AGENT_ID": "", "PI_SIDE_AGENT_DEPTH": "1"}, id="not-nested"),
        pytest.param(OLD_SCRIPT + 'test "$PI_SIDE_PARENT_BRANCH"\n', NESTED, id="knows-the-branch"),
        pytest.param("#!/bin/sh\nexec side-agents finish\n", NESTED, id="leaves-it-to-the-command"),
        pytest.param("", NESTED, id="empty"),
    ],
)
def test_6_8_nobody_else_is_warned(pi_rig: PiRig, script: str, variables: dict[str, str]) -> None:
    agent = launch_with_script(pi_rig, script, variables)
    agent.settle()
    assert "setup --upgrade" not in "".join(agent.screen())
    assert entries(quit_now(agent), WARNING) == []


def links(file: Path) -> list[str]:
    return [entry["data"]["agentId"] for entry in entries(file, LINK)]


def test_6_3_a_conversation_that_another_agent_had_is_linked_anew_and_its_own_is_not(ended: PiAgent) -> None:
    taken = relaunch(ended, None, fork=True, PI_SIDE_AGENT_ID="heir")
    taken.settle()
    taken.send("SAY: mine now")
    taken.wait_event("turn_end")
    file = quit_now(taken)
    assert links(file) == [ended.name, "heir"]
    again = relaunch(taken, None, PI_SIDE_AGENT_ID="heir")
    again.settle()
    quit_now(again)
    assert links(file) == [ended.name, "heir"]


def test_6_3_each_new_conversation_of_the_process_is_journalled_and_linked(pi: PiAgent) -> None:
    pi.send("/new")
    session = pi.wait_event("session", reason="new")
    pi.wait_event("ready")
    pi.settle()
    pi.send("SAY: in the new one")
    pi.wait_event("turn_end")
    assert links(Path(session["sessionFile"])) == [pi.name]
    pi.settle()
    pi.send("/clone")
    copy = pi.wait_event("session", reason="fork")
    pi.wait_event("ready")
    pi.settle()
    assert copy["sessionFile"] != session["sessionFile"]
    pi.send("SAY: in the copy")
    pi.wait_event("turn_end")
    assert links(Path(copy["sessionFile"])) == [pi.name]


def test_6_3_a_compaction_is_journalled_and_the_conversation_stays_the_same(pi_rig: PiRig) -> None:
    settings = pi_rig.pi_folder / "settings.json"
    usual = settings.read_text()
    settings.write_text(json.dumps({**json.loads(usual), "compaction": {"keepRecentTokens": 10}}))
    agent = pi_rig.launch(f"SAY: {'long answer ' * 400}")
    agent.wait_event("turn_end")
    agent.settle()
    agent.send(f"SAY: {'another long answer ' * 400}")
    eventually(lambda: len(agent.events("turn_end")) == 2, 40)
    agent.settle()
    agent.send("/compact")
    assert agent.wait_event("compacted")
    agent.settle()
    settings.write_text(usual)
    assert agent.new_events("session") == []
    agent.send("SAY: after it")
    assert agent.wait_event("turn_end", text="after it")
    file = quit_now(agent)
    assert links(file) == [agent.name]
    assert len(entries(file, "compaction")) == 1


def test_6_3_an_agent_that_left_the_registry_is_not_brought_back_by_its_pi(
    repo: Repository, pi_rig: PiRig, tmux_server: PrivateServer, tmp_path: Path
) -> None:
    desk = sit_down(repo, tmux_server, pi_rig, tmp_path)
    desk.start("ghost", "SAY: hello")
    row, journal = desk.row("ghost"), desk.runtime("ghost") / "events.jsonl"
    registry = repo.path / ".pi/side-agents/registry.json"
    content = json.loads(registry.read_text())
    del content["agents"]["ghost"]
    registry.write_text(json.dumps(content))
    tmux_server.tmux.paste(row["tmuxPaneId"], b"/new")
    tmux_server.tmux.send_keys(row["tmuxPaneId"], "Enter")
    eventually(lambda: '"reason":"new"' in journal.read_text(), 40)
    assert desk.run("list")["agents"] == []
    assert json.loads(registry.read_text())["agents"] == {}


@pytest.mark.parametrize(
    ("way", "reason", "title"),
    [("select", "question", "Which one?"), ("confirm", "permission", "Really?"), ("input", "question", "What name?")],
)
def test_each_kind_of_dialog_makes_the_agent_wait(pi_rig: PiRig, way: str, reason: str, title: str) -> None:
    extension = pi_rig.pi_folder / "extensions" / "dialogs.js"
    extension.write_text(DIALOGS)
    agent = pi_rig.launch(f'TOOL: ask_any {{"way": "{way}"}}\nSAY: answered')
    waiting = agent.wait_event("waiting")
    assert (waiting["for"], waiting["text"]) == (reason, title)
    assert agent.events("turn_end") == []
    eventually(lambda: any(title in line for line in agent.screen()), 20)
    agent.keys("Enter")
    agent.wait_event("resumed")
    assert agent.wait_event("turn_end")["text"] == "answered"
    quit_now(agent)
    extension.unlink()


def test_x23_a_second_pi_in_the_agents_shell_neither_links_nor_takes_the_notice(ended: PiAgent) -> None:
    agent = relaunch(ended, None, fork=True)
    agent.settle()
    source = ended.events("session")[-1]["sessionFile"]
    (agent.runtime / "resume-notice.json").write_text(json.dumps(notice_for(ended)))
    before = (len(agent.events()), (agent.runtime / "claim.json").read_bytes())
    request = agent.rig._request("x", agent.runtime, agent.worktree, False, {"resume_session": source, "fork": True})
    pane = agent.rig.window(
        agent.rig.client.launch_plan(request), agent.variables, agent.worktree, agent.runtime / "exit2"
    )
    second = PiAgent(agent.rig, "second", agent.plan, agent.variables, agent.runtime, agent.worktree, pane)
    second.settle()
    name = f"second-{time.monotonic_ns()}"
    second.send(f"SAY: {name}")
    texts = agent.rig.model.wait_for(f"SAY: {name}", deadline=40)["userTexts"]
    assert not any("Paths changed." in text for text in texts)
    second.settle()
    second.send("/quit")
    eventually((agent.runtime / "exit2").exists, 40)
    assert (len(agent.events()), (agent.runtime / "claim.json").read_bytes()) == before
    quit_now(agent)
