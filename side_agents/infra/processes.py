"""Which process is which: a pid together with the moment it started, because pids are reused.

On Linux everything asked often is read from /proc (20 us a process); psutil, whose import costs 50 ms, answers on other
systems. A zombie counts as dead; a process that we may not look at counts as alive.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from side_agents.models import ProcessRef

_PROC = Path("/proc")
_UNKNOWN_START = "?"
_POLL_SECONDS = 0.02


def identify(pid: int) -> ProcessRef | None:
    """The living process with this pid, or None. What only another user may see is alive with an unknown start."""
    started = _start_token(pid)
    return ProcessRef(pid, started) if started is not None else None


def current() -> ProcessRef:
    """This very process."""
    pid = os.getpid()
    return identify(pid) or ended(pid)


def ended(pid: int) -> ProcessRef:
    """A reference that is never alive: for a process that ended before its start could be read."""
    return ProcessRef(pid, "ended")


def is_alive(ref: ProcessRef) -> bool:
    """Whether exactly this process still runs: same pid, same start, not a zombie."""
    started = _start_token(ref.pid)
    if started is None:
        return False
    return started == ref.started or _UNKNOWN_START in (started, ref.started)


def descendants(pid: int) -> list[ProcessRef]:
    """Children, grandchildren and so on, the deepest first."""
    return _below(pid, _children())


def end_tree(refs: Sequence[ProcessRef], *, term_wait: float = 3.0, kill_wait: float = 2.0) -> list[ProcessRef]:
    """End these processes and all their descendants; the survivors are returned.

    TERM first (with CONT, since a stopped process cannot act on it), KILL for what is left after ``term_wait`` seconds
    together with what was started meanwhile. A pid that now belongs to another process is never signalled. We ourselves
    and init are passed over, with everything that would be reached only through them.
    """
    targets = _with_descendants(refs)
    for ref in targets:
        _signal(ref, signal.SIGTERM)
        _signal(ref, signal.SIGCONT)
    left = _wait_for_end(targets, term_wait)
    if not left:
        return []
    left = _with_descendants(left)
    for ref in left:
        _signal(ref, signal.SIGKILL)
    return _wait_for_end(left, kill_wait)


def terminate(ref: ProcessRef) -> None:
    """Ask this very process to end, with TERM; nothing happens when it is gone or not ours to signal."""
    _signal(ref, signal.SIGTERM)


def open_handle(pid: int) -> int | None:
    """A pidfd, which polls readable when the process ends; None where the kernel has none to give.

    Raises ProcessLookupError when there is no such process. The caller closes it.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def foreground_group(pid: int) -> int | None:
    """The process group that has the terminal of this process, or None when it has no terminal or is gone."""
    if _has_proc():
        fields = _stat_fields(pid)
        group = int(fields[5]) if fields else 0
    else:
        from side_agents.infra import proc  # not needed on Linux

        done = proc.run(["ps", "-o", "tpgid=", "-p", str(pid)], check=False)
        group = int(done.text) if done.text.strip().lstrip("-").isdigit() else 0
    return group if group > 0 else None


def group_of(pid: int) -> int | None:
    """The process group of a process, or None when it is gone."""
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def command_line(pid: int) -> str:
    """The arguments of a process joined by spaces; empty when it is gone or has none."""
    if _has_proc():
        with suppress(OSError):
            raw = (_PROC / str(pid) / "cmdline").read_bytes()
            return " ".join(raw.decode("utf-8", "surrogateescape").rstrip("\0").split("\0"))
        return ""
    import psutil  # 50 ms, needed only where /proc is absent

    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


@cache
def boot_id() -> str:
    """What tells this run of the machine from the one before."""
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_bytes().decode("ascii").strip()
    import psutil  # 50 ms, needed only where /proc is absent

    return f"{int(psutil.boot_time()):08x}"


@cache
def _has_proc() -> bool:
    return (_PROC / "self/stat").exists()


def _start_token(pid: int) -> str | None:
    if pid <= 0:
        return None
    if not _has_proc():
        return _psutil_start_token(pid)
    fields = _stat_fields(pid)
    if fields is None:
        # hidepid hides the processes of other users; only kill() still knows of them.
        return _UNKNOWN_START if _is_of_another_user(pid) else None
    return None if fields[0] in "ZXx" else f"{boot_id()[:8]}:{fields[19]}"


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (state, ppid, pgrp, session, tty, tpgid, ...)."""
    try:
        # os.open: a third of the cost of Path.read_text, and this runs for every agent at every look.
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        raw = os.read(handle, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(handle)
    # The name in parentheses may itself contain spaces and parentheses.
    return raw[raw.rfind(b")") + 2 :].decode("ascii").split()


def _psutil_start_token(pid: int) -> str | None:
    import psutil  # 50 ms, needed only where /proc is absent

    try:
        process = psutil.Process(pid)
        if process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            return None
        return f"{process.create_time():.2f}"
    except psutil.AccessDenied:
        return _UNKNOWN_START
    except psutil.Error:
        return None


def _is_of_another_user(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False


def _parents() -> dict[int, int]:
    if _has_proc():
        found = {int(name): _stat_fields(int(name)) for name in os.listdir(_PROC) if name.isdigit()}  # noqa: PTH208
        return {pid: int(fields[1]) for pid, fields in found.items() if fields}
    import psutil  # 50 ms, needed only where /proc is absent

    return {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}


def _below(pid: int, children: dict[int, list[int]]) -> list[ProcessRef]:
    ordered: list[int] = []
    level = children.get(pid, [])
    while level:
        ordered[:0] = level
        level = [grandchild for child in level for grandchild in children.get(child, [])]
    return [ref for ref in map(identify, ordered) if ref is not None]


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        children.setdefault(parent, []).append(child)
    return children


def _with_descendants(refs: Iterable[ProcessRef]) -> list[ProcessRef]:
    everything: dict[ProcessRef, None] = {}
    children = _children()
    spared = {0, 1, os.getpid()}
    for ref in refs:
        # Not even their descendants: below init is the whole machine.
        if ref.pid in spared:
            continue
        if is_alive(ref):
            everything.update(dict.fromkeys(_below(ref.pid, children)))
        everything[ref] = None
    return [ref for ref in everything if ref.pid not in spared]


def _signal(ref: ProcessRef, number: signal.Signals) -> None:
    """Signal this very process; one that is gone, or not ours to signal, is left to the caller's count of survivors."""
    with suppress(ProcessLookupError, PermissionError), ExitStack() as stack:
        handle = open_handle(ref.pid)
        if handle is None:
            if is_alive(ref):
                os.kill(ref.pid, number)
            return
        stack.callback(os.close, handle)
        # The handle is bound to whoever had the pid; only then is the identity worth checking.
        if is_alive(ref):
            signal.pidfd_send_signal(handle, number)


def _wait_for_end(refs: Sequence[ProcessRef], patience: float) -> list[ProcessRef]:
    deadline = time.monotonic() + patience
    with ExitStack() as stack:
        poller = select.poll()
        waiting = 0
        for ref in refs:
            with suppress(ProcessLookupError):
                handle = open_handle(ref.pid)
                if handle is not None:
                    stack.callback(os.close, handle)
                    poller.register(handle, select.POLLIN)
                    waiting += 1
        kernel_tells = waiting == len(refs)
        while left := [ref for ref in refs if is_alive(ref)]:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return left
            pause = remaining if kernel_tells else min(remaining, _POLL_SECONDS)
            for handle, _ in poller.poll(pause * 1000):
                poller.unregister(handle)
    return []
