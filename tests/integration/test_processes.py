"""Which process is which, and ending whole trees of them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from side_agents.infra import processes
from side_agents.models import ProcessRef
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
Start = Callable[..., subprocess.Popen[bytes]]
Tree = tuple[ProcessRef, list[ProcessRef]]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs and ends them, the whole session of each, after the test."""
    with ExitStack() as stack:

        def start_one(*argv: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL)

            def end() -> None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

            stack.callback(end)
            return process

        yield start_one


@pytest.fixture
def without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system that has no /proc for us to read."""
    monkeypatch.setattr(processes, "_has_proc", lambda: False)


def reference(pid: int) -> ProcessRef:
    found = processes.identify(pid)
    assert found is not None
    return found


def become_zombie(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def read_pid(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


def test_a_process_is_known_by_pid_and_start(start: Start) -> None:
    process = start("sleep", "60")
    ref = reference(process.pid)
    assert ref == reference(process.pid)
    assert ref.pid == process.pid
    assert processes.is_alive(ref)


@linux_only
def test_the_start_names_the_boot_and_the_tick(start: Start) -> None:
    boot, tick = reference(start("sleep", "60").pid).started.split(":")
    assert processes.boot_id().startswith(boot)
    assert len(boot) == 8
    assert tick.isdigit()


def test_another_start_with_the_same_pid_is_another_process(start: Start) -> None:
    ref = reference(start("sleep", "60").pid)
    assert not processes.is_alive(ProcessRef(ref.pid, ref.started + "1"))
    assert not processes.is_alive(ProcessRef(ref.pid, "00000000:1"))


def test_a_zombie_is_dead_and_so_is_one_that_was_reaped(start: Start) -> None:
    process = start("sleep", "60")
    ref = reference(process.pid)
    become_zombie(process)
    assert processes.identify(process.pid) is None
    assert not processes.is_alive(ref)
    process.wait()
    assert processes.identify(process.pid) is None
    assert not processes.is_alive(ref)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**40])
def test_what_is_no_pid_is_no_process(pid: int) -> None:
    assert processes.identify(pid) is None
    assert not processes.is_alive(ProcessRef(pid, "x"))


@linux_only
def test_a_name_with_parentheses_and_spaces_does_not_confuse(tmp_path: Path, start: Start) -> None:
    program = tmp_path / "a) Z 1 ("
    program.symlink_to("/bin/sleep")
    process = start(str(program), "60")
    eventually(lambda: str(program) in processes.command_line(process.pid))
    assert processes.is_alive(reference(process.pid))
    assert process.pid in {ref.pid for ref in processes.descendants(os.getpid())}


@linux_only
def test_a_hidden_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(processes, "_stat_fields", lambda _pid: None)
    monkeypatch.setattr(os, "kill", refuse)
    ref = reference(4242)
    assert processes.is_alive(ref)
    assert processes.is_alive(ProcessRef(4242, "00000000:1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_a_process_that_may_not_be_signalled_is_alive(start: Start) -> None:
    ref = reference(start("sleep", "60").pid)
    code = """
import os, sys
from side_agents.infra import processes
from side_agents.models import ProcessRef
ref = ProcessRef(int(sys.argv[1]), sys.argv[2])
os.setuid(65534)
print(processes.is_alive(ref), processes.end_tree([ref], term_wait=0, kill_wait=0) == [ref])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code, str(ref.pid), ref.started]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
    assert processes.is_alive(ref)


def test_descendants_come_deepest_first(tmp_path: Path, start: Start) -> None:
    script = f"sh -c 'echo $$ > {tmp_path}/child; sh -c \"echo \\$\\$ > {tmp_path}/grandchild; sleep 60; :\"; :'; :"
    process = start("sh", "-c", script)
    child, grandchild = (read_pid(tmp_path / name) for name in ("child", "grandchild"))
    eventually(lambda: len(processes.descendants(process.pid)) == 3)
    found = processes.descendants(process.pid)
    assert [ref.pid for ref in found[1:]] == [grandchild, child]
    assert all(processes.is_alive(ref) for ref in found)


def test_nobody_descends_from_a_process_that_is_gone(start: Start) -> None:
    process = start("true")
    process.wait()
    assert processes.descendants(process.pid) == []


STUBBORN = "trap '' TERM; echo $$ > {pid}; while :; do sleep 0.1; done"


@pytest.fixture
def stubborn_tree(tmp_path: Path, start: Start) -> Iterator[Tree]:
    """A parent that ends on TERM, and two that ignore it, one of them in a session of its own."""
    near, far = tmp_path / "near", tmp_path / "far"
    script = (
        f'sh -c "{STUBBORN.format(pid=near).replace("$$", chr(92) + "$" + chr(92) + "$")}" & '
        f'setsid sh -c "{STUBBORN.format(pid=far).replace("$$", chr(92) + "$" + chr(92) + "$")}" & wait'
    )
    parent = start("sh", "-c", script)
    stubborn = [reference(read_pid(near)), reference(read_pid(far))]
    yield reference(parent.pid), stubborn
    for ref in stubborn:
        if processes.is_alive(ref):
            os.kill(ref.pid, signal.SIGKILL)


