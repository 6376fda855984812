"""The parts of ``doctor`` that need no repository: what is read back from a launcher, what counts as left over, the table."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents.core import doctor, findings, launch_facts, launcher
from side_agents.core.doctor import Check
from side_agents.core.findings import Finding, Severity
from side_agents.core.kickoff import NestedParent, kickoff_prompt
from side_agents.core.launcher import LaunchSpec
from side_agents.errors import StateError
from side_agents.infra import fs, fs_survey, processes_environ
from side_agents.paths import RuntimePaths

_TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40)


def spec(folder: Path, **values: object) -> LaunchSpec:
    defaults: dict[str, object] = {
        "agent_id": "fix-login", "root": folder, "worktree": folder / "slot", "runtime_dir": folder,
        "branch": "side-agent/fix-login", "client": "script", "argv": ("pi", "do it"), "launch_token": "t0",
    }  # fmt: skip
    return LaunchSpec(**{**defaults, **values})  # type: ignore[arg-type]  # the names are those of the class


@pytest.mark.parametrize(
    "argument",
    [
        "plain", "it's", 'say "x"', "two\nlines", "readonly sa_stop=x", "\nreadonly sa_agent=evil\nreadonly sa_stop=x",
        "sa_coordination=(PI_SIDE_AGENT_ID=evil)", "$(rm -rf /)", "", ")", "☃",
    ],
)  # fmt: skip
def test_the_constants_of_a_launcher_are_read_back_whatever_the_agent_was_told(tmp_path: Path, argument: str) -> None:
    launcher.write(spec(tmp_path, argv=("pi", argument), parent_session=argument, depth=2, parent_agent_id="lead"))
    facts = launch_facts.read_launcher(RuntimePaths(tmp_path))
    assert (facts.agent_id, facts.branch) == ("fix-login", "side-agent/fix-login")
    assert facts.worktree == str(tmp_path / "slot")
    assert facts.coordination["PI_SIDE_AGENT_ID"] == "fix-login"
    assert facts.coordination["PI_SIDE_PARENT_SESSION"] == argument
    assert facts.coordination["PI_SIDE_AGENT_DEPTH"] == "2"
    assert facts.coordination["SIDE_AGENTS_CLIENT"] == "script"


@settings(max_examples=60, deadline=None)
@given(_TEXT, _TEXT)
def test_any_argument_leaves_the_constants_legible(
    tmp_path_factory: pytest.TempPathFactory, argument: str, session: str
) -> None:
    folder = tmp_path_factory.mktemp("launcher")
    launcher.write(spec(folder, argv=("pi", argument), parent_session=session))
    facts = launch_facts.read_launcher(RuntimePaths(folder))
    assert facts.branch == "side-agent/fix-login"
    assert facts.coordination["PI_SIDE_PARENT_SESSION"] == session


@pytest.mark.parametrize(
    "content", ["", "#!/bin/sh\n", "\nreadonly sa_agent='half\nreadonly sa_stop=x", "\nreadonly sa_agent=x"]
)
def test_what_is_no_launcher_tells_nothing(tmp_path: Path, content: str) -> None:
    RuntimePaths(tmp_path).launcher.write_text(content)
    assert launch_facts.read_launcher(RuntimePaths(tmp_path)) == launch_facts.LaunchFacts()


@pytest.mark.parametrize("session", ["", "abc", "/sessions/x.jsonl"])
@pytest.mark.parametrize("nested", [None, NestedParent("lead", 1, "side-agent/lead", "/repo")])
def test_the_task_is_what_the_first_prompt_begins_with(
    tmp_path: Path, session: str, nested: NestedParent | None
) -> None:
    task = "Fix it\n\nParent session: no\n\nand more"
    fs.replace(RuntimePaths(tmp_path).kickoff, kickoff_prompt(task, session or None, nested))
    assert launch_facts.read_task(RuntimePaths(tmp_path), session) == task


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        (".registry.json.4711-0123456789ab.tmp", True),
        (".exit.json.4711.tmp", True),
        ("backlog.log.tmp", True),
        ("registry.json", False),
        (".registry.json.4711-0123456789ab.tmp.mine", False),
        ("notes.tmp", False),
        (".notes.tmp", False),
        (".registry.json.x-0123456789ab.tmp", False),
    ],
)
def test_only_what_our_own_writes_leave_counts_as_left_over(tmp_path: Path, name: str, is_ours: bool) -> None:
    # Of a process that lives: its pid may have been given again, so that only the age tells.
    path = tmp_path / name.replace("4711", str(os.getpid()))
    path.write_text("x")
    assert not fs_survey.is_leftover(path, older_than=3600)
    os.utime(path, (1, 1))
    assert fs_survey.is_leftover(path, older_than=3600) is is_ours
    assert list(fs_survey.leftovers(tmp_path, older_than=3600)) == ([path] if is_ours else [])


@pytest.mark.parametrize(
    ("name", "is_left"),
    [(".registry.json.{}-0123456789ab.tmp", True), (".exit.json.{}.tmp", True), (".notes.{}.tmp", False)],
)
def test_what_a_dead_process_was_writing_is_left_over_at_once(tmp_path: Path, name: str, is_left: bool) -> None:
    path = tmp_path / name.format(ended_pid())
    path.write_text("x")
    assert fs_survey.is_leftover(path, older_than=3600) is is_left


def ended_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_a_link_or_folder_with_such_a_name_is_not_left_over(tmp_path: Path) -> None:
    (tmp_path / ".a.1-0123456789ab.tmp").mkdir()
    (tmp_path / ".b.1-0123456789ab.tmp").symlink_to("/etc/hostname")
    assert list(fs_survey.leftovers(tmp_path, older_than=-1)) == []


def test_what_a_killed_write_of_ours_leaves_has_such_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    def killed(self: Path, _target: Path) -> None:
        left.append(self.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        fs.replace(tmp_path / "registry.json", "x")
    (tmp_path / left[0]).write_text("x")
    assert fs_survey.is_leftover(tmp_path / left[0], older_than=-1)


def test_a_log_is_cut_in_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 100 + b"end")
    with path.open("ab") as writer:
        fs_survey.cut(path, 10)
        writer.write(b"+")
    assert path.read_bytes() == b"a" * 7 + b"end+"
    with pytest.raises(StateError):
        fs_survey.cut(tmp_path / "missing", 10)


def test_measuring_stops_when_the_time_is_up(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"x" * 5000)
    assert fs_survey.measure(tmp_path, seconds=None).complete
    assert fs_survey.measure(tmp_path, seconds=None).size >= 25_000
    assert not fs_survey.measure(tmp_path, seconds=-1).complete


def test_this_process_has_ancestors_and_is_not_in_its_own_scan() -> None:
    assert os.getppid() in processes_environ.ancestors(os.getpid()) or os.getppid() <= 1
    pids = {view.ref.pid for view in processes_environ.scan()}
    assert os.getpid() not in pids
    assert processes_environ.look(os.getpid()) is not None


@pytest.mark.parametrize("severity", Severity)
def test_notes_are_no_faults(severity: Severity) -> None:
    assert severity.is_fault is (severity in ("warning", "problem"))


def test_every_check_has_its_own_name_and_says_what_is_in_order() -> None:
    names = [check.name for check in doctor.MACHINE] + [check.name for check in doctor.REPOSITORY]
    words = [check.in_order for check in doctor.MACHINE] + [check.in_order for check in doctor.REPOSITORY]
    assert len(names) == len(set(names))
    assert [each for each in words if not each.endswith(".")] == []


def broken(_subject: int) -> list[Finding]:
    raise StateError("a disk went away")


def nothing(_subject: int) -> list[Finding]:
    return []


@pytest.mark.parametrize(
    ("look", "code", "severity"), [(broken, "not-looked-at", Severity.PROBLEM), (nothing, "in-order", Severity.OK)]
)
def test_a_check_that_fails_is_a_finding_and_one_without_is_in_order(
    look: Callable[[int], list[Finding]], code: str, severity: Severity
) -> None:
    (only,) = doctor._run((Check("some check", "Fine.", look),), 1)
    assert (only.code, only.severity, only.check) == (code, severity, "some check")


def test_long_lists_are_cut() -> None:
    assert findings.some(["a", "b"]) == "a, b"
    assert findings.some(list("abcdefg")) == "a, b, c, d, e and 2 more"
