"""Pi's modes: which file counts, what a mode gives, what a child inherits (F-M1 to F-M7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from side_agents.clients import pi_modes
from side_agents.clients.pi_modes import Mode

FAST = {"provider": "p", "modelId": "m", "thinkingLevel": "low"}


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, dict[str, str]]:
    """The project, the file of the user, and the environment that leads to it."""
    project, home = tmp_path / "project", tmp_path / "home"
    (project / ".pi").mkdir(parents=True)
    (home / ".pi" / "agent").mkdir(parents=True)
    return project, home / ".pi" / "agent" / "modes.json", {"HOME": str(home)}


def write(path: Path, **modes: Any) -> None:
    path.write_text(json.dumps({"version": 1, "modes": modes}), encoding="utf-8")


def test_f_m1_the_project_s_modes_come_before_the_user_s(places: tuple[Path, Path, dict[str, str]]) -> None:
    project, user, environment = places
    write(user, fast=FAST, slow=FAST)
    assert set(pi_modes.load(project, environment)) == {"fast", "slow"}
    write(project / ".pi" / "modes.json", mine=FAST)
    assert set(pi_modes.load(project, environment)) == {"mine"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"modes": {}}', '{"modes": 7}', '{"modes": {"x": 1}}', "\xff"])
def test_f_m2_a_file_without_a_mode_counts_as_none(places: tuple[Path, Path, dict[str, str]], content: str) -> None:
    project, user, environment = places
    (project / ".pi" / "modes.json").write_text(content, encoding="latin-1")
    assert pi_modes.load(project, environment) == {}
    write(user, fast=FAST)
    assert set(pi_modes.load(project, environment)) == {"fast"}


def test_the_user_s_folder_can_be_named(places: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    project, _, environment = places
    other = tmp_path / "home" / "elsewhere"
    other.mkdir()
    write(other / "modes.json", far=FAST)
    for named in (str(other), "~/elsewhere"):
        assert set(pi_modes.load(project, environment | {"PI_CODING_AGENT_DIR": named})) == {"far"}


@pytest.mark.parametrize(
    ("mode", "spec"),
    [
        (Mode("p", "m", "low"), "p/m:low"),
        (Mode("p", "m"), "p/m"),
        (Mode("p", None, "low"), None),
        (Mode(None, "m"), None),
        (Mode(), None),
    ],
)
def test_f_m3_f_m4_a_spec_has_the_level_where_there_is_one(mode: Mode, spec: str | None) -> None:
    assert mode.spec == spec


def test_f_m5_a_mode_that_cannot_be_used_is_a_warning(places: tuple[Path, Path, dict[str, str]]) -> None:
    project, user, environment = places
    assert "no modes.json" in pi_modes.choose("fast", pi_modes.load(project, environment)).warnings[0]
    write(user, fast=FAST, broken={"provider": "p", "modelId": 7})
    modes = pi_modes.load(project, environment)
    assert pi_modes.choose("fast", modes) == pi_modes.ModeChoice("p/m:low", "fast")
    assert "only broken, fast" in pi_modes.choose("quick", modes).warnings[0]
    broken = pi_modes.choose("broken", modes)
    assert (broken.spec, broken.name) == (None, None)
    assert "no provider or no model" in broken.warnings[0]


@pytest.mark.parametrize(
    ("session", "name", "spec"),
    [
        (Mode("p", "m", "low"), "fast", "p/m:low"),
        (Mode("p", "m", "high"), None, "p/m:high"),
        (Mode("p", "m"), None, "p/m"),
        (Mode("q", "m", "low"), None, "q/m:low"),
        (Mode("p", "n", "low"), None, "p/n:low"),
        (Mode(), None, None),
    ],
)
def test_f_m6_f_m7_a_mode_is_inherited_only_when_all_of_it_is_the_same_and_the_level_never_gets_lost(
    session: Mode, name: str | None, spec: str | None
) -> None:
    choice = pi_modes.inherit(session, {"fast": Mode("p", "m", "low"), "empty": Mode()})
    assert (choice.name, choice.spec, choice.warnings) == (name, spec, ())
