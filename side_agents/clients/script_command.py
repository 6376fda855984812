"""One running command of the script agent, in a process group of its own.

Spawned by ``posix_spawn`` instead of ``infra.proc``: the output is read as it comes and the command can be interrupted,
and subprocess alone would double the program's start.
"""

from __future__ import annotations

import codecs
import os
import signal
import time
from collections.abc import Mapping, Sequence

KILL_AFTER = 0.2

_READ = 65_536
_DRAIN = 1 << 20
_LONGEST_LINE = 8192
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)


class Command:
    """A command with /dev/null as input and one pipe for all its output. Raises OSError when it cannot be started."""

    def __init__(self, program: str, argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
        self.output, write_end = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self._pid = os.posix_spawnp(
                program,
                list(argv),
                env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, write_end, 1),
                    (os.POSIX_SPAWN_DUP2, write_end, 2),
                ],
                setpgroup=0,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        except (OSError, ValueError):
            os.close(self.output)
            raise
        finally:
            os.close(write_end)
        self._open = True
        self._kill_at: float | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    @property
    def readable(self) -> bool:
        """True while there may be output to wait for."""
        return self._open

    @property
    def deadline(self) -> float | None:
        """Monotonic time at which an interrupted command is killed."""
        return self._kill_at

    def read(self) -> str:
        """Return the whole lines that are there, "" when there are none now; only a very long line is cut."""
        text = self._line + self._decoder.decode(self._read())
        end = len(text) if len(text) > _LONGEST_LINE else text.rfind("\n") + 1
        self._line = text[end:]
        return text[:end]

    def interrupt(self) -> None:
        """Ask the whole group to end; what is left after ``KILL_AFTER`` seconds is killed by ``poll``."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + KILL_AFTER
            self._signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """Return the exit status (128 + signal for a killed one) once it has ended; call ``drain`` then."""
        if self._kill_at is not None:
            # Before reaping, while the zombie leader still keeps the group id from being given to others.
            if time.monotonic() < self._kill_at and not self._leader_ended():
                return None
            self._signal(signal.SIGKILL)
            status = os.waitpid(self._pid, 0)[1]
        else:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid == 0:
                return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def drain(self) -> str:
        """Return the rest of an ended command's output; a background process of it may keep the other end."""
        chunks: list[bytes] = []
        while sum(map(len, chunks)) < _DRAIN and (chunk := self._read()):
            chunks.append(chunk)
        self._close()
        return self._line + self._decoder.decode(b"".join(chunks), True)

    def end(self) -> None:
        """End the whole group now, waiting at most ``KILL_AFTER`` seconds for it."""
        self.interrupt()
        while self.poll() is None:
            time.sleep(0.005)
        self._close()

    def _read(self) -> bytes:
        if not self._open:
            return b""
        try:
            data = os.read(self.output, _READ)
        except BlockingIOError:
            return b""
        if not data:
            self._close()
        return data

    def _leader_ended(self) -> bool:
        if not hasattr(os, "waitid"):
            return False
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def _close(self) -> None:
        if self._open:
            os.close(self.output)
            self._open = False
