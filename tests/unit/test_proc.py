"""Running programs: output, failures, deadlines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from side_agents.errors import CommandFailedError, DeadlineError, NotFoundError, ToolMissingError, UsageError
from side_agents.infra import proc, processes
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


def is_running(pid: int) -> bool:
    return processes.identify(pid) is not None


def read_pid(path: Path) -> int:
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


def test_output_is_kept_apart_and_exact() -> None:
    done = proc.run(["sh", "-c", "printf 'out\\n\\n'; printf err >&2"])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n\n", b"err")
    assert (done.text, done.error_text) == ("out\n", "err")


def test_bytes_that_are_not_utf8_survive() -> None:
    assert os.fsencode(proc.run(["printf", "\\377x"]).text) == b"\xffx"


def test_arguments_are_never_read_by_a_shell(tmp_path: Path) -> None:
    arguments = ["$HOME", "`id`", "a b", "'", '"', "*", "-n", ";", "\n"]
    shown = "import sys, json; print(json.dumps(sys.argv[1:]))"
    done = proc.run([sys.executable, "-c", shown, *arguments, tmp_path / "p"])
    assert done.text == json.dumps([*arguments, str(tmp_path / "p")])


def test_a_failure_keeps_the_words_of_the_program() -> None:
    with pytest.raises(CommandFailedError) as caught:
        proc.run(["sh", "-c", "echo no such branch >&2; exit 3"])
    error = caught.value
    assert (error.returncode, error.stderr, error.argv[0]) == (3, "no such branch", "sh")
    assert "no such branch" in error.message
    assert "status 3" in error.message


def test_a_program_ended_by_a_signal_is_a_failure_that_says_so() -> None:
    with pytest.raises(CommandFailedError, match="signal 9"):
        proc.run(["sh", "-c", "kill -9 $$"])


def test_without_check_any_status_is_an_answer() -> None:
    assert proc.run(["sh", "-c", "exit 3"], check=False).returncode == 3


def test_input_is_delivered_and_without_it_there_is_none() -> None:
    assert proc.run(["cat"], input=b"a\0b").stdout == b"a\0b"
    assert proc.run(["cat"]).stdout == b""


def test_more_than_a_pipe_holds_goes_in_and_comes_out_of_both_streams() -> None:
    data = b"x" * 3_000_000
    done = proc.run(["sh", "-c", "tee /dev/stderr"], input=data)
    assert done.stdout == data
    assert done.stderr == data


def test_a_program_that_does_not_read_its_input_is_no_error() -> None:
    assert proc.run(["true"], input=b"x" * 3_000_000).returncode == 0


def test_directory_and_environment_are_those_given(tmp_path: Path) -> None:
    done = proc.run(["/bin/sh", "-c", 'pwd; echo "$A|$HOME"'], cwd=tmp_path, env={"A": "1"})
    assert done.text == f"{tmp_path.resolve()}\n1|"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ToolMissingError, match="no-such-program-here") as caught:
        proc.run(["no-such-program-here", "x"])
    assert caught.value.hint is not None


def test_a_file_that_may_not_be_run_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(ToolMissingError, match="not a program"):
        proc.run([tmp_path / "data"])


def test_a_missing_directory_is_not_taken_for_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="gone"):
        proc.run(["true"], cwd=tmp_path / "gone")


def test_an_argument_list_that_is_too_long_is_a_failure_of_ours() -> None:
    with pytest.raises(CommandFailedError, match="could not be started"):
        proc.run(["true", "x" * 10_000_000])


@pytest.mark.parametrize("argv", [[], [""], ["true", "a\0b"]])
def test_what_cannot_be_run_is_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        proc.run(argv)


def test_a_deadline_ends_the_whole_group_and_keeps_what_was_said(tmp_path: Path) -> None:
    script = f"echo slow >&2; sh -c 'echo $$ > {tmp_path}/pid; sleep 60' & wait"
    with pytest.raises(DeadlineError, match=r"within 0\.5 s") as caught:
        proc.run(["sh", "-c", script], deadline=0.5)
    assert caught.value.stderr == "slow"
    pid = read_pid(tmp_path / "pid")
    eventually(lambda: not is_running(pid))


def test_a_deadline_also_ends_what_ignores_being_asked(tmp_path: Path) -> None:
    script = f"trap '' TERM; sh -c 'echo $$ > {tmp_path}/pid; while :; do sleep 1; done' & while :; do sleep 1; done"
    with pytest.raises(DeadlineError):
        proc.run(["sh", "-c", script], deadline=0.3)
    pid = read_pid(tmp_path / "pid")
    eventually(lambda: not is_running(pid))


def test_a_program_asked_to_end_can_clean_up(tmp_path: Path) -> None:
    script = f"trap 'echo bye > {tmp_path}/bye; exit' TERM; while :; do sleep 0.05; done"
    with pytest.raises(DeadlineError):
        proc.run(["sh", "-c", script], deadline=0.3)
    assert (tmp_path / "bye").exists()


def test_a_detached_process_that_keeps_the_pipes_does_not_hold_us(tmp_path: Path) -> None:
    script = f"echo said >&2; setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & exit 0"
    started = time.monotonic()
    try:
        with pytest.raises(DeadlineError) as caught:
            proc.run(["sh", "-c", script], deadline=0.3)
        assert caught.value.stderr == "said"
        assert time.monotonic() - started < 30
    finally:
        os.kill(read_pid(tmp_path / "pid"), signal.SIGKILL)


def test_an_interrupt_of_ours_ends_what_we_started(tmp_path: Path) -> None:
    code = f"from side_agents.infra import proc; proc.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 60'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE) as ours:
        pid = read_pid(tmp_path / "pid")
        ours.send_signal(signal.SIGINT)
        ours.communicate(timeout=30)
    assert ours.returncode != 0
    eventually(lambda: not is_running(pid))


def test_an_interrupt_while_a_program_is_being_started_ends_it_too(tmp_path: Path) -> None:
    code = f"""
