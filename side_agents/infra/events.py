"""Waiting in the kernel until a file changes or a process ends.

inotify and pidfd wake a waiter within a millisecond and cost nothing meanwhile. Where one of them is missing or used
up, that half is looked at every quarter of a second instead; callers see no difference but the delay.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from side_agents.infra import processes
from side_agents.models import ProcessRef

_POLL_SECONDS = 0.25

# inotify(7)
_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW = 0x400, 0x800, 0x4000
_SELF = _DELETE_SELF | _MOVE_SELF
_NAMES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _SELF


class Wakeup:
    """Ends the waits of a ``Watcher`` that was given it, from another thread and at once, until it is ``reset``."""

    def __init__(self) -> None:
        self._receiver, self._sender = os.pipe()
        for end in (self._receiver, self._sender):
            os.set_blocking(end, False)
        self._lock = threading.Lock()
        self._is_closed = False
        self._fired = False

    @property
    def fired(self) -> bool:
        """Whether it was fired since the last reset."""
        return self._fired

    def fileno(self) -> int:
        """What is readable while it is fired."""
        return self._receiver

    def fire(self) -> None:
        """Wake whoever waits, and whoever comes to wait; any number of times, also after ``close``."""
        with self._lock:
            self._fired = True
            if not self._is_closed:
                # A full pipe is as readable as one with a single byte.
                with suppress(BlockingIOError):
                    os.write(self._sender, b"!")

    def reset(self) -> None:
        """Let waits sleep again. What is to be seen after waking has to be looked at after this."""
        with self._lock:
            self._fired = False
            with suppress(BlockingIOError):
                while os.read(self._receiver, 4096):
                    pass

    def close(self) -> None:
        """Give the descriptors back; the waits that knew it must be over."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._receiver)
                os.close(self._sender)


