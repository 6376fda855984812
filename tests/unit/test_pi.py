"""The Pi adapter where no Pi is needed: where it is, how it is launched, what a message and the screen become."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from side_agents.clients.interface import LaunchRequest
from side_agents.clients.pi import PiClient, version
from side_agents.errors import NotFoundError, ToolMissingError

RULE = "─" * 60
FOOTER = ["~/project (main)", "0.0%/128k (auto)                                  fake-model", "", ""]
CLIENT = PiClient()


def install(folder: Path, pi_version: str, *, package: str = "@earendil-works/pi-coding-agent") -> dict[str, str]:
    """Lay Pi out as npm does and return an environment that finds it."""
    home = folder / "node_modules" / package
    program = home / "dist" / "bundle" / "cli.js"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/env node\n")
    program.chmod(0o755)
    (home / "package.json").write_text(json.dumps({"name": package, "version": pi_version}))
    link = folder / "node_modules" / ".bin" / "pi"
    link.parent.mkdir()
    link.symlink_to(program)
    return {"PATH": str(link.parent)}


def request(tmp_path: Path, environment: dict[str, str]) -> LaunchRequest:
    return LaunchRequest(
        agent_id="fix-it",
        prompt_file=tmp_path / "kickoff.md",
        has_prompt=True,
        worktree=tmp_path,
        runtime_dir=tmp_path,
        model=None,
        session_id="6c1e5f0a-0000-4000-8000-000000000001",
        skills_dir=None,
        environment=environment,
    )


def test_a_missing_pi_is_said_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError) as caught:
        CLIENT.locate({"PATH": str(tmp_path)})
    assert "npm install -g" in (caught.value.hint or "")


@pytest.mark.parametrize("package", ["@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent"])
def test_the_version_is_read_beside_the_real_program(tmp_path: Path, package: str) -> None:
    assert version(CLIENT.locate(install(tmp_path, "1.6.0", package=package))) == "1.6.0"


def test_a_program_without_a_package_has_no_version(tmp_path: Path) -> None:
    assert version(tmp_path / "pi") is None


def test_a_start_names_extension_model_skills_and_a_session_id_of_ours(tmp_path: Path) -> None:
    asked = replace(request(tmp_path, install(tmp_path, "1.6.0")), model="fake/m:high", skills_dir=tmp_path / "skills")
    plan = CLIENT.launch_plan(asked)
    assert plan.argv[1] == "-e"
    assert Path(plan.argv[2]).name == "side-agents.js"
    assert Path(plan.argv[2]).is_file()
    rest = ("--session-id", asked.session_id, "--model", "fake/m:high", "--skill", str(tmp_path / "skills"))
    assert plan.argv[3:] == rest
    assert (plan.session_id, plan.session_file, plan.paste_prompt) == (asked.session_id, None, False)


@pytest.mark.parametrize("pi_version", ["0.73.1", "0.75.9"])
def test_an_older_pi_tells_its_session_later(tmp_path: Path, pi_version: str) -> None:
    plan = CLIENT.launch_plan(request(tmp_path, install(tmp_path, pi_version)))
    assert (len(plan.argv), plan.session_id, plan.session_file) == (3, None, None)


def test_a_resume_continues_the_file_and_a_fork_gets_an_id_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text('{"type":"session","version":3,"id":"old"}\n{"type":"message"}\n')
    asked = replace(request(tmp_path, install(tmp_path, "1.6.0")), resume_session=str(file))
    plan = CLIENT.launch_plan(asked)
    assert (plan.argv[3:], plan.session_id, plan.session_file) == (("--session", str(file)), "old", str(file))
    fork = CLIENT.launch_plan(replace(asked, fork=True))
    assert fork.argv[3:] == ("--fork", str(file), "--session-id", asked.session_id)
    assert (fork.session_id, fork.session_file) == (asked.session_id, None)


def test_a_resume_by_id_leaves_the_search_to_pi(tmp_path: Path) -> None:
    asked = replace(request(tmp_path, install(tmp_path, "0.73.1")), resume_session="01a2-b3")
    plan = CLIENT.launch_plan(asked)
    assert (plan.argv[3:], plan.session_id, plan.session_file) == (("--session", "01a2-b3"), "01a2-b3", None)


def test_a_session_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    asked = replace(request(tmp_path, install(tmp_path, "1.6.0")), resume_session=str(tmp_path / "gone.jsonl"))
    with pytest.raises(NotFoundError, match=r"gone\.jsonl"):
        CLIENT.launch_plan(asked)


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        ("plain", "plain"),
        ("  \n\ttabs\tinside \n\n", "tabs    inside"),
        ("a\r\nb\rc\n", "a\nb\nc"),
        ("\ufeff\u3000 wide blanks \u00a0\u2028", "wide blanks"),
        ("\x85kept\x85", "\x85kept\x85"),
        ("\x1b[31mred\x1b[0m\x07", "[31mred[0m"),
        ("end\x1b[201~\rrm -rf x", "end[201~\nrm -rf x"),
        ("two\x1b[106;5ulines", "two\nlines"),
        ("!  ls -l ", "!ls -l"),
        ("!!  ls", "!!ls"),
        ("/model  x", "/model  x"),
        ("你好 🙂", "你好 🙂"),
        ("\udcff", "\ufffd"),
    ],
)
def test_a_message_is_normalised_as_the_editor_does_and_stays_so(message: str, taken: str) -> None:
    assert CLIENT.normalise(message) == taken
    assert CLIENT.normalise(taken) == taken


@pytest.mark.parametrize(
    ("box", "draft"),
    [
        ([RULE, "", RULE], ""),
        ([RULE, "line one", "  line two", RULE], "line one\n  line two"),
        ([RULE, "[paste #1 +41 lines]", RULE], "[paste #1 +41 lines]"),
        (["─── ↑ 15 more " + "─" * 40, "w7", "w8", RULE], "w7\nw8"),
        (["─" * 20 + " ↑ 15 more " + "─" * 20, "w7", "─── ↓ 2 more " + "─" * 40], "w7"),
        ([RULE, "/mo", RULE, "→ model          Select model (opens selector UI)", "  scoped-models"], "/mo"),
        (["── ⠹ Working " + "─" * 40, "half", RULE], "half"),
        ([RULE, " May I?", "", " → Yes", "   No", " ↑↓ navigate  enter select  escape/ctrl+c cancel", RULE], None),
        ([RULE, ">", "→ fake-model [fake] ✓", "  Model Name: fake-model", RULE], None),
        ([RULE, " Name?", "> ", " enter submit  escape/ctrl+c cancel", RULE], None),
        (["just a shell $ "], None),
    ],
)
def test_the_draft_is_what_stands_between_the_last_two_rules(box: list[str], draft: str | None) -> None:
    assert (
        CLIENT.draft(
            [" an answer", RULE, "with a rule in it", "", *box, *FOOTER] if draft is not None else [*box, *FOOTER]
        )
        == draft
    )


@pytest.mark.parametrize(
    ("lines", "busy"),
    [
        ([" ⠹ Working...", "", RULE, "", RULE], True),
        ([" ⠙ Retrying (2/3) in 1s... (escape to cancel)", "", RULE, "", RULE], True),
        (["── ⠼ Working " + "─" * 40, "", RULE], True),
        ([" ⠹ Working... was said long ago", *["text"] * 9, RULE, "", RULE], False),
        ([RULE, "⠹ typed by the user", RULE], False),
        (["$ "], None),
    ],
)
def test_a_spinner_at_the_box_means_busy(lines: list[str], busy: bool | None) -> None:
    assert CLIENT.is_busy([*lines, *FOOTER]) is busy
