"""``side-agents install pi``: one file of ours in Pi's folder, and nothing else of the user's is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from side_agents import __version__, resources
from side_agents.clients import pi_install
from side_agents.clients.pi_install import State
from side_agents.config import Config
from side_agents.core import doctor_machine
from side_agents.core.doctor_site import Machine
from side_agents.core.findings import Severity
from side_agents.errors import RefusedError, StateError

USERS = {"defaultProvider": "mine", "packages": ["npm:@someone/theme"], "extensions": ["~/own.ts"]}


@dataclass
class Home:
    """A user's home with a Pi on PATH."""

    path: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.path), "PATH": str(self.path / "bin"), **self.more}

    @property
    def folder(self) -> Path:
        return self.path / ".pi/agent"

    @property
    def file(self) -> Path:
        return self.folder / "extensions/side-agents.js"

    def run(self, *options: str, status: int = 0) -> str:
        command = [sys.executable, "-P", "-m", "side_agents", "install", "pi", *options]
        done = subprocess.run(
            command, env=self.environment, cwd=self.path, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == status, (done.stdout.decode(), done.stderr.decode())
        return (done.stdout + done.stderr).decode()

    def json(self, *options: str, status: int = 0) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*options, "--json", status=status))
        return answer

    def install_pi(self, version: str) -> None:
        package = self.path / "lib/pi-coding-agent"
        package.mkdir(parents=True, exist_ok=True)
        about = {"name": "@earendil-works/pi-coding-agent", "version": version}
        (package / "package.json").write_text(json.dumps(about))
        program = package / "cli.js"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        (self.path / "bin").mkdir(exist_ok=True)
        (self.path / "bin/pi").unlink(missing_ok=True)
        (self.path / "bin/pi").symlink_to(program)

    def everything(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.path)): path.read_bytes() for path in self.path.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.folder.mkdir(parents=True)
    (made.folder / "settings.json").write_text(json.dumps(USERS))
    (made.folder / "extensions").mkdir()
    (made.folder / "extensions/mine.ts").write_text("export default () => {};\n")
    made.install_pi("1.6.0")
    return made


def values(file: Path) -> dict[str, Any]:
    [line] = [line for line in file.read_text().splitlines() if line.startswith("const INSTALLATION = ")]
    found: dict[str, Any] = json.loads(line.removeprefix("const INSTALLATION = ").removesuffix(";"))
    return found


def faults(answer: dict[str, Any]) -> list[str]:
    return [remark["what"] for remark in answer["remarks"] if remark["fault"]]


def test_install_adds_one_file_and_uninstall_removes_exactly_that(home: Home) -> None:
    before = home.everything()
    assert "installed" in home.run()
    added = {name for name in home.everything() if name not in before}
    assert added == {".pi/agent/extensions/side-agents.js"}
    assert {name: data for name, data in home.everything().items() if name in before} == before
    assert "removed" in home.run("--uninstall")
    assert home.everything() == before
    assert "not installed" in home.run("--uninstall")


def test_what_is_written_points_to_this_installation_and_all_of_it_is_there(home: Home) -> None:
    answer = home.json()
    assert (answer["action"], answer["state"], answer["backup"]) == ("installed", "current", None)
    written = values(home.file)
    assert written["version"] == __version__
    assert written["extension"] == answer["loads"] == str(resources.template_path("pi/side-agents.js"))
    assert [Path(skill).name for skill in written["skills"]] == ["agent-setup", "forum", "side-agents"]
    assert all((Path(skill) / "SKILL.md").is_file() for skill in written["skills"])
    assert os.access(written["program"], os.X_OK)


def test_it_is_idempotent(home: Home) -> None:
    home.run()
    before = home.everything()
    status = home.file.stat()
    assert home.json()["action"] == "unchanged"
    assert (home.everything(), home.file.stat().st_ino) == (before, status.st_ino)


