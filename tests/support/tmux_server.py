"""A private tmux server: a socket of its own in a short folder, ended through that socket and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from side_agents.infra.tmux import CallerPane, Sweep, Tmux


@dataclass
class PrivateServer:
    """Started by ``start``; ``stop`` may be called at any time and any number of times."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="sa-", dir="/tmp")))
    frozen: set[int] = field(default_factory=set)

    @property
    def tmux(self) -> Tmux:
        return Tmux(self.folder / "s")

    def start(
        self,
        *,
        session: str = "main",
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        argv: Sequence[str] = ("cat", "-u"),
        cwd: Path | None = None,
    ) -> CallerPane:
        """A detached session; ``options`` are lines of a tmux configuration, such as "set -g base-index 1"."""
        config = self.folder / "tmux.conf"
        config.write_text("\n".join((*options, "")), encoding="utf-8")
        return self.tmux.start_server(session, cwd=cwd or self.folder, argv=argv, env=env, config=config)

    def freeze(self) -> int:
        """Stop the server's process, as a wedged server looks from outside; returns its pid."""
        pid = self.pid()
        os.kill(pid, signal.SIGSTOP)
        self.frozen.add(pid)
        return pid

    def thaw(self) -> None:
        for pid in self.frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen.clear()

    def pid(self) -> int:
        server = self.sweep().server
        assert server is not None
        return server.pid

    def sweep(self) -> Sweep:
        return self.tmux.sweep()

    def stop(self) -> None:
        self.thaw()
        if self.folder.exists():
            self.tmux.kill_server()
            shutil.rmtree(self.folder, ignore_errors=True)