def test_field_100_a_tree_ends_with_those_that_ignore_being_asked(stubborn_tree: Tree) -> None:
    parent, stubborn = stubborn_tree
    assert os.getsid(stubborn[1].pid) == stubborn[1].pid
    assert processes.end_tree([parent], term_wait=0.3) == []
    assert not any(processes.is_alive(ref) for ref in [parent, *stubborn])


def test_a_polite_tree_ends_without_waiting_for_the_deadline(start: Start) -> None:
    parent = reference(start("sh", "-c", "sleep 60 & sleep 60 & wait").pid)
    eventually(lambda: len(processes.descendants(parent.pid)) == 2)
    assert processes.end_tree([parent], term_wait=60) == []


def test_a_process_asked_to_end_may_clean_up(tmp_path: Path, start: Start) -> None:
    script = f"trap 'echo bye > {tmp_path}/bye; exit' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    start("sh", "-c", script)
    assert processes.end_tree([reference(read_pid(tmp_path / "pid"))], term_wait=20) == []
    assert (tmp_path / "bye").exists()


def test_a_stopped_process_is_ended_by_being_asked(start: Start) -> None:
    process = start("sleep", "60")
    ref = reference(process.pid)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert processes.end_tree([ref], term_wait=20) == []
    assert process.wait() == -signal.SIGTERM


def test_a_reused_pid_is_never_signalled(start: Start) -> None:
    process = start("sleep", "60")
    stranger = reference(process.pid)
    assert processes.end_tree([ProcessRef(process.pid, "00000000:1")], term_wait=0.1, kill_wait=0.1) == []
    assert processes.is_alive(stranger)


def test_those_already_gone_are_no_survivors(start: Start) -> None:
    process = start("sleep", "60")
    ref = reference(process.pid)
    become_zombie(process)
    assert processes.end_tree([ref, ProcessRef(2**22 + 1, "x")]) == []
    assert processes.end_tree([]) == []


def test_neither_we_nor_init_nor_what_is_only_below_us_is_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, ended = reference(start("sleep", "60").pid), reference(start("sleep", "60").pid)
    signalled: list[int] = []
    real = processes._signal

    def only_our_own(ref: ProcessRef, number: signal.Signals) -> None:
        signalled.append(ref.pid)
        if ref == ended:
            real(ref, number)

    # Nothing is really signalled but the one: this test must stay harmless when it fails.
    monkeypatch.setattr(processes, "_signal", only_our_own)
    refs = [ProcessRef(1, processes._UNKNOWN_START), reference(os.getpid()), ended]
    assert processes.end_tree(refs, term_wait=20) == []
    assert set(signalled) == {ended.pid}
    assert processes.is_alive(kept)


def test_without_pidfd_trees_end_all_the_same(stubborn_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    parent, stubborn = stubborn_tree
    assert processes.end_tree([parent], term_wait=0.3) == []
    assert not any(processes.is_alive(ref) for ref in stubborn)


@pytest.mark.usefixtures("without_proc")
def test_without_proc_processes_are_known_and_ended_all_the_same(stubborn_tree: Tree) -> None:
    parent, stubborn = stubborn_tree
    assert processes.is_alive(parent)
    assert not processes.is_alive(ProcessRef(parent.pid, "1.00"))
    assert {ref.pid for ref in stubborn} <= {ref.pid for ref in processes.descendants(parent.pid)}
    assert "trap" in processes.command_line(parent.pid)
    assert processes.end_tree([parent], term_wait=0.3) == []
    assert not any(processes.is_alive(ref) for ref in [parent, *stubborn])
    assert processes.identify(stubborn[0].pid) is None
    assert processes.command_line(2**22 + 1) == ""


@pytest.mark.usefixtures("without_proc")
def test_without_proc_a_zombie_is_dead_as_well(start: Start) -> None:
    process = start("sleep", "60")
    ref = reference(process.pid)
    become_zombie(process)
    assert not processes.is_alive(ref)


@pytest.mark.parametrize("proc_is_there", [True, False])
def test_the_group_on_the_terminal_is_found(proc_is_there: bool, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    # The leader of a new session that opens a terminal gets it as its own.
    process = start("sh", "-c", f"exec sleep 60 <{os.ttyname(theirs)}")
    try:
        if not proc_is_there:
            monkeypatch.setattr(processes, "_has_proc", lambda: False)
        assert eventually(lambda: processes.foreground_group(process.pid)) == process.pid
        assert processes.group_of(process.pid) == process.pid
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("proc_is_there", [True, False])
def test_without_a_terminal_there_is_no_such_group(
    proc_is_there: bool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("sleep", "60")
    if not proc_is_there:
        monkeypatch.setattr(processes, "_has_proc", lambda: False)
    assert processes.foreground_group(process.pid) is None
    assert processes.foreground_group(2**22 + 1) is None


def test_groups_of_processes_that_are_gone_are_unknown() -> None:
    assert processes.group_of(2**22 + 1) is None


def test_a_command_line_is_shown_with_spaces(start: Start) -> None:
    process = start("sleep", "60")
    assert eventually(lambda: processes.command_line(process.pid).endswith("sleep 60"))
    become_zombie(process)
    assert processes.command_line(process.pid) == ""
    assert processes.command_line(2**22 + 1) == ""
