"""Files that are whole or absent, under faults as well."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from side_agents.errors import ConflictError, StateError
from side_agents.infra import fs

ROOT = Path(__file__).parents[2]


def run_child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in another process; it finds its arguments in ``argv`` and ``fs`` and ``Path`` imported."""
    preamble = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom side_agents.infra import fs\nargv = sys.argv[1:]\n"
    )
    return subprocess.run(
        [sys.executable, "-c", preamble + code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_replacing_gives_new_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state"
    fs.replace(path, "old")
    fs.replace(path, b"new\xff")
    assert path.read_bytes() == b"new\xff"
    assert names_in(tmp_path) == {"state"}


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fs.replace(tmp_path / "a", "x")
        fs.create_exclusive(tmp_path / "b", "x")
        fs.append_line(tmp_path / "c", "x")
        fs.replace(tmp_path / "d", "x", mode=0o755)
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / name) for name in "abcd"] == [0o600, 0o600, 0o600, 0o755]


def test_a_full_disk_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    # A limit on file size fails a write in the middle, like a full disk, without needing to be root.
    path = tmp_path / "state"
    path.write_text("old")
    code = """
import resource
from side_agents.errors import StateError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (fs.replace, fs.create_exclusive):
    try:
        write(Path(argv[0]) / ('state' if write is fs.replace else 'other'), 'x' * 5000)
    except StateError as error:
        print(error)
"""
    done = run_child(code, tmp_path)
    assert done.stderr == ""
    refused, not_made = done.stdout.splitlines()
    assert "old content is intact" in refused
    assert "nothing was changed" in not_made
    assert path.read_text() == "old"
    assert names_in(tmp_path) == {"state"}


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting needs root")
def test_a_really_full_disk_says_what_to_do(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        fs.replace(disk / "state", "old")
        for write in (fs.replace, fs.append_line):
            with pytest.raises(StateError, match="No space left") as caught:
                write(disk / "state", "x" * 200_000)
            assert caught.value.hint is not None
            assert "space" in caught.value.hint
        assert fs.read_slice(disk / "state", 0, 3) == b"old"
        assert names_in(disk) == {"state"}
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("call", ["replace", "link"])
def test_a_kill_before_the_name_is_taken_leaves_the_old_content(tmp_path: Path, call: str) -> None:
    path = tmp_path / "state"
    path.write_text("old")
    writer = "fs.replace(path, 'new')" if call == "replace" else "fs.create_exclusive(path, 'new')"
    code = f"os.{call} = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\npath = Path(argv[0])\n{writer}\n"
    assert run_child(code, path).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(names_in(tmp_path)) == 2, "the child died after its temporary file was written"
    fs.replace(path, "next")
    assert path.read_text() == "next"


def test_a_failed_rename_removes_the_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(StateError, match="old content is intact"):
        fs.replace(tmp_path / "state", "x")
    assert names_in(tmp_path) == {"state"}


def test_an_interrupt_during_the_write_removes_the_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_handle: int) -> None:
        raise KeyboardInterrupt

    fs.replace(tmp_path / "state", "old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fs.replace(tmp_path / "state", "new")
    assert names_in(tmp_path) == {"state"}
    assert (tmp_path / "state").read_text() == "old"


def test_content_is_synced_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        acts.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync file")
        real_sync(handle)

    def rename(src: Path, dst: Path) -> None:
        acts.append("rename")
        real_replace(src, dst)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    fs.replace(tmp_path / "state", "x")
    assert acts == ["sync file", "rename", "sync folder"]


def test_a_link_planted_under_the_temporary_name_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(os, "urandom", lambda n: b"\0" * n)
    planted = tmp_path / f".state.{os.getpid()}-{'00' * 6}.tmp"
    planted.symlink_to(victim)
    for write in (fs.replace, fs.create_exclusive):
        with pytest.raises(StateError):
            write(tmp_path / "state", "x")
    assert victim.read_text() == "precious"
    assert planted.is_symlink()
    assert not (tmp_path / "state").exists()


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    fs.replace(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "kept"
    assert not (tmp_path / "link").is_symlink()


def test_readers_see_only_whole_contents_while_two_write(tmp_path: Path) -> None:
    path = tmp_path / "state"
    contents = {letter * 50_000 for letter in "ab"}
    fs.replace(path, "a" * 50_000)
    done = threading.Event()

    def write(content: str) -> None:
        for _ in range(40):
            fs.replace(path, content)

    def read() -> set[str]:
        seen = set()
        while not done.is_set():
            seen.add(path.read_text())
        return seen

    with ThreadPoolExecutor(3) as pool:
        reader = pool.submit(read)
        for writer in [pool.submit(write, content) for content in contents]:
            writer.result()
        done.set()
        assert reader.result() <= contents
    assert names_in(tmp_path) == {"state"}


def test_of_sixteen_processes_exactly_one_creates(tmp_path: Path) -> None:
    code = "sys.stdin.read()\nprint(fs.create_exclusive(Path(argv[0]), argv[1] * 10000))\n"
    preamble = (
        "import sys\nfrom pathlib import Path\nfrom side_agents.infra import fs\nargv = sys.argv[1:]\nprint('ready')\n"
    )
    path = tmp_path / "claim"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", preamble + code, path, letter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for letter in "abcdefghijklmnop"
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    answers = {}
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    for letter, child in zip("abcdefghijklmnop", children, strict=True):
        with child:
            assert child.stdout is not None
            answers[letter] = child.stdout.read().strip()
    assert sorted(answers.values()) == ["False"] * 15 + ["True"]
    winner = next(letter for letter, answer in answers.items() if answer == "True")
    assert path.read_text() == winner * 10_000
    assert names_in(tmp_path) == {"claim"}


def test_nothing_that_has_the_name_is_overwritten_by_a_creation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "dangling"):
        assert fs.create_exclusive(tmp_path / name, "x") is False
    assert (tmp_path / "file").read_text() == "kept"
    assert names_in(tmp_path) == {"file", "folder", "dangling"}


def test_an_existing_name_is_no_error_but_a_missing_folder_is(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No such file"):
        fs.create_exclusive(tmp_path / "absent" / "file", "x")
    with pytest.raises(StateError, match="No such file"):
        fs.replace(tmp_path / "absent" / "file", "x")


def test_lines_are_appended_each_on_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    fs.append_line(path, "one")
    fs.append_line(path, "two\n")
    fs.append_line(path, "drei é")
    assert path.read_text("utf-8") == "one\ntwo\ndrei é\n"


def test_a_torn_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('{"a":1}\n{"tor')
    fs.append_line(path, '{"b":2}')
    assert path.read_text() == '{"a":1}\n{"tor\n{"b":2}\n'


def test_lines_of_many_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "journal"

    def write(letter: str) -> None:
        for _ in range(50):
            fs.append_line(path, letter * 3000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    lines = [line for line in path.read_text().splitlines() if line]
    assert len(lines) == 200
    assert all(line == line[0] * 3000 for line in lines)


def test_a_line_is_not_appended_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "journal").symlink_to(tmp_path / "victim")
    with pytest.raises(StateError):
        fs.append_line(tmp_path / "journal", "x")
    assert (tmp_path / "victim").read_text() == "kept"


def test_json_is_read_back_and_an_absent_file_is_none(tmp_path: Path) -> None:
    fs.replace(tmp_path / "state", json.dumps({"a": "é"}))
    assert fs.read_json(tmp_path / "state") == {"a": "é"}
    assert fs.read_json(tmp_path / "absent") is None
    assert fs.read_json(tmp_path / "state" / "below") is None


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000], ids=["empty", "cut", "bytes", "deep"])
def test_x21_what_cannot_be_parsed_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(StateError, match="left as it is"):
        fs.read_json(path)
    assert path.read_bytes() == content


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for read in (fs.read_json, lambda path: fs.read_tail(path, 5), lambda path: fs.read_slice(path, 0, 5)):
        with pytest.raises(StateError):
            read(tmp_path)


