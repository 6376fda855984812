"""The pure parts of discarding: which ignored files may go, words of a verdict, names of trash entries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from side_agents.config import load
from side_agents.core import regenerable, trash
from side_agents.core.verdicts import Kind, Reason, Target, Verdict, could_not_look, some
from side_agents.errors import StateError, UsageError
from side_agents.infra import fs_tree, git_registration, processes, processes_open
from side_agents.models import ProcessRef


@pytest.mark.parametrize(
    "path",
    [
        "node_modules/", "node_modules/left-pad/test.db", "web/node_modules/a/b.js", ".venv/", ".venv/lib/key.pem",
        "src/__pycache__/a.pyc", "a.pyc", "target/debug/app", "dist/", "build/lib/x.so", "pkg.egg-info/PKG-INFO",
        ".pytest_cache/v/x", ".DS_Store", ".pi/active.lock", ".pi/side-agents/merge.lock",
        ".pi/.active.lock.4711-0123456789ab.tmp",
    ],
)  # fmt: skip
def test_what_a_tool_makes_anew_is_regenerable(path: str) -> None:
    assert regenerable.is_regenerable(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env", "data/app.db", "ignored/", "notes.txt", "target", "dist", "node_modules", "build/data.sqlite",
        ".pi/.active.lock.4711-0123456789ab.tmp/data", ".pi/.active.lock.mine.tmp", "dist/server.key",
        "target/terraform.tfstate", "my-node_modules/file", "x.pycx", ".pi/side-agents/registry.json",
        "backup.sql", "logs/run.log", ".terraform/terraform.tfstate",
    ],
)  # fmt: skip
def test_everything_else_is_precious(path: str) -> None:
    assert not regenerable.is_regenerable(path)


def test_copies_links_and_empty_files_are_not_precious(tmp_path: Path) -> None:
    slot, main = tmp_path / "slot", tmp_path / "main"
    for folder in (slot, main):
        (folder / "conf").mkdir(parents=True)
        (folder / "conf/same").write_text("same")
    (slot / "conf/other").write_text("mine")
    (main / "conf/other").write_text("its")
    (slot / "conf/link").symlink_to(main)
    (slot / "conf/empty").touch()
    assert regenerable.precious(slot, main, ["conf/"]) == ["conf/other"]
    assert regenerable.precious(slot, None, ["conf/"]) == ["conf/other", "conf/same"]
    assert regenerable.precious(slot, main, ["conf/same"]) == []


def test_a_link_to_a_copy_in_main_proves_nothing(tmp_path: Path) -> None:
    slot, main = tmp_path / "slot", tmp_path / "main"
    slot.mkdir()
    main.mkdir()
    (slot / ".env").write_text("KEY=1")
    (main / ".env").symlink_to(slot / ".env")
    assert regenerable.precious(slot, main, [".env"]) == [".env"]


def test_a_verdict_is_safe_only_without_reasons() -> None:
    target = Target(Kind.SLOT, "app-agent-worktree-0001")
    assert Verdict(target).is_safe
    reasons = (Reason("dirty", "It is dirty.", "Clean it."), Reason("leased", "It is leased.", "Clean it."))
    refusal = Verdict(target, reasons).refusal()
    assert str(refusal) == "app-agent-worktree-0001 was not discarded. It is dirty. It is leased."
    assert refusal.hint == "Clean it."
    assert could_not_look("x", StateError("no.")).text == "x could not be inspected: no."


def test_long_lists_are_cut() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some(list("abcdefg")) == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(
    ("label", "name"),
    [("side-agent/a", "S-side-agent-a"), ("a/../b", "S-a---b"), ("x.lock", "S-x-"), ("ä b", "S-b"), ("end.", "S-end-")],
)
def test_entry_names_are_safe_as_folder_and_ref(label: str, name: str) -> None:
    made = trash.entry_name("S", label)
    assert made == name or (label == "ä b" and made == "S--b")
    assert "/" not in made
    assert ".." not in made


def test_walking_does_not_follow_links_and_does_not_pass_over_closed_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert sorted(path.name for path in fs_tree.files_below(tmp_path)) == ["file", "loop"]
    with pytest.raises(StateError):
        list(fs_tree.walk(tmp_path / "missing"))


def test_removing_a_tree_spares_what_links_point_to(tmp_path: Path) -> None:
    doomed, kept = tmp_path / "doomed", tmp_path / "kept"
    (doomed / "closed").mkdir(parents=True)
    kept.mkdir()
    (kept / "file").touch()
    (doomed / "closed/file").touch()
    (doomed / "link").symlink_to(kept)
    (doomed / "closed").chmod(0o500)
    fs_tree.remove_tree(doomed)
    assert not doomed.exists()
    assert (kept / "file").exists()
    (tmp_path / "link").symlink_to(kept)
    with pytest.raises(StateError):
        fs_tree.remove_tree(tmp_path / "link")
    assert (kept / "file").exists()


def test_relative_pointers_are_understood(tmp_path: Path) -> None:
    """git 2.48 can write them."""
    admin = tmp_path / "app/.git/worktrees/slot"
    slot = tmp_path / "slot"
    admin.mkdir(parents=True)
    slot.mkdir()
    (admin / "gitdir").write_text("../../../../slot/.git\n")
    (admin / "commondir").write_text("../..\n")
    (slot / ".git").write_text("gitdir: ../app/.git/worktrees/slot\n")
    assert git_registration.named_by(slot) == admin
    (found,) = git_registration.registrations(tmp_path / "app/.git")
    assert (found.admin, found.worktree, found.locked) == (admin, slot, None)
    assert git_registration.common_of(admin) == tmp_path / "app/.git"


def test_our_own_lock_in_a_registration_is_no_git_at_work(tmp_path: Path) -> None:
    """It stays after every landing; its holder has a record or a lease besides."""
    (tmp_path / "side-agents-finish.lock").touch()
    assert git_registration.busy_files(tmp_path) == []
    (tmp_path / "index.lock").touch()
    assert git_registration.busy_files(tmp_path) == ["index.lock"]


def test_we_are_seen_in_our_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes_open.users_of(tmp_path) == []
    monkeypatch.chdir(tmp_path)
    (found,) = processes_open.users_of(tmp_path)
    assert (found.pid, found.doing) == (os.getpid(), "works in it")
    assert processes_open.users_of(tmp_path.parent)
    assert processes_open.users_of(Path(f"{tmp_path}-other")) == []


def test_the_start_of_a_process_is_a_time() -> None:
    began = processes_open.started_at(processes.current())
    assert began is not None
    assert began > 1_600_000_000
    assert processes_open.started_at(ProcessRef(1, "tmux:1700000000")) == 1_700_000_000
    assert processes_open.started_at(ProcessRef(1, "?")) is None


def test_the_number_of_slots_kept_is_unlimited_by_default_and_never_negative(tmp_path: Path) -> None:
    assert load(()).slots_kept is None
    file = tmp_path / "config.toml"
    file.write_text("slots_kept = 0\n")
    assert load((file,)).slots_kept == 0
    file.write_text("slots_kept = -1\n")
    with pytest.raises(UsageError, match="slots_kept"):
        load((file,))


def test_only_the_one_function_discards() -> None:
    """What removes trees, or takes slots and their registrations away, is reachable through ``discard`` alone."""
    package = Path(trash.__file__).parents[1]
    sources = {path.stem: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    # fs_copy takes back what it has just made itself, demo_stage its own throw-away repository.
    inner = {
        "remove_tree(": {"fs_tree", "fs_copy", "discard"},
        "rmtree(": {"fs_tree", "demo_stage"},
        "discard_slot": {"discard", "slot_discard"},
        "move_admin(": {"trash", "slot_discard"},
        '"worktree", "remove"': set(),
        '"branch", "-D"': set(),
    }
    for word, allowed in inner.items():
        assert {name for name, text in sources.items() if word in text} <= allowed, word
