"""Waking up when files change and processes end, by the kernel and without it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from side_agents.infra import events, fs, processes
from side_agents.infra.events import Watcher
from side_agents.models import ProcessRef

# How long a wait may last that must be ended by an event, and one that must not be.
SOON = 30.0
QUIET = 0.4

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="inotify and pidfd")
both_ways = pytest.mark.parametrize(
    "kernel", [pytest.param(True, marks=linux_only, id="kernel"), pytest.param(False, id="polling")]
)


@contextmanager
def happening(act: Callable[[], object]) -> Iterator[None]:
    """Something that happens while the body waits."""
    timer = threading.Timer(0.05, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], ProcessRef]]:
    process = subprocess.Popen(["sleep", "60"])
    try:
        ref = processes.identify(process.pid)
        assert ref is not None
        yield process, ref
    finally:
        process.kill()
        process.wait()


def drain(watcher: Watcher) -> None:
    """Take what is left of an event that the kernel told in several parts."""
    while watcher.wait(0.3):
        pass


@both_ways
def test_an_appended_line_wakes(tmp_path: Path, kernel: bool) -> None:
    journal = tmp_path / "events.jsonl"
    fs.append_line(journal, "one")
    with (
        Watcher([journal], kernel=kernel) as watcher,
        happening(lambda: fs.append_line(journal, "two")),
    ):
        assert watcher.wait(SOON)


@both_ways
def test_a_created_file_wakes(tmp_path: Path, kernel: bool) -> None:
    marker = tmp_path / "exit.json"
    with Watcher([marker], kernel=kernel) as watcher, happening(lambda: fs.create_exclusive(marker, "{}")):
        assert watcher.wait(SOON)


@both_ways
def test_a_created_file_is_watched_on(tmp_path: Path, kernel: bool) -> None:
    journal = tmp_path / "events.jsonl"
    with Watcher([journal], kernel=kernel) as watcher:
        for line in ("one", "two", "three"):
            with happening(lambda line=line: fs.append_line(journal, line)):  # type: ignore[misc]
                assert watcher.wait(SOON)
            drain(watcher)


@both_ways
def test_a_file_renamed_over_another_wakes_and_is_watched_on(tmp_path: Path, kernel: bool) -> None:
    state = tmp_path / "registry.json"
    fs.replace(state, "one")
    with Watcher([state], kernel=kernel) as watcher:
        with happening(lambda: fs.replace(state, "two!")):
            assert watcher.wait(SOON)
        drain(watcher)
        with happening(lambda: fs.append_line(state, "appended to the new file")):
            assert watcher.wait(SOON)


@both_ways
def test_a_removed_file_wakes(tmp_path: Path, kernel: bool) -> None:
    state = tmp_path / "state"
    fs.replace(state, "x")
    with Watcher([state], kernel=kernel) as watcher, happening(state.unlink):
        assert watcher.wait(SOON)


@both_ways
def test_a_folder_wakes_for_all_that_lies_in_it(tmp_path: Path, kernel: bool) -> None:
    inside = tmp_path / "any"
    with Watcher([tmp_path], kernel=kernel) as watcher:
        for act in (inside.touch, lambda: inside.write_text("x"), inside.unlink):
            with happening(act):
                assert watcher.wait(SOON)
            drain(watcher)


@both_ways
def test_neighbours_of_a_watched_file_wake_nobody(tmp_path: Path, kernel: bool) -> None:
    journal, log = tmp_path / "events.jsonl", tmp_path / "backlog.log"
    fs.append_line(journal, "one")
    with Watcher([journal], kernel=kernel) as watcher:
        fs.append_line(log, "created")
        fs.append_line(log, "changed")
        log.unlink()
        assert not watcher.wait(QUIET)


@both_ways
def test_a_missing_folder_that_appears_wakes_and_is_watched_on(tmp_path: Path, kernel: bool) -> None:
    runtime = tmp_path / "runtime" / "agent-1"
    with Watcher([runtime], kernel=kernel) as watcher:
        for act in (runtime.parent.mkdir, runtime.mkdir, (runtime / "exit.json").touch):
            with happening(act):
                assert watcher.wait(SOON)
            drain(watcher)


@both_ways
def test_a_missing_tree_that_appears_at_once_is_not_missed(tmp_path: Path, kernel: bool) -> None:
    journal = tmp_path / "a" / "b" / "c" / "events.jsonl"

    def appear() -> None:
        journal.parent.mkdir(parents=True)
        fs.append_line(journal, "one")

    with Watcher([journal], kernel=kernel) as watcher:
        with happening(appear):
            assert watcher.wait(SOON)
        drain(watcher)
        with happening(lambda: fs.append_line(journal, "two")):
            assert watcher.wait(SOON)


@both_ways
def test_a_folder_that_is_removed_and_made_again_is_watched_on(tmp_path: Path, kernel: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with Watcher([folder], kernel=kernel) as watcher:
        for act in (folder.rmdir, folder.mkdir, (folder / "file").touch):
            with happening(act):
                assert watcher.wait(SOON)
            drain(watcher)


@both_ways
def test_what_happens_before_the_wait_is_not_missed(tmp_path: Path, kernel: bool) -> None:
    journal = tmp_path / "events.jsonl"
    with Watcher([journal], kernel=kernel) as watcher:
        fs.append_line(journal, "one")
        assert watcher.wait(0)


@both_ways
def test_the_death_of_a_process_wakes_once(kernel: bool) -> None:
    with sleeper() as (process, ref), sleeper() as (_, other):
        with Watcher(processes=[ref, other], kernel=kernel) as watcher:
            assert not watcher.wait(0.1)
            with happening(process.kill):
                assert watcher.wait(SOON)
            assert not watcher.wait(QUIET)
        assert processes.is_alive(other)


@both_ways
def test_a_process_that_is_dead_already_is_an_event_at_once(kernel: bool) -> None:
    with sleeper() as (process, ref):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with Watcher(processes=[ref], kernel=kernel) as watcher:
            assert watcher.wait(0), "a zombie"
            assert not watcher.wait(0)
        process.wait()
        with Watcher(processes=[ref], kernel=kernel) as watcher:
            assert watcher.wait(0), "reaped"


@both_ways
def test_another_process_with_the_same_pid_counts_as_dead(kernel: bool) -> None:
    with sleeper() as (_, ref), Watcher(processes=[ProcessRef(ref.pid, "00000000:1")], kernel=kernel) as watcher:
        assert watcher.wait(0)


@both_ways
def test_files_and_processes_are_waited_for_together(tmp_path: Path, kernel: bool) -> None:
    journal = tmp_path / "events.jsonl"
    with sleeper() as (process, ref), Watcher([journal], [ref], kernel=kernel) as watcher:
        with happening(lambda: fs.append_line(journal, "one")):
            assert watcher.wait(SOON)
        drain(watcher)
        with happening(process.kill):
            assert watcher.wait(SOON)


@both_ways
def test_more_can_be_watched_later(tmp_path: Path, kernel: bool) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with sleeper() as (process, ref), Watcher(kernel=kernel) as watcher:
        for path in (first, second):
            watcher.add_directory(path)
            with happening(path.mkdir):
                assert watcher.wait(SOON)
            drain(watcher)
        watcher.add_process(ref)
        with happening(process.kill):
            assert watcher.wait(SOON)


@both_ways
def test_nothing_happening_is_an_answer_after_the_time_given(tmp_path: Path, kernel: bool) -> None:
    with Watcher([tmp_path], kernel=kernel) as watcher:
        started = time.monotonic()
        assert not watcher.wait(0.3)
        assert time.monotonic() - started >= 0.3


@both_ways
def test_waiting_without_end_ends_with_an_event(tmp_path: Path, kernel: bool) -> None:
    with Watcher([tmp_path], kernel=kernel) as watcher, happening((tmp_path / "file").touch):
        assert watcher.wait(None)


@linux_only
def test_a_quiet_wait_uses_no_processor_time(tmp_path: Path) -> None:
    with sleeper() as (_, ref), Watcher([tmp_path / "events.jsonl"], [ref]) as watcher:
        before = time.process_time()
        assert not watcher.wait(1.0)
        assert time.process_time() - before < 0.1


@linux_only
def test_watching_starts_no_process_and_leaves_no_descriptor(tmp_path: Path) -> None:
    with sleeper() as (_, ref):
        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with Watcher([tmp_path], [ref]) as watcher:
            watcher.wait(0)
            assert {child.pid for child in processes.descendants(os.getpid())} == {ref.pid}
        assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@linux_only
def test_used_up_inotify_instances_only_make_it_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(events, "_open_inotify", refuse)
    journal = tmp_path / "events.jsonl"
    with sleeper() as (process, ref), Watcher([journal], [ref]) as watcher:
        with happening(lambda: fs.append_line(journal, "one")):
            assert watcher.wait(SOON)
        with happening(process.kill):
            assert watcher.wait(SOON)


@linux_only
def test_watches_that_run_out_in_between_only_make_it_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import inotify_simple  # type: ignore[import-untyped]  # ships no types

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "folder"
    with Watcher([folder]) as watcher:
        monkeypatch.setattr(inotify_simple.INotify, "add_watch", refuse)
        watcher.add_directory(tmp_path / "other")
        with happening(folder.mkdir):
            assert watcher.wait(SOON)
        with happening((folder / "file").touch):
            assert watcher.wait(SOON)


@linux_only
def test_an_overflow_of_the_queue_is_an_event(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip("the queue of this system is too long to fill")
    journal = tmp_path / "events.jsonl"
    with Watcher([journal]) as watcher:
        # A rename is two events; the one that matters comes when the queue is full.
        names = [tmp_path / "a", tmp_path / "b"]
        names[0].touch()
        for _ in range(limit // 2 + 10):
            names[0].rename(names[1])
            names.reverse()
        fs.append_line(journal, "lost")
        assert watcher.wait(SOON)
        drain(watcher)
        with happening(lambda: fs.append_line(journal, "seen")):
            assert watcher.wait(SOON)