def test_slices_and_tails_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    assert fs.read_slice(path, 3, 4) == b"3456"
    assert fs.read_slice(path, 8, 100) == b"89"
    assert fs.read_slice(path, 20, 4) == b""
    assert fs.read_tail(path, 4) == b"6789"
    assert fs.read_tail(path, 100) == b"0123456789"
    assert fs.read_tail(tmp_path / "absent", 4) == fs.read_slice(tmp_path / "absent", 0, 4) == b""


def test_private_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    fs.make_private_dir(tmp_path / "a" / "b")
    fs.make_private_dir(tmp_path / "a" / "b")
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o700
    assert mode_of(tmp_path) == 0o755


def test_a_file_in_the_way_of_a_folder_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StateError):
            fs.make_private_dir(path)
    assert (tmp_path / "file").read_text() == "kept"


def test_files_move_or_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    fs.move(tmp_path / "a", tmp_path / "b")
    assert names_in(tmp_path) == {"b"}
    with pytest.raises(StateError, match="as they were"):
        fs.move(tmp_path / "a", tmp_path / "c")


def test_removing_says_whether_there_was_something(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert fs.remove_file(tmp_path / "a") is True
    assert fs.remove_file(tmp_path / "a") is False
    with pytest.raises(StateError):
        fs.remove_file(tmp_path)


def test_links_are_made_once_and_nothing_is_overwritten(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    fs.symlink(target, link)
    fs.symlink(target, link)
    assert link.readlink() == target
    with pytest.raises(ConflictError, match="kept"):
        fs.symlink(tmp_path / "other", link)
    target.write_text("x")
    with pytest.raises(ConflictError):
        fs.symlink(link, target)
    with pytest.raises(StateError):
        fs.symlink(target, tmp_path / "absent" / "link")
    assert target.read_text() == "x"


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def refuse_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    fs.replace(tmp_path / "state", "x")
    assert (tmp_path / "state").read_text() == "x"


def test_the_previous_content_is_kept_where_hard_links_do_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    file, backup = tmp_path / "state", tmp_path / "state.bak"
    fs.keep_previous(file, backup)
    assert not backup.exists()
    for content in ("one", "two", "three"):
        fs.keep_previous(file, backup)
        fs.replace(file, content)
    assert backup.read_text() == "two"
    monkeypatch.setattr(os, "link", refuse)
    fs.keep_previous(file, backup)
    assert backup.read_text() == "three"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "state.bak"]


@pytest.mark.parametrize(
    "read", [fs.read_json, lambda path: fs.read_slice(path, 0, 10), lambda path: fs.read_tail(path, 10)]
)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StateError, match="no regular file"):
        read(tmp_path / "pipe")