import os, signal, subprocess
from side_agents.infra import proc
real = subprocess.Popen

class Interrupted(real):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        open({str(tmp_path / "pid")!r}, "w").write(str(self.pid))
        os.kill(os.getpid(), signal.SIGINT)

subprocess.Popen = Interrupted
proc.run(["sleep", "60"])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=False)
    assert b"KeyboardInterrupt" in done.stderr
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_an_interactive_program_has_our_streams_and_gives_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert proc.call_interactive(["sh", "-c", "echo shown; exit 4"]) == 4
    assert capfd.readouterr().out == "shown\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interactive_program_ended_by_a_signal_counts_as_in_a_shell() -> None:
    assert proc.call_interactive(["sh", "-c", "kill -TERM $$"]) == 128 + signal.SIGTERM


def test_an_interrupt_at_an_interactive_program_is_for_it_alone() -> None:
    # The shell sends the interrupt to us as well, as a terminal would.
    assert proc.call_interactive(["sh", "-c", "trap 'exit 7' INT; kill -INT $PPID; kill -INT $$"]) == 7


def test_a_missing_interactive_program_is_named() -> None:
    with pytest.raises(ToolMissingError, match="no-such-program-here"):
        proc.call_interactive(["no-such-program-here"])


def test_replacing_ourselves_keeps_the_pid_and_what_was_printed() -> None:
    replacing = "proc.replace_process(['sh', '-c', 'echo $$'])"
    code = f"import os; from side_agents.infra import proc; print(os.getpid()); {replacing}"
    done = proc.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    first, second = done.text.split()
    assert first == second


def test_replacing_ourselves_by_nothing_is_refused() -> None:
    with pytest.raises(ToolMissingError):
        proc.replace_process(["no-such-program-here"], env={"PATH": "/bin"})


def test_programs_are_found_in_the_order_of_the_path(tmp_path: Path) -> None:
    for folder, mode in (("plain", 0o644), ("first", 0o755), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text("#!/bin/sh\n")
        (tmp_path / folder / "tool").chmod(mode)
    path = f":{tmp_path}/plain:{tmp_path}/absent:{tmp_path}/first:{tmp_path}/second"
    assert proc.find_program("tool", path=path) == tmp_path / "first/tool"
    assert proc.find_program("other", path=path) is None
    assert proc.find_program(str(tmp_path / "second/tool")) == tmp_path / "second/tool"
    assert proc.find_program(str(tmp_path / "plain")) is None


def test_without_a_path_our_own_is_used() -> None:
    found = proc.find_program("sh")
    assert found is not None
    assert found.name == "sh"
