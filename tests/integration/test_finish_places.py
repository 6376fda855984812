"""Landing in every kind of repository, under every configuration, with every name; the request policy; the scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from side_agents.core.context import open_context
from side_agents.core.finish import finish
from side_agents.core.landing import Outcome
from side_agents.errors import UsageError
from side_agents.infra import git_equivalence, git_landing
from side_agents.infra.git import Git
from side_agents.models import AgentStatus, FinishPolicy
from side_agents.paths import StatePaths
from side_agents.resources import template_path
from tests.integration.finish_support import CHECKOUT, Worker, Yard, is_linear, state_of, subjects
from tests.support.repositories import Repository, copy_repository

BINARY = "side-agents"


@pytest.fixture
def yard(repo: Repository) -> Yard:
    return Yard(repo, dict(os.environ))


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def behind_by_one(yard: Yard) -> Worker:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", "a\n", "one")
    agent.tree.commit("b.txt", "b\n", "two")
    yard.repo.commit("c.txt", "c\n", "main goes on")
    return agent


SETTINGS = {
    "rebase.autostash": ["rebase.autostash=true", "merge.autostash=true"],
    "merge.ff": ["merge.ff=only", "pull.ff=only"],
    "merge.ff=false": ["merge.ff=false"],
    "mergeoptions": ["branch.main.mergeoptions=--squash --no-commit"],
    "push.default": ["push.default=nothing"],
    "rebase": ["rebase.updateRefs=true", "rebase.rebaseMerges=true", "rebase.autosquash=true", "rebase.forkPoint=true"],
    "apply": ["rebase.backend=apply", "rebase.missingCommitsCheck=error"],
    "editor": ["core.editor=sleep 600", "sequence.editor=sleep 600", "commit.verbose=true", "core.commentChar=;"],
    "fsmonitor": ["core.fsmonitor=sleep 600", "core.pager=sleep 600"],
    "diff": ["diff.external=sleep 600", "diff.noprefix=true", "diff.ignoreSubmodules=all", "diff.renames=copies"],
    "status": ["status.showUntrackedFiles=no", "status.relativePaths=false", "color.ui=always", "core.quotePath=true"],
    "rerere": ["rerere.enabled=true", "rerere.autoUpdate=true"],
    "log": ["log.showSignature=true", "format.pretty=oneline", "log.decorate=full"],
}


RUNS = [(name, FinishPolicy.REBASE_FF) for name in SETTINGS]
RUNS += [
    (name, FinishPolicy.MERGE) for name in ("rebase.autostash", "merge.ff", "merge.ff=false", "editor", "diff", "log")
]
RUNS += [(name, FinishPolicy.SQUASH) for name in ("mergeoptions", "log", "rebase")]


@pytest.mark.parametrize(("name", "policy"), RUNS)
def test_the_users_settings_do_not_change_the_result(yard: Yard, name: str, policy: FinishPolicy) -> None:
    agent = behind_by_one(yard)
    yard.repo.git("branch", "bystander", f"{agent.branch}~1")
    bystander = yard.repo.git("rev-parse", "bystander")
    for setting in SETTINGS[name]:
        yard.repo.git("config", *setting.split("=", 1))
    if name == "status":
        agent.tree.write("untracked.txt")
        assert agent.land(policy=policy).verdict.outcome is Outcome.DIRTY
        (agent.tree.path / "untracked.txt").unlink()
    assert agent.land(policy=policy).verdict.outcome is Outcome.LANDED
    landed = {
        FinishPolicy.REBASE_FF: ["first", "main goes on", "one", "two"],
        FinishPolicy.SQUASH: ["first", "main goes on", "one"],
    }
    plain = yard.repo.git("-c", "log.showSignature=false", "log", "--first-parent", "--format=%s", "--reverse", "main")
    assert plain.splitlines() == landed.get(
        policy, ["first", "main goes on", "Merge branch 'side-agent/fix' into main"]
    )
    assert {"a.txt", "b.txt", "c.txt"} <= set(state_of(yard.repo))
    assert yard.repo.git("rev-parse", "bystander") == bystander
    assert yard.repo.git("stash", "list") == ""


@pytest.mark.parametrize("policy", [FinishPolicy.REBASE_FF, FinishPolicy.SQUASH, FinishPolicy.MERGE])
def test_the_user_signs_with_a_key_and_hooks_of_commits_do_not_run(
    yard: Yard, tmp_path: Path, policy: FinishPolicy
) -> None:
    agent = behind_by_one(yard)
    signer = program(tmp_path, "signer", 'cat > /dev/null; echo "[GNUPG:] SIG_CREATED " >&2; echo FAKE SIGNATURE')
    yard.repo.git("config", "commit.gpgSign", "true")
    yard.repo.git("config", "gpg.program", str(signer))
    for hook in ("pre-commit", "commit-msg", "pre-rebase", "post-checkout", "post-rewrite", "prepare-commit-msg"):
        program(yard.repo.path / ".git/hooks", hook, f"touch {tmp_path}/ran-{hook}; exec sleep 600")
    assert agent.land(policy=policy).verdict.outcome is Outcome.LANDED
    assert "FAKE SIGNATURE" in yard.repo.git("cat-file", "commit", "main")
    assert [path.name for path in tmp_path.glob("ran-*")] == []


@pytest.mark.parametrize("policy", [FinishPolicy.REBASE_FF, FinishPolicy.SQUASH])
def test_a_signature_that_cannot_be_made_leaves_everything_as_it_was(yard: Yard, policy: FinishPolicy) -> None:
    agent = behind_by_one(yard)
    yard.repo.git("config", "commit.gpgSign", "true")
    yard.repo.git("config", "gpg.program", "false")
    heads = yard.repo.git("for-each-ref", "refs/heads")
    verdict = agent.land(policy=policy).verdict
    assert verdict.outcome.exit_status == 9
    assert "gpg failed" in verdict.message
    assert yard.repo.git("for-each-ref", "refs/heads") == heads
    assert Git(agent.tree.path).unfinished_operation() is None


NAMES = [
    "plain",
    "feature/ünï-码",
    "it's",
    'say"what"',
    "$(touch${IFS}pwned)",
    "a;b&c|d",
    "-dash",
    "refs/heads/x",
    "a=b",
]


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("is_checked_out", [True, False])
def test_any_branch_name_that_git_allows_is_a_target(yard: Yard, target: str, is_checked_out: bool) -> None:
    agent = behind_by_one(yard)
    yard.repo.git("update-ref", f"refs/heads/{target}", "main")
    # A tag of the same name must not be taken for the branch.
    yard.repo.git("update-ref", f"refs/tags/{target}", f"{agent.branch}~1")
    if is_checked_out:
        yard.repo.git("symbolic-ref", "HEAD", f"refs/heads/{target}")
    assert agent.land(target=target, dry_run=True).verdict.outcome is Outcome.READY
    assert agent.land(target=target).verdict.outcome is Outcome.LANDED
    assert subjects(yard.repo, f"refs/heads/{target}") == ["first", "main goes on", "one", "two"]
    assert len(subjects(yard.repo, "refs/heads/main")) == 2
    assert yard.repo.status() == ""


FILES = [
    "with space.txt",
    "-rf",
    "new\nline",
    "tab\t",
    'quo"te',
    "back\\slash",
    "ünï/码.txt",
    ":(top)x",
    "*",
    "dir/'q'",
]


def test_any_file_name_is_landed_and_guarded(yard: Yard) -> None:
    agent = yard.worker("fix")
    for name in FILES:
        agent.tree.write(name, "theirs\n")
    agent.tree.git("add", "--all")
    agent.tree.git("commit", "--quiet", "-m", "names")
    for name in FILES:
        yard.repo.write(name, "mine\n")
    verdict = agent.land().verdict
    assert verdict.outcome is Outcome.OVERLAP
    assert set(verdict.overlap) == set(FILES)
    for name in FILES:
        (yard.repo.path / name).unlink()
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert set(FILES) <= set(state_of(yard.repo))
    assert yard.repo.status() == ""


def test_conflicts_name_their_files_whatever_they_are_called(yard: Yard) -> None:
    agent = yard.worker("fix")
    for name in FILES:
        agent.tree.write(name, "theirs\n")
        yard.repo.write(name, "ours\n")
    for tree in (agent.tree, yard.repo):
        tree.git("add", "--all")
        tree.git("commit", "--quiet", "-m", "names")
    foreseen = agent.land(dry_run=True).verdict
    assert set(foreseen.conflicts) == set(FILES)
    assert set(agent.land().verdict.conflicts) == set(FILES)


def test_a_linked_worktree_may_be_the_parent(yard: Yard) -> None:
    yard.repo.git("worktree", "add", "--quiet", "-b", "topic", "../topic")
    topic = Repository(yard.repo.path.with_name("topic"))
    yard.configure('finish_target = "topic"')
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    topic.write("README.md", "dirty\n")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert (topic.path / "a.txt").exists()
    assert topic.status() == " M README.md"


@pytest.mark.parametrize("has_checkout", [True, False])
def test_a_bare_layout_lands_too(template_repository: Path, tmp_path: Path, has_checkout: bool) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "clone", "--quiet", "--bare", template_repository, folder / ".bare"], check=True, timeout=60)
    (folder / ".git").write_text("gitdir: ./.bare\n")
    repo = Repository(folder)
    if has_checkout:
        repo.git("worktree", "add", "--quiet", "main", "main")
    yard = Yard(repo, dict(os.environ))
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", message="agent")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert subjects(repo) == ["first", "agent"]
    if has_checkout:
        assert Repository(folder / "main").status() == ""
        assert (folder / "main/a.txt").exists()
    assert StatePaths(folder).merge_lock.exists()


def test_a_sparse_parent_stays_sparse(yard: Yard) -> None:
    yard.repo.commit("big/blob.txt", "big\n")
    yard.repo.git("sparse-checkout", "set", "--cone", "src")
    assert not (yard.repo.path / "big").exists()
    agent = yard.worker("fix")
    agent.tree.commit("src/new.txt", message="inside")
    agent.tree.git("sparse-checkout", "add", "big")
    agent.tree.commit("big/blob.txt", "bigger\n", "outside")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert (yard.repo.path / "src/new.txt").exists()
    assert not (yard.repo.path / "big").exists()
    assert yard.repo.status() == ""
    assert yard.repo.git("show", "main:big/blob.txt") == "bigger"


def test_submodules_are_moved_like_any_file_and_unsaved_work_in_one_stops_it(
    yard: Yard, template_repository: Path, tmp_path: Path
) -> None:
    library = copy_repository(template_repository, tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    yard.repo.git(*allow, "submodule", "--quiet", "add", str(library.path), "lib")
    yard.repo.git("commit", "--quiet", "-m", "with a library")
    agent = yard.worker("fix")
    agent.tree.git(*allow, "submodule", "--quiet", "update", "--init")
    inner = Repository(agent.tree.path / "lib")
    inner.write("unsaved.txt")
    agent.tree.commit("a.txt")
    assert agent.land().verdict.outcome is Outcome.DIRTY
    newest = inner.commit("unsaved.txt")
    agent.tree.git("commit", "--quiet", "-am", "library forward")
    yard.repo.commit("c.txt")
    (yard.repo.path / "lib/README.md").write_text("mine\n")
    assert agent.land().verdict.overlap == ("lib",)
    Repository(yard.repo.path / "lib").git("checkout", "--quiet", "--", "README.md")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert newest in yard.repo.git("ls-tree", "main", "lib")


def test_the_main_branch_is_found(yard: Yard) -> None:
    repo, git = yard.repo, Git(yard.repo.path)
    assert git_landing.default_branch(git, repo.path) == "main"
    repo.git("branch", "develop")
    repo.git("update-ref", "refs/remotes/origin/develop", "main")
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/develop")
    assert git_landing.default_branch(git, repo.path) == "develop"
    repo.git("symbolic-ref", "--delete", "refs/remotes/origin/HEAD")
    repo.git("branch", "-m", "main", "trunk")
    assert git_landing.default_branch(git, repo.path) == "trunk"
    repo.git("config", "init.defaultBranch", "develop")
    assert git_landing.default_branch(git, repo.path) == "develop"


def test_without_a_main_branch_nobody_guesses(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    yard.repo.git("checkout", "--quiet", "-b", "side-agent/odd")
    yard.repo.git("branch", "-D", "main")
    with pytest.raises(UsageError, match="not clear which branch"):
        agent.land()
    done = agent.command()
    assert done.returncode == 1
    assert "--target BRANCH" in done.stderr


def test_the_look_ahead_of_a_rebase_sees_what_the_rebase_will_meet(yard: Yard) -> None:
    # Taken as a whole the branch merges; replayed commit by commit it does not.
    agent = yard.worker("fix")
    agent.tree.commit("src/app.txt", "changed\n", "there")
    agent.tree.commit("src/app.txt", "one\ntwo\nthree\n", "and back")
    agent.tree.commit("a.txt", message="real work")
    yard.repo.commit("src/app.txt", "ONE\ntwo\nthree\n", "main goes on")
    assert agent.land(policy=FinishPolicy.MERGE, dry_run=True).verdict.outcome is Outcome.READY
    assert agent.land(dry_run=True).verdict.conflicts == ("src/app.txt",)
    assert agent.land().verdict.outcome is Outcome.CONFLICT


@pytest.mark.parametrize("policy", [FinishPolicy.REBASE_FF, FinishPolicy.SQUASH, FinishPolicy.MERGE])
def test_a_git_that_cannot_merge_without_a_checkout_lands_all_the_same(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, policy: FinishPolicy
) -> None:
    for module in (git_landing, git_equivalence):
        monkeypatch.setattr(module, "merge", lambda *_args, **_more: None)
    agent = behind_by_one(yard)
    yard.repo.write("a.txt", "mine\n")
    assert agent.land(policy=policy, dry_run=True).verdict.overlap == ("a.txt",)
    assert agent.land(policy=policy).verdict.outcome is Outcome.OVERLAP
    (yard.repo.path / "a.txt").unlink()
    assert agent.land(policy=policy).verdict.outcome is Outcome.LANDED
    assert {"a.txt", "b.txt", "c.txt"} <= set(state_of(yard.repo))
    assert yard.repo.status() == ""


@pytest.fixture
def forge(yard: Yard, tmp_path: Path) -> Repository:
    """A bare remote."""
    bare = tmp_path / "forge.git"
    subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True, timeout=60)
    yard.repo.git("remote", "add", "origin", str(bare))
    return Repository(bare)


def with_programs(yard: Yard, tmp_path: Path, **scripts: str) -> Yard:
    tools = tmp_path / "tools"
    for name, script in scripts.items():
        program(tools, name, script)
    os.makedirs(tools, exist_ok=True)  # noqa: PTH103
    for needed in ("git", "sh", "cat", "env", "sed", "uname", "basename"):
        found = shutil.which(needed)
        if found and not (tools / needed).exists():
            (tools / needed).symlink_to(found)
    return replace(yard, environment={**yard.environment, "PATH": str(tools)})


def test_the_request_policy_pushes_and_opens_a_request(yard: Yard, forge: Repository, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f'printf "%s\\n" "$PWD" "$@" >> {log}; echo https://forge.example/pull/7'
    yard = with_programs(yard, tmp_path, gh=script)
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    head = yard.repo.head()

    done = agent.land(policy=FinishPolicy.PR)

    assert done.verdict.outcome is Outcome.REQUESTED
    assert done.url == "https://forge.example/pull/7"
    assert log.read_text().splitlines() == [
        str(agent.tree.path), "pr", "create", "--base=main", "--head=side-agent/fix", "--fill",
    ]  # fmt: skip
    assert forge.git("rev-parse", agent.branch) == agent.tree.head()
    assert agent.tree.git("rev-parse", "--abbrev-ref", "@{upstream}") == "origin/side-agent/fix"
    assert yard.repo.head() == head


def test_a_nested_request_pushes_the_parents_branch_first(yard: Yard, forge: Repository, tmp_path: Path) -> None:
    yard = with_programs(yard, tmp_path, glab="echo created")
    outer = yard.worker("outer")
    outer.tree.commit("outer.txt")
    inner = yard.worker("inner", parent=outer)
    inner.tree.commit("inner.txt")
    assert inner.land(policy=FinishPolicy.PR).verdict.outcome is Outcome.REQUESTED
    assert forge.git("rev-parse", outer.branch) == outer.tree.head()
    assert forge.git("rev-parse", inner.branch) == inner.tree.head()


def test_a_branch_rebased_after_an_earlier_push_is_told_the_way_out(
    yard: Yard, forge: Repository, tmp_path: Path
) -> None:
    yard = with_programs(yard, tmp_path)
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    agent.land(policy=FinishPolicy.PR)
    agent.tree.git("commit", "--quiet", "--amend", "-m", "another")
    verdict = agent.land(policy=FinishPolicy.PR).verdict
    assert verdict.outcome is Outcome.NOT_MOVED
    assert f"push --force-with-lease origin {agent.branch}" in (verdict.hint or "")
    agent.tree.git("push", "--quiet", "--force-with-lease", "origin", agent.branch)
    assert agent.land(policy=FinishPolicy.PR).verdict.outcome is Outcome.PUSHED
    assert forge.git("rev-parse", agent.branch) == agent.tree.head()


def test_without_a_program_the_push_is_reported(yard: Yard, forge: Repository, tmp_path: Path) -> None:
    yard = with_programs(yard, tmp_path)
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    done = agent.land(policy=FinishPolicy.PR)
    assert done.verdict.outcome is Outcome.PUSHED
    assert "side-agent/fix was pushed to origin" in done.verdict.message
    assert "neither gh nor glab" in done.verdict.message


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo 'a pull request for this branch already exists: https://forge.example/pull/7' >&2; exit 1", 0),
        ("echo 'not logged in' >&2; exit 4", 9),
        ("read answer; echo '' >&2; exit 1", 9),
    ],
)
def test_what_the_forges_program_says_is_understood_or_passed_on(
    yard: Yard, forge: Repository, tmp_path: Path, script: str, status: int
) -> None:
    yard = with_programs(yard, tmp_path, gh=script)
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    verdict = agent.land(policy=FinishPolicy.PR).verdict
    assert verdict.outcome.exit_status == status
    assert "was pushed" in verdict.message


def test_a_push_that_is_refused_a_missing_remote_and_a_failing_check_stop_the_request(
    yard: Yard, tmp_path: Path
) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    assert agent.land(policy=FinishPolicy.PR).verdict.outcome is Outcome.MISUSE
    yard.repo.git("remote", "add", "origin", str(tmp_path / "nowhere.git"))
    verdict = agent.land(policy=FinishPolicy.PR).verdict
    assert verdict.outcome.exit_status == 9
    assert "nowhere.git" in verdict.message
    yard.configure("finish_check = 'exit 1'")
    assert agent.land(policy=FinishPolicy.PR).verdict.outcome.exit_status == 7
    dry = agent.land(policy=FinishPolicy.PR, dry_run=True).verdict
    assert dry.plan == ("run the check: exit 1", "push side-agent/fix", "open a pull request against main")


def script_environment(agent: Worker, tmp_path: Path) -> dict[str, str]:
    command = program(tmp_path / "bin", BINARY, f'exec {sys.executable} -m side_agents "$@"')
    return {**agent.environment, "PYTHONPATH": str(CHECKOUT), "PATH": f"{command.parent}:{agent.environment['PATH']}"}


def run_script(name: str, cwd: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(template_path(name)), *arguments]
    return subprocess.run(
        argv,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_finish_script_takes_the_arguments_of_the_seed(yard: Yard, tmp_path: Path) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    environment = script_environment(agent, tmp_path)
    (agent.tree.path / "src").mkdir(exist_ok=True)
    done = run_script("side-agent-finish.sh", agent.tree.path / "src", environment, "--dry-run", "--json")
    assert json.loads(done.stdout)["outcome"] == "ready"
    bare = {name: value for name, value in environment.items() if not name.startswith("PI_SIDE_")}
    done = run_script("side-agent-finish.sh", agent.tree.path, bare, str(yard.repo.path), "fix", "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (0, "landed")
    without = {**environment, "PATH": "/nonexistent"}
    argv = [shutil.which("sh") or "/bin/sh", str(template_path("side-agent-finish.sh"))]
    done = subprocess.run(
        argv, cwd=agent.tree.path, env=without, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "not on PATH" in done.stderr


def test_the_start_script_says_where_it_is_and_refuses_the_target_itself(yard: Yard, tmp_path: Path) -> None:
    agent = yard.worker("fix")
    arguments = (str(yard.repo.path), str(agent.tree.path), "fix")
    done = run_script("side-agent-start.sh", agent.tree.path, agent.environment, *arguments)
    assert done.returncode == 0
    assert "agent fix: branch side-agent/fix, lands on main" in done.stdout
    nested = {**agent.environment, "PI_SIDE_PARENT_BRANCH": "side-agent/outer"}
    assert "lands on side-agent/outer" in run_script("side-agent-start.sh", agent.tree.path, nested, *arguments).stdout
    own = {**agent.environment, "PI_SIDE_PARENT_BRANCH": agent.branch}
    assert run_script("side-agent-start.sh", agent.tree.path, own, *arguments).returncode == 1
    program(agent.tree.path / ".pi", "side-agent-bootstrap.sh", 'echo "bootstrap $3"; exit 9')
    done = run_script("side-agent-start.sh", agent.tree.path, agent.environment, *arguments)
    assert (done.returncode, "bootstrap fix" in done.stdout) == (9, True)
    agent.tree.git("checkout", "--quiet", "--detach")
    assert run_script("side-agent-start.sh", agent.tree.path, agent.environment, *arguments).returncode == 1


def test_the_command_answers_in_words_and_in_json_with_the_same_status(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.write("x\x1b[31m.txt")
    agent.tree.commit("a.txt")
    done = agent.command()
    assert done.returncode == 5
    assert done.stderr.startswith("error: ")
    assert "\x1b" not in done.stderr
    answer = agent.answer()
    assert (answer["ok"], answer["code"], answer["exitStatus"]) == (False, "dirty", 5)
    assert answer["ahead"] == 1
    shutil.rmtree(agent.tree.path / "src")
    for arguments in (("--polcy", "x"), ("--policy", "x"), ("a", "b"), ("nobody",)):
        assert agent.command(*arguments).returncode == 1, "every status of the table means one thing"
    assert yard.outside("--json").returncode == 1


def test_a_person_lands_an_idle_agent_by_its_name(yard: Yard) -> None:
    agent = yard.worker("fix", status=AgentStatus.WAITING_USER)
    agent.tree.commit("a.txt")
    done = yard.outside("side-agent/fix", cwd=yard.repo.path / "src")
    assert (done.returncode, done.stderr) == (0, "")
    assert "landed" in done.stdout
    assert is_linear(yard.repo)
    assert finish(open_context(yard.repo.path, yard.environment), "fix").verdict.already_landed
