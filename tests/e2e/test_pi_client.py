"""Pi itself, both the last of its old name and a current one, launched and spoken to as side-agents does it."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from pathlib import Path

import pytest

from side_agents import resources
from side_agents.clients.pi import EXTENSION
from tests.e2e.pi_support import PiAgent, PiRig, digest
from tests.support.repositories import Repository
from tests.support.waiting import eventually

AWKWARD = '- it\'s "quoted" $HOME $(touch pwned) `touch pwned` \\n %s #{pane_id}\r\n\ttab 你好，世界 🙂👩‍👩‍👧\n'
FIRST_PROMPTS = {
    "200-kB-of-everything": AWKWARD * 2300 + "\n\n",
    "an-at": "@README.md is mentioned first\n",
    "a-slash": "/quit is mentioned first",
    "a-bang": "!touch pwned",
}


@pytest.fixture(scope="session")
def started(pi_rig: PiRig) -> dict[str, PiAgent]:
    """One agent for each awkward prompt, all started at once."""
    return {name: pi_rig.launch(f"{text}<{name}>\n") for name, text in FIRST_PROMPTS.items()}


@pytest.mark.parametrize("case", sorted(FIRST_PROMPTS))
def test_the_first_prompt_arrives_byte_for_byte(started: dict[str, PiAgent], case: str) -> None:
    agent, text = started[case], f"{FIRST_PROMPTS[case]}<{case}>\n"
    ended = agent.wait_event("turn_end")
    requests = [r for r in agent.rig.model.requests(f"<{case}>") if r["userTexts"] == [text]]
    assert requests
    assert ended["outcome"] == "completed"
    assert ended["text"].startswith("ECHO: ")
    assert [event["type"] for event in agent.events()] == ["session", "ready", "input", "turn_start", "turn_end"]
    assert agent.events("input")[0]["sha256"] == digest(text)
    assert agent.events("input")[0]["length"] == len(text)
    assert not (agent.worktree / "pwned").exists()


def test_the_session_is_the_planned_one_and_names_the_agent(pi: PiAgent) -> None:
    session = pi.events("session")[0]
    assert pi.plan.session_id == (None if pi.rig.version == "0.73.1" else session["sessionId"])
    assert (session["reason"], session["version"]) == ("startup", pi.rig.version)
    lines = Path(session["sessionFile"]).read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["id"] == session["sessionId"]
    links = [entry for line in lines if (entry := json.loads(line)).get("customType") == "side-agent-link"]
    assert len(links) == 1
    assert links[0]["data"]["agentId"] == pi.name
    assert links[0]["data"]["parentSession"] == "/parent/session.jsonl"


@pytest.mark.parametrize("submitted", ["one line", "  \tfirst\n\n\tindented 你好 🙂\n" + "line\n" * 1500])
def test_a_message_pasted_while_idle_is_taken_once(pi: PiAgent, submitted: str) -> None:
    message = f"{submitted}{time.monotonic_ns()}\n"
    pi.send(message)
    pi.wait_event("turn_end")
    taken = pi.client.normalise(message)
    events = pi.new_events("input")
    assert [(e["sha256"], e["length"], e["state"]) for e in events] == [(digest(taken), len(taken), "started")]
    assert pi.rig.model.requests(taken)[-1]["userTexts"].count(taken) == 1
    assert pi.client.normalise(taken) == taken


def test_a_message_pasted_while_busy_is_queued_and_taken_once(pi: PiAgent, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    pi.send(f"WAIT: {gate}\nSAY: one")
    pi.rig.model.wait_for(str(gate))
    eventually(pi.busy)
    message = f"second\tmessage\n{time.monotonic_ns()}"
    taken = pi.client.normalise(message)
    pi.send(message)
    assert pi.wait_event("input", state="queued")["sha256"] == digest(taken)
    eventually(lambda: pi.draft() == "" and pi.busy())
    gate.touch()
    ended = pi.wait_event("turn_end")
    assert (ended["outcome"], ended["text"]) == ("completed", "ECHO: second    message")
    assert pi.rig.model.requests(taken)[-1]["userTexts"].count(taken) == 1
    assert [len(pi.new_events(kind)) for kind in ("turn_start", "turn_end")] == [1, 1]


def test_a_message_sent_the_moment_a_turn_has_ended_is_not_lost(pi: PiAgent) -> None:
    for number in range(3):
        pi.seen = len(pi.events())
        pi.send(f"SAY: turn {number}")
        assert pi.wait_event("turn_end")["text"] == f"turn {number}"


def test_escape_aborts_the_turn(pi: PiAgent, tmp_path: Path) -> None:
    pi.send(f"WAIT: {tmp_path / 'never'}")
    pi.rig.model.wait_for(str(tmp_path / "never"))
    pi.keys(*pi.client.interrupt_keys)
    assert pi.wait_event("turn_end")["outcome"] == "aborted"
    assert [len(pi.new_events(kind)) for kind in ("turn_start", "turn_end")] == [1, 1]


def test_an_error_of_the_model_ends_the_turn_with_its_text(pi: PiAgent) -> None:
    pi.send("FAIL: 400")
    ended = pi.wait_event("turn_end")
    assert ended["outcome"] == "error"
    assert "400" in ended["text"]


def test_a_retry_belongs_to_the_turn(pi: PiAgent) -> None:
    name = str(time.monotonic_ns())
    pi.send(f"FAIL: 500 1\nSAY: at last {name}")
    assert pi.wait_event("turn_end")["text"] == f"at last {name}"
    pi.send(f"FAIL: 500\nSAY: never {name}")
    assert pi.wait_event("turn_end", outcome="error")["text"]
    assert [len(pi.new_events(kind)) for kind in ("turn_start", "turn_end")] == [2, 2]


def test_it_edits_and_commits_with_its_own_shell_tool(pi: PiAgent) -> None:
    name = f"change-{time.monotonic_ns()}"
    pi.send(f"RUN: echo text > {name} && git add {name} && git commit --quiet -m {name}\nSAY: committed")
    assert pi.wait_event("turn_end")["text"] == "committed"
    assert Repository(pi.worktree).git("log", "-1", "--format=%s") == name


def test_a_draft_in_the_box_is_seen(pi: PiAgent) -> None:
    pi.type("half a thought")
    eventually(lambda: pi.draft() == "half a thought")
    pi.keys("C-c")
    eventually(lambda: pi.draft() == "")
    assert pi.events("extension_error") == []


def test_x23_a_pi_run_by_the_agent_itself_is_not_the_agent(pi: PiAgent) -> None:
    name, extension = f"inner-{time.monotonic_ns()}", shlex.quote(str(resources.template_path(EXTENSION)))
    claim = (pi.runtime / "claim.json").read_bytes()
    pi.send(f"RUN: pi -e {extension} -p 'SAY: {name}'\nSAY: outer is done")
    assert pi.wait_event("turn_end")["text"] == "outer is done"
    inner = pi.rig.model.requests(f"SAY: {name}")
    assert [request["userTexts"] for request in inner if request["userTexts"] == [f"SAY: {name}"]]
    assert [event["type"] for event in pi.new_events()] == ["input", "turn_start", "turn_end"]
    assert (pi.runtime / "claim.json").read_bytes() == claim


def test_x23_a_second_interactive_pi_stays_silent_and_gets_no_first_prompt(pi: PiAgent) -> None:
    pane = pi.rig.window(pi.plan, pi.variables, pi.worktree, pi.runtime / "second-exit")
    second = PiAgent(pi.rig, "second", pi.plan, pi.variables, pi.runtime, pi.worktree, pane)
    second.settle()
    name = f"second-{time.monotonic_ns()}"
    second.send(f"SAY: {name}")
    assert pi.rig.model.wait_for(name)["userTexts"][-1] == f"SAY: {name}"
    second.settle()
    second.send("/quit")
    eventually((pi.runtime / "second-exit").exists, 40)
    assert pi.new_events() == []


def test_it_goes_on_journalling_after_new_and_reload_without_a_second_first_prompt(pi: PiAgent) -> None:
    for command, reason in (("/new", "new"), ("/reload", "reload")):
        pi.settle()
        pi.send(command)
        pi.wait_event("session", reason=reason)
        pi.wait_event("ready")
        pi.settle()
        name = f"{reason}-{time.monotonic_ns()}"
        pi.send(f"SAY: {name}")
        assert pi.wait_event("turn_end")["text"] == name
        assert len(pi.new_events("turn_start")) == 1
        assert not any("first turn" in text for text in pi.rig.model.requests(name)[-1]["userTexts"])


def test_quit_exits_0_and_a_resume_goes_on_with_the_conversation(started: dict[str, PiAgent]) -> None:
    agent = started["an-at"]
    agent.wait_event("turn_end")
    agent.settle()
    agent.send(agent.client.quit_text or "")
    assert agent.exit_code() == 0
    assert agent.wait_event("quit")
    session = agent.events("session")[0]
    file = session["sessionFile"]
    again = agent.rig.launch("SAY: resumed", resume_session=file)
    assert (again.plan.session_id, again.plan.session_file) == (session["sessionId"], file)
    assert again.wait_event("turn_end")["text"] == "resumed"
    texts = [r["userTexts"] for r in agent.rig.model.requests("SAY: resumed")]
    assert [f"{FIRST_PROMPTS['an-at']}<an-at>\n", "SAY: resumed"] in texts
    assert again.wait_event("session")["sessionId"] == session["sessionId"]


def test_a_dialog_of_an_extension_inside_a_turn_is_journalled_and_no_draft(pi: PiAgent) -> None:
    pi.send(f"TOOL: ask_user {{}}\nSAY: answered {time.monotonic_ns()}")
    waiting = pi.wait_event("waiting")
    assert (waiting["for"], waiting["text"]) == ("permission", "May I?")
    eventually(lambda: any("May I?" in line for line in pi.screen()))
    assert pi.draft() is None
    assert pi.new_events("turn_end") == []
    pi.keys("Enter")
    assert pi.wait_event("resumed")
    assert pi.wait_event("turn_end")["text"].startswith("answered")


def test_a_second_copy_installed_for_all_of_pi_says_nothing_twice(pi_rig: PiRig) -> None:
    copy = pi_rig.pi_folder / "extensions" / "side-agents"
    shutil.copytree(resources.template_path(EXTENSION).parent, copy)
    (copy / "side-agents.js").rename(copy / "index.js")
    agent = pi_rig.launch("SAY: once")
    agent.wait_event("turn_end")
    shutil.rmtree(copy)
    agent.settle()
    assert [event["type"] for event in agent.events()] == ["session", "ready", "input", "turn_start", "turn_end"]


def test_pi_works_on_when_the_runtime_folder_is_gone(pi_rig: PiRig) -> None:
    agent = pi_rig.launch("")
    agent.wait_event("ready")
    agent.settle()
    shutil.rmtree(agent.runtime)
    name = f"still-{time.monotonic_ns()}"
    agent.send(f"SAY: {name}")
    eventually(lambda: name in "\n".join(agent.screen()).partition("SAY:")[2].partition(name)[2])
    assert not agent.runtime.exists()


def test_project_extensions_load_only_where_the_user_trusts_and_no_question_stalls(pi_rig: PiRig) -> None:
    probe = (
        "import { writeFileSync as write } from 'node:fs';"
        "export default () => write(process.env.PI_SIDE_RUNTIME_DIR + '/loaded', '');"
    )
    main = pi_rig.folder / "main"
    main.mkdir()
    (pi_rig.pi_folder / "trust.json").write_text(json.dumps({str(main.resolve()): True}))
    project = {".pi/extensions/probe.js": probe}
    unknown = pi_rig.launch("SAY: not asked", project=project)
    trusted = pi_rig.launch("SAY: not asked", project=project, root=main)
    assert unknown.wait_event("turn_end")["text"] == trusted.wait_event("turn_end")["text"] == "not asked"
    assert (trusted.runtime / "loaded").exists()
    assert (unknown.runtime / "loaded").exists() == (pi_rig.version == "0.73.1")
