"""The main job on real input: two real Pi agents work on a clone of this project's own history, driven by the command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.pi_desk import Desk, sit_down
from tests.e2e.pi_support import PiRig
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def desk(pi_rig: PiRig, tmux_server: PrivateServer, tmp_path: Path) -> Desk:
    clone = tmp_path / "project clone"
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--", str(PROJECT), str(clone)], check=True, timeout=120)
    return sit_down(Repository(clone), tmux_server, pi_rig, tmp_path)


def task(name: str) -> str:
    """What a person would ask, as the scripted model understands it."""
    command = f"printf '%s\\n' {name} > {name}.txt && git add -- {name}.txt && git commit -qm 'Add {name}'"
    return f"Please add {name}.txt and commit it.\nRUN: {command}\nSAY: {name} is committed"


def test_two_pi_agents_edit_commit_take_a_second_task_and_quit(desk: Desk, pi_rig: PiRig) -> None:
    base = desk.repo.git("rev-parse", "HEAD").strip()
    started = [
        desk.run("start", "--client", "pi", "--name", name, "--file", "-", text=task(name))
        for name in ("alpha", "beta")
    ]
    assert [answer["id"] for answer in started] == ["alpha", "beta"]
    assert len({answer["worktreePath"] for answer in started}) == 2

    cursor, ended = 0, set()
    while len(ended) < 2:
        answer = desk.run("wait", "alpha", "beta", "--after", str(cursor), "--timeout", "60")
        assert answer["agent"]["status"] == "waiting_user", answer
        cursor = answer["cursor"]
        ended.add(answer["agent"]["id"])
    for name in ("alpha", "beta"):
        assert desk.repo.git("log", "--format=%s", f"{base}..side-agent/{name}").splitlines() == [f"Add {name}"]
        assert desk.run("check", name)["agent"]["turn"] == 1

    second = "A second task\nof two lines: 你好 🙂\nSAY: second done"
    sent = desk.run("send", "alpha", "--file", "-", text=second)
    assert sent["delivery"] == "submitted", sent
    answer = desk.run("wait", "alpha", "--after", str(cursor), "--timeout", "60")
    assert (answer["agent"]["turn"], answer["agent"]["status"]) == (2, "waiting_user")
    heard = pi_rig.model.requests("A second task")[-1]["userTexts"]
    assert heard.count(second) == 1
    assert len(heard) == 2

    for name in ("alpha", "beta"):
        desk.run("send", name, "/quit")
        done = desk.run("wait", name, "--timeout", "30", "--state", "done")
        assert done["agent"]["status"] == "done"
        marker = json.loads((desk.repo.path / f".pi/side-agents/runtime/{name}/exit.json").read_text())
        assert (marker["exitCode"], marker["phase"]) == (0, "client")
        assert "signal" not in marker
        checked = desk.run("check", name)
        assert checked["agent"]["status"] == "done"
    assert desk.run("list")["agents"] == []
    history = [json.loads(line) for line in (desk.repo.path / ".pi/side-agents/history.jsonl").read_text().splitlines()]
    assert {row["id"]: row["branchHead"] for row in history} == {
        name: desk.repo.git("rev-parse", f"side-agent/{name}").strip() for name in ("alpha", "beta")
    }
    assert desk.repo.git("status", "--porcelain") == ""
    assert desk.repo.git("rev-parse", "HEAD").strip() == base
