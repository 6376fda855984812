"""What ``side-agents install pi`` puts into Pi, as both real Pis load it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from side_agents.clients import pi_install
from tests.e2e.pi_support import PiRig
from tests.support.repositories import make_repository
from tests.support.waiting import eventually


@pytest.fixture
def installed(pi_rig: PiRig) -> Iterator[Path]:
    """The installed file; it is gone again afterwards."""
    answer = side_agents(pi_rig, "install", "pi")
    yield Path(answer["file"])
    side_agents(pi_rig, "install", "pi", "--uninstall")


def side_agents(rig: PiRig, *args: str, status: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "side_agents", *args, "--json"]
    done = subprocess.run(command, env=rig.environment, cwd=rig.folder, capture_output=True, timeout=60, check=False)
    assert done.returncode == status, (done.stdout.decode(), done.stderr.decode())
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


class Person:
    """A Pi that somebody has started in a repository."""

    def __init__(self, rig: PiRig, cwd: Path) -> None:
        self.rig = rig
        self.pane = rig.tmux("new-window", "-d", "-P", "-F", "#{pane_id}", "-c", str(cwd), "--", "pi").strip()
        eventually(lambda: self.rig.client.draft(self.screen()) == "", 60)

    def screen(self) -> list[str]:
        return self.rig.tmux("capture-pane", "-p", "-S", "-200", "-t", self.pane).split("\n")

    def text(self) -> str:
        """The screen without the breaks that Pi has put in."""
        return " ".join(" ".join(self.screen()).split())

    def offered(self, typed: str) -> list[str]:
        """Commands that Pi offers while this is typed."""
        self.rig.tmux("send-keys", "-l", "-t", self.pane, "--", typed)

        def look() -> list[str]:
            screen = self.screen()
            below = max(place for place, line in enumerate(screen) if line.startswith("──"))
            rows = [line.removeprefix("→").split() for line in screen[below + 1 :]]
            return [row[0] for row in rows if row and row[0].startswith(typed.removeprefix("/"))]

        found = eventually(look, 20)
        self.rig.tmux("send-keys", "-t", self.pane, "C-c")
        return found

    def leave(self) -> None:
        self.rig.tmux("kill-pane", "-t", self.pane)


def test_pi_has_the_commands_and_skills_once(pi_rig: PiRig, installed: Path, tmp_path: Path) -> None:
    person = Person(pi_rig, make_repository(tmp_path / "work").path)
    assert sorted(person.offered("/skill:")) == ["skill:agent-setup", "skill:forum", "skill:side-agents"]
    assert sorted(person.offered("/agent")) == ["agent", "agent-resume", "agents"]
    assert "conflict" not in person.text()
    assert "error" not in person.text().lower()
    person.leave()


def test_a_skill_reaches_the_model(pi_rig: PiRig, installed: Path, tmp_path: Path) -> None:
    person = Person(pi_rig, make_repository(tmp_path / "work").path)
    name = f"SAY: set up {tmp_path.name}"
    pi_rig.tmux("send-keys", "-l", "-t", person.pane, "--", f"/skill:agent-setup {name}")
    pi_rig.tmux("send-keys", "-t", person.pane, "Enter")
    text = pi_rig.model.wait_for(name, deadline=40)["userTexts"][-1]
    assert "Setting a project up for side agents" in text
    person.leave()


@pytest.mark.parametrize("gone", ["extension", "program", "skills"])
def test_what_is_gone_is_said_in_pi_and_pi_works_on(pi_rig: PiRig, installed: Path, tmp_path: Path, gone: str) -> None:
    text = installed.read_text()
    [line] = [line for line in text.splitlines() if line.startswith("const INSTALLATION = ")]
    values = json.loads(line.removeprefix("const INSTALLATION = ").removesuffix(";"))
    moved = str(tmp_path / "moved-away")
    changed = json.dumps({**values, gone: [moved] if gone == "skills" else moved})
    installed.write_text(pi_install._signed(text.replace(json.dumps(values), changed).rpartition("// ")[0]))
    person = Person(pi_rig, make_repository(tmp_path / "work").path)
    said = f"side-agents was moved or removed: {moved} is gone. `side-agents install pi` makes it work again"
    eventually(lambda: said in person.text(), 20)
    assert str(installed) in person.text()
    assert "Failed to load" not in person.text()
    assert side_agents(pi_rig, "install", "pi", "--check", status=1)["state"] == "broken"
    person.leave()


def test_a_side_agents_own_pi_acts_once_with_the_installed_copy_and_its_own(pi_rig: PiRig, installed: Path) -> None:
    agent = pi_rig.launch("SAY: once")
    agent.wait_event("turn_end")
    agent.settle()
    assert [event["type"] for event in agent.events()] == ["session", "ready", "input", "turn_start", "turn_end"]
    agent.type("/agent")
    eventually(lambda: any(line.strip().startswith("agents ") for line in agent.screen()), 20)
    screen = "\n".join(agent.screen())
    assert "agent:1" not in screen
    assert "conflict" not in screen
    agent.keys("C-c")
    agent.settle()
    agent.send("/quit")
    assert agent.exit_code() == 0


def test_after_uninstall_pi_is_as_it_was(pi_rig: PiRig, tmp_path: Path) -> None:
    before = sorted(path.name for path in (pi_rig.pi_folder / "extensions").iterdir())
    side_agents(pi_rig, "install", "pi")
    side_agents(pi_rig, "install", "pi", "--uninstall")
    assert sorted(path.name for path in (pi_rig.pi_folder / "extensions").iterdir()) == before
    person = Person(pi_rig, make_repository(tmp_path / "work").path)
    assert "side-agents" not in person.text().replace(str(tmp_path), "")
    person.leave()
    shutil.rmtree(tmp_path / "work")
