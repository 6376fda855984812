"""The script agent in a real terminal: every directive, its events, its session file, its exits."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from side_agents.clients.script import ScriptClient
from tests.integration.script_agent_support import AgentPane
from tests.support.waiting import eventually


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[AgentPane]:
    with AgentPane(tmp_path) as running:
        yield running


def test_a_first_prompt_is_carried_out_line_by_line(pane: AgentPane) -> None:
    plan = pane.start("say: hello\nrun: echo $((40 + 2)); pwd\nwrite: a/b.txt one\\ntwo\ncommit: -first '\"$x\nother\n")
    end = pane.wait_turns(1)

    assert (end["outcome"], end["text"]) == ("completed", "echo: other")
    assert [event["type"] for event in pane.events()] == ["session", "ready", "turn_start", "turn_end"]
    assert (pane.worktree / "a/b.txt").read_text() == "one\ntwo"
    assert pane.git("log", "-1", "--format=%s|%an") == "-first '\"$x|Script Agent"
    assert pane.git("status", "--porcelain") == ""
    assert pane.texts(plan, "toolResult")[0] == f"42\n{pane.worktree}"
    eventually(lambda: pane.shows("42") and pane.shows("echo: other") and pane.state() == "idle")


def test_a_commit_keeps_the_identity_of_the_user(pane: AgentPane) -> None:
    pane.git("config", "user.name", "Ann")
    pane.git("config", "user.email", "ann@example.org")
    pane.start("write: f x\ncommit: mine\n")
    pane.wait_turns(1)
    assert pane.git("log", "-1", "--format=%an %ae %s") == "Ann ann@example.org mine"


def test_the_first_prompt_reaches_the_session_byte_for_byte(pane: AgentPane) -> None:
    prompt = "-x @file !ls /quit-not\n\n\ttab  \n你好 👩‍👩‍👧 \n\n"
    plan = pane.start(prompt)
    pane.wait_turns(1)
    assert pane.texts(plan, "user") == [prompt]


def test_write_refuses_paths_outside_the_worktree(pane: AgentPane) -> None:
    (pane.worktree / "out").symlink_to(pane.folder)
    plan = pane.start("write: ../x.txt a\nwrite: /tmp/never a\nwrite: out/x.txt a\nwrite: .git/x a\nwrite: in.txt a\n")
    assert pane.wait_turns(1)["outcome"] == "completed"
    assert not (pane.folder / "x.txt").exists()
    assert not (pane.worktree / ".git/x").exists()
    assert (pane.worktree / "in.txt").exists()
    results = [message for message in pane.messages(plan) if message["role"] == "toolResult"]
    assert [message["isError"] for message in results] == [True, True, True, True, False]


def test_a_question_waits_and_its_answer_serves_the_lines_behind_it(pane: AgentPane) -> None:
    pane.start('ask: which colour?\nrun: printf %s "$ANSWER" >run.txt\nwrite: said.txt {answer}\nsay: took {answer}\n')
    waiting = eventually(lambda: pane.events("waiting"))[0]
    assert (waiting["for"], waiting["text"]) == ("question", "which colour?")
    eventually(lambda: pane.state() == "question")
    assert not pane.events("turn_end")

    pane.send("dark 蓝; rm -rf x")
    assert pane.wait_turns(1)["text"] == "took dark 蓝; rm -rf x"
    assert [event["type"] for event in pane.events()][-4:] == ["waiting", "input", "resumed", "turn_end"]
    assert (pane.worktree / "run.txt").read_text() == (pane.worktree / "said.txt").read_text() == "dark 蓝; rm -rf x"


def test_a_message_queued_before_a_question_does_not_answer_it(pane: AgentPane) -> None:
    gate = pane.worktree / "gate"
    pane.start("run: until [ -e gate ]; do sleep 0.02; done\nask: sure?\nsay: answer {answer}\n")
    pane.send("say: nudge")
    gate.touch()
    eventually(lambda: pane.events("waiting"))
    pane.send("yes")
    assert pane.wait_turns(1)["text"] == "answer yes"
    assert pane.wait_turns(2)["text"] == "nudge"


def test_a_permission_dialog_takes_only_y_or_n_from_a_hand(pane: AgentPane) -> None:
    pane.start("permit: delete all?\nsay: did it\n")
    eventually(lambda: pane.state() == "permission")
    assert pane.events("waiting")[0]["for"] == "permission"
    assert pane.draft() is None

    pane.paste("yes please")
    pane.paste("y")
    pane.type("yes")
    pane.keys("Enter", "x", "C-c", "C-d", "Escape")
    pane.type("Z")
    pane.tmux("run-shell", "true")
    assert not pane.events("resumed")
    pane.keys("y")
    assert pane.wait_turns(1)["text"] == "did it"
    eventually(lambda: pane.draft() == "")


def test_n_ends_the_turn_as_aborted(pane: AgentPane) -> None:
    pane.start("permit: sure?\nwrite: never.txt x\n")
    eventually(lambda: pane.state() == "permission")
    pane.keys("n")
    assert pane.wait_turns(1)["outcome"] == "aborted"
    assert not (pane.worktree / "never.txt").exists()


def test_turn_ends_the_turn_and_the_rest_goes_first_with_the_next_message(pane: AgentPane) -> None:
    pane.start("say: one\nturn\nsay: two\n")
    assert pane.wait_turns(1)["text"] == "one"
    pane.send("say: three")
    assert pane.wait_turns(2)["text"] == "two\nthree"


def test_escape_ends_the_whole_process_group_and_the_turn(pane: AgentPane) -> None:
    pane.start("run: trap '' TERM; (trap '' TERM; echo $$ >leader; sleep 1000) & wait; sleep 1000\nwrite: never x\n")
    leader = int(eventually(lambda: _text(pane.worktree / "leader")))
    pane.keys("Escape")
    assert pane.wait_turns(1)["outcome"] == "aborted"
    assert not (pane.worktree / "never").exists()
    eventually(lambda: not _group_lives(leader))
    pane.send("say: still here")
    assert pane.wait_turns(2)["text"] == "still here"


def test_escape_ends_a_sleep_and_a_question_but_does_nothing_when_idle(pane: AgentPane) -> None:
    pane.start("sleep: 1000\nsay: never\n")
    eventually(lambda: pane.state() == "busy")
    pane.keys("Escape")
    assert pane.wait_turns(1)["outcome"] == "aborted"
    pane.keys("Escape")
    pane.send("ask: what?")
    eventually(lambda: pane.state() == "question")
    pane.keys("Escape")
    assert pane.wait_turns(2)["outcome"] == "aborted"
    assert len(pane.events("turn_start")) == 2


def test_messages_while_busy_are_queued_and_run_once_each_in_order(pane: AgentPane) -> None:
    plan = pane.start("run: until [ -e gate ]; do sleep 0.02; done\n")
    pane.send("say: first")
    pane.send("say: second")
    eventually(lambda: pane.shows("2 queued"))
    (pane.worktree / "gate").touch()
    assert pane.wait_turns(3)["text"] == "second"
    assert [event["state"] for event in pane.events("input")] == ["queued", "queued"]
    assert pane.texts(plan, "user")[1:] == ["say: first", "say: second"]


@pytest.mark.parametrize(
    ("line", "status"), [("fail: 7", 7), ("fail: x", 1), ("quit", 0), ("crash", 128 + signal.SIGKILL)]
)
def test_ends_on_request(pane: AgentPane, line: str, status: int) -> None:
    pane.start(None)
    pane.paste(f"say: bye\n{line}\nsay: never")
    pane.keys("Enter")
    assert pane.wait_exit() == status
    outcomes = [event["outcome"] for event in pane.events("turn_end")]
    assert outcomes == {"crash": [], "quit": ["completed"]}.get(line, ["error"])


def test_slash_quit_ends_it_while_busy_and_takes_the_command_along(pane: AgentPane) -> None:
    pane.start("run: echo $$ >leader; sleep 1000\n")
    leader = int(eventually(lambda: _text(pane.worktree / "leader")))
    pane.send("/quit")
    assert pane.wait_exit() == 0
    assert not _group_lives(leader)
    assert [event["type"] for event in pane.events()][-3:] == ["input", "turn_end", "quit"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_the_cause_of_death_and_the_command_ends_too(pane: AgentPane, number: signal.Signals) -> None:
    pane.start("run: echo $$ >leader; sleep 1000\n")
    leader = int(eventually(lambda: _text(pane.worktree / "leader")))
    os.kill(pane.pid(), number)
    assert pane.wait_exit() == 128 + number
    assert not _group_lives(leader)
    assert pane.events("turn_end")[0]["outcome"] == "aborted"


def test_a_kill_leaves_a_readable_session_that_can_be_continued(pane: AgentPane) -> None:
    plan = pane.start("say: before\nrun: kill -9 $PPID\n")
    assert pane.wait_exit() == 128 + signal.SIGKILL
    assert plan.session_file is not None
    with Path(plan.session_file).open("a") as file:
        file.write('{"type":"message","id":"cut')
    pane.tmux("kill-server", check=False)

    for name in ("claim.json", "events.jsonl"):
        (pane.runtime / name).unlink()
    again = pane.start("say: after\n", resume_session=plan.session_file)
    pane.wait_turns(1)
    lines = Path(plan.session_file).read_text().splitlines()
    entries = [json.loads(line) for line in lines if not line.endswith('"cut')]
    assert len(entries) == len(lines) - 1
    messages = [entry for entry in entries if entry["type"] == "message"]
    assert [entry["parentId"] for entry in messages] == [None, *(entry["id"] for entry in messages[:-1])]
    assert again.session_file == plan.session_file
    assert pane.events("session")[0]["reason"] == "resume"
    assert pane.events("session")[0]["sessionId"] == plan.session_id


def test_a_fork_copies_the_conversation_under_a_new_id(pane: AgentPane) -> None:
    plan = pane.start("say: old\nquit\n")
    pane.wait_exit()
    (pane.runtime / "claim.json").unlink()
    pane.status_file.unlink()
    forked = pane.start("say: new\n", resume_session=plan.session_file, fork=True)
    pane.wait_turns(2)
    assert forked.session_file is not None
    assert forked.session_file != plan.session_file
    header = json.loads(Path(forked.session_file).read_text().splitlines()[0])
    assert (header["id"], header["parentSession"]) == (forked.session_id, plan.session_file)
    assert pane.texts(forked, "user") == ["say: old\nquit\n", "say: new\n"]
    assert pane.texts(plan, "user") == ["say: old\nquit\n"]


def test_x23_a_second_agent_in_the_same_environment_is_not_the_agent(pane: AgentPane) -> None:
    other = pane.folder / "second.md"
    other.write_text("say: intruder\nwrite: second.txt x\nquit\n")
    program = [*pane.plan().argv[:3], "--prompt-file", str(other)]
    in_a_terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *program]
    pane.start(f"run: {shlex.join(in_a_terminal)} >second.log 2>&1\nsay: mine\n")
    assert pane.wait_turns(1)["text"] == "mine"
    assert (pane.worktree / "second.txt").exists(), (pane.worktree / "second.log").read_text()
    assert [event["type"] for event in pane.events()] == ["session", "ready", "turn_start", "turn_end"]
    assert json.loads((pane.runtime / "claim.json").read_text())["pid"] == pane.pid()


def test_the_journal_names_the_session_file_and_the_hash_that_the_adapter_foretells(pane: AgentPane) -> None:
    plan = pane.start(None, model="tiny", extra=["--startup-delay", "0.05"])
    message = "say: tab\there 中\n\nsecond line  \n\n"
    pane.send(message)
    pane.wait_turns(1)
    session, taken = pane.events("session")[0], pane.events("input")[0]
    assert (session["sessionId"], session["sessionFile"]) == (plan.session_id, plan.session_file)
    expected = ScriptClient().normalise(message)
    assert taken["sha256"] == hashlib.sha256(expected.encode()).hexdigest()
    assert (taken["length"], taken["state"]) == (len(expected), "started")
    assert pane.texts(plan, "user") == [expected]
    eventually(lambda: pane.shows("idle · tiny"))


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _group_lives(group: int) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False
