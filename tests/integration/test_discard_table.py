"""Situations in which a slot or branch must not be discarded, and those in which it may (reference/field-reports B1).

For each refusal: every reason names what is wrong and a way out, and nothing on disk is changed by asking or by trying.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from discard_support import BRANCH, STAMP, Pool, make_pool

from side_agents.core import discard, leases, slot_proof
from side_agents.core.verdicts import Target
from side_agents.errors import RefusedError, SideAgentsError, StateError
from side_agents.infra import fs, fs_tree, git_work
from side_agents.models import AgentStatus, Lease
from tests.support.repositories import Repository, copy_repository, make_repository

Setup = Callable[[Pool], Path | None]


@pytest.fixture
def pool(repo: Repository) -> Pool:
    return make_pool(repo)


# Each changes the pool and may name another path to be discarded than the first slot.


def dirty(pool: Pool) -> None:
    pool.slot.write("work.txt", "changed\n")


def staged(pool: Pool) -> None:
    pool.slot.write("new.txt")
    pool.slot.git("add", "new.txt")


def untracked(pool: Pool) -> None:
    pool.slot.write("deep/er/new.txt")


def untracked_hidden_by_configuration(pool: Pool) -> None:
    pool.slot.write("new.txt")
    pool.repo.git("config", "status.showUntrackedFiles", "no")


def deleted_file(pool: Pool) -> None:
    (pool.path / "README.md").unlink()


def mode_change(pool: Pool) -> None:
    (pool.path / "README.md").chmod(0o755)


def empty_branch_with_dirty_tree(pool: Pool) -> Path:
    slot = pool.add(2, "side-agent/empty")
    slot.write("only-here.txt")
    return slot.path


def assume_unchanged(pool: Pool) -> None:
    pool.slot.git("update-index", "--assume-unchanged", "README.md")
    pool.slot.write("README.md", "hidden change\n")


def skip_worktree(pool: Pool) -> None:
    pool.slot.git("update-index", "--skip-worktree", "README.md")
    pool.slot.write("README.md", "hidden change\n")


def ignored_database(pool: Pool) -> None:
    pool.slot.write("ignored/app.db", "rows")


def ignored_by_the_user_only(pool: Pool) -> None:
    pool.ignore("notes.txt\n")
    pool.slot.write("notes.txt", "my notes")


def env_that_differs(pool: Pool) -> None:
    pool.ignore(".env\n")
    pool.repo.write(".env", "KEY=1\n")
    pool.slot.write(".env", "KEY=2\n")


def database_in_a_build_folder(pool: Pool) -> None:
    pool.ignore("build/\n")
    pool.slot.write("build/data.sqlite", "rows")


def detached(pool: Pool) -> None:
    pool.slot.git("checkout", "--quiet", "--detach")
    pool.slot.commit("lost.txt")


def detached_known_to_a_rescue_ref_only(pool: Pool) -> None:
    detached(pool)
    pool.slot.git("update-ref", f"refs/side-agents/rescue/{pool.slot.head()}", "HEAD")


def unborn(pool: Pool) -> None:
    pool.slot.git("checkout", "--quiet", "--orphan", "side-agent/new")


def unborn_and_empty(pool: Pool) -> None:
    pool.slot.git("checkout", "--quiet", "--orphan", "side-agent/new")
    pool.slot.git("rm", "-rfq", ".")


def head_names_no_branch(pool: Pool) -> None:
    pool.slot.git("update-ref", "refs/worktree/mine", "HEAD")
    pool.slot.git("symbolic-ref", "HEAD", "refs/worktree/mine")
    pool.slot.commit("more.txt")


def private_ref(pool: Pool) -> None:
    pool.slot.git("update-ref", "refs/worktree/mine", "HEAD")


def merging(pool: Pool) -> None:
    pool.repo.commit("work.txt", "other\n")
    pool.slot.git("merge", "--quiet", "main", check=False)


def rebasing(pool: Pool) -> None:
    pool.repo.commit("work.txt", "other\n")
    pool.slot.git("rebase", "--quiet", "main", check=False)


def bisecting(pool: Pool) -> None:
    pool.slot.git("bisect", "start")


def cherry_picking_a_resolved_one(pool: Pool) -> None:
    pool.repo.commit("work.txt", "other\n")
    pool.slot.git("cherry-pick", "main", check=False)
    pool.slot.git("checkout", "--quiet", "--ours", "work.txt")
    pool.slot.git("add", "work.txt")


def stashed(pool: Pool) -> None:
    pool.slot.write("work.txt", "half done\n")
    pool.slot.git("stash", "--quiet")


def locked_by_git(pool: Pool) -> None:
    pool.repo.git("worktree", "lock", "--reason", "on a stick", str(pool.path))


def index_lock(pool: Pool) -> None:
    (pool.admin / "index.lock").touch()


def leased(pool: Pool) -> None:
    leases.take(pool.path, Lease(agent_id="ghost"))


def unreadable_lease(pool: Pool) -> None:
    (pool.path / ".pi").mkdir(exist_ok=True)
    (pool.path / ".pi/active.lock").write_text("no json")


def record(pool: Pool) -> None:
    pool.put(worktree_path=str(pool.path))


def running_record(pool: Pool) -> None:
    pool.put(status=AgentStatus.RUNNING, worktree_path=str(pool.path))


def reserved_by_a_start(pool: Pool) -> None:
    pool.put("z", AgentStatus.ALLOCATING_WORKTREE, worktree_path=str(pool.path))


def parent_of_a_nested_agent(pool: Pool) -> None:
    pool.put("child", worktree_path="/elsewhere", parent_worktree_path=str(pool.path))


def row_of_another_version(pool: Pool) -> None:
    with pool.context.registry.transaction("test") as state:
        state.foreign["new"] = {"id": "new", "status": "dreaming", "worktreePath": str(pool.path)}


def corrupt_registry(pool: Pool) -> None:
    pool.context.paths.registry.write_text("{")


def nested_repository(pool: Pool) -> None:
    make_repository(pool.path / "ignored" / "clone")


def nested_repository_in_packages(pool: Pool) -> None:
    pool.ignore(".venv/\n")
    make_repository(pool.path / ".venv" / "src" / "editable")


def symlinked_slot(pool: Pool) -> Path:
    elsewhere = make_repository(pool.repo.path.parent / "elsewhere").path
    pool.place(2).symlink_to(elsewhere)
    return pool.place(2)


def slot_moved_and_linked(pool: Pool) -> None:
    away = pool.path.with_name("away")
    pool.path.rename(away)
    pool.path.symlink_to(away)


def main_checkout(pool: Pool) -> Path:
    return pool.repo.path


def main_checkout_named_like_a_slot(pool: Pool) -> Path:
    """A repository that sits where a slot would (field reports 1 and 2)."""
    return copy_repository(pool.repo.path, pool.place(2)).path


def clone_named_like_a_slot(pool: Pool) -> Path:
    pool.repo.git("clone", "--quiet", ".", str(pool.place(2)))
    return pool.place(2)


def worktree_of_another_name(pool: Pool) -> Path:
    path = pool.repo.path.parent / "hotfix"
    pool.repo.git("worktree", "add", "--quiet", "-b", "hotfix", str(path))
    return path


def slot_of_another_repository(pool: Pool) -> Path:
    other = make_repository(pool.repo.path.parent / "other")
    other.git("worktree", "add", "--quiet", "-b", "side-agent/x", str(pool.place(2)))
    return pool.place(2)


def slot_name_inside_another_pool(pool: Pool) -> Path:
    other = make_repository(pool.repo.path.parent / "deep" / pool.repo.path.name)
    slot = other.path.parent / pool.path.name
    other.git("worktree", "add", "--quiet", "-b", "side-agent/x", str(slot))
    return slot


def pointer_elsewhere(pool: Pool) -> None:
    pool.add(2, "side-agent/b")
    (pool.path / ".git").write_text((pool.place(2) / ".git").read_text())


def pointer_to_the_main_repository(pool: Pool) -> None:
    (pool.path / ".git").write_text(f"gitdir: {pool.repo.path / '.git'}\n")


def pointer_is_a_link(pool: Pool) -> None:
    (pool.path / ".git").rename(pool.path.with_name("pointer"))
    (pool.path / ".git").symlink_to(pool.path.with_name("pointer"))


def admin_names_another_folder(pool: Pool) -> None:
    (pool.admin / "gitdir").write_text(f"{pool.path.with_name('moved')}/.git\n")


def admin_gone(pool: Pool) -> None:
    shutil.rmtree(pool.admin)


def registered_twice(pool: Pool) -> None:
    shutil.copytree(pool.admin, pool.admin.with_name("again"))


def core_worktree_elsewhere(pool: Pool) -> None:
    pool.slot.git("config", "extensions.worktreeConfig", "true")
    clean = pool.add(2, "side-agent/b")
    pool.slot.git("config", "--worktree", "core.worktree", str(clean.path))


def a_plain_folder(pool: Pool) -> Path:
    pool.place(2).mkdir()
    (pool.place(2) / "file").touch()
    return pool.place(2)


def a_plain_file(pool: Pool) -> Path:
    pool.place(2).write_text("not a folder")
    return pool.place(2)


def a_bare_repository(pool: Pool) -> Path:
    pool.repo.git("init", "--quiet", "--bare", str(pool.place(2)))
    return pool.place(2)


def nothing_at_all(pool: Pool) -> Path:
    return pool.place(7)


def deleted_by_hand_with_staged_work(pool: Pool) -> None:
    staged(pool)
    shutil.rmtree(pool.path)


def deleted_by_hand_while_detached(pool: Pool) -> None:
    detached(pool)
    shutil.rmtree(pool.path)


def deleted_by_hand_but_locked(pool: Pool) -> None:
    locked_by_git(pool)
    shutil.rmtree(pool.path)


def broken_index(pool: Pool) -> None:
    (pool.admin / "index").write_bytes(b"garbage")


def with_submodule(pool: Pool) -> Repository:
    library = make_repository(pool.repo.path.parent / "library")
    allow = ("-c", "protocol.file.allow=always")
    pool.slot.git(*allow, "submodule", "--quiet", "add", str(library.path), "lib")
    pool.slot.git("commit", "--quiet", "-m", "library")
    return Repository(pool.path / "lib")


def dirty_submodule(pool: Pool) -> None:
    with_submodule(pool).write("src/app.txt", "changed\n")
    pool.repo.git("config", "diff.ignoreSubmodules", "all")


def unpushed_submodule(pool: Pool) -> None:
    module = with_submodule(pool)
    before = module.head()
    module.git("checkout", "--quiet", "-b", "topic")
    module.commit("topic.txt")
    module.git("checkout", "--quiet", "--detach", before)


def stash_in_a_submodule(pool: Pool) -> None:
    module = with_submodule(pool)
    module.write("src/app.txt", "half done\n")
    module.git("stash", "--quiet")


def ignored_database_in_a_submodule(pool: Pool) -> None:
    with_submodule(pool).write("ignored/app.db", "rows")


REFUSED: list[tuple[Setup, str]] = [
    (dirty, "dirty"),
    (staged, "dirty"),
    (untracked, "dirty"),
    (untracked_hidden_by_configuration, "dirty"),
    (deleted_file, "dirty"),
    (mode_change, "dirty"),
    (empty_branch_with_dirty_tree, "dirty"),
    (assume_unchanged, "hidden"),
    (skip_worktree, "hidden"),
    (ignored_database, "precious"),
    (ignored_by_the_user_only, "precious"),
    (env_that_differs, "precious"),
    (database_in_a_build_folder, "precious"),
    (detached, "detached"),
    (detached_known_to_a_rescue_ref_only, "detached"),
    (unborn, "unborn"),
    (unborn_and_empty, "unborn"),
    (head_names_no_branch, "private-refs"),
    (private_ref, "private-refs"),
    (merging, "unfinished"),
    (rebasing, "unfinished"),
    (bisecting, "unfinished"),
    (cherry_picking_a_resolved_one, "unfinished"),
    (stashed, "stash"),
    (locked_by_git, "locked"),
    (index_lock, "git-busy"),
    (leased, "leased"),
    (unreadable_lease, "leased"),
    (record, "in-registry"),
    (running_record, "in-registry"),
    (reserved_by_a_start, "in-registry"),
    (parent_of_a_nested_agent, "parent-of"),
    (row_of_another_version, "in-registry"),
    (corrupt_registry, "could-not-inspect"),
    (nested_repository, "nested-repository"),
    (nested_repository_in_packages, "nested-repository"),
    (symlinked_slot, "symlink"),
    (slot_moved_and_linked, "symlink"),
    (main_checkout, "not-ours"),
    (main_checkout_named_like_a_slot, "own-repository"),
    (clone_named_like_a_slot, "own-repository"),
    (worktree_of_another_name, "not-ours"),
    (slot_of_another_repository, "pointers"),
    (slot_name_inside_another_pool, "not-ours"),
    (pointer_elsewhere, "pointers"),
    (pointer_to_the_main_repository, "pointers"),
    (pointer_is_a_link, "pointers"),
    (admin_names_another_folder, "pointers"),
    (admin_gone, "pointers"),
    (registered_twice, "pointers"),
    (core_worktree_elsewhere, "elsewhere"),
    (a_plain_folder, "pointers"),
    (a_plain_file, "not-a-folder"),
    (a_bare_repository, "git-directory"),
    (nothing_at_all, "missing"),
    (deleted_by_hand_with_staged_work, "staged"),
    (deleted_by_hand_while_detached, "detached"),
    (deleted_by_hand_but_locked, "locked"),
    (broken_index, "could-not-inspect"),
    (dirty_submodule, "dirty"),
    (unpushed_submodule, "unpushed"),
    (stash_in_a_submodule, "unpushed"),
    (ignored_database_in_a_submodule, "precious"),
]


@pytest.mark.parametrize(("setup", "code"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_not_proven_safe_stays(pool: Pool, setup: Setup, code: str) -> None:
    path = setup(pool) or pool.path
    before = pool.fingerprint()

    verdict = pool.prove(path)

    assert code in [reason.code for reason in verdict.reasons]
    for reason in verdict.reasons:
        assert reason.text.endswith(".")
        assert reason.way_out
    assert pool.fingerprint() == before, "asking changed something"
    with pytest.raises(RefusedError) as refused:
        pool.discard(path)
    assert refused.value.hint
    assert pool.fingerprint() == before, "trying changed something"
    assert not pool.trash.exists()


# What may go: (setup, what has to be true of the repository afterwards).


def as_it_is(pool: Pool) -> None:
    """An unmerged branch is no obstacle, because it stays."""


def packages_and_caches(pool: Pool) -> None:
    pool.ignore("node_modules/\n__pycache__/\n*.pyc\ntarget/\n.env\n")
    for name in ("node_modules/a/data.db", "src/__pycache__/a.pyc", "target/debug/app", "empty.pyc"):
        pool.slot.write(name, "made")


def env_as_in_main(pool: Pool) -> None:
    pool.ignore(".env\n")
    pool.repo.write(".env", "KEY=1\n")
    pool.slot.write(".env", "KEY=1\n")


def our_links(pool: Pool) -> None:
    shared = pool.repo.write(".pi/side-agent-start.sh", "true\n")
    (pool.path / ".pi").mkdir()
    (pool.path / ".pi/side-agent-start.sh").symlink_to(shared)


def our_links_without_excludes(pool: Pool) -> None:
    our_links(pool)
    (pool.repo.path / ".git/info/exclude").write_text("")


def branch_switched_by_the_agent(pool: Pool) -> None:
    pool.slot.git("checkout", "--quiet", "-b", "feature/own")
    pool.slot.commit("own.txt")


def detached_on_a_branch(pool: Pool) -> None:
    pool.slot.git("checkout", "--quiet", "--detach", "side-agent/a")


def detached_and_squashed_into_main(pool: Pool) -> None:
    pool.slot.git("checkout", "--quiet", "--detach")
    pool.slot.commit("one.txt")
    pool.slot.commit("two.txt")
    pool.repo.git("merge", "--quiet", "--squash", pool.slot.head())
    pool.repo.git("commit", "--quiet", "-m", "squashed")


def sparse(pool: Pool) -> None:
    pool.slot.git("sparse-checkout", "set", "--cone", "src")
    assert not (pool.path / "docs").exists()


def clean_submodule(pool: Pool) -> None:
    with_submodule(pool)


def stash_of_another_branch(pool: Pool) -> None:
    pool.repo.write("README.md", "main's own\n")
    pool.repo.git("stash", "--quiet")


def deleted_by_hand(pool: Pool) -> None:
    shutil.rmtree(pool.path)


def relative_pointers(pool: Pool) -> None:
    """As git 2.48 and later can write them."""
    (pool.path / ".git").write_text(f"gitdir: ../{pool.repo.path.name}/.git/worktrees/{pool.path.name}\n")
    (pool.admin / "gitdir").write_text(f"../../../../{pool.path.name}/.git\n")


def lease_of_a_killed_discard(pool: Pool) -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    leases.take(pool.path, Lease(pid=done.pid, extra={"purpose": slot_proof.DISCARD_PURPOSE}))


ALLOWED: list[Setup] = [
    as_it_is,
    packages_and_caches,
    env_as_in_main,
    our_links,
    our_links_without_excludes,
    branch_switched_by_the_agent,
    detached_on_a_branch,
    detached_and_squashed_into_main,
    sparse,
    clean_submodule,
    stash_of_another_branch,
    deleted_by_hand,
    relative_pointers,
    lease_of_a_killed_discard,
]


@pytest.mark.parametrize("setup", ALLOWED, ids=lambda value: value.__name__)
def test_what_is_proven_safe_goes_to_the_trash_and_comes_back(pool: Pool, setup: Setup) -> None:
    setup(pool)
    existed = pool.path.exists()
    head = pool.slot.head() if existed else ""
    branches = pool.repo.git("branch", "--format=%(refname) %(objectname)")
    files = sorted(fs_tree.files_below(pool.path)) if existed else []

    done = pool.discard()

    assert not pool.path.exists()
    assert not pool.admin.exists()
    assert str(pool.path) not in pool.repo.git("worktree", "list")
    assert pool.repo.git("branch", "--format=%(refname) %(objectname)").replace("+ ", "") == branches.replace("+ ", "")
    if head:
        assert pool.repo.git("rev-parse", f"refs/side-agents/rescue/{done.entry}/head") == head
        assert (pool.trash / str(done.entry) / "slot" / "README.md").exists() or setup is sparse
    bring_back(pool)
    assert pool.admin.exists()
    if existed:
        assert pool.slot.head() == head
        assert pool.slot.status() == "" or setup is our_links_without_excludes
        left = [path for path in fs_tree.files_below(pool.path) if path.name != "active.lock"]
        assert sorted(left) == [path for path in files if path.name != "active.lock"]
    assert not pool.trash.exists()
    assert "refs/side-agents" not in pool.refs()


def bring_back(pool: Pool) -> None:
    from side_agents.core.undo import undo

    for _, _, error in undo(pool.context, None):
        if error is not None:
            raise error


@pytest.fixture
def worker(pool: Pool) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, cwd: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_a_slot_that_a_process_works_in_stays(pool: Pool, worker: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = worker("cat", cwd=pool.path / "src")
    verdict = pool.prove()
    assert [reason.code for reason in verdict.reasons] == ["in-use"]
    assert f"Process {process.pid}" in verdict.reasons[0].text
    assert str(process.pid) in verdict.reasons[0].way_out


def test_a_slot_with_an_open_file_stays(pool: Pool, worker: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = worker("sh", "-c", f"exec 7<'{pool.path}/README.md'; echo ready; exec cat", cwd=pool.repo.path)
    assert process.stdout is not None
    process.stdout.readline()
    assert [reason.code for reason in pool.prove().reasons] == ["in-use"]


def test_a_slot_that_we_are_in_stays(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pool.path)
    reasons = pool.prove().reasons
    assert [reason.code for reason in reasons] == ["in-use"]
    assert "yourself" in reasons[0].text


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_cannot_be_read_is_not_taken_for_empty(pool: Pool) -> None:
    from discard_support import closed

    pool.slot.write("ignored/deep/file")
    with closed(pool.path / "ignored" / "deep"):
        assert "could-not-inspect" in [reason.code for reason in pool.prove().reasons]


def test_a_folder_whose_listing_fails_is_not_taken_for_empty(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[Path]:
        raise StateError("it cannot be looked through (Permission denied).")

    monkeypatch.setattr(fs_tree, "find_named", fail)
    before = pool.fingerprint()
    assert [reason.code for reason in pool.prove().reasons] == ["could-not-inspect"]
    with pytest.raises(RefusedError):
        pool.discard()
    assert pool.fingerprint() == before


def test_a_preservation_step_that_fails_aborts(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field report 15."""
    (pool.repo.path / ".git/refs/side-agents").write_text("in the way of a folder")
    before = pool.fingerprint()
    with pytest.raises(SideAgentsError):
        pool.discard()
    assert pool.fingerprint() == before
    assert pool.slot.status() == ""