def test_check_changes_nothing_and_its_status_tells(home: Home) -> None:
    before = home.everything()
    missing = home.json("--check", status=1)
    assert (missing["ok"], missing["state"]) == (False, "absent")
    assert "/agent" in faults(missing)[0]
    assert home.everything() == before
    home.run()
    found = home.json("--check")
    assert (found["ok"], found["state"], found["piVersion"], found["remarks"]) == (True, "current", "1.6.0", [])
    assert "installed" in home.run("--check")


def test_it_goes_where_pi_has_been_told_to_look(home: Home, tmp_path: Path) -> None:
    home.more["PI_CODING_AGENT_DIR"] = "~/elsewhere"
    assert home.json()["file"] == str(home.path / "elsewhere/extensions/side-agents.js")
    assert (home.path / "elsewhere/extensions/side-agents.js").is_file()
    home.more["PI_CODING_AGENT_DIR"] = str(tmp_path / "absolute")
    home.run()
    assert (tmp_path / "absolute/extensions/side-agents.js").is_file()
    assert not home.file.exists()


def rewrite(file: Path, **changes: Any) -> None:
    """The file as another installation would have written it."""
    body = file.read_text().rstrip("\n").rpartition("\n")[0] + "\n"
    old = values(file)
    text = body.replace(json.dumps(old), json.dumps({**old, **changes}))
    assert text != body
    file.write_text(pi_install._signed(text))


def test_doctor_tells_what_is_not_current_and_the_way_out(home: Home, tmp_path: Path) -> None:
    def told() -> list[tuple[str, Severity]]:
        found = list(doctor_machine.extension_is_current(Machine(home.environment, Config())))
        assert all("side-agents install pi" in each.mend and str(home.file) in each.what for each in found)
        return [(each.code, each.severity) for each in found]

    assert told() == []
    home.run()
    assert told() == []
    rewrite(home.file, version="0.0.1")
    assert told() == [("extension-outdated", Severity.WARNING)]
    rewrite(home.file, extension=str(tmp_path / "gone/side-agents.js"))
    assert told() == [("extension-broken", Severity.WARNING)]
    home.run()
    home.file.write_text(home.file.read_text() + "// mine\n")
    assert told() == [("extension-edited", Severity.NOTE)]


def test_a_moved_installation_is_told_by_check_and_mended_by_install(home: Home, tmp_path: Path) -> None:
    home.run()
    for name in ("extension", "program"):
        rewrite(home.file, **{name: str(tmp_path / "old-venv" / name)})
        found = home.json("--check", status=1)
        assert found["state"] == "broken"
        assert str(tmp_path / "old-venv" / name) in faults(found)[0]
        assert home.json()["action"] == "updated"
        assert home.json("--check")["state"] == "current"


def test_another_living_installation_is_named(home: Home, tmp_path: Path) -> None:
    home.run()
    other = tmp_path / "other.js"
    other.touch()
    rewrite(home.file, extension=str(other))
    found = home.json("--check", status=1)
    assert (found["state"], found["loads"]) == ("elsewhere", str(other))
    assert home.json()["action"] == "updated"


def test_a_file_of_another_version_is_brought_up_to_date(home: Home) -> None:
    home.run()
    rewrite(home.file, version="0.0.1")
    assert home.json("--check", status=1)["state"] == "outdated"
    assert home.json()["backup"] is None
    assert home.json("--check")["state"] == "current"
    assert [path.name for path in home.file.parent.iterdir() if "backup" in path.name] == []


@pytest.mark.parametrize("option", [(), ("--uninstall",)])
def test_what_the_user_edited_is_kept_beside_it(home: Home, option: tuple[str, ...]) -> None:
    home.run()
    home.file.write_text(home.file.read_text() + "// my own line\n")
    assert home.json("--check", status=1)["state"] == "edited"
    backup = Path(home.json(*option)["backup"])
    assert backup.read_text().endswith("// my own line\n")
    assert backup.parent == home.file.parent
    # Pi loads what ends in .js or .ts.
    assert backup.suffix == ".backup"
    assert home.file.exists() == (not option)


