"""A Pi that quit comes back with its conversation and its branch, with both real Pis (seed 001 5.3b, B54-B57)."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.pi_desk import Desk, entries, sit_down
from tests.e2e.pi_support import PiRig
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

NOTICE = "side-agent-resume-notice"
LINK = "side-agent-link"


@pytest.fixture
def desk(repo: Repository, pi_rig: PiRig, tmux_server: PrivateServer, tmp_path: Path) -> Desk:
    # Newer Pi asks whether to trust a folder with project settings; nobody is there to answer.
    repo.commit(".pi/settings.json", "{}\n", "settings for Pi")
    return sit_down(repo, tmux_server, pi_rig, tmp_path)


def mark(name: str) -> str:
    return f"{name}-{time.monotonic_ns()}"


def task(name: str) -> str:
    return (
        f"RUN: echo {name} > {name}.txt && git add {name}.txt && git commit -qm 'Add {name}'\nSAY: {name} is committed"
    )


def heard(desk: Desk, text: str) -> list[str]:
    """What of the conversation the model was told together with this text."""
    found: list[str] = desk.rig.model.requests(text)[-1]["userTexts"]
    return found


def links(file: Path) -> list[str]:
    return [entry["data"]["agentId"] for entry in entries(file, LINK)]


def worktree(answer: dict[str, str]) -> Repository:
    return Repository(Path(answer["worktreePath"]))


def test_b54_it_quits_and_goes_on_in_place_with_the_same_conversation_and_branch(desk: Desk) -> None:
    name = mark("alpha")
    before = desk.start(name, task(name))
    file, header = desk.session(name), entries(desk.session(name))[0]
    desk.quit(name)
    worktree(before).write("half.txt", "not committed")
    [offered] = desk.run("resume", "--list")["sessions"]
    assert (offered["agentId"], offered["client"], offered["file"], offered["note"]) == (name, "pi", str(file), "")
    assert (offered["sessionId"], offered["cwd"]) == (header["id"], before["worktreePath"])
    assert offered["title"].startswith("RUN: echo")

    after = desk.run("resume", name)
    assert (after["worktreePath"], after["branch"], after["session"]) == (
        before["worktreePath"], f"side-agent/{name}", str(file),
    )  # fmt: skip
    assert after["forked"] is False
    assert desk.idle(name)["waitingFor"] == "prompt"
    assert "--model" not in (desk.runtime(name) / "launch.sh").read_text()
    again = mark("again")
    desk.say(name, f"SAY: {again}")
    assert heard(desk, again) == [task(name), f"SAY: {again}"]
    assert desk.session(name) == file
    assert entries(file)[0] == header
    assert links(file) == [name]
    assert entries(file, NOTICE) == []
    assert worktree(before).status() == "?? half.txt"
    assert worktree(before).git("branch", "--show-current") == f"side-agent/{name}"
    assert desk.run("resume", "--list")["sessions"] == []


def test_b54_in_another_slot_it_goes_on_in_a_copy_and_is_told_once(desk: Desk) -> None:
    name = mark("alpha")
    before = desk.start(name, task(name))
    file = desk.session(name)
    head = worktree(before).head()
    desk.quit(name)
    other = desk.start(mark("other"), "SAY: here")
    assert other["worktreePath"] == before["worktreePath"]

    after = desk.run("resume", name)
    assert after["worktreePath"] != before["worktreePath"]
    assert (after["branch"], after["forked"]) == (f"side-agent/{name}", True)
    desk.idle(name)
    assert worktree(after).git("branch", "--show-current") == f"side-agent/{name}"
    assert worktree(after).head() == head
    eventually(lambda: "Your working directory has changed" in desk.screen(name), 20)
    again = mark("again")
    desk.say(name, f"SAY: {again}")
    copy = desk.session(name)
    assert copy != file
    assert (entries(copy)[0]["parentSession"], entries(copy)[0]["cwd"]) == (str(file), after["worktreePath"])
    texts = heard(desk, again)
    assert (texts[0], texts[-1], len(texts)) == (task(name), f"SAY: {again}", 3)
    assert before["worktreePath"] in texts[1]
    assert after["worktreePath"] in texts[1]
    [told] = entries(copy, NOTICE)
    notice = json.loads((desk.runtime(name) / "resume-notice.json").read_text())
    assert (told["content"], told["details"]["noticeId"]) == (notice["content"], notice["noticeId"])
    assert entries(file, NOTICE) == []

    # Not again in a new conversation of the same process, nor after a reload.
    for command in ("/reload", "/new"):
        desk.type(name, command, "Enter")
        desk.wait_event(name, "session", reason=command[1:])
        desk.idle(name)
    new = mark("new")
    desk.say(name, f"SAY: {new}")
    assert heard(desk, new) == [f"SAY: {new}"]
    assert len(entries(copy, NOTICE)) == 1
    assert links(desk.session(name)) == [name]


def test_b54_a_resume_in_the_same_place_after_that_says_nothing_new(desk: Desk) -> None:
    name = mark("alpha")
    before = desk.start(name, task(name))
    desk.quit(name)
    desk.start(mark("other"), "SAY: here")
    for number in range(2):
        desk.run("resume", name)
        desk.idle(name)
        desk.say(name, f"SAY: {mark('again')}")
        assert len(entries(desk.session(name), NOTICE)) == 1
        assert desk.row(name)["worktreePath"] != before["worktreePath"]
        if number == 0:
            file = desk.session(name)
            desk.quit(name)
    assert desk.session(name) == file


def test_a_conversation_of_a_slot_that_was_deleted_is_offered_and_goes_on(desk: Desk) -> None:
    name = mark("alpha")
    before = desk.start(name, task(name))
    desk.quit(name)
    shutil.rmtree(before["worktreePath"])
    desk.repo.git("worktree", "prune")
    [offered] = desk.run("resume", "--list")["sessions"]
    assert (offered["agentId"], offered["note"]) == (name, "")
    after = desk.run("resume", name)
    desk.idle(name)
    again = mark("again")
    desk.say(name, f"RUN: cat {name}.txt\nSAY: {again}")
    assert heard(desk, again)[0] == task(name)
    assert (worktree(after).path / f"{name}.txt").read_text().strip() == name


# Four Pis one after the other.
@pytest.mark.timeout(300)
def test_b57_of_two_conversations_of_one_id_only_the_newest_has_the_branch(desk: Desk) -> None:
    name = mark("alpha")
    desk.start(name, task(name))
    first = desk.session(name)
    desk.quit(name)
    desk.run("resume", name, "--fork")
    desk.idle(name)
    desk.say(name, "SAY: in the copy")
    second = desk.session(name)
    assert second != first
    desk.quit(name)
    offered = desk.run("resume", "--list")["sessions"]
    assert [(each["file"], each["note"]) for each in offered] == [
        (str(second), ""),
        (str(first), "branch owned by newer session"),
    ]
    older = desk.run("resume", "--session", str(first))
    assert older["id"] == f"{name}-2"
    desk.idle(older["id"])
    assert worktree(older).git("branch", "--show-current") == f"side-agent/{name}-2"
    assert not (worktree(older).path / f"{name}.txt").exists()
    newest = desk.run("resume", name)
    desk.idle(name)
    assert worktree(newest).git("branch", "--show-current") == f"side-agent/{name}"
    words = mark("both")
    desk.say(older["id"], f"SAY: {words}")
    assert f"SAY: {words}" in heard(desk, words)
    assert links(desk.session(older["id"]))[-1] == older["id"]
    assert links(desk.session(name))[-1] == name


def test_a_name_given_in_pi_is_the_title(desk: Desk) -> None:
    name = mark("alpha")
    desk.start(name, "SAY: hello")
    desk.type(name, "/name The better name", "Enter")
    eventually(lambda: entries(desk.session(name), "session_info"), 20)
    desk.quit(name)
    assert [each["title"] for each in desk.run("resume", "--list")["sessions"]] == ["The better name"]


def test_a_conversation_that_pi_had_not_written_yet_is_not_invented(desk: Desk, tmp_path: Path) -> None:
    name = mark("alpha")
    gate = tmp_path / "gate"
    desk.run("start", "--client", "pi", "--name", name, "--file", "-", text=f"WAIT: {gate}")
    desk.rig.model.wait_for(str(gate), deadline=60)
    file = desk.session(name)
    desk.run("stop", name, "--yes")
    if desk.rig.version == "0.73.1":
        # It writes a conversation with the first answer, and there was none.
        assert not file.exists()
        failed = desk.run("resume", name, status=3)
        assert str(file) in failed["error"]
        assert desk.run("resume", "--list")["sessions"] == []
    else:
        desk.run("resume", name)
        desk.idle(name)
        assert desk.session(name) == file