def test_a_trash_that_cannot_be_made_aborts(pool: Pool) -> None:
    pool.trash.write_text("a file in the way")
    before = pool.fingerprint()
    with pytest.raises(SideAgentsError):
        pool.discard()
    assert pool.fingerprint() == before


def test_what_becomes_dirty_between_proof_and_act_stays(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field reports 3 and 12: after the first proof, but before the second one."""
    real = git_work.preserve

    def preserve(*args: object) -> None:
        pool.slot.write("late.txt", "late")
        real(*args)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(git_work, "preserve", preserve)
    with pytest.raises(RefusedError, match=r"late\.txt"):
        pool.discard()
    assert (pool.path / "late.txt").read_text() == "late"
    assert not pool.trash.exists()
    assert leases.read(pool.path) is None


def test_what_becomes_dirty_in_the_last_moment_is_put_back(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the second proof, right before the rename."""
    real = fs.move

    def move(source: Path, target: Path) -> None:
        if source == pool.path:
            pool.slot.write("late.txt", "late")
        real(source, target)

    monkeypatch.setattr(fs, "move", move)
    with pytest.raises(RefusedError, match=r"late\.txt"):
        pool.discard()
    assert (pool.path / "late.txt").read_text() == "late"
    assert pool.slot.status() == "?? late.txt"
    assert not pool.trash.exists()
    assert leases.read(pool.path) is None


def test_an_ignored_file_made_in_the_last_moment_is_put_back(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fs.move

    def move(source: Path, target: Path) -> None:
        if source == pool.path:
            pool.slot.write("ignored/rows.db", "rows")
        real(source, target)

    monkeypatch.setattr(fs, "move", move)
    with pytest.raises(RefusedError, match=r"rows\.db"):
        pool.discard()
    assert (pool.path / "ignored/rows.db").read_text() == "rows"


def test_a_process_that_comes_in_at_the_last_moment_gets_its_folder_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    real = fs.move
    came: list[subprocess.Popen[bytes]] = []

    def move(source: Path, target: Path) -> None:
        if source == pool.path and not came:
            came.append(worker("sh", "-c", "echo in; read line; pwd -P; exec cat", cwd=pool.path))
            assert came[0].stdout is not None
            came[0].stdout.readline()
        real(source, target)

    monkeypatch.setattr(fs, "move", move)
    with pytest.raises(RefusedError, match="came into it"):
        pool.discard()
    assert came[0].stdin is not None
    came[0].stdin.write(b"go\n")
    came[0].stdin.flush()
    assert came[0].stdout is not None
    assert came[0].stdout.readline().decode().strip() == str(pool.path)


def test_a_start_that_reserved_the_slot_in_the_same_moment_keeps_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = leases.take

    def take(worktree: Path, lease: Lease) -> bool:
        pool.put("fast", AgentStatus.ALLOCATING_WORKTREE, worktree_path=str(worktree))
        return real(worktree, lease)

    monkeypatch.setattr(leases, "take", take)
    with pytest.raises(RefusedError, match="fast"):
        pool.discard()
    assert pool.slot.status() == ""
    assert leases.read(pool.path) is None


def test_a_lease_taken_in_the_same_moment_wins(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "take", lambda *_: False)
    with pytest.raises(RefusedError, match="taken its lease"):
        pool.discard()
    assert pool.slot.status() == ""


def test_a_branch_that_moves_in_the_same_moment_stays(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.repo.git("branch", "side-agent/done")
    real = git_work.preserve

    def preserve(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]  # passed on as it came
        pool.repo.git("update-ref", "refs/heads/side-agent/done", pool.slot.head())

    monkeypatch.setattr(git_work, "preserve", preserve)
    with pytest.raises(RefusedError):
        discard.discard(pool.context, pool.branch_target("side-agent/done"), stamp=STAMP)
    assert pool.repo.git("rev-parse", "side-agent/done") == pool.slot.head()


def test_a_slot_of_a_bare_layout_is_judged_like_any_other(repo: Repository, tmp_path: Path) -> None:
    home = tmp_path / "bare-home"
    home.mkdir()
    repo.git("clone", "--quiet", "--bare", ".", str(home / ".bare"))
    (home / ".git").write_text("gitdir: ./.bare\n")
    pool = Pool(Repository(home), Repository(tmp_path / "bare-home-agent-worktree-0001"))
    pool.add(1, "side-agent/a")
    pool.slot.commit("work.txt")
    pool.slot.write("late.txt")
    assert [reason.code for reason in pool.prove().reasons] == ["dirty"]
    (pool.path / "late.txt").unlink()
    assert pool.discard().entry
    assert not pool.path.exists()
    assert (home / ".bare" / "HEAD").exists()
    bring_back(pool)
    assert pool.slot.status() == ""


def test_a_slot_of_a_submodule_is_judged_like_any_other(repo: Repository, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "lib")
    pool = Pool(Repository(repo.path / "lib"), Repository(repo.path / "lib-agent-worktree-0001"))
    pool.add(1, "side-agent/a")
    pool.slot.commit("work.txt")
    head = pool.slot.head()
    pool.slot.write("late.txt")
    assert [reason.code for reason in pool.prove().reasons] == ["dirty"]
    (pool.path / "late.txt").unlink()
    pool.discard()
    assert not pool.path.exists()
    bring_back(pool)
    assert (pool.slot.head(), pool.slot.status()) == (head, "")


def test_a_slot_below_a_git_directory_stays(repo: Repository, tmp_path: Path) -> None:
    """Field report 5: git's own list may name a git directory as if it were a checkout."""
    inside = repo.path / ".git" / "modules"
    inside.mkdir()
    module = make_repository(inside / "project")
    pool = Pool(module, Repository(inside / "project-agent-worktree-0001"))
    pool.add(1, "side-agent/a")
    assert [reason.code for reason in pool.prove().reasons] == ["inside-git-dir"]


# Branches.


def squash(pool: Pool, branch: str) -> None:
    pool.repo.git("merge", "--quiet", "--squash", branch)
    pool.repo.git("commit", "--quiet", "-m", "squashed")


def make_branch(pool: Pool, *files: str, name: str = "side-agent/b") -> str:
    slot = pool.add(2, name)
    for file in files:
        slot.commit(file, f"{file}\n")
    pool.repo.git("worktree", "remove", str(slot.path))
    return name


def test_merged_branches_may_go_and_come_back(pool: Pool) -> None:
    branch = make_branch(pool, "one.txt", "two.txt")
    head = pool.repo.git("rev-parse", branch)
    pool.repo.git("merge", "--quiet", "--no-edit", branch)
    done = discard.discard(pool.context, pool.branch_target(branch), stamp=STAMP)
    assert f"refs/heads/{branch} " not in pool.refs()
    assert f"refs/side-agents/rescue/{done.entry}/head {head}" in pool.refs()
    bring_back(pool)
    assert f"refs/heads/{branch} {head}" in pool.refs()
    assert "refs/side-agents" not in pool.refs()


def test_squash_merged_and_rebased_branches_may_go(pool: Pool) -> None:
    """Field report 21: the ancestor test alone would keep them for ever."""
    branch = make_branch(pool, "one.txt", "two.txt")
    squash(pool, branch)
    pool.repo.commit("three.txt")
    assert discard.prove(pool.context, pool.branch_target(branch)).is_safe
    picked = make_branch(pool, "four.txt", name="side-agent/c")
    pool.repo.commit("five.txt")
    pool.repo.git("cherry-pick", picked)
    assert "all its changes" in discard.prove(pool.context, pool.branch_target(picked)).keeps


def half_squashed(pool: Pool) -> str:
    branch = make_branch(pool, "one.txt")
    squash(pool, branch)
    pool.repo.git("worktree", "add", "--quiet", str(pool.place(3)), branch)
    Repository(pool.place(3)).commit("later.txt")
    pool.repo.git("worktree", "remove", str(pool.place(3)))
    return branch


def unmerged(pool: Pool) -> str:
    return make_branch(pool, "one.txt")


def squashed_and_reverted(pool: Pool) -> str:
    branch = make_branch(pool, "one.txt", "two.txt")
    squash(pool, branch)
    pool.repo.git("revert", "--no-edit", "HEAD")
    return branch


def cancelling_itself(pool: Pool) -> str:
    slot = pool.add(2, "side-agent/b")
    slot.commit("one.txt")
    slot.git("revert", "--no-edit", "HEAD")
    pool.repo.git("worktree", "remove", str(slot.path))
    return "side-agent/b"


def merged_into_a_parent_only(pool: Pool) -> str:
    branch = make_branch(pool, "one.txt")
    pool.slot.git("merge", "--quiet", "--no-edit", branch)
    return branch


def an_evil_merge(pool: Pool) -> str:
    """Only the merge commit itself holds work, which `git cherry` passes over."""
    slot = pool.add(2, "side-agent/b")
    pool.repo.commit("other.txt")
    mine = slot.commit("mine.txt", "mine.txt\n")
    slot.git("merge", "--quiet", "--no-commit", "main", check=False)
    slot.write("evil.txt")
    slot.git("add", "evil.txt")
    slot.git("commit", "--quiet", "-m", "merge")
    pool.repo.git("cherry-pick", mine)
    pool.repo.git("worktree", "remove", str(slot.path))
    return "side-agent/b"


def with_a_stash(pool: Pool) -> str:
    slot = pool.add(2, "side-agent/b")
    slot.write("README.md", "half\n")
    slot.git("stash", "--quiet")
    pool.repo.git("worktree", "remove", str(slot.path))
    return "side-agent/b"


def checked_out(pool: Pool) -> str:
    pool.repo.git("merge", "--quiet", "--no-edit", BRANCH)
    return BRANCH


def checked_out_in_a_missing_folder(pool: Pool) -> str:
    checked_out(pool)
    shutil.rmtree(pool.path)
    return BRANCH


def of_a_tracked_agent(pool: Pool) -> str:
    branch = make_branch(pool)
    pool.put("b")
    return branch


def of_a_tracked_agent_by_record(pool: Pool) -> str:
    branch = make_branch(pool)
    pool.put("other", branch=branch)
    return branch


def the_users_own(pool: Pool) -> str:
    pool.repo.git("branch", "topic")
    return "topic"


def the_main_branch(pool: Pool) -> str:
    return "main"


def almost_ours(pool: Pool) -> str:
    pool.repo.git("branch", "side-agents-notes")
    return "side-agents-notes"


def a_symbolic_ref(pool: Pool) -> str:
    pool.repo.git("symbolic-ref", "refs/heads/side-agent/link", "refs/heads/main")
    return "side-agent/link"


def no_such_branch(pool: Pool) -> str:
    return "side-agent/none"


def unreadable_repository(pool: Pool) -> str:
    branch = make_branch(pool, "one.txt")
    (pool.repo.path / ".git/refs/heads/side-agent/b").write_text("f" * 40 + "\n")
    return branch


BRANCHES: list[tuple[Callable[[Pool], str], str]] = [
    (unmerged, "unmerged"),
    (half_squashed, "unmerged"),
    (squashed_and_reverted, "unmerged"),
    (cancelling_itself, "unmerged"),
    (merged_into_a_parent_only, "unmerged"),
    (an_evil_merge, "unmerged"),
    (with_a_stash, "stash"),
    (checked_out, "checked-out"),
    (checked_out_in_a_missing_folder, "checked-out"),
    (of_a_tracked_agent, "tracked"),
    (of_a_tracked_agent_by_record, "tracked"),
    (the_users_own, "not-ours"),
    (the_main_branch, "not-ours"),
    (almost_ours, "not-ours"),
    (a_symbolic_ref, "missing"),
    (no_such_branch, "missing"),
    (unreadable_repository, "missing"),
]


@pytest.mark.parametrize(("setup", "code"), BRANCHES, ids=lambda value: getattr(value, "__name__", ""))
def test_branches_that_are_not_proven_to_have_landed_stay(pool: Pool, setup: Callable[[Pool], str], code: str) -> None:
    target: Target = pool.branch_target(setup(pool))
    before = pool.fingerprint()
    verdict = discard.prove(pool.context, target)
    assert code in [reason.code for reason in verdict.reasons]
    assert all(reason.text and reason.way_out for reason in verdict.reasons)
    with pytest.raises(RefusedError):
        discard.discard(pool.context, target, stamp=STAMP)
    assert pool.fingerprint() == before
