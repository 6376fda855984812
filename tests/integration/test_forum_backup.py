"""Backups of a forum in use, and putting one back: in a new epoch, never onto a forum in use, whole at every moment."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from side_agents.errors import BusyError, NotFoundError, RefusedError, StateError
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.operator import restore
from tests.support.forum import ForumFactory, Person, forum_factory, refusal, register, reply, subforum, thread

__all__ = ["forum_factory"]


@dataclass
class Scene:
    """A forum with one thread, a backup of it, and a post that came later."""

    factory: ForumFactory
    forum: Forum
    ann: Person
    thread: str
    backup: Path
    later: str

    @property
    def path(self) -> Path:
        return self.factory.path()

    def close(self) -> None:
        self.factory.close(self.forum)

    def reopen(self) -> Forum:
        self.forum = self.factory()
        return self.forum

    def bodies(self) -> list[str]:
        return [each["body"] for each in self.forum.content.posts(self.ann.principal, self.thread)["posts"]]


@pytest.fixture
def scene(forum_factory: ForumFactory, tmp_path: Path) -> Scene:
    forum = forum_factory()
    ann = register(forum, "ann")
    subforum(forum, ann, "lab")
    opened = thread(forum, ann, "lab")["threadId"]
    reply(forum, ann, opened, body="before")
    backup = tmp_path / "copies" / "forum.backup"
    backup.parent.mkdir(mode=0o700)
    forum.operator.backup(backup)
    later = reply(forum, ann, opened, body="after")["postId"]
    return Scene(forum_factory, forum, ann, opened, backup, later)


@contextmanager
def other_process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A child that has said that it is ready; its input ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.forum_backup_child", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.communicate(timeout=60)


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder but locks and bells, which have no content of the forum."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if not each.name.endswith((".users", ".wake"))}


def test_a_backup_is_whole_private_and_a_forum_of_its_own(scene: Scene) -> None:
    assert stat.S_IMODE(scene.backup.stat().st_mode) == 0o600
    assert sorted(each.name for each in scene.backup.parent.iterdir()) == ["forum.backup"], (
        "no log and nothing unfinished"
    )
    fresh = scene.path.with_name("fresh.db")
    done = restore(scene.backup, fresh)
    copy = scene.factory("fresh")
    assert done["replaced"] is None
    assert copy.installation.id == scene.forum.installation.id == done["installationId"]
    assert copy.installation.epoch == done["epoch"] > scene.forum.installation.epoch
    seen = copy.content.posts(scene.ann.principal, scene.thread)["posts"]
    assert [each["body"] for each in seen] == ["An opening.", "before"]
    assert copy.identities.authenticate(scene.ann.credential) == scene.ann.principal


def test_a_backup_of_a_forum_that_others_write_to_is_one_state_of_it(scene: Scene, tmp_path: Path) -> None:
    bob = register(scene.forum, "bob")
    with other_process("write", str(scene.path), scene.thread, bob.credential) as writer:
        made = [scene.forum.operator.backup(tmp_path / "copies" / f"{number}") for number in range(5)]
    assert writer.returncode == 0
    newest = [int(each["lastSequence"]) for each in made]
    assert newest == sorted(newest)
    for number, each in enumerate(made):
        restore(Path(each["path"]), scene.path.with_name(f"copy-{number}.db"))
        # Opened by the factory, so that all invariants are checked at the end.
        copy = scene.factory(f"copy-{number}")
        assert copy.operator.health()["lastSequence"] == each["lastSequence"]
        found = copy.operator.check()
        assert found["ok"], found


def test_t231_after_a_restore_old_cursors_are_over_and_the_epoch_is_new(scene: Scene) -> None:
    forum, me = scene.forum, scene.ann.principal
    events = forum.events.page(me, start="beginning")["nextCursor"]
    posts = forum.content.posts(me, scene.thread, limit=1)["pageInfo"]["nextCursor"]
    epoch = forum.installation.epoch
    scene.close()
    done = restore(scene.backup, scene.path, replace=True)
    forum = scene.reopen()
    assert forum.installation.epoch == done["epoch"] > epoch
    assert scene.bodies() == ["An opening.", "before"]
    refusal("cursor_expired", lambda: forum.events.page(me, cursor=events))
    refusal("cursor_expired", lambda: forum.content.posts(me, scene.thread, cursor=posts))
    refusal("not_found", lambda: forum.content.post(me, scene.later))
    fresh = forum.content.posts(me, scene.thread, limit=1)["pageInfo"]["nextCursor"]
    assert forum.content.posts(me, scene.thread, cursor=fresh)["posts"]


def test_what_was_there_is_kept_beside_it_and_can_be_put_back_itself(scene: Scene) -> None:
    scene.close()
    first = restore(scene.backup, scene.path, replace=True)
    second = restore(Path(first["replaced"]), scene.path, replace=True)
    assert second["epoch"] > first["epoch"]
    scene.reopen()
    assert scene.bodies() == ["An opening.", "before", "after"]
    third = scene.forum
    scene.close()
    assert restore(scene.backup, scene.path, replace=True)["epoch"] > third.installation.epoch


def test_putting_the_same_backup_in_place_of_a_lost_forum_never_repeats_an_epoch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.close()
    now = iter([1_900_000_000.0, 1_900_000_001.0])
    monkeypatch.setattr("side_agents.forum.service.operator.time.time", lambda: next(now))
    epochs = []
    for _ in range(2):
        for each in scene.path.parent.iterdir():
            each.unlink()
        epochs.append(restore(scene.backup, scene.path)["epoch"])
    assert epochs[0] < epochs[1]


def test_t232_a_file_rolled_back_by_hand_is_noticed_by_its_cursors(scene: Scene) -> None:
    me = scene.ann.principal
    events = scene.forum.events.page(me, start="tail")["nextCursor"]
    for _ in range(3):
        reply(scene.forum, scene.ann, scene.thread)
    posts = scene.forum.content.posts(me, scene.thread, limit=1)["pageInfo"]["nextCursor"]
    scene.close()
    shutil.copyfile(scene.backup, scene.path)
    forum = scene.reopen()
    refusal("cursor_expired", lambda: forum.events.page(me, cursor=events))
    refusal("cursor_expired", lambda: forum.content.posts(me, scene.thread, cursor=posts))


def test_a_forum_is_not_replaced_unless_that_is_said(scene: Scene) -> None:
    scene.close()
    before = files_of(scene.path.parent)
    with pytest.raises(RefusedError, match="There is a forum"):
        restore(scene.backup, scene.path)
    assert files_of(scene.path.parent) == before


def test_a_forum_in_use_is_never_replaced_by_whomever_it_is_used(scene: Scene) -> None:
    with pytest.raises(BusyError):
        restore(scene.backup, scene.path, replace=True)
    scene.close()
    with other_process("hold", str(scene.path)), pytest.raises(BusyError, match="Other processes"):
        restore(scene.backup, scene.path, replace=True)
    stranger = apsw.Connection(str(scene.path))
    stranger.execute("SELECT count(*) FROM post").fetchall()
    with pytest.raises(BusyError, match="Another program"):
        restore(scene.backup, scene.path, replace=True)
    stranger.close()
    scene.reopen()
    assert scene.bodies() == ["An opening.", "before", "after"]


def test_a_killed_process_does_not_keep_a_restore_away(scene: Scene) -> None:
    scene.close()
    with other_process("hold", str(scene.path)) as holder:
        holder.kill()
        holder.wait(timeout=60)
        done = restore(scene.backup, scene.path, replace=True)
    assert done["replaced"]
    scene.reopen()
    assert scene.bodies() == ["An opening.", "before"]


def _torn(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)


def _with_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"log")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda path: path.unlink(), NotFoundError),
        (lambda path: path.write_bytes(b""), NotFoundError),
        (lambda path: path.write_bytes(b"no database" * 100), StateError),
        (_torn, StateError),
        (_with_log, RefusedError),
        (lambda path: path.chmod(0o644), RefusedError),
    ],
)
def test_what_is_no_sound_backup_is_refused_and_both_sides_stay(
    scene: Scene, spoil: Any, error: type[Exception]
) -> None:
    scene.close()
    spoil(scene.backup)
    before, source = files_of(scene.path.parent), files_of(scene.backup.parent)
    with pytest.raises(error):
        restore(scene.backup, scene.path, replace=True)
    assert files_of(scene.path.parent) == before
    assert files_of(scene.backup.parent) == source


def test_another_forum_is_never_replaced_nor_the_forum_by_itself(scene: Scene) -> None:
    other = scene.factory("other")
    scene.factory.close(other)
    scene.close()
    before = files_of(scene.path.parent)
    with pytest.raises(RefusedError, match="is forum in_"):
        restore(scene.backup, scene.factory.path("other"), replace=True)
    with pytest.raises(RefusedError, match="itself"):
        restore(scene.path, scene.path, replace=True)
    assert files_of(scene.path.parent) == before


def test_a_damaged_forum_is_replaced_and_kept_as_it_is_with_its_log(scene: Scene) -> None:
    scene.close()
    _torn(scene.path)
    damaged = scene.path.read_bytes()
    done = restore(scene.backup, scene.path, replace=True)
    assert Path(done["replaced"]).read_bytes() == damaged
    scene.reopen()
    assert scene.bodies() == ["An opening.", "before"]


def test_killed_at_any_step_a_restore_leaves_one_whole_forum_the_old_or_the_new(scene: Scene) -> None:
    epoch = scene.forum.installation.epoch
    scene.close()
    outcomes = []
    for step in range(1, 60):
        target = scene.path.parent / f"step-{step}" / "forum.db"
        target.parent.mkdir(mode=0o700)
        shutil.copyfile(scene.path, target)
        target.chmod(0o600)
        child = subprocess.run(
            [sys.executable, "-m", "tests.integration.forum_backup_child", "restore", scene.backup, target, str(step)],
            check=False,
            timeout=60,
        )
        copy = scene.factory(f"step-{step}/forum")
        posts = len(copy.content.posts(scene.ann.principal, scene.thread)["posts"])
        is_new = copy.installation.epoch > epoch
        assert posts == (2 if is_new else 3), "the old epoch with all posts, or a new one with those of the backup"
        outcomes.append(is_new)
        scene.factory.close(copy)
        if child.returncode == 0:
            break
    assert child.returncode == 0
    assert outcomes == sorted(outcomes)
    assert {True, False} <= set(outcomes)
