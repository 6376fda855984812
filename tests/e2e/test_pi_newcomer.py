"""The path of somebody who uses side agents for the first time, in a real Pi, with what is said on the way."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pi_parent_support import PROGRAM, WAIT, ParentPi, open_parent
from tests.e2e.pi_support import PiRig
from tests.support.repositories import make_repository
from tests.support.waiting import eventually

# What the scripted model calls everything that it is asked to name.
NAME = "short-answer"
FIX = "RUN: echo fixed > fix.txt && git add fix.txt && git commit -qm 'Fix the test'"


@pytest.fixture
def newcomer(pi_rig: PiRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ParentPi]:
    """A person's Pi that has side-agents by ``side-agents install pi`` and on PATH, as after ``pipx install``."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(PROGRAM.parent), os.environ["PATH"]]))
    home = tmp_path / "home"
    environment = {
        **pi_rig.environment,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PI_CODING_AGENT_DIR": str(home / "pi"),
    }
    subprocess.run([PROGRAM, "install", "pi"], env=environment, check=True, capture_output=True, timeout=WAIT)
    repo = make_repository(tmp_path / "shop")
    parent = open_parent(pi_rig, repo, home, environment=environment, is_installed=True)
    yield parent
    parent.end()


def test_from_the_installation_to_a_landed_change(newcomer: ParentPi) -> None:
    newcomer.paste("/skill:agent-setup RUN: side-agents setup --yes --json\nSAY: set up for side agents")
    newcomer.sees(" set up for side agents", ".pi/side-agent-finish.sh")

    newcomer.settled().type(f"/agent {FIX}")
    newcomer.sees(f"Side agent {NAME} is running.", "worktree", "its first prompt:")
    newcomer.agent(NAME)
    # That it was started has been said; what is told is that somebody is needed.
    newcomer.sees(f"{NAME}:wait@", f"● side-agent {NAME} ", "running -> waiting_user (tmux #1, ")
    assert [notice["toStatus"] for notice in newcomer.notices(NAME)] == ["waiting_user"]

    # To the agent's window and approve there.
    newcomer.type("/agents")
    newcomer.sees("choose one")
    newcomer.keys("Enter")
    newcomer.sees("Jump to its window")
    newcomer.keys("Enter")
    child = newcomer.child(NAME)
    eventually(lambda: active_pane(newcomer) == child.pane, WAIT)
    child.settled().paste("LGTM\nRUN: .pi/side-agent-finish.sh || side-agents finish\nSAY: it is done")
    child.sees(f"side-agent/{NAME} has landed on main (1 commit", " it is done")
    assert (newcomer.repo.path / "fix.txt").read_text() == "fixed\n"

    child.settled().type("/quit")
    eventually(lambda: NAME not in newcomer.agents(), WAIT)
    last = child.sees(f"side-agents: {NAME} finished.", "Press any key to close this window.").split("\n")[-2:]
    assert last == [f"side-agents: {NAME} finished.", "Press any key to close this window."]
    newcomer.sees(f"✓ side-agent {NAME} ", "-> done (tmux #1, ")
    child.keys("q")
    eventually(lambda: child.pane not in newcomer.rig.panes(), WAIT)
    newcomer.settled().type("/agents")
    newcomer.sees("There are no side agents now. /agent TASK starts one, /agent-resume opens one again")
    assert f"{NAME}:" not in newcomer.screen().split("\n")[-1]


def active_pane(parent: ParentPi) -> str:
    return parent.rig.tmux("display-message", "-p", "-t", f"={parent.session}:", "#{pane_id}").strip()
