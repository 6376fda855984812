"""Setting a project up, through the command itself, and what an agent that starts there gets from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestra import SLOW, Orchestra, orchestra

from side_agents.config import load
from side_agents.models import AgentStatus, FinishPolicy
from side_agents.resources import skill_text, template_text
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually
from tests.unit.cli_support import CommandLine, Ran

START = ".pi/side-agent-start.sh"
FINISH = ".pi/side-agent-finish.sh"
SKILL = ".pi/side-agent-skills/finish/SKILL.md"
BOOTSTRAP = ".pi/side-agent-bootstrap.sh"
INCLUDE = ".pi/side-agent-include"
SETTINGS = ".pi/side-agents/config.toml"
SHIPPED = (START, FINISH, SKILL)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository) -> CommandLine:
    monkeypatch.chdir(repo.path)
    return CommandLine(capsys, monkeypatch)


def answer(ran: Ran) -> dict[str, Any]:
    assert ran.status == 0, ran
    found = json.loads(ran.out)
    assert isinstance(found, dict)
    return found


def run(cli: CommandLine, *arguments: str) -> dict[str, Any]:
    return answer(cli("setup", "--json", "--yes", *arguments))


def actions(found: dict[str, Any]) -> dict[str, str]:
    return {file["name"]: file["action"] for file in found["files"]}


def read_all(repo: Repository) -> dict[str, bytes]:
    """Every file below .pi/ with its content."""
    return {
        str(path.relative_to(repo.path)): path.read_bytes()
        for path in sorted((repo.path / ".pi").rglob("*"))
        if path.is_file()
    }


def assert_readable_by_bash(repo: Repository) -> None:
    scripts = list((repo.path / ".pi").glob("side-agent-*.sh"))
    assert scripts
    for script in scripts:
        done = subprocess.run(["bash", "-n", str(script)], check=True, capture_output=True, timeout=30)
        assert done.stderr == b""
        assert os.access(script, os.X_OK)


def test_a_fresh_repository_gets_three_files_and_settings(cli: CommandLine, repo: Repository) -> None:
    found = run(cli)

    assert actions(found) == dict.fromkeys((*SHIPPED, SETTINGS), "made")
    assert (repo.path / FINISH).read_text() == template_text("side-agent-finish.sh")
    assert (repo.path / SKILL).read_text() == skill_text("finish")
    assert "\nside_agent_target=main\n" in (repo.path / START).read_text()
    config = load((repo.path / SETTINGS,))
    assert (config.finish_policy, config.finish_target, config.finish_check) == (FinishPolicy.REBASE_FF, "main", None)
    assert repo.status() == ""
    assert_readable_by_bash(repo)


def test_every_answer_is_an_option(cli: CommandLine, repo: Repository) -> None:
    branch = "next/è-中"
    repo.git("branch", branch)
    found = run(
        cli, "--branch", branch, "--policy", "squash", "--check", "make 'the \"test\"' \\\n  && true",
        "--bootstrap", "echo one", "--bootstrap", "if true; then\n  echo 'two  three'\nfi",
        "--copy", ".env*", "--copy", "link:data/",
    )  # fmt: skip

    assert actions(found) == dict.fromkeys((*SHIPPED, BOOTSTRAP, INCLUDE, SETTINGS), "made")
    config = load((repo.path / SETTINGS,))
    assert config.finish_target == branch
    assert config.finish_policy is FinishPolicy.SQUASH
    assert config.finish_check == "make 'the \"test\"' \\\n  && true"
    assert (repo.path / BOOTSTRAP).read_text().endswith("\n\necho one\nif true; then\n  echo 'two  three'\nfi\n")
    assert (repo.path / INCLUDE).read_text().endswith("\n.env*\nlink:data/\n")
    assert_readable_by_bash(repo)


def test_what_is_found_is_the_default_and_can_be_turned_off(cli: CommandLine, repo: Repository) -> None:
    repo.write("package-lock.json", "{}")
    repo.commit("package.json", '{"scripts": {"test": "jest"}}')
    repo.git("add", "package-lock.json")
    repo.git("commit", "-q", "-m", "lock")
    repo.write("ignored/.env", "A=1\n")
    repo.commit(".gitignore", "ignored/*\n.env\n")
    repo.write(".env", "A=1\n")

    shown = answer(cli("setup", "--json", "--dry-run"))

    assert shown["answers"]["check"] == "CI=1 npm test"
    assert shown["answers"]["bootstrap"] == ["npm ci --prefer-offline --no-audit --no-fund"]
    assert shown["answers"]["copy"] == ["/.env", "/ignored/.env"]
    assert shown["found"]["copies"] == [{"path": ".env", "size": 4}, {"path": "ignored/.env", "size": 4}]
    assert any("node_modules/ is not ignored" in warning for warning in shown["warnings"])
    run(cli, "--check", "", "--bootstrap", "", "--copy", "")
    assert not (repo.path / BOOTSTRAP).exists()
    assert not (repo.path / INCLUDE).exists()
    assert load((repo.path / SETTINGS,)).finish_check is None


@pytest.mark.parametrize("json_", [True, False])
def test_a_dry_run_changes_nothing_at_all(cli: CommandLine, repo: Repository, json_: bool) -> None:
    before = sorted(str(path) for path in repo.path.rglob("*"))
    ran = cli("setup", "--dry-run", "--bootstrap", "echo prepared", *(["--json"] if json_ else []))
    assert ran.status == 0
    assert "echo prepared" in ran.out
    assert sorted(str(path) for path in repo.path.rglob("*")) == before


def test_without_a_terminal_a_yes_is_needed(cli: CommandLine, repo: Repository) -> None:
    ran = cli("setup")
    assert ran.status == 2
    assert "--yes" in ran.err
    assert not (repo.path / ".pi").exists()


def test_existing_different_files_are_kept_and_the_difference_shown(cli: CommandLine, repo: Repository) -> None:
    repo.write(START, "#!/bin/sh\necho mine\n")
    repo.write(SETTINGS, '# mine\nfinish_policy = "merge"\n')

    found = run(cli, "--policy", "squash")

    assert actions(found) == {START: "skipped", FINISH: "made", SKILL: "made", SETTINGS: "skipped"}
    start, *_, settings = found["files"]
    assert "-echo mine" in start["diff"]
    assert "not executable" in start["note"]
    assert '+finish_policy = "squash"' in settings["diff"]
    assert (repo.path / START).read_text() == "#!/bin/sh\necho mine\n"
    assert (repo.path / SETTINGS).read_text() == '# mine\nfinish_policy = "merge"\n'
    text = cli("setup", "--yes").out
    assert "skipped  .pi/side-agent-start.sh" in text
    assert "-echo mine" in text


def test_overwrite_replaces_them_and_keeps_the_old_ones(cli: CommandLine, repo: Repository) -> None:
    repo.write(START, "#!/bin/sh\necho mine\n")
    repo.write(SETTINGS, '# mine\nfinish_policy = "merge"\nmax_depth = 1\n')

    found = run(cli, "--policy", "squash", "--overwrite")

    assert actions(found) == {START: "updated", FINISH: "made", SKILL: "made", SETTINGS: "updated"}
    start, *_, settings = found["files"]
    assert (repo.path / start["backup"]).read_text() == "#!/bin/sh\necho mine\n"
    assert "merge" in (repo.path / settings["backup"]).read_text()
    config = load((repo.path / SETTINGS,))
    assert (config.finish_policy, config.max_depth) == (FinishPolicy.SQUASH, 1)
    assert (repo.path / SETTINGS).read_text().startswith("# mine\n")
    assert_readable_by_bash(repo)


def test_lines_are_added_to_settings_that_say_nothing_about_it(cli: CommandLine, repo: Repository) -> None:
    cli("config", "init")
    assert actions(run(cli, "--policy", "pr"))[SETTINGS] == "updated"
    assert load((repo.path / SETTINGS,)).finish_policy is FinishPolicy.PR
    assert (repo.path / SETTINGS).read_text().count("finish_policy =") == 1


def test_a_second_run_finds_everything_as_it_is(cli: CommandLine, repo: Repository) -> None:
    run(cli, "--bootstrap", "echo x", "--copy", ".env", "--policy", "squash")
    before = read_all(repo)
    assert set(actions(run(cli)).values()) == {"same"}
    assert read_all(repo) == before


def test_other_answers_replace_what_nobody_has_changed(cli: CommandLine, repo: Repository) -> None:
    run(cli, "--bootstrap", "echo x")
    found = run(cli, "--bootstrap", "echo y")
    assert actions(found)[BOOTSTRAP] == "updated"
    (repo.path / BOOTSTRAP).write_text("#!/bin/sh\n# by hand\n")
    assert actions(run(cli, "--bootstrap", "echo z"))[BOOTSTRAP] == "skipped"


def age_installation(repo: Repository, name: str) -> str:
    """Make it look as if an older version of this file had been installed; returns its text."""
    old = (repo.path / name).read_text().replace("\n", "\n# from an older version\n", 1)
    for place in (repo.path / name, repo.path / ".pi/side-agents/setup-base" / name):
        place.write_text(old)
    return old


def test_upgrade_replaces_what_is_as_it_was_installed(cli: CommandLine, repo: Repository) -> None:
    run(cli)
    shipped = (repo.path / FINISH).read_text()
    old = age_installation(repo, FINISH)

    shown = answer(cli("setup", "--upgrade", "--dry-run", "--json"))
    assert [file["state"] for file in shown["files"]] == ["same", "outdated", "same"]
    assert "-# from an older version" in shown["files"][1]["diff"]
    assert (repo.path / FINISH).read_text() == old

    found = answer(cli("setup", "--upgrade", "--yes", "--json"))
    assert actions(found) == {START: "same", FINISH: "updated", SKILL: "same"}
    assert (repo.path / FINISH).read_text() == shipped
    assert (repo.path / found["files"][1]["backup"]).read_text() == old
    assert_readable_by_bash(repo)


def test_upgrade_keeps_what_you_have_changed_and_shows_both_sides(cli: CommandLine, repo: Repository) -> None:
    run(cli)
    old = age_installation(repo, FINISH)
    (repo.path / FINISH).write_text(old + "# mine\n")
    (repo.path / START).write_text((repo.path / START).read_text() + "# mine\n")

    found = answer(cli("setup", "--upgrade", "--yes", "--json"))

    states = {file["name"]: file["state"] for file in found["files"]}
    assert states == {START: "yours", FINISH: "changed", SKILL: "same"}
    assert "-# mine" in found["files"][1]["diff"]
    assert "-# from an older version" in found["files"][1]["shippedDiff"]
    assert "# mine" not in found["files"][1]["shippedDiff"]
    assert (repo.path / FINISH).read_text() == old + "# mine\n"
    forced = answer(cli("setup", "--upgrade", "--yes", "--overwrite", "--json"))
    assert actions(forced) == {START: "updated", FINISH: "updated", SKILL: "same"}


def test_upgrade_makes_nothing_and_takes_no_answers(cli: CommandLine, repo: Repository) -> None:
    nothing = cli("setup", "--upgrade", "--yes")
    assert (nothing.status, "side-agents setup" in nothing.err) == (2, True)
    run(cli)
    (repo.path / SKILL).unlink()
    found = answer(cli("setup", "--upgrade", "--yes", "--json"))
    assert SKILL in found["warnings"][0]
    assert not (repo.path / SKILL).exists()
    assert cli("setup", "--upgrade", "--yes", "--policy", "pr").status == 2


BAD = {
    "unfinished-quote": ("--bootstrap", "echo 'x"),
    "unfinished-if": ("--bootstrap", "if true; then"),
    "unfinished-heredoc": ("--bootstrap", "cat <<EOF\nx"),
    "two-halves": ("--bootstrap", "echo 'x", "--bootstrap", "y'"),
    "stray-brace": ("--bootstrap", "echo; }"),
    "blank": ("--bootstrap", "  ", "--bootstrap", "x"),
    "check": ("--check", "make $("),
    "branch-option": ("--branch", "--force"),
    "branch-blank": ("--branch", "a b"),
    "branch-dots": ("--branch", "../x"),
    "branch-empty": ("--branch", ""),
    "branch-newline": ("--branch", "a\nb"),
    "pattern-comment": ("--copy", "#x"),
    "pattern-newline": ("--copy", "a\nb"),
    "pattern-bracket": ("--copy", "[a"),
}


@pytest.mark.parametrize("name", BAD)
def test_answers_that_cannot_be_right_are_refused_before_anything_is_written(
    cli: CommandLine, repo: Repository, name: str
) -> None:
    ran = cli("setup", "--json", "--yes", *BAD[name])
    assert (ran.status, json.loads(ran.out)["code"]) == (2, "usage")
    assert not (repo.path / ".pi").exists()


@pytest.mark.parametrize("branch", ["it's", "a;touch${IFS}pwned", "$(touch${IFS}pwned)", "`x`", '"q"', "&&x", "é中"])
def test_any_branch_name_is_only_a_name_to_the_scripts(cli: CommandLine, repo: Repository, branch: str) -> None:
    repo.git("branch", branch)
    run(cli, "--branch", branch)
    assert_readable_by_bash(repo)
    repo.git("checkout", "-q", branch)
    done = subprocess.run(["sh", START], cwd=repo.path, capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"is on {branch} itself" in done.stderr.decode()
    assert sorted(path.name for path in repo.path.iterdir()) == [".git", ".gitignore", ".pi", "README.md", "src"]


def test_nothing_is_written_through_links(cli: CommandLine, repo: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo.path / ".pi").mkdir()
    (repo.path / ".pi/side-agent-skills").symlink_to(outside)
    (repo.path / START).symlink_to(outside / "start.sh")
    (repo.path / FINISH).mkdir()

    found = run(cli, "--overwrite")

    assert actions(found) == {START: "skipped", FINISH: "skipped", SKILL: "skipped", SETTINGS: "made"}
    assert {file["state"] for file in found["files"][:3]} == {"blocked"}
    assert list(outside.iterdir()) == []


def test_a_pi_folder_that_is_a_link_is_left_alone(cli: CommandLine, repo: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo.path / ".pi").symlink_to(outside)
    assert set(actions(run(cli)).values()) == {"skipped"}
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["it's a $(touch pwned)", "-rf", "new\nline", "é 中 %s", "#{pane_id}"])
def test_hostile_paths_of_the_repository_are_no_obstacle(
    cli: CommandLine, repo: Repository, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    moved = Repository(repo.path.rename(repo.path.with_name(name)))
    monkeypatch.chdir(moved.path)
    found = run(cli, "--bootstrap", "pwd > made-here", "--copy", "a b")
    assert set(actions(found).values()) == {"made"}
    assert moved.status() == ""
    assert_readable_by_bash(moved)
    done = subprocess.run([moved.path / BOOTSTRAP, "parent", moved.path, "id"], cwd="/", timeout=30, check=True)
    assert done.returncode == 0
    assert (moved.path / "made-here").read_text() == f"{moved.path}\n"


def test_from_a_linked_worktree_the_main_checkout_is_set_up(
    cli: CommandLine, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repo.path.with_name("other")
    repo.git("worktree", "add", "-q", "--detach", str(other))
    monkeypatch.chdir(other)
    assert run(cli)["root"] == str(repo.path)
    assert (repo.path / START).exists()
    assert not (other / ".pi").exists()


def test_a_committed_script_is_reported(cli: CommandLine, repo: Repository) -> None:
    repo.write(START, "#!/bin/sh\n")
    repo.git("add", "--force", "--", START)
    repo.git("commit", "-q", "-m", "by accident")
    found = run(cli)
    assert any(f"git rm --cached -r -- {START}" in warning for warning in found["warnings"])


def test_a_bare_repository_with_worktrees_can_be_set_up(
    cli: CommandLine, repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "bare"
    home.mkdir()
    subprocess.run(["git", "clone", "-q", "--bare", str(repo.path), str(home / ".bare")], check=True, timeout=60)
    subprocess.run(
        ["git", "-C", str(home / ".bare"), "worktree", "add", "-q", str(home / "main"), "main"], check=True, timeout=60
    )
    monkeypatch.chdir(home / "main")
    found = run(cli)
    assert set(actions(found).values()) == {"made"}
    assert found["answers"]["branch"] == "main"


def test_on_a_terminal_it_asks_and_enter_takes_what_was_found(repo: Repository, tmux_server: PrivateServer) -> None:
    repo.commit(".gitignore", ".env\n")
    repo.write(".env", "A=1\n")
    repo.commit("go.mod", "module x\n")
    out = repo.path.with_name("out")
    script = f"{sys.executable} -m side_agents setup; echo $? > {out}.part; mv {out}.part {out}; cat"
    checkout = Path(__file__).parents[2]
    pane = tmux_server.start(
        cwd=repo.path, argv=("sh", "-c", script), env={**os.environ, "PYTHONPATH": str(checkout)},
        options=["set -g default-size 160x60"],
    )  # fmt: skip

    def ask(question: str, typed: str) -> None:
        eventually(lambda: question in screen().splitlines()[-1] or None, SLOW)
        tmux = ["tmux", "-S", str(tmux_server.tmux.socket), "send-keys", "-t", pane.pane_id]
        if typed:
            subprocess.run([*tmux, "-l", "--", typed], check=True, timeout=10)
        subprocess.run([*tmux, "Enter"], check=True, timeout=10)

    def screen() -> str:
        return "\n".join(tmux_server.tmux.capture(pane.pane_id)).rstrip() or "-"

    ask("Branch that finished work lands on [main]:", "")
    ask("Policy", "squash")
    ask("no check) [go test ./...]:", "make $(")
    ask("no check) [go test ./...]:", "none")
    ask("Run this in every new slot? [Y/n]:", "")
    ask("Another line of shell", "echo $HOME 'a b'")
    ask("Another line of shell", "")
    ask("Copy this ignored file into every slot? [Y/n]:", "")
    ask("Another pattern", "")
    ask("Write them? [Y/n]:", "")
    eventually(out.exists, SLOW)
    assert out.read_text() == "0\n", screen()
    assert (repo.path / BOOTSTRAP).read_text().endswith("\ngo mod download\necho $HOME 'a b'\n")
    assert (repo.path / INCLUDE).read_text().endswith("\n/.env\n")
    config = load((repo.path / SETTINGS,))
    assert (config.finish_policy, config.finish_check) == (FinishPolicy.SQUASH, None)


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_an_agent_starts_in_a_slot_that_was_prepared(stage: Orchestra, cli: CommandLine) -> None:
    stage.repo.commit(".gitignore", "ignored/\n.env\n")
    stage.repo.write(".env", "KEY=secret\n")
    run(cli, "--bootstrap", "mkdir -p ignored", "--bootstrap", 'printf "%s\\n" "$3" "$PWD" > "ignored/it\'s prepared"')

    record = stage.start('run: test -f "ignored/it\'s prepared" && echo all is there', branch_hint="a")

    stage.eventually_idle("a")
    slot = stage.slot(1)
    assert (slot / "ignored/it's prepared").read_text() == f"a\n{slot}\n"
    assert (slot / ".env").read_text() == "KEY=secret\n"
    assert "all is there" in stage.log("a")
    assert "branch side-agent/a, lands on main" in stage.log("a")
    assert stage.worktree(record).status() == ""
    assert (slot / FINISH).resolve() == stage.repo.path / FINISH


def test_a_bootstrap_step_that_fails_keeps_the_agent_from_starting(stage: Orchestra, cli: CommandLine) -> None:
    run(cli, "--bootstrap", "echo about to fail; false", "--bootstrap", "touch not-reached")
    stage.start(branch_hint="a")
    checked = stage.eventually_status("a", AgentStatus.FAILED)
    assert checked.record is not None
    assert checked.record.exit_code == 1
    assert "about to fail" in stage.log("a")
    assert not (stage.slot(1) / "not-reached").exists()


def test_the_finish_script_and_settings_land_the_work(stage: Orchestra, cli: CommandLine) -> None:
    program = shutil.which("side-agents", path=str(Path(sys.executable).parent))
    assert program is not None, "the package is not installed in this environment"
    stage.environment["PATH"] = f"{Path(program).parent}{os.pathsep}{stage.environment['PATH']}"
    run(cli, "--policy", "squash", "--check", "test -f new.txt")

    stage.start(
        "write: new.txt hello\ncommit: Add it\nwrite: two.txt hello\ncommit: And another\nrun: .pi/side-agent-finish.sh",
        branch_hint="a",
    )

    stage.eventually_idle("a")
    eventually(
        lambda: stage.repo.git("ls-tree", "--name-only", "main", "new.txt", "two.txt") == "new.txt\ntwo.txt", SLOW
    )
    assert stage.repo.git("rev-list", "--count", "main") == "2", stage.log("a")