class Watcher:
    """Waits for changes of ``paths`` (files, or folders with what lies directly in them) and the end of ``processes``.

    A context manager. Everything that happens after it was entered counts, also between two waits, so the safe order
    is: enter, look, wait, look again. What does not exist yet may be watched: its coming is an event, and so is that of
    each missing parent. Whoever watches a file is not woken by its neighbours. The end of a process is reported once,
    also when it ended before. A ``wakeup`` that is fired ends every wait at once. ``kernel=False`` forces looking instead
    of waiting.
    """

    def __init__(
        self,
        paths: Iterable[Path] = (),
        processes: Iterable[ProcessRef] = (),
        *,
        wakeup: Wakeup | None = None,
        kernel: bool = True,
    ) -> None:
        self._paths = dict.fromkeys(Path(os.path.abspath(path)) for path in paths)  # noqa: PTH100 - keep symlinks
        self._refs = list(processes)
        self._kernel = kernel
        self._wakeup = wakeup
        self._poller = select.poll()
        if wakeup is not None:
            self._poller.register(wakeup.fileno(), select.POLLIN)
        self._files: _KernelFiles | _PolledFiles = _PolledFiles()
        self._handles: dict[int, ProcessRef] = {}
        self._polled: list[ProcessRef] = []
        self._ended = 0

    def __enter__(self) -> Self:
        self._files = self._open_files()
        for ref in self._refs:
            self._attach(ref)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()

    def add_directory(self, path: Path) -> None:
        """Watch one more folder or file from now on."""
        first = not self._paths
        self._paths[Path(os.path.abspath(path))] = None  # noqa: PTH100 - keep symlinks
        if first:
            self._files = self._open_files()
            return
        try:
            self._files.arm(self._paths)
        except OSError:
            self._fall_back()

    def add_process(self, ref: ProcessRef) -> None:
        """Watch one more process from now on."""
        self._attach(ref)

    def wait(self, timeout: float | None) -> bool:
        """Sleep until something happens (True) or ``timeout`` seconds are over (False); None sleeps without end.

        True may come once too often, never once too rarely.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if self._look():
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            pause = min(remaining, _POLL_SECONDS) if self._must_look() else remaining
            self._sleep(pause)

    def _look(self) -> bool:
        for handle, _ in self._poller.poll(0):
            if handle in self._handles:
                self._poller.unregister(handle)
                os.close(handle)
                del self._handles[handle]
                self._ended += 1
        running = [ref for ref in self._polled if processes.is_alive(ref)]
        self._ended += len(self._polled) - len(running)
        self._polled = running
        happened = self._ended > 0 or (self._wakeup is not None and self._wakeup.fired)
        self._ended = 0
        try:
            return self._files.changed(self._paths) or happened
        except OSError:
            self._fall_back()
            return True

    def _must_look(self) -> bool:
        return bool(self._polled) or (isinstance(self._files, _PolledFiles) and bool(self._paths))

    def _sleep(self, seconds: float) -> None:
        # Rounded up: poll() takes whole milliseconds, and rounding down would spin through the last one.
        self._poller.poll(None if seconds == math.inf else math.ceil(seconds * 1000))

    def _attach(self, ref: ProcessRef) -> None:
        try:
            handle = processes.open_handle(ref.pid) if self._kernel else None
        except ProcessLookupError:
            self._ended += 1
            return
        if handle is None:
            self._polled.append(ref)
        elif processes.is_alive(ref):
            self._poller.register(handle, select.POLLIN)
            self._handles[handle] = ref
        else:
            os.close(handle)
            self._ended += 1

    def _open_files(self) -> _KernelFiles | _PolledFiles:
        if self._kernel and self._paths:
            try:
                return _KernelFiles(self._poller, self._paths)
            except (ImportError, OSError):
                # Not Linux, or the user's inotify instances or watches are used up.
                pass
        files = _PolledFiles()
        files.arm(self._paths)
        return files

    def _fall_back(self) -> None:
        self._files.close()
        self._files = _PolledFiles()
        self._files.arm(self._paths)


class _PolledFiles:
    """Changes found by comparing what stat says now with what it said before."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[object, ...]] = {}

    def arm(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path not in self._seen:
                self._seen[path] = _signature(path)

    def changed(self, paths: Iterable[Path]) -> bool:
        seen = {path: _signature(path) for path in paths}
        changed = seen != self._seen
        self._seen = seen
        return changed

    def close(self) -> None:
        self._seen = {}


class _KernelFiles:
    """Changes told by inotify. OSError out of any method means that the kernel cannot do it."""

    def __init__(self, poller: select.poll, paths: Iterable[Path]) -> None:
        self._inotify = _open_inotify()
        self._poller = poller
        # Per watch: the names in that folder that matter, None for all.
        self._names: dict[int, set[str] | None] = {}
        self._moved = False
        poller.register(self._inotify.fileno(), select.POLLIN)
        try:
            self.arm(paths)
        except OSError:
            self.close()
            raise

    def arm(self, paths: Iterable[Path]) -> None:
        """Watch what is there now; what came or went while that was set up is remembered as a change."""
        wanted, found = None, _wanted(paths)
        while found != wanted:
            self._moved = self._moved or wanted is not None
            wanted = found if self._watch(found) else None
            found = _wanted(paths)

    def changed(self, paths: Iterable[Path]) -> bool:
        happened = structure = False
        for event in self._inotify.read(timeout=0):
            overflow = bool(event.mask & _OVERFLOW)
            names = self._names.get(event.wd, set())
            if overflow or names is None or event.name in names or event.mask & _SELF:
                happened = True
                structure = structure or bool(event.mask & ~_MODIFY)
        if structure:
            self.arm(paths)
        happened = happened or self._moved
        self._moved = False
        return happened

    def close(self) -> None:
        with suppress(KeyError):
            self._poller.unregister(self._inotify.fileno())
        self._inotify.close()

    def _watch(self, wanted: dict[Path, tuple[int, set[str] | None]]) -> bool:
        names: dict[int, set[str] | None] = {}
        complete = True
        for path, (mask, some) in wanted.items():
            try:
                watch = self._inotify.add_watch(path, mask)
                if watch in names:
                    # Another path of the same inode: the call above has replaced its mask.
                    other = names[watch]
                    self._inotify.add_watch(path, _NAMES | _MODIFY)
                    names[watch] = None if some is None or other is None else some | other
                else:
                    names[watch] = some
            except (FileNotFoundError, NotADirectoryError):
                complete = False
        for watch in self._names.keys() - names.keys():
            with suppress(OSError):
                self._inotify.rm_watch(watch)
        self._names = names
        return complete


def _open_inotify() -> Any:
    import ctypes  # 8 ms, needed only by those who wait

    # 15 ms, absent outside Linux; it ships no types.
    import inotify_simple  # type: ignore[import-untyped]  # it ships no types

    # Left alone it runs ldconfig (a process, 10 ms) to find the library that is loaded already.
    inotify_simple._libc = inotify_simple._libc or ctypes.CDLL(None, use_errno=True)
    return inotify_simple.INotify()


def _wanted(paths: Iterable[Path]) -> dict[Path, tuple[int, set[str] | None]]:
    """Which inodes to watch, with what mask, and which names in them matter (None: all).

    A folder is watched itself. A file is watched itself for changes of content, and its folder (or the nearest that
    exists) for the coming and going of the one name that leads to it; the kernel keeps the neighbours' writes from us.
    """
    wanted: dict[Path, tuple[int, set[str] | None]] = {}

    def want(path: Path, mask: int, names: set[str] | None) -> None:
        old_mask, old_names = wanted.get(path, (0, set()))
        merged = None if names is None or old_names is None else names | old_names
        wanted[path] = (old_mask | mask, merged)

    for path in paths:
        if path.is_dir():
            want(path, _NAMES | _MODIFY, None)
            continue
        if path.exists():
            want(path, _MODIFY, None)
        name, folder = path.name, path.parent
        while not folder.is_dir():
            name, folder = folder.name, folder.parent
        want(folder, _NAMES, {name})
    return wanted


def _signature(path: Path) -> tuple[object, ...]:
    """What tells two looks at a path apart: what is there, or up to which folder its path exists."""
    try:
        status = path.stat()
        if not path.is_dir():
            return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        with os.scandir(path) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return (next((folder for folder in path.parents if folder.is_dir()), None),)
    inside = sorted((name, entry.st_ino, entry.st_size, entry.st_mtime_ns) for name, entry in found)
    return (status.st_dev, status.st_ino, *inside)