@pytest.mark.parametrize("kind", ["text", "binary", "link", "dangling", "folder"])
def test_a_file_of_that_name_that_is_not_ours_is_never_touched(home: Home, kind: str, tmp_path: Path) -> None:
    own = tmp_path / "own.js"
    own.write_text("export default () => {};\n")
    if kind == "text":
        shutil.copy(own, home.file)
    elif kind == "binary":
        home.file.write_bytes(b"\xff\x00")
    elif kind == "link":
        home.file.symlink_to(own)
    elif kind == "dangling":
        home.file.symlink_to(tmp_path / "gone.js")
    else:
        home.file.mkdir()
    before = (home.everything(), home.file.lstat().st_ino)
    for option in ((), ("--uninstall",)):
        answer = home.json(*option, status=8)
        assert str(home.file) in answer["error"]
        assert "Nothing was changed" in answer["error"]
    assert home.json("--check", status=1)["state"] == "foreign"
    assert (home.everything(), home.file.lstat().st_ino) == before


def test_a_pi_that_is_missing_is_a_note_and_one_too_old_a_warning(home: Home) -> None:
    (home.path / "bin/pi").unlink()
    answer = home.json()
    assert (answer["ok"], answer["pi"], faults(answer)) == (True, None, [])
    assert "not on PATH" in answer["remarks"][0]["what"]
    assert home.json("--check")["ok"] is True
    home.install_pi("0.60.2")
    assert "too old" in faults(home.json("--check", status=1))[0]
    home.install_pi("0.73.0")
    assert home.json("--check")["ok"] is True


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"extensions": ["-extensions/side-agents.js"]}, "told not to load"),
        ({"extensions": ["!**/side-agents.js"]}, "told not to load"),
        ({"packages": ["npm:pi-side-agents@1.0.0"]}, "npm:pi-side-agents@1.0.0"),
        ({"packages": [{"source": "git:github.com/someone/pi-side-agents"}]}, "pi-side-agents"),
        ({"extensions": ["/opt/side-agents/extension.ts"]}, "/opt/side-agents/extension.ts"),
    ],
)
def test_what_in_pis_settings_is_in_the_way_is_told_and_left_alone(
    home: Home, settings: dict[str, Any], word: str
) -> None:
    home.run()
    (home.folder / "settings.json").write_text(json.dumps(settings))
    [what] = faults(home.json("--check", status=1))
    assert word in what
    assert word in home.run()
    assert json.loads((home.folder / "settings.json").read_text()) == settings


@pytest.mark.parametrize(
    "settings", ["not json", "[]", '{"extensions": "x", "packages": {"a": 1}}', '{"packages": [1, {}]}']
)
def test_settings_that_make_no_sense_do_not_matter(home: Home, settings: str) -> None:
    (home.folder / "settings.json").write_text(settings)
    home.run()
    assert home.json("--check")["ok"] is True
    assert (home.folder / "settings.json").read_text() == settings


def test_a_copy_in_pis_folder_is_told(home: Home) -> None:
    (home.folder / "extensions/side-agents").mkdir()
    (home.folder / "extensions/side-agents/index.ts").touch()
    home.run()
    assert "same commands" in faults(home.json("--check", status=1))[0]


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_left(home: Home) -> None:
    shutil.rmtree(home.folder / "extensions")
    (home.folder / "extensions").write_text("a file")
    before = home.everything()
    with pytest.raises(StateError):
        pi_install.install(home.environment)
    assert home.everything() == before


def test_without_a_program_that_pi_could_start_nothing_is_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(home.path / "bin/python"))
    with pytest.raises(RefusedError, match="program side-agents"):
        pi_install.install(home.environment)
    assert not home.file.exists()
    assert pi_install.inspect(home.environment).state is State.ABSENT


def test_both_options_at_once_and_unknown_targets_are_refused(home: Home) -> None:
    assert home.json("--check", "--uninstall", status=2)["code"] == "usage"
    command = [sys.executable, "-P", "-m", "side_agents", "install", "emacs"]
    done = subprocess.run(command, env=home.environment, cwd=home.path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"pi" in done.stderr
    assert not home.file.exists()
