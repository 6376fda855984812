"""What one examination looks at: each fact is gathered once, when a check first asks for it. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from side_agents import names
from side_agents.config import Config
from side_agents.core import observe, slots
from side_agents.core.context import Context
from side_agents.core.registry import RegistryState
from side_agents.core.slots import Slot
from side_agents.errors import SideAgentsError, StateError
from side_agents.infra import clock, git_registration, processes_environ
from side_agents.infra.git_registration import Registration
from side_agents.infra.processes_environ import ProcessView
from side_agents.infra.tmux import Sweep, Tmux
from side_agents.models import Tombstone
from side_agents.paths import StatePaths

_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What can be examined outside of a repository, too. ``config_error`` is why the settings cannot be read."""

    environment: Mapping[str, str]
    config: Config
    config_error: SideAgentsError | None = None
    outside: SideAgentsError | None = None


class Site:
    """One repository under examination. ``exact`` measures folders to the end, however long that takes."""

    def __init__(self, context: Context, *, exact: bool = False) -> None:
        self.context = context
        self.exact = exact
        self._deadline = clock.monotonic() + _SECONDS
        self.registry_error: StateError | None = None

    @property
    def paths(self) -> StatePaths:
        """Where the state is."""
        return self.context.paths

    @property
    def common_dir(self) -> Path:
        """The repository's own directory."""
        return self.context.layout.common_dir

    @property
    def has_time(self) -> bool:
        """Whether there is time left for looks that cost a process each."""
        return self.exact or clock.monotonic() < self._deadline

    @cached_property
    def is_used(self) -> bool:
        """Whether side agents were ever used here."""
        return self.paths.meta.is_dir()

    @cached_property
    def state(self) -> RegistryState | None:
        """The registry, None when it cannot be read: ``registry_error`` says why."""
        try:
            return self.context.registry.read()
        except StateError as error:
            self.registry_error = error
            return None

    @cached_property
    def history(self) -> list[Tombstone]:
        """Tombstones, oldest first; none when the file cannot be read."""
        try:
            return self.context.registry.history()
        except StateError:
            return []

    @cached_property
    def slots(self) -> list[Slot]:
        """The folders with a slot's name."""
        return slots.scan(self.paths.root, self.common_dir)

    @cached_property
    def registrations(self) -> list[Registration]:
        """The worktrees that git knows."""
        return git_registration.registrations(self.common_dir)

    @cached_property
    def processes(self) -> list[ProcessView]:
        """What runs on this machine for this user."""
        return processes_environ.scan()

    @cached_property
    def launchers(self) -> dict[str, ProcessView]:
        """Living launchers of this repository by agent id."""
        found = [(agent_id, view) for view in self.processes if (agent_id := self.launcher_of(view)) is not None]
        pids: dict[str, set[int]] = {}
        for agent_id, view in found:
            pids.setdefault(agent_id, set()).add(view.ref.pid)
        # A launcher that forks looks like two for a moment: the upper one is it.
        above = processes_environ.ancestors
        return {agent_id: view for agent_id, view in found if not pids[agent_id].intersection(above(view.ref.pid))}

    def launcher_of(self, view: ProcessView) -> str | None:
        """Whose launcher a process is: it runs that agent's script, with no further argument."""
        if len(view.argv) != 2 or Path(view.argv[0]).name not in ("bash", "-bash"):
            return None
        script = Path(view.argv[1])
        agent_id = script.parent.name
        is_one = script == self.paths.runtime(agent_id).launcher and names.is_valid_id(agent_id)
        return agent_id if is_one else None

    @cached_property
    def sweeps(self) -> dict[Path, Sweep]:
        """One look at each tmux server that agents of this repository may be in."""
        rows = self.state.agents.values() if self.state is not None else ()
        sockets = {Path(row.tmux_socket) for row in rows if row.tmux_socket}
        variables = [self.context.environment, *(view.environment for view in self.launchers.values())]
        sockets |= {Path(socket) for each in variables if (socket := socket_of(each))}
        default = Path(self.context.environment.get("TMUX_TMPDIR") or "/tmp") / f"tmux-{os.getuid()}" / "default"
        sockets |= {default} if default.exists() else set()
        return {socket: Tmux(socket).sweep() for socket in sorted(sockets)}

    def has_marker(self, agent_id: str) -> bool:
        """Whether an agent's end was recorded by its launcher."""
        return observe.read_marker(self.paths.runtime(agent_id).exit_marker) is not None

    def runtime_ids(self) -> list[str]:
        """Ids that have a runtime folder."""
        folder = self.paths.meta / "runtime"
        found = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        return sorted(name for name in found if names.is_valid_id(name))


def socket_of(environment: Mapping[str, str]) -> str:
    """The socket that TMUX names, empty without one."""
    return environment.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]
