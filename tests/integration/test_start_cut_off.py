"""A start that is killed while git makes or fills its slot: the slot is given back whole, and nobody's work is touched."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from orchestra import Orchestra, orchestra

from side_agents.core import cut_off, slots
from side_agents.infra import git_cut_off
from side_agents.infra.git import Git
from side_agents.models import AgentStatus, ProcessRef
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

TASK = "say: hello"
AGENT = "say-hello"
NAMES = "abcdefghijklmnop"
# What git runs in the middle of a checkout, with git as its parent: it kills once, then lets files pass.
CUT = """#!/bin/sh
here=$(dirname "$0")
if rm "$here/armed" 2> /dev/null; then
    starter=$(cut -d ' ' -f 4 "/proc/$PPID/stat")
    case $(cat "$here/victim") in
        git) kill -KILL $PPID ;;
        both) kill -KILL $starter $PPID ;;
        start) kill -KILL $starter; touch "$here/reached"; until [ -e "$here/go" ]; do sleep 0.01; done ;;
    esac
fi
exec cat
"""


@dataclass
class Cutter:
    """Cuts a checkout off at the file ``h``, which is in the middle."""

    folder: Path

    def arm(self, victim: str) -> None:
        (self.folder / "victim").write_text(victim)
        (self.folder / "armed").touch()


@pytest.fixture
def cutter(repo: Repository, tmp_path: Path) -> Cutter:
    """The repository has two commits that differ in nearly every file; ``main`` is at the second."""
    folder = tmp_path / "cutter"
    folder.mkdir()
    (folder / "cut").write_text(CUT)
    (folder / "cut").chmod(0o755)
    repo.git("config", "filter.cut.smudge", str(folder / "cut"))
    repo.write(".gitattributes", "h filter=cut\n")
    for name in NAMES:
        repo.write(name, f"{name} of the first\n" * 9)
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "-m", "all files")
    return Cutter(folder)


def second_commit(repo: Repository) -> str:
    for name in NAMES:
        repo.write(name, f"{name} of the second\n" * 9)
    repo.git("rm", "--quiet", "--force", "d")
    repo.write("fresh/new", "new\n")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "-m", "all files anew")
    return repo.head()


@pytest.fixture
def stage(cutter: Cutter, repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def seen_at_work(look: Callable[[Path], list[ProcessRef]], cutter: Cutter) -> Callable[[Path], list[ProcessRef]]:
    """The look for gits; the one that waits goes on once it was seen."""

    def seen(slot: Path) -> list[ProcessRef]:
        found = look(slot)
        assert found or (cutter.folder / "go").exists(), "nobody saw git at work"
        (cutter.folder / "go").touch()
        return found

    return seen


@pytest.mark.parametrize("victim", ["git", "both", "start"])
@pytest.mark.parametrize("is_used", [False, True], ids=["fresh", "used"])
def test_x17_a_checkout_that_is_cut_off_leaves_a_slot_for_the_next_start(
    stage: Orchestra, cutter: Cutter, monkeypatch: pytest.MonkeyPatch, *, victim: str, is_used: bool
) -> None:
    if is_used:
        stage.stop(stage.start("before", client="fake").id)
    second_commit(stage.repo)
    cutter.arm(victim)
    child = stage.child("start", TASK, "fake")
    if victim == "start":
        eventually((cutter.folder / "reached").exists)
        monkeypatch.setattr(cut_off, "_gits_at", seen_at_work(cut_off._gits_at, cutter))
    child.communicate(timeout=60)
    assert child.returncode == (0 if victim == "git" else -signal.SIGKILL)
    rows = {row.id: row.status for row in stage.assert_sound().records}
    if victim == "git":
        # The start itself lives: it takes the slot back and goes on in another, or says that it failed.
        assert rows[AGENT] in ((AgentStatus.RUNNING, AgentStatus.WAITING_USER) if is_used else (AgentStatus.FAILED,))
    else:
        assert rows == {AGENT: AgentStatus.CRASHED}
    stage.stop(AGENT)
    stage.assert_quiet()
    again = stage.start("say: again", client="fake")
    assert (again.id, again.worktree_path, again.warnings) == ("say-again", str(stage.slot(1)), ())
    # An agent that ran in another slot keeps its branch; a merged one that a kill left behind is for `clean`.
    assert stage.branches() - {"before"} == ({again.id, AGENT} if is_used and victim == "git" else {again.id})
    assert stage.worktree(again).git("ls-files") == stage.repo.git("ls-files")
    stage.stop(again.id)
    stage.assert_quiet()


@dataclass
class Half:
    """A worktree in which git was killed half way from the first commit to the second."""

    slot: Repository
    first: str
    second: str

    def contents(self) -> dict[str, tuple[str, int]]:
        files = (path for path in self.slot.path.rglob("*") if path.is_file() and path.name != ".git")
        return {str(path): (path.read_text(), path.stat().st_mode) for path in files}

    @property
    def admin(self) -> Path:
        return Path(self.slot.git("rev-parse", "--absolute-git-dir"))


@pytest.fixture
def half(cutter: Cutter, repo: Repository) -> Half:
    first, path = repo.head(), repo.path.with_name("project-agent-worktree-0001")
    repo.git("worktree", "add", "--quiet", "--detach", str(path), first)
    second = second_commit(repo)
    cutter.arm("git")
    slot = Repository(path)
    slot.git("checkout", "--quiet", "--force", "-b", "side-agent/x", second, check=False)
    half = Half(slot, first, second)
    assert (half.admin / "index.lock").exists()
    git_cut_off.unlock(half.admin, "side-agent/x")
    assert len(slot.status().splitlines()) in range(4, len(NAMES))
    return half


def begun_file(half: Half) -> None:
    half.slot.write("i", "i of the second\ni of")


def finished_but_for_head(half: Half) -> None:
    half.slot.git("reset", "--quiet", "--hard", half.second)
    half.slot.git("reset", "--quiet", "--soft", half.first)


@pytest.mark.parametrize("more", [begun_file, finished_but_for_head])
def test_a_worktree_between_two_commits_goes_back_to_the_first(half: Half, more: Callable[[Half], None]) -> None:
    more(half)
    assert git_cut_off.mend(Git(half.slot.path), half.second)
    assert (half.slot.head(), half.slot.status()) == (half.first, "")
    assert not (half.slot.path / "fresh").exists()


def one_more_word(half: Half) -> None:
    half.slot.write("b", "b of the second\n" * 9 + "and a word\n")


def new_file(half: Half) -> None:
    half.slot.write("notes", "mine\n")


def work_on_a_file_in_the_same_place(half: Half) -> None:
    half.slot.write("fresh/new", "mine\n")


def deleted_without_git(half: Half) -> None:
    (half.slot.path / "README.md").unlink()


def made_a_program(half: Half) -> None:
    (half.slot.path / "b").chmod(0o755)


def overlooked_change(half: Half) -> None:
    half.slot.git("update-index", "--assume-unchanged", "README.md")
    half.slot.write("README.md", "mine\n")


def staged(half: Half) -> None:
    half.slot.write("k", "k of mine\n")
    half.slot.git("add", "k")
    half.slot.write("k", "k of the second\n" * 9)


def in_the_way_and_ignored(half: Half) -> None:
    half.slot.git("config", "core.excludesFile", str(half.slot.path.with_name("excludes")))
    half.slot.path.with_name("excludes").write_text("/fresh/\n")
    half.slot.write("fresh/new", "mine\n")


def in_a_merge(half: Half) -> None:
    (half.admin / "MERGE_HEAD").write_text(half.second)


def without_an_index(half: Half) -> None:
    (half.admin / "index").unlink()


WORK = [
    one_more_word, new_file, work_on_a_file_in_the_same_place, deleted_without_git, made_a_program, overlooked_change,
    staged, in_the_way_and_ignored, in_a_merge, without_an_index,
]  # fmt: skip


@pytest.mark.parametrize("work", WORK)
def test_a_worktree_with_work_in_it_is_left_as_it_is(half: Half, work: Callable[[Half], None]) -> None:
    work(half)
    before = half.contents()
    assert not git_cut_off.mend(Git(half.slot.path), half.second)
    assert half.contents() == before
    assert half.slot.head() == half.first


@pytest.mark.parametrize(("text", "is_begun"), [("# A pro", True), ("# A program\n", False)])
def test_a_worktree_that_never_had_an_index_is_filled_unless_somebody_wrote_into_it(
    repo: Repository, text: str, *, is_begun: bool
) -> None:
    slot = Repository(repo.path.with_name("project-agent-worktree-0001"))
    repo.git("worktree", "add", "--quiet", "--no-checkout", "-b", "side-agent/x", str(slot.path))
    slot.write("README.md", text)
    assert git_cut_off.mend(Git(slot.path), repo.head()) is is_begun
    assert ((slot.path / "README.md").read_text() == text) is not is_begun
    assert (slot.status() == "") is is_begun
    assert slot.git("branch", "--show-current") == "side-agent/x"


@pytest.mark.parametrize("head", ["ref: refs/heads/side-agent/x\n", "0" * 40 + "\n"])
def test_a_worktree_that_git_had_begun_to_make_is_made(repo: Repository, head: str) -> None:
    slot = Repository(repo.path.with_name("project-agent-worktree-0001"))
    repo.git("worktree", "add", "--quiet", "--no-checkout", "-b", "side-agent/x", str(slot.path))
    admin = repo.path / ".git/worktrees" / slot.path.name
    (admin / "locked").write_text("initializing")
    (admin / "HEAD").write_text(head)
    assert slots.leave(slot.path, "side-agent/x", repo.head()).endswith("is free again")
    assert (slot.head(), slot.status()) == (repo.head(), "")
    assert "locked" not in repo.git("worktree", "list", "--porcelain")
    assert repo.git("branch", "--list", "side-agent/*") == ""


def test_a_worktree_that_a_person_has_locked_stays_locked(repo: Repository) -> None:
    path = repo.path.with_name("project-agent-worktree-0001")
    repo.git(
        "worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", "mine", "-b", "side-agent/x", str(path)
    )
    slots.leave(path, "side-agent/x", repo.head())
    assert "locked mine" in repo.git("worktree", "list", "--porcelain")
