"""infra/git* against real git."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from side_agents.errors import (
    ConflictError,
    DeadlineError,
    GitError,
    NoCommitsError,
    NotARepositoryError,
    NotFoundError,
    RefusedError,
)
from side_agents.infra import git_changes, git_worktrees, proc
from side_agents.infra.git import Git, Operation
from side_agents.infra.git_layout import find_layout
from tests.support.repositories import Repository, make_repository

ALLOW_FILE = ("-c", "protocol.file.allow=always")


@pytest.fixture
def git(repo: Repository) -> Git:
    return Git(repo.path)


@pytest.fixture
def slot(repo: Repository, git: Git) -> Repository:
    return add_slot(git, repo.path.parent / "slot-0001", "side-agent/first")


def add_slot(git: Git, path: Path, branch: str, base: str = "HEAD") -> Repository:
    git_worktrees.add(git, path, branch, base)
    git_worktrees.populate(Git(path), source=git.directory)
    return Repository(path)


# --- layouts, compared with git's own answers


def same_as_git(start: Path) -> None:
    layout = find_layout(start)
    at = Repository(start)
    assert str(layout.worktree_top) == at.git("rev-parse", "--show-toplevel")
    for name, found in (("--git-common-dir", layout.common_dir), ("--git-dir", layout.git_dir)):
        assert found == (start / at.git("rev-parse", name)).resolve()


def test_layout_of_a_clone_and_its_subfolder(repo: Repository) -> None:
    for start in (repo.path, repo.path / "src"):
        same_as_git(start)
        layout = find_layout(start)
        assert layout.main_top == repo.path
        assert (layout.is_linked, layout.is_bare_layout, layout.is_submodule) == (False, False, False)


def test_layout_of_a_linked_worktree_names_the_main_checkout(repo: Repository, slot: Repository) -> None:
    for start in (slot.path, slot.path / "src"):
        same_as_git(start)
        layout = find_layout(start)
        assert layout.main_top == repo.path
        assert layout.worktree_top == slot.path
        assert layout.is_linked


def test_layout_through_a_symbolic_link(repo: Repository, slot: Repository, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(slot.path, target_is_directory=True)
    same_as_git(link)
    assert find_layout(link) == find_layout(slot.path)


def bare_repository(repo: Repository, path: Path) -> Repository:
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(path))
    return Repository(path)


def test_layout_of_a_bare_repository_with_worktrees(repo: Repository, tmp_path: Path) -> None:
    bare = bare_repository(repo, tmp_path / "store.git")
    tree = add_slot(Git(bare.path), tmp_path / "tree", "side-agent/x", "main")
    same_as_git(tree.path)
    for start in (tree.path, bare.path):
        layout = find_layout(start)
        assert (layout.main_top, layout.common_dir, layout.is_bare_layout) == (bare.path, bare.path, True)
    assert find_layout(bare.path).worktree_top is None


def test_layout_of_a_hidden_bare_repository(repo: Repository, tmp_path: Path) -> None:
    container = tmp_path / "container"
    bare = bare_repository(repo, container / ".bare")
    (container / ".git").write_text("gitdir: ./.bare\n")
    tree = add_slot(Git(container), container / "tree", "side-agent/x", "main")
    same_as_git(tree.path)
    for start in (container, tree.path, bare.path):
        assert find_layout(start).main_top == container
    assert find_layout(container).worktree_top is None


def test_layout_with_a_separate_git_directory(tmp_path: Path) -> None:
    path, store = tmp_path / "checkout", tmp_path / "store"
    path.mkdir()
    repository = Repository(path)
    repository.git("init", "--quiet", f"--separate-git-dir={store}")
    repository.commit()
    same_as_git(path)
    assert find_layout(path).main_top == path


def test_layout_obeys_core_worktree(repo: Repository, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    repo.git("config", "core.worktree", "../../tree")
    assert find_layout(repo.path).worktree_top == tmp_path / "tree"
    assert repo.git("rev-parse", "--show-toplevel") == str(tmp_path / "tree")


def with_submodule(repo: Repository, tmp_path: Path) -> Repository:
    library = make_repository(tmp_path / "library")
    repo.git(*ALLOW_FILE, "submodule", "--quiet", "add", str(library.path), "vendor/library")
    repo.git("commit", "--quiet", "-m", "add a submodule")
    return library


def test_layout_of_a_submodule_is_its_own(repo: Repository, tmp_path: Path) -> None:
    with_submodule(repo, tmp_path)
    inner = repo.path / "vendor" / "library"
    same_as_git(inner)
    layout = find_layout(inner / "src")
    assert layout.main_top == layout.worktree_top == inner
    assert layout.is_submodule
    tree = add_slot(Git(inner), tmp_path / "inner-tree", "side-agent/x")
    same_as_git(tree.path)
    assert find_layout(tree.path).main_top == inner


def test_the_inside_of_a_git_directory_is_refused(repo: Repository, slot: Repository) -> None:
    inside = [repo.path / ".git", repo.path / ".git" / "refs", repo.path / ".git" / "worktrees" / "slot-0001"]
    for start in inside:
        with pytest.raises(NotARepositoryError):
            find_layout(start)


def test_no_repository_is_an_error_with_advice(tmp_path: Path) -> None:
    for start in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotARepositoryError):
            find_layout(start)
    (tmp_path / ".git").write_text("gitdir: /gone\n")
    with pytest.raises(NotARepositoryError, match="not a git directory"):
        find_layout(tmp_path)


def test_layouts_load_no_git_and_start_nothing() -> None:
    heavy = "{'git', 'gitdb', 'libtmux', 'psutil', 'filelock', 'subprocess', 'logging'}"
    code = f"import sys, side_agents.infra.git_layout; print(sorted({heavy} & set(sys.modules)))"
    done = proc.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    assert done.text == "[]"


# --- facts


def test_facts_of_a_checkout(repo: Repository, git: Git) -> None:
    assert git.head_commit() == git.resolve("main") == repo.head()
    assert git.current_branch() == "main"
    assert git.resolve("nothing") is git.resolve("--all") is None
    assert git.branch_exists("main")
    assert not git.branch_exists("mai")
    first = repo.head()
    repo.commit()
    assert git.ahead(first) == 1
    assert git.is_ancestor(first, "HEAD")
    assert not git.is_ancestor("HEAD", first)
    repo.git("checkout", "--quiet", "--detach")
    assert git.current_branch() is None
    assert git.top() == repo.path


def test_a_repository_without_commits_is_told_so(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.git("init", "--quiet", "--initial-branch=trunk")
    assert Git(tmp_path).current_branch() == "trunk"
    with pytest.raises(NoCommitsError):
        Git(tmp_path).head_commit()


def test_side_agent_branches_and_the_name_that_blocks_them(repo: Repository, git: Git) -> None:
    assert git.side_agent_refs() == []
    repo.git("branch", "side-agent/one")
    repo.git("branch", "side-agents-other")
    assert [(ref.name, ref.commit) for ref in git.side_agent_refs()] == [("refs/heads/side-agent/one", repo.head())]
    repo.git("branch", "-D", "side-agent/one")
    repo.git("branch", "side-agent")
    assert [ref.name for ref in git.side_agent_refs()] == ["refs/heads/side-agent"]


def test_status_tells_every_kind_of_change(repo: Repository, git: Git) -> None:
    assert git.is_clean()
    repo.write("ignored/file")
    assert git.is_clean()
    repo.write("new é\n/b c.txt")
    repo.git("mv", "src/app.txt", "src/moved.txt")
    (repo.path / "README.md").unlink()
    found = {(entry.code, entry.path, entry.original) for entry in git.status_entries(every_file=True)}
    assert found == {
        ("??", "new é\n/b c.txt", None),
        ("R ", "src/moved.txt", "src/app.txt"),
        (" D", "README.md", None),
    }
    assert ("??", "new é\n/", None) in {(e.code, e.path, e.original) for e in git.status_entries()}


def test_the_users_status_settings_do_not_hide_work(repo: Repository, git: Git) -> None:
    repo.git("config", "status.showUntrackedFiles", "no")
    repo.write("new.txt")
    assert not git.is_clean()


def begin_merge(repo: Repository) -> None:
    repo.git("merge", "other", check=False)


def begin_bisect(repo: Repository) -> None:
    repo.git("bisect", "start")


def begin_am(repo: Repository) -> None:
    patch = repo.git("format-patch", "-1", "other", "--stdout")
    repo.write("../the.patch", patch + "\n")
    repo.git("am", "../the.patch", check=False)


OPERATIONS: list[tuple[Operation, Callable[[Repository], object]]] = [
    ("merge", begin_merge),
    ("rebase", lambda repo: repo.git("rebase", "other", check=False)),
    ("rebase", lambda repo: repo.git("rebase", "--apply", "other", check=False)),
    ("cherry-pick", lambda repo: repo.git("cherry-pick", "other", check=False)),
    ("revert", lambda repo: repo.git("revert", "--no-edit", "HEAD~1", check=False)),
    ("am", begin_am),
    ("bisect", begin_bisect),
]


@pytest.mark.parametrize(("operation", "begin"), OPERATIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_unfinished_operations_are_seen_and_never_reused(
    git: Git, slot: Repository, operation: Operation, begin: Callable[[Repository], object]
) -> None:
    slot.git("branch", "other")
    slot.commit("src/app.txt", "ours\n")
    slot.commit("src/app.txt", "ours again\n")
    slot.git("checkout", "--quiet", "other")
    slot.commit("src/app.txt", "theirs\n")
    slot.git("checkout", "--quiet", "side-agent/first")
    at = Git(slot.path)
    assert at.unfinished_operation() is None
    begin(slot)
    assert at.unfinished_operation() == operation
    before = (slot.status(), slot.git("for-each-ref"))
    with pytest.raises(RefusedError, match=operation):
        git_worktrees.reuse(at, "side-agent/second", "main")
    assert (slot.status(), slot.git("for-each-ref")) == before


# --- hygiene


def hostile(repo: Repository, marker: Path) -> None:
    script = repo.write(".git/evil.sh", f"#!/bin/sh\necho ran >> '{marker}'\nexit 0\n")
    script.chmod(0o755)
    hooks = repo.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change", "pre-auto-gc"):
        (hooks / name).symlink_to(script)
    settings = {
        "core.fsmonitor": script,
        "diff.external": script,
        "core.editor": script,
        "core.pager": script,
        "sequence.editor": script,
        "gc.auto": 1,
        "gpg.program": script,
        "commit.gpgSign": "true",
    }
    for key, value in settings.items():
        repo.git("config", key, str(value))
    repo.write(".git/info/attributes", "* diff=evil\n")
    repo.git("config", "diff.evil.textconv", str(script))


def test_programs_named_by_a_repository_are_not_run(repo: Repository, git: Git, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hostile(repo, marker)
    repo.write("src/app.txt", "changed\n")
    repo.write("new.txt")
    git.status_entries()
    git.worktrees()
    assert git_changes.snapshot(git)
    assert "changed" in git_changes.diff(git, "HEAD")
    assert git_changes.changed_files(git, "HEAD") == 2
    slot = add_slot(git, tmp_path / "slot", "side-agent/x")
    git_worktrees.reuse(Git(slot.path), "side-agent/y", "main")
    git.delete_merged_branch("side-agent/x")
    git_worktrees.prune(git)
    assert not marker.exists()
    # The trap itself works: without our care git springs it.
    repo.status()
    assert marker.exists()


def test_hooks_run_when_asked_for(repo: Repository, git: Git, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hook = repo.write(".git/hooks/pre-commit", f"#!/bin/sh\necho ran > '{marker}'\n")
    hook.chmod(0o755)
    git.run("commit", "--quiet", "--allow-empty", "-m", "one")
    assert not marker.exists()
    git.run("commit", "--quiet", "--allow-empty", "-m", "two", hooks=True)
    assert marker.exists()


def test_an_outer_gits_variables_do_not_redirect_us(
    repo: Repository, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other")
    other.commit("other.txt")
    for name, value in {
        "GIT_DIR": other.path / ".git",
        "GIT_WORK_TREE": other.path,
        "GIT_INDEX_FILE": tmp_path / "no-index",
        "GIT_PREFIX": "src/",
        "GIT_NAMESPACE": "x",
        "GIT_EXTERNAL_DIFF": "false",
    }.items():
        monkeypatch.setenv(name, str(value))
    other_head = proc.run(["git", "rev-parse", "HEAD"], cwd=repo.path).text
    assert git.head_commit() != other_head
    assert git.is_clean()
    assert git.text("rev-parse", "--show-toplevel") == str(repo.path)


def test_a_missing_folder_is_never_replaced_by_ours(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo.path)
    with pytest.raises(NotFoundError):
        Git(repo.path / "gone").run("status")


def test_failures_carry_gits_own_words(git: Git) -> None:
    with pytest.raises(GitError) as caught:
        git.run("switch", "nowhere")
    assert "nowhere" in str(caught.value)
    assert caught.value.returncode == 128


def test_a_deadline_ends_git_and_leaves_no_lock_file(repo: Repository, git: Git, tmp_path: Path) -> None:
    hook = repo.write(".git/hooks/post-index-change", "#!/bin/sh\nexec sleep 60\n")
    hook.chmod(0o755)
    repo.write("new.txt")
    with pytest.raises(DeadlineError):
        git.run("add", "--all", hooks=True, deadline=0.5)
    assert not list((repo.path / ".git").glob("*.lock"))


def test_input_and_odd_bytes_pass_through(git: Git) -> None:
    blob = git.run("hash-object", "-w", "--stdin", input=b"\xff\x00\n").text
    assert git.run("cat-file", "blob", blob).stdout == b"\xff\x00\n"


# --- worktrees


def test_a_new_slot_has_branch_and_files_and_no_upstream(repo: Repository, git: Git, slot: Repository) -> None:
    at = Git(slot.path)
    assert at.current_branch() == "side-agent/first"
    assert at.head_commit() == repo.head()
    assert at.is_clean()
    assert (slot.path / "src" / "app.txt").exists()
    assert "side-agent" not in (repo.path / ".git" / "config").read_text()
    main, linked = git.worktrees()
    assert (main.path, main.branch, main.bare) == (repo.path, "main", False)
    assert (linked.path, linked.branch, linked.head) == (slot.path, "side-agent/first", repo.head())
    assert (linked.detached, linked.locked, linked.prunable) == (False, False, False)


def test_an_existing_branch_or_folder_is_never_taken(repo: Repository, git: Git, tmp_path: Path) -> None:
    repo.git("branch", "side-agent/taken")
    head = repo.head()
    with pytest.raises(ConflictError):
        git_worktrees.add(git, tmp_path / "slot", "side-agent/taken", "HEAD")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "work.txt").write_text("work")
    with pytest.raises(ConflictError):
        git_worktrees.add(git, tmp_path / "full", "side-agent/new", "HEAD")
    with pytest.raises(GitError):
        git_worktrees.add(git, tmp_path / "slot", "side-agent/new", "no-such-base")
    assert git.resolve("side-agent/taken") == head
    assert not git.branch_exists("side-agent/new")
    assert (tmp_path / "full" / "work.txt").read_text() == "work"


def test_a_failed_add_leaves_no_branch(repo: Repository, git: Git, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GitError):
        git_worktrees.add(git, tmp_path / "file" / "slot", "side-agent/new", "HEAD")
    assert not git.branch_exists("side-agent/new")
    repo.git("branch", "side-agent")
    with pytest.raises(GitError, match="side-agent"):
        git_worktrees.add(git, tmp_path / "slot", "side-agent/new", "HEAD")


ADD = """
import sys
from pathlib import Path
from side_agents.infra import git_worktrees
from side_agents.infra.git import Git
source, path, branch = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
import git
print("ready", flush=True)
sys.stdin.readline()
git_worktrees.add(Git(source), path, branch, "HEAD")
git_worktrees.populate(Git(path), source=source)
"""


def test_sixteen_processes_add_at_once(repo: Repository, git: Git, tmp_path: Path) -> None:
    work = [(str(repo.path), str(tmp_path / f"slot-{n}"), f"side-agent/n{n}") for n in range(16)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, *args],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for args in work
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0] * 16
    assert {entry.branch for entry in git.worktrees()} == {"main", *(branch for _, _, branch in work)}
    assert all(Git(Path(path)).is_clean() and Path(path, "README.md").exists() for _, path, _ in work)


def test_x9_a_slot_deleted_by_hand_can_be_made_again(repo: Repository, git: Git, slot: Repository) -> None:
    unmerged = slot.commit("work.txt", "work")
    proc.run(["rm", "-rf", str(slot.path)])
    assert git.worktrees()[1].prunable
    again = add_slot(git, slot.path, "side-agent/second")
    assert Git(again.path).current_branch() == "side-agent/second"
    assert git.resolve("side-agent/first") == unmerged


def test_x9_commits_that_only_the_deleted_slot_knew_get_a_rescue_ref(git: Git, slot: Repository) -> None:
    slot.git("checkout", "--quiet", "--detach")
    lost = slot.commit("work.txt", "work")
    proc.run(["rm", "-rf", str(slot.path)])
    add_slot(git, slot.path, "side-agent/second")
    assert git.resolve(f"{git_worktrees.RESCUE_REFS}{lost}") == lost


def test_a_locked_worktree_that_is_missing_is_left_alone(repo: Repository, git: Git, slot: Repository) -> None:
    repo.git("worktree", "lock", str(slot.path))
    proc.run(["rm", "-rf", str(slot.path)])
    with pytest.raises(GitError, match="locked"):
        git_worktrees.add(git, slot.path, "side-agent/second", "HEAD")
    assert not git.branch_exists("side-agent/second")
    git_worktrees.prune(git)
    assert len(git.worktrees()) == 2


def test_pruning_forgets_and_rescues(git: Git, slot: Repository) -> None:
    slot.git("checkout", "--quiet", "--detach")
    lost = slot.commit("work.txt", "work")
    proc.run(["rm", "-rf", str(slot.path)])
    git_worktrees.prune(git)
    assert len(git.worktrees()) == 1
    assert git.resolve(f"{git_worktrees.RESCUE_REFS}{lost}") == lost


def test_x10_an_unmerged_branch_survives_reuse(repo: Repository, git: Git, slot: Repository) -> None:
    unmerged = slot.commit("work.txt", "work")
    slot.write("ignored/cache")
    git_worktrees.reuse(Git(slot.path), "side-agent/second", "main")
    assert git.resolve("side-agent/first") == unmerged
    assert git.resolve("side-agent/second") == repo.head()
    assert Git(slot.path).current_branch() == "side-agent/second"
    assert not (slot.path / "work.txt").exists()
    assert (slot.path / "ignored" / "cache").exists()
    assert slot.status() == ""


def test_reuse_never_moves_a_branch_that_exists(repo: Repository, git: Git, slot: Repository) -> None:
    unmerged = slot.commit("work.txt", "work")
    repo.git("branch", "side-agent/parked")
    parked = repo.head()
    repo.commit()
    for taken in ("side-agent/parked", "side-agent/first"):
        with pytest.raises(ConflictError):
            git_worktrees.reuse(Git(slot.path), taken, "main")
    assert git.resolve("side-agent/parked") == parked
    assert git.resolve("side-agent/first") == unmerged
    assert Git(slot.path).current_branch() == "side-agent/first"
    assert (slot.path / "work.txt").exists()


def test_reuse_of_a_detached_slot_leaves_a_rescue_ref(git: Git, slot: Repository) -> None:
    slot.git("checkout", "--quiet", "--detach")
    lost = slot.commit("work.txt", "work")
    kept = git_worktrees.reuse(Git(slot.path), "side-agent/second", "main")
    assert kept == f"{git_worktrees.RESCUE_REFS}{lost}"
    assert git.resolve(kept) == lost


@pytest.mark.parametrize("name", ["src/app.txt", "untracked.txt"])
def test_a_slot_with_work_in_it_is_refused(git: Git, slot: Repository, name: str) -> None:
    slot.write(name, "precious\n")
    with pytest.raises(RefusedError):
        git_worktrees.reuse(Git(slot.path), "side-agent/second", "main")
    assert (slot.path / name).read_text() == "precious\n"
    assert Git(slot.path).current_branch() == "side-agent/first"


def give(slot: Repository, path: str, kind: str) -> None:
    """Put something into a slot that git does not report: its only copy is there."""
    exclude = Git(slot.path).exclude_file()
    exclude.parent.mkdir(exist_ok=True)
    if kind == "ignored":
        exclude.write_text(f"/{path.partition('/')[0]}\n")
    slot.write(path, "precious\n")
    if kind != "ignored":
        slot.git("update-index", kind, path)


@pytest.mark.parametrize(
    ("kind", "theirs", "tracked", "words"),
    [
        ("ignored", ".env", ".env", r"has ignored files that the new branch tracks: \.env;"),
        ("ignored", "build/notes.txt", "build/notes.txt", "the new branch tracks: build/notes.txt;"),
        ("ignored", "build/deep/notes.txt", "build", "the new branch tracks: build/deep/notes.txt;"),
        ("ignored", "build", "build/notes.txt", "the new branch tracks: build;"),
        ("--assume-unchanged", "src/app.txt", "new.txt", "has changes that git was told to overlook: src/app.txt;"),
        ("--skip-worktree", "src/app.txt", "new.txt", "has changes that git was told to overlook: src/app.txt;"),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_b1_what_git_does_not_report_is_never_overwritten_by_reuse(
    repo: Repository, git: Git, slot: Repository, kind: str, theirs: str, tracked: str, words: str, resumed: bool
) -> None:
    give(slot, theirs, kind)
    repo.write(tracked)
    repo.git("add", "--force", "--", tracked)
    repo.git("commit", "--quiet", "-m", "tracked")
    repo.git("branch", "side-agent/older")
    branch, base = ("side-agent/older", None) if resumed else ("side-agent/second", "main")
    with pytest.raises(RefusedError, match=words):
        git_worktrees.reuse(Git(slot.path), branch, base)
    assert (slot.path / theirs).read_text() == "precious\n"
    assert Git(slot.path).current_branch() == "side-agent/first"
    assert not git.branch_exists("side-agent/second")


def test_b1_files_that_the_new_branch_no_longer_ignores_are_not_cleaned_away(
    repo: Repository, git: Git, slot: Repository
) -> None:
    slot.write("ignored/notes.txt", "precious\n")
    slot.write(".cache/.gitignore", "*\n")
    repo.commit(".gitignore", "ignored/\nmore/\n")
    git_worktrees.reuse(Git(slot.path), "side-agent/more", "main")
    repo.commit(".gitignore", "# nothing\n")
    with pytest.raises(RefusedError, match="has files that the new branch no longer ignores: ignored/;"):
        git_worktrees.reuse(Git(slot.path), "side-agent/second", "main")
    repo.git("rm", "--quiet", ".gitignore")
    repo.git("commit", "--quiet", "-m", "no list at all")
    with pytest.raises(RefusedError, match="no longer ignores: ignored/;"):
        git_worktrees.reuse(Git(slot.path), "side-agent/second", "main")
    assert (slot.path / "ignored/notes.txt").read_text() == "precious\n"
    assert Git(slot.path).current_branch() == "side-agent/more"


def test_b1_carried_changes_overwrite_no_ignored_file_either(repo: Repository, git: Git, slot: Repository) -> None:
    slot.write("ignored/notes.txt", "precious\n")
    repo.write(".gitignore", "# nothing\n")
    repo.write("ignored/notes.txt", "other\n")
    changes = git_changes.snapshot(git)
    with pytest.raises(RefusedError, match=r"ignored/notes\.txt"):
        git_worktrees.reuse(Git(slot.path), "side-agent/second", "main", changes=changes)
    assert (slot.path / "ignored/notes.txt").read_text() == "precious\n"


def test_b1_what_is_tracked_or_unchanged_or_elsewhere_keeps_no_slot_from_reuse(
    repo: Repository, git: Git, slot: Repository
) -> None:
    slot.write("folder/old.txt")
    (slot.path / "link").symlink_to("folder")
    slot.git("add", "--all")
    slot.git("commit", "--quiet", "-m", "a folder and a link")
    slot.write("ignored/cache")
    (slot.path / "hollow/deep").mkdir(parents=True)
    slot.git("update-index", "--assume-unchanged", "src/app.txt")
    for name in ("folder", "link/old.txt", "hollow", "src/new.txt"):
        repo.commit(name)
    assert git_worktrees.reuse(Git(slot.path), "side-agent/second", "main") is None
    assert slot.status() == ""
    assert (slot.path / "link/old.txt").read_text() == (slot.path / "folder").read_text() == "text\n"
    assert (slot.path / "ignored/cache").exists()


def test_the_users_own_checkout_is_never_reset(repo: Repository, git: Git, slot: Repository) -> None:
    for place in (repo.path, slot.path / "src"):
        with pytest.raises(RefusedError):
            git_worktrees.reuse(Git(place), "side-agent/second", "main")
        with pytest.raises(RefusedError):
            git_worktrees.populate(Git(place))
    assert git.current_branch() == "main"


def test_only_merged_side_agent_branches_are_deleted(repo: Repository, git: Git, slot: Repository) -> None:
    repo.git("branch", "side-agent/merged")
    repo.git("branch", "users-own")
    slot.commit("work.txt", "work")
    repo.git("branch", "side-agent/unmerged", "side-agent/first")
    assert git.delete_merged_branch("side-agent/merged")
    for kept in ("users-own", "side-agent/unmerged", "side-agent/first", "side-agent/never", "main"):
        assert not git.delete_merged_branch(kept)
    assert git.delete_merged_branch("side-agent/unmerged", into="side-agent/first")
    assert git.branch_exists("users-own")
    assert git.branch_exists("side-agent/first")


def test_a_checked_out_branch_is_not_deleted_even_if_merged(git: Git, slot: Repository) -> None:
    assert not git.delete_merged_branch("side-agent/first")
    assert git.branch_exists("side-agent/first")


def test_a_ref_is_deleted_only_at_the_expected_commit(repo: Repository, git: Git) -> None:
    first = repo.head()
    repo.git("branch", "side-agent/x")
    repo.commit()
    assert not git.delete_ref_if("refs/heads/side-agent/x", repo.head())
    assert git.delete_ref_if("refs/heads/side-agent/x", first)
    assert not git.branch_exists("side-agent/x")


# --- sparse checkouts and submodules


@pytest.mark.parametrize("cone", ["--cone", "--no-cone"])
def test_sparse_patterns_are_inherited_by_new_and_reused_slots(
    repo: Repository, git: Git, tmp_path: Path, cone: str
) -> None:
    repo.commit("docs/manual.txt")
    early = add_slot(git, tmp_path / "early", "side-agent/early")
    repo.git("sparse-checkout", "set", cone, "src")
    assert not (repo.path / "docs").exists()
    late = add_slot(git, tmp_path / "late", "side-agent/late")
    git_worktrees.reuse(Git(early.path), "side-agent/again", "main", source=repo.path)
    for slot in (early, late):
        assert (slot.path / "src" / "app.txt").exists()
        assert not (slot.path / "docs").exists()
        assert Git(slot.path).is_clean()
    repo.git("sparse-checkout", "disable")
    git_worktrees.reuse(Git(late.path), "side-agent/full", "main", source=repo.path)
    assert (late.path / "docs" / "manual.txt").exists()
    assert Git(late.path).is_clean()


def test_submodules_come_from_the_main_checkout_without_a_network(repo: Repository, git: Git, tmp_path: Path) -> None:
    library = with_submodule(repo, tmp_path)
    url = str(library.path)
    library.path.rename(tmp_path / "unreachable")
    config = (repo.path / ".git" / "config").read_text()
    slot = add_slot(git, tmp_path / "slot", "side-agent/x")
    at = Git(slot.path)
    assert git_worktrees.init_submodules(at, repo.path) == []
    inner = Repository(slot.path / "vendor" / "library")
    assert (inner.path / "src" / "app.txt").exists()
    assert inner.git("config", "remote.origin.url") == url
    assert at.is_clean()
    assert (repo.path / ".git" / "config").read_text() == config

    newer = Repository(repo.path / "vendor" / "library").commit("new.txt")
    repo.git("commit", "--quiet", "--all", "-m", "newer submodule")
    git_worktrees.reuse(at, "side-agent/y", "main")
    assert git_worktrees.init_submodules(at, repo.path) == []
    assert inner.head() == newer
    assert at.is_clean()


def test_nested_submodules_are_filled_and_empty_ones_reported(repo: Repository, git: Git, tmp_path: Path) -> None:
    deep = make_repository(tmp_path / "deep")
    library = make_repository(tmp_path / "library")
    library.git(*ALLOW_FILE, "submodule", "--quiet", "add", str(deep.path), "deep")
    library.git("commit", "--quiet", "-m", "nested")
    for name in ("one", "two"):
        repo.git(*ALLOW_FILE, "submodule", "--quiet", "add", str(library.path), f"vendor/{name}")
    repo.git("commit", "--quiet", "-m", "two submodules")
    repo.git(*ALLOW_FILE, "submodule", "--quiet", "update", "--init", "--recursive", "vendor/one")
    repo.git("submodule", "--quiet", "deinit", "vendor/two")
    slot = add_slot(git, tmp_path / "slot", "side-agent/x")
    assert git_worktrees.init_submodules(Git(slot.path), repo.path) == ["vendor/two"]
    assert (slot.path / "vendor" / "one" / "deep" / "README.md").exists()
    assert Git(slot.path).is_clean()


# --- uncommitted work


def dirty(repo: Repository) -> None:
    repo.write("src/app.txt", "one\nTWO\nthree\n")
    (repo.path / "README.md").unlink()
    repo.write("new folder/é.sh", "#!/bin/sh\n").chmod(0o755)
    repo.write("staged.txt", "staged\n")
    repo.git("add", "staged.txt")
    repo.write("staged.txt", "staged, then changed\n")
    repo.write("ignored/file", "never carried")
    (repo.path / "link").symlink_to("src/app.txt")


def test_changes_are_carried_over_and_the_source_stays_as_it_is(repo: Repository, git: Git, tmp_path: Path) -> None:
    assert git_changes.snapshot(git) is None
    dirty(repo)
    before = (repo.status(), repo.git("diff"), repo.git("diff", "--cached"), (repo.path / ".git/index").read_bytes())
    commit = git_changes.snapshot(git)
    assert commit is not None
    slot = add_slot(git, tmp_path / "slot", "side-agent/x")
    git_changes.apply_snapshot(Git(slot.path), commit)
    after = (repo.status(), repo.git("diff"), repo.git("diff", "--cached"), (repo.path / ".git/index").read_bytes())
    assert after == before
    assert {(entry.code, entry.path) for entry in Git(slot.path).status_entries(every_file=True)} == {
        (" M", "src/app.txt"),
        (" D", "README.md"),
        ("??", "new folder/é.sh"),
        ("??", "staged.txt"),
        ("??", "link"),
    }
    assert slot.head() == repo.head()
    assert (slot.path / "new folder" / "é.sh").stat().st_mode & stat.S_IXUSR
    assert (slot.path / "staged.txt").read_text() == "staged, then changed\n"
    assert (slot.path / "link").readlink() == Path("src/app.txt")
    assert not (slot.path / "ignored").exists()


def test_a_snapshot_from_a_subfolder_has_everything(repo: Repository, git: Git) -> None:
    repo.write("top.txt")
    commit = git_changes.snapshot(Git(repo.path / "src"))
    assert "top.txt" in repo.git("ls-tree", "-r", "--name-only", str(commit))


def test_a_snapshot_is_not_brought_into_another_commit_or_over_work(
    repo: Repository, git: Git, slot: Repository
) -> None:
    repo.write("new.txt")
    commit = git_changes.snapshot(git)
    assert commit is not None
    slot.write("own.txt")
    with pytest.raises(RefusedError):
        git_changes.apply_snapshot(Git(slot.path), commit)
    slot.commit("own.txt")
    with pytest.raises(RefusedError):
        git_changes.apply_snapshot(Git(slot.path), commit)
    assert not (slot.path / "new.txt").exists()


def test_no_snapshot_in_the_middle_of_a_merge(repo: Repository, git: Git) -> None:
    repo.git("branch", "other")
    repo.commit("src/app.txt", "ours\n")
    repo.git("checkout", "--quiet", "other")
    repo.commit("src/app.txt", "theirs\n")
    repo.git("merge", "main", check=False)
    with pytest.raises(RefusedError, match="merge"):
        git_changes.snapshot(git)


def test_a_diff_shows_commits_edits_deletions_and_untracked_files(repo: Repository, git: Git) -> None:
    base = repo.head()
    assert git_changes.diff(git, base) == ""
    repo.commit("committed.txt", "committed\n")
    repo.write("src/app.txt", "one\nTWO\nthree\n")
    repo.write("untracked.txt", "fresh\n")
    (repo.path / "README.md").unlink()
    before = repo.status()
    text = git_changes.diff(git, base)
    for line in ("+committed", "-two", "+TWO", "+fresh", "-# A project", "diff --git a/src/app.txt b/src/app.txt"):
        assert line in text.splitlines()
    assert "+fresh" not in git_changes.diff(git, base, untracked=False)
    assert "4 files changed" in git_changes.diff(git, base, stat=True)
    assert git_changes.changed_files(git, base) == 4
    assert repo.status() == before


# --- the shared exclude file


def test_our_patterns_join_the_users_and_can_change(repo: Repository, git: Git, slot: Repository) -> None:
    path = git.exclude_file()
    assert path == Git(slot.path).exclude_file() == repo.path / ".git" / "info" / "exclude"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"# mine\n*.log\nno newline \xff")
    path.chmod(0o644)
    git.ensure_excludes(["/.pi/side-agents/", "/.pi/active.lock"])
    once = path.read_bytes()
    git.ensure_excludes(["/.pi/side-agents/", "/.pi/active.lock"])
    assert path.read_bytes() == once
    assert once.startswith(b"# mine\n*.log\nno newline \xff\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    slot.write(".pi/active.lock")
    assert slot.status() == ""
    with path.open("ab") as stream:
        stream.write(b"*.later\n")
    git.ensure_excludes(["/.pi/other"])
    changed = path.read_bytes()
    assert changed.startswith(b"# mine\n*.log\nno newline \xff\n")
    assert changed.endswith(b"*.later\n")
    assert b"/.pi/other\n" in changed
    assert b"active.lock" not in changed


def test_a_repository_without_an_info_folder_gets_one(repo: Repository, git: Git) -> None:
    assert not (repo.path / ".git" / "info").exists()
    git.ensure_excludes(["/.pi/side-agents/"])
    repo.write(".pi/side-agents/registry.json")
    assert repo.status() == ""


def test_an_exclude_file_that_is_a_link_stays_a_link(repo: Repository, git: Git, tmp_path: Path) -> None:
    target = tmp_path / "shared-excludes"
    target.write_text("*.o\n")
    git.exclude_file().parent.mkdir()
    git.exclude_file().symlink_to(target)
    git.ensure_excludes(["/.pi/x"])
    assert git.exclude_file().is_symlink()
    assert os.fspath(git.exclude_file().readlink()) == str(target)
    assert "/.pi/x" in target.read_text()
