"""Ignored files of the main checkout in a slot: which, how, and never at the cost of anything that is there."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestra import Orchestra, orchestra

from side_agents.core.include_list import Mode
from side_agents.core.replicate import Item, Replicated, replicate
from side_agents.errors import GitError
from side_agents.infra import fs_copy, git_ignored
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer


@pytest.fixture
def slot(repo: Repository) -> Repository:
    """A second worktree of the repository, which ignores more than the usual."""
    repo.commit(".gitignore", "ignored/\n.env*\n*.key\nnode_modules/\ndata\n.pi/\nbuild/\n", "ignore")
    path = repo.path.with_name("slot")
    repo.git("worktree", "add", "--quiet", "--detach", str(path))
    return Repository(path)


def bring(repo: Repository, slot: Repository, *lines: str) -> Replicated:
    """Replicate by a list that git ignores, so that it does not matter itself."""
    repo.write(".pi/side-agent-include", "\n".join(lines) + "\n")
    return replicate(repo.path, slot.path)


def paths(done: Replicated) -> list[str]:
    return [item.path for item in done.items]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_a_list_nothing_is_looked_at_or_made(repo: Repository, slot: Repository) -> None:
    repo.write(".env")
    assert replicate(repo.path, slot.path) == Replicated()
    assert not (slot.path / ".env").exists()


def test_listed_files_come_with_content_mode_and_time(repo: Repository, slot: Repository) -> None:
    original = repo.write("web/.env.local", "SECRET=1\n")
    original.chmod(0o640)
    os.utime(original, (1_000_000_000, 1_000_000_000))

    done = bring(repo, slot, ".env*")

    assert done == Replicated([Item("web/.env.local", Mode.COPY, 9)])
    copy = slot.path / "web/.env.local"
    assert copy.read_text() == "SECRET=1\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert copy.stat().st_mtime == 1_000_000_000
    assert slot.status() == ""
    assert not (slot.path / ".pi/side-agents").exists()


def test_both_lists_count_and_the_second_can_take_back(repo: Repository, slot: Repository) -> None:
    for name in (".env", "a.key", "b.key"):
        repo.write(name)
    repo.write(".worktreeinclude", ".env\n*.key\n")
    assert paths(bring(repo, slot, "!b.key")) == [".env", "a.key"]


def test_tracked_files_and_files_that_git_would_add_stay_out(repo: Repository, slot: Repository) -> None:
    repo.write("notes.txt")
    repo.write("README.md", "changed\n")
    done = bring(repo, slot, "*.txt", "README.md", "src/")
    assert done.items == []
    assert len(done.warnings) == 1
    assert "git does not ignore it: notes.txt" in done.warnings[0]
    assert (slot.path / "README.md").read_text() == "# A project\n"
    assert slot.status() == ""


def test_files_that_came_another_way_need_no_words(repo: Repository, slot: Repository) -> None:
    for place in (repo, slot):
        place.write("notes.txt")
    assert bring(repo, slot, "*.txt").warnings == []


def test_what_the_slots_commit_tracks_or_does_not_ignore_is_left_alone(repo: Repository, slot: Repository) -> None:
    slot.write(".gitignore", ".env*\n!.env.shared\n")
    slot.write(".env.tracked", "theirs\n")
    slot.git("add", "--force", ".env.tracked", ".gitignore")
    slot.git("commit", "--quiet", "-m", "other rules")
    (slot.path / ".env.tracked").unlink()
    for name in (".env", ".env.tracked", ".env.shared"):
        repo.write(name)

    done = bring(repo, slot, ".env*")

    assert paths(done) == [".env"]
    assert sorted(warning.split(" ")[0] for warning in done.warnings) == [".env.shared", ".env.tracked"]
    assert slot.status() == " D .env.tracked"


def test_nothing_is_overwritten_and_a_difference_is_told(repo: Repository, slot: Repository) -> None:
    for name in (".env", ".env.same", "a.key"):
        repo.write(name, "main\n")
    slot.write(".env", "slot\n")
    slot.write(".env.same", "main\n")
    (slot.path / "a.key").symlink_to("/nowhere/at/all")

    done = bring(repo, slot, ".env*", "*.key")

    assert done.items == []
    assert sorted(done.kept) == [".env", ".env.same", "a.key"]
    assert (slot.path / ".env").read_text() == "slot\n"
    assert str((slot.path / "a.key").readlink()) == "/nowhere/at/all"
    assert [warning.split(" ")[0] for warning in done.warnings] == [".env"]


def test_a_second_time_nothing_happens(repo: Repository, slot: Repository) -> None:
    repo.write(".env")
    repo.write("ignored/x")
    bring(repo, slot, ".env", "ignored/")
    again = bring(repo, slot, ".env", "ignored/")
    assert (again.items, again.warnings) == ([], [])
    assert sorted(again.kept) == [".env", "ignored/"]


def test_a_folder_comes_whole_with_links_and_modes_as_they_are(repo: Repository, slot: Repository) -> None:
    repo.write("ignored/deep/er/x.sh", "run\n").chmod(0o755)
    repo.write("ignored/empty/.keep").unlink()
    (repo.path / "ignored/link").symlink_to("deep/er/x.sh")
    (repo.path / "ignored/out").symlink_to("/etc")
    (repo.path / "ignored/deep").chmod(0o555)

    done = bring(repo, slot, "ignored/")

    assert paths(done) == ["ignored/"]
    there = slot.path / "ignored"
    assert os.access(there / "deep/er/x.sh", os.X_OK)
    assert (there / "empty").is_dir()
    assert str((there / "link").readlink()) == "deep/er/x.sh"
    assert str((there / "out").readlink()) == "/etc"
    assert stat.S_IMODE((there / "deep").stat().st_mode) == 0o555
    for place in (repo.path, slot.path):
        (place / "ignored/deep").chmod(0o755)


def test_an_ignored_folder_is_entered_for_what_is_named_in_it_only(repo: Repository, slot: Repository) -> None:
    for name in ("build/secret.key", "build/out.bin", "node_modules/x/secret.key", "build/sub/a.key"):
        repo.write(name)
    assert paths(bring(repo, slot, "secret.key", "build/*.key", "!build/sub/")) == ["build/secret.key"]
    assert not (slot.path / "node_modules").exists()


def test_negation_takes_out_of_a_folder_named_by_its_content(repo: Repository, slot: Repository) -> None:
    for name in ("build/a", "build/b", "build/cache/c"):
        repo.write(name)
    assert paths(bring(repo, slot, "build/*", "!build/cache", "!build/b")) == ["build/a"]


def test_a_folder_is_shared_by_a_link_that_git_does_not_see(repo: Repository, slot: Repository) -> None:
    for number in range(300):
        repo.write(f"node_modules/p{number}/index.js")
    exclude = repo.path / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("# mine\nmine")

    done = bring(repo, slot, "link:node_modules/")

    assert done == Replicated([Item("node_modules/", Mode.LINK)])
    link = slot.path / "node_modules"
    assert link.is_symlink()
    assert link.resolve() == repo.path / "node_modules"
    assert slot.status() == ""
    assert exclude.read_text() == "# mine\nmine\n/node_modules\n"
    bring(repo, slot, "link:node_modules/")
    assert exclude.read_text().count("node_modules") == 1
    assert len(list((repo.path / "node_modules").iterdir())) == 300


def test_one_file_is_shared_by_a_link_and_needs_no_exclude(repo: Repository, slot: Repository) -> None:
    repo.write("conf/.env", "A=1\n")
    done = bring(repo, slot, "link:.env")
    assert done.items == [Item("conf/.env", Mode.LINK)]
    assert (slot.path / "conf/.env").resolve() == repo.path / "conf/.env"
    assert (
        "conf" not in (repo.path / ".git/info/exclude").read_text()
        if (repo.path / ".git/info/exclude").exists()
        else True
    )
    assert slot.status() == ""


HOSTILE = (
    " lead",
    "trail ",
    "-rf",
    "new\nline",
    "tab\t",
    "*",
    "[a]",
    "é中",
    "#x",
    "!x",
    "'q'",
    '"q"',
    "$(touch pwned)",
    "a\\b",
)


def test_hostile_names_come_as_they_are(repo: Repository, slot: Repository) -> None:
    for name in HOSTILE:
        repo.write(f"ignored/{name}", name)
        repo.write(f"{name}.key", name)
    raw = os.fsencode(repo.path) + b"/\xff\xfe.key"
    Path(os.fsdecode(raw)).write_text("raw")

    done = bring(repo, slot, "ignored/", "*.key")

    assert done.warnings == []
    assert names_in(slot.path / "ignored") == sorted(HOSTILE)
    assert all((slot.path / f"{name}.key").read_text() == name for name in HOSTILE)
    assert Path(os.fsdecode(os.fsencode(slot.path) + b"/\xff\xfe.key")).read_text() == "raw"
    assert slot.status() == ""
    assert not (slot.path / "pwned").exists()


def test_links_with_hostile_names_are_hidden_too(repo: Repository, slot: Repository) -> None:
    names = [name for name in HOSTILE if "\n" not in name]
    for name in names:
        repo.write(f"build/{name}/node_modules/x")
    repo.write(".gitignore", "ignored/\n.pi/\nnode_modules/\n")
    repo.git("commit", "--quiet", "--all", "-m", "less ignored")
    slot.git("checkout", "--quiet", "--detach", "main")
    done = bring(repo, slot, "link:node_modules/")
    assert done.warnings == []
    assert len(done.items) == len(names)
    assert slot.status() == ""


def test_nothing_is_written_through_a_link_out_of_the_slot(repo: Repository, slot: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    repo.write("conf/.env", "SECRET\n")
    (slot.path / "conf").symlink_to(outside)
    done = bring(repo, slot, ".env", "link:conf/*.key")
    assert done.items == []
    assert "conf is no folder of it" in done.warnings[0]
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("line", ["/etc/passwd", "../outside/.env", "..", "/../outside/", "**/../outside/*"])
def test_patterns_cannot_lead_out_of_the_repository(repo: Repository, slot: Repository, line: str) -> None:
    (repo.path.parent / "outside").mkdir()
    (repo.path.parent / "outside/.env").write_text("x")
    assert bring(repo, slot, line).items == []


def test_our_own_files_never_go_along(repo: Repository, slot: Repository) -> None:
    for name in (".pi/side-agents/registry.json", ".pi/active.lock", ".pi/side-agent-start.sh", ".pi/settings.json"):
        repo.write(name)
    assert paths(bring(repo, slot, "*", ".pi/", ".pi/**")) == [".pi/settings.json"]


def test_pipes_and_inner_repositories_are_left_out_and_named(repo: Repository, slot: Repository) -> None:
    repo.write("ignored/x")
    repo.write("ignored/inner/.git/HEAD")
    os.mkfifo(repo.path / "ignored/pipe")

    done = bring(repo, slot, "ignored/")

    assert paths(done) == ["ignored/"]
    assert names_in(slot.path / "ignored") == ["x"]
    assert all(name in done.warnings[0] for name in ("ignored/inner", "ignored/pipe"))


def test_one_failure_is_a_warning_and_leaves_nothing_half_done(
    repo: Repository, slot: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("ignored/a")
    repo.write(".env", "A\n")
    real = os.write

    def full(handle: int, data: bytes) -> int:
        if bytes(data) == b"text\n":
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", full)
    done = bring(repo, slot, "ignored/", ".env")

    assert paths(done) == [".env"]
    assert "No space left" in done.warnings[0]
    assert names_in(slot.path) == [".env", ".git", ".gitignore", ".pi", "README.md", "src"]
    assert names_in(slot.path / ".pi") == []


def test_where_the_file_system_can_a_clone_is_made_and_elsewhere_it_is_tried_once(
    repo: Repository, slot: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []
    works = [True]

    def ioctl(writing: int, request: int, reading: int) -> int:
        asked.append((request,))
        if not works[0]:
            raise OSError(95, "Operation not supported")
        os.sendfile(writing, reading, 0, 1 << 20)
        return 0

    monkeypatch.setattr(fs_copy.fcntl, "ioctl", ioctl)
    for number in range(5):
        repo.write(f"ignored/{number}", "cloned\n")
    stage = slot.path / "ignored"
    stage.mkdir()

    cloned = fs_copy.place(repo.path / "ignored", slot.path / "one", stage)
    assert cloned is not None
    assert (cloned.files, cloned.size, cloned.written) == (5, 35, 0)
    assert asked == [(0x40049409,)] * 5
    works[0] = False
    asked.clear()
    copied = fs_copy.place(repo.path / "ignored", slot.path / "two", stage)
    assert copied is not None
    assert (copied.files, copied.size, copied.written) == (5, 35, 35)
    assert len(asked) == 1
    assert (slot.path / "one/3").read_text() == (slot.path / "two/3").read_text() == "cloned\n"


def test_a_very_deep_folder_needs_few_handles(repo: Repository, slot: Repository) -> None:
    deep = repo.path / "ignored"
    for _ in range(600):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x").write_text("deep")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        done = bring(repo, slot, "ignored/")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (paths(done), done.warnings) == (["ignored/"], [])


def test_a_big_copy_says_what_it_cost(repo: Repository, slot: Repository) -> None:
    with repo.write("data", "").open("wb") as file:
        file.truncate(200_000_001)
    done = bring(repo, slot, "data")
    assert "200.0 MB" in done.warnings[0]
    assert "link:data" in done.warnings[0]


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_a_start_without_any_setup_brings_the_listed_files(stage: Orchestra) -> None:
    stage.repo.commit(".gitignore", "ignored/\n.env\n", "ignore")
    stage.repo.commit(".worktreeinclude", ".env\n", "list")
    stage.repo.write(".env", "KEY=1\n")

    record = stage.start("run: cat .env > ignored.txt; mkdir -p ignored; mv ignored.txt ignored/seen", branch_hint="a")

    assert record.warnings == ()
    stage.eventually_idle("a")
    assert (stage.slot(1) / "ignored/seen").read_text() == "KEY=1\n"
    assert stage.worktree(record).status() == ""
    stage.quit("a")
    stage.repo.write(".env", "KEY=2\n")
    again = stage.start(client="fake", branch_hint="b")
    assert Path(again.worktree_path or "") == stage.slot(1)
    assert [warning for warning in again.warnings if ".env" in warning]
    assert (stage.slot(1) / ".env").read_text() == "KEY=1\n"


def test_a_start_goes_on_when_the_files_cannot_be_brought(stage: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_git: object) -> git_ignored.Untracked:
        raise GitError("git status: it is broken")

    monkeypatch.setattr(git_ignored, "untracked", broken)
    stage.repo.commit(".worktreeinclude", ".env\n", "list")

    record = stage.start(client="fake", branch_hint="a")

    assert record.warnings == (
        f"Not all listed files were brought into {stage.slot(1).name}: git status: it is broken",
    )
    assert stage.assert_sound().records
