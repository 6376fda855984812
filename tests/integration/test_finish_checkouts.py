"""The checkout that has the target: uncommitted files there survive byte for byte, and nothing is left half done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from side_agents.core import finish_record
from side_agents.core.landing import Outcome, TargetState
from side_agents.infra import git_target
from side_agents.infra.git import Git
from side_agents.models import FinishPolicy, json_text
from tests.integration.finish_support import Worker, Yard, state_of, subjects
from tests.support.repositories import Repository
from tests.support.waiting import eventually


@pytest.fixture
def yard(repo: Repository) -> Yard:
    repo.write("doc/guide.md", "guide\n")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "-m", "second")
    return Yard(repo, dict(os.environ))


@pytest.fixture
def agent(yard: Yard) -> Worker:
    """Changes a file, removes one, adds two, and turns nothing else."""
    worker = yard.worker("fix")
    worker.tree.write("src/app.txt", "one\nTWO\nthree\n")
    worker.tree.write("new/file.txt", "new\n")
    worker.tree.write("ignored/forced.txt", "forced\n")
    worker.tree.git("rm", "--quiet", "doc/guide.md")
    worker.tree.git("add", "--force", "--all")
    worker.tree.git("reset", "--quiet", "--", ".pi")
    worker.tree.git("commit", "--quiet", "-m", "agent")
    return worker


def whole(repo: Repository) -> tuple[object, ...]:
    return state_of(repo), repo.status(), repo.git("for-each-ref"), repo.git("diff", "--cached")


def stage(repo: Repository, name: str, text: str) -> None:
    repo.write(name, text)
    repo.git("add", "--force", "--", name)


OVERLAPS: dict[str, tuple[Callable[[Repository], object], str]] = {
    "changed": (lambda repo: repo.write("src/app.txt", "mine\n"), "src/app.txt"),
    "staged": (lambda repo: stage(repo, "src/app.txt", "mine\n"), "src/app.txt"),
    "the-same": (lambda repo: repo.write("src/app.txt", "one\nTWO\nthree\n"), "src/app.txt"),
    "removed": (lambda repo: (repo.path / "src/app.txt").unlink(), "src/app.txt"),
    "changed-where-theirs-is-removed": (lambda repo: repo.write("doc/guide.md", "mine\n"), "doc/guide.md"),
    "untracked": (lambda repo: repo.write("new/file.txt", "mine\n"), "new/file.txt"),
    "a-file-where-a-folder-comes": (lambda repo: repo.write("new", "mine\n"), "new"),
    "a-folder-where-a-file-comes": (
        lambda repo: repo.write("new/file.txt/mine.txt", "mine\n"),
        "new/file.txt/mine.txt",
    ),
    "ignored": (lambda repo: repo.write("ignored/forced.txt", "secret\n"), "ignored/forced.txt"),
    "a-link-where-a-folder-comes": (lambda repo: (repo.path / "new").symlink_to(repo.path.parent), "new"),
    "assumed-unchanged": (
        lambda repo: (
            repo.git("update-index", "--assume-unchanged", "src/app.txt"),
            repo.write("src/app.txt", "mine\n"),
        ),
        "src/app.txt",
    ),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_x6_a_file_in_the_way_stops_it_before_anything_changed(yard: Yard, agent: Worker, case: str) -> None:
    spoil, name = OVERLAPS[case]
    spoil(yard.repo)
    before = whole(yard.repo)

    done = agent.land().verdict

    assert done.outcome.exit_status == 8
    assert name in done.overlap
    assert name in done.message
    assert whole(yard.repo) == before
    foreseen = agent.land(dry_run=True).verdict
    if case != "assumed-unchanged":
        assert (foreseen.outcome, foreseen.overlap) == (done.outcome, done.overlap)


def test_everything_else_that_is_uncommitted_survives_byte_for_byte(yard: Yard, agent: Worker) -> None:
    yard.repo.write("README.md", "half\r\nwritten \0\n")
    stage(yard.repo, "staged.txt", "staged\n")
    yard.repo.write("staged.txt", "and changed since\n")
    yard.repo.write("untracked dir/ä.txt", "untracked\n")
    yard.repo.write("ignored/other.txt", "ignored\n")
    (yard.repo.path / "src/app.txt").touch()
    kept = {"README.md", "staged.txt", "untracked dir/ä.txt", "ignored/other.txt"}
    before = {name: data for name, data in state_of(yard.repo).items() if name in kept}
    staged = yard.repo.git("diff", "--cached")

    assert agent.land(dry_run=True).verdict.outcome is Outcome.READY
    assert agent.land().verdict.outcome is Outcome.LANDED

    after = state_of(yard.repo)
    assert {name: after[name] for name in kept} == before
    assert yard.repo.git("diff", "--cached") == staged
    assert after["src/app.txt"] == b"one\nTWO\nthree\n"
    assert after["new/file.txt"] == b"new\n"
    assert "doc/guide.md" not in after
    assert set(yard.repo.status().splitlines()) == {" M README.md", "AM staged.txt", '?? "untracked dir/"'}


def test_a_target_that_nobody_has_checked_out_moves_without_a_checkout(yard: Yard, agent: Worker) -> None:
    yard.repo.git("checkout", "--quiet", "-b", "mine")
    yard.repo.write("src/app.txt", "mine\n")
    before = whole(yard.repo)[:2]

    done = agent.land()

    assert done.verdict.target_state is TargetState.NOT_CHECKED_OUT
    assert yard.repo.git("rev-parse", "main") == done.commit
    assert (state_of(yard.repo), yard.repo.status()) == before
    assert yard.repo.git("symbolic-ref", "HEAD") == "refs/heads/mine"


def test_a_target_in_another_worktree_is_moved_there(yard: Yard, agent: Worker) -> None:
    yard.repo.git("checkout", "--quiet", "-b", "mine")
    yard.repo.git("worktree", "add", "--quiet", "../else where", "main")
    elsewhere = Repository(yard.repo.path.with_name("else where"))
    elsewhere.write("README.md", "dirty\n")

    assert agent.land().verdict.outcome is Outcome.LANDED
    assert elsewhere.status() == " M README.md"
    assert (elsewhere.path / "new/file.txt").exists()
    shutil.rmtree(elsewhere.path)
    agent.tree.commit("more.txt")
    assert agent.land().verdict.outcome is Outcome.LANDED, "a folder deleted by hand holds nothing"


@pytest.mark.parametrize("what", ["merge", "rebase", "bisect", "locked", "twice"])
def test_a_target_in_the_middle_of_something_is_not_moved(yard: Yard, agent: Worker, what: str) -> None:
    repo = yard.repo
    if what in ("merge", "rebase"):
        repo.git("branch", "side")
        repo.commit("src/app.txt", "ours\n", "ours")
        repo.git("checkout", "--quiet", "side")
        repo.commit("src/app.txt", "theirs\n", "theirs")
        repo.git("checkout", "--quiet", "main")
        repo.git(what, "side", check=False)
    elif what == "bisect":
        repo.git("bisect", "start", "main", "main~1")
        repo.git("checkout", "--quiet", "--detach")
    elif what == "locked":
        repo.git("checkout", "--quiet", "-b", "mine")
        repo.git("worktree", "add", "--quiet", "--lock", "../stick", "main")
        shutil.rmtree(repo.path.with_name("stick"))
    else:
        repo.git("worktree", "add", "--quiet", "--force", "../second", "main")
    before = whole(repo)

    for dry_run in (True, False):
        verdict = agent.land(dry_run=dry_run).verdict
        assert verdict.outcome.exit_status == 9
        assert verdict.target_state is TargetState.BUSY
    assert whole(repo) == before


def test_a_hook_that_refuses_is_heard_and_nothing_has_changed(yard: Yard, agent: Worker) -> None:
    hook = yard.repo.path / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\n[ "$1" != prepared ] || ! grep -q refs/heads/main || { echo not today >&2; exit 1; }\n')
    hook.chmod(0o755)
    yard.repo.write("README.md", "dirty\n")
    before = whole(yard.repo)

    verdict = agent.land().verdict

    assert verdict.outcome.exit_status == 9
    assert "not today" in verdict.message
    assert whole(yard.repo) == before
    assert not finish_record.is_unsettled(yard.paths)
    hook.unlink()
    assert agent.land().verdict.outcome is Outcome.LANDED


def test_a_checkout_that_cannot_be_written_is_put_back_as_it_was(yard: Yard, agent: Worker) -> None:
    # The last of the files cannot be written, after others were: a filter that fails stands for a full disk.
    agent.tree.write(".gitattributes", "zzz filter=broken\n")
    agent.tree.commit("zzz", "zzz\n")
    agent.tree.git("add", ".gitattributes")
    agent.tree.git("commit", "--quiet", "-m", "attributes")
    yard.repo.git("config", "filter.broken.clean", "cat")
    yard.repo.git("config", "filter.broken.smudge", "false")
    yard.repo.git("config", "filter.broken.required", "true")
    yard.repo.write("README.md", "dirty\n")
    yard.repo.write(".git/info/attributes", "zzz filter=broken\n")
    before = whole(yard.repo)

    verdict = agent.land().verdict

    assert verdict.outcome.exit_status == 9
    assert whole(yard.repo) == before
    yard.repo.git("config", "filter.broken.smudge", "cat")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert yard.repo.status() == " M README.md"


def test_a_file_saved_at_the_last_moment_is_never_overwritten(
    yard: Yard, agent: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = git_target.move_ref

    def save_after(git: Git, branch: str, new: str, old: str, *, reason: str) -> git_target.Move:
        moved = real(git, branch, new, old, reason=reason)
        yard.repo.write("src/app.txt", "saved just now\n")
        return moved

    monkeypatch.setattr(git_target, "move_ref", save_after)
    head = yard.repo.head()

    verdict = agent.land().verdict

    assert verdict.outcome.exit_status == 8
    assert (yard.repo.path / "src/app.txt").read_text() == "saved just now\n"
    assert yard.repo.head() == head
    assert yard.repo.status() == " M src/app.txt"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_between_branch_and_files_is_completed(
    yard: Yard, agent: Worker, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    real = git_target._read_tree

    def interrupted(checkout: Git, old: str, new: str, *flags: str) -> str | None:
        if flags:
            return real(checkout, old, new, *flags)
        monkeypatch.setattr(git_target, "_read_tree", real)
        raise error

    monkeypatch.setattr(git_target, "_read_tree", interrupted)
    yard.repo.write("README.md", "dirty\n")
    with pytest.raises(error):
        agent.land()
    assert yard.repo.status() == " M README.md"
    assert subjects(yard.repo)[-1] == "agent"
    assert agent.land().verdict.already_landed


@pytest.mark.parametrize("who", ["itself", "another"])
def test_a_kill_between_branch_and_files_is_completed_by_the_next_landing(yard: Yard, agent: Worker, who: str) -> None:
    old, new = yard.repo.head(), agent.tree.head()
    other = yard.worker("other")
    other.tree.commit("other.txt")
    yard.repo.write("README.md", "dirty\n")
    note = {"target": "main", "old": old, "new": new, "checkout": str(yard.repo.path)}
    (yard.paths.meta / "merge.intent").write_text(json_text(note))
    yard.repo.git("update-ref", "refs/heads/main", new)
    assert len(yard.repo.status().splitlines()) > 1, "the landing looks undone"

    outcome = (agent if who == "itself" else other).land().verdict.outcome

    assert outcome is (Outcome.ALREADY_LANDED if who == "itself" else Outcome.LANDED)
    assert yard.repo.status() == " M README.md"
    assert not finish_record.is_unsettled(yard.paths)


def cut_off(yard: Yard, agent: Worker) -> None:
    """As a process leaves it that is killed after it moved the branch and before it brought the files over."""
    old, new = yard.repo.head(), agent.tree.head()
    note = {"target": "main", "old": old, "new": new, "checkout": str(yard.repo.path)}
    (yard.paths.meta / "merge.intent").write_text(json_text(note))
    yard.repo.git("update-ref", "refs/heads/main", new)


@pytest.mark.parametrize("how", ["changed", "staged", "in the place of a new file"])
def test_a_landing_cut_off_over_which_somebody_worked_on_is_not_forgotten(yard: Yard, agent: Worker, how: str) -> None:
    other = yard.worker("other")
    other.tree.commit("other.txt")
    cut_off(yard, agent)
    landed, name = yard.repo.head(), "new/file.txt" if how == "in the place of a new file" else "src/app.txt"
    stage(yard.repo, name, "mine\n") if how == "staged" else yard.repo.write(name, "mine\n")

    for _ in range(2):
        verdict = other.land().verdict
        assert verdict.outcome is Outcome.OVERLAP
        assert name in verdict.message
        assert "checkout HEAD -- FILE" in (verdict.hint or "")
        assert (yard.repo.head(), (yard.repo.path / name).read_text()) == (landed, "mine\n")
        # The rest is there as it landed, so that no commit can undo it.
        assert {line[3:] for line in yard.repo.git("status", "--porcelain", "-uall").splitlines()} == {name}

    yard.repo.git("checkout", "HEAD", "--", name)
    assert other.land().verdict.outcome is Outcome.LANDED
    assert yard.repo.status() == ""
    assert not finish_record.is_unsettled(yard.paths)


def test_a_move_killed_while_it_wrote_files_is_completed(yard: Yard, agent: Worker) -> None:
    cut_off(yard, agent)
    yard.repo.write("src/app.txt", "one\nTWO\nthree\n")
    yard.repo.write("new/file.txt", "new\n")
    (yard.repo.path / "doc/guide.md").unlink()
    assert agent.land().verdict.already_landed
    assert yard.repo.status() == ""
    assert not finish_record.is_unsettled(yard.paths)


def test_a_landing_cut_off_is_completed_on_a_branch_begun_meanwhile(yard: Yard, agent: Worker) -> None:
    cut_off(yard, agent)
    yard.repo.git("checkout", "--quiet", "-b", "side")
    assert yard.repo.status() != ""
    assert agent.land().verdict.already_landed
    assert (yard.repo.status(), yard.repo.git("branch", "--show-current")) == ("", "side")


def test_a_cut_off_landing_is_kept_in_mind_while_git_is_locked_out(
    yard: Yard, agent: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_target, "_INDEX_WAIT", 0.1)
    cut_off(yard, agent)
    lock = yard.repo.path / ".git/index.lock"
    lock.touch()
    other = yard.worker("other")
    other.tree.commit("other.txt")
    verdict = other.land().verdict
    assert (verdict.outcome, "index.lock" in verdict.message) == (Outcome.OVERLAP, True)
    lock.unlink()
    assert other.land().verdict.outcome is Outcome.LANDED
    assert yard.repo.status() == ""


@pytest.mark.parametrize(
    "content", ["", "null", '{"target": 5}', '{"target": "main", "old": "x", "new": "y", "checkout": "/"}']
)
def test_a_note_that_makes_no_sense_is_dropped(yard: Yard, agent: Worker, content: str) -> None:
    (yard.paths.meta / "merge.intent").write_text(content)
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert not finish_record.is_unsettled(yard.paths)


def test_another_git_at_work_in_the_checkout_is_waited_for(yard: Yard, agent: Worker) -> None:
    lock = yard.repo.path / ".git/index.lock"
    lock.touch()
    process = agent.popen()
    eventually((yard.paths.meta / "merge.intent").exists, deadline=60)
    lock.unlink()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert yard.repo.status() == ""


def test_another_git_that_never_ends_is_named(yard: Yard, agent: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_target, "_INDEX_WAIT", 0.1)
    (yard.repo.path / ".git/index.lock").touch()
    verdict = agent.land().verdict
    assert verdict.outcome.exit_status == 9
    assert "index.lock" in verdict.message
    assert subjects(yard.repo)[-1] == "second"


def test_a_branch_that_git_cannot_lock_is_not_tried_for_ever(
    yard: Yard, agent: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_target, "_PATIENT", ("core.filesRefLockTimeout=50",))
    (yard.repo.path / ".git/refs/heads/main.lock").touch()
    before = state_of(yard.repo), yard.repo.status()
    verdict = agent.land().verdict
    assert verdict.outcome.exit_status == 9
    assert "main.lock" in verdict.message
    assert (state_of(yard.repo), yard.repo.status()) == before
    assert not finish_record.is_unsettled(yard.paths)


@pytest.mark.parametrize("policy", [FinishPolicy.SQUASH, FinishPolicy.MERGE])
def test_the_other_policies_guard_the_checkout_as_well(yard: Yard, agent: Worker, policy: FinishPolicy) -> None:
    yard.repo.write("src/app.txt", "mine\n")
    before = whole(yard.repo)
    assert agent.land(policy=policy, dry_run=True).verdict.outcome is Outcome.OVERLAP
    assert agent.land(policy=policy).verdict.outcome is Outcome.OVERLAP
    assert whole(yard.repo) == before
    yard.repo.git("checkout", "--quiet", "--", "src/app.txt")
    yard.repo.write("README.md", "dirty\n")
    assert agent.land(policy=policy).verdict.outcome is Outcome.LANDED
    assert yard.repo.status() == " M README.md"
    assert Path(yard.repo.path, "new/file.txt").exists()
