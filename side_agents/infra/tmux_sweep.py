"""What one look at a tmux server can prove: every pane, or that nothing is known.

Tabs, 0x1f and non-ASCII bytes become ``_`` in the output for a client without a UTF-8 locale, and names as well as
argv[0] of whatever runs in a pane are free text that may hold any separator and even newlines. Fields are therefore
split by a printable random word that no pane can foresee.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from side_agents.infra import processes
from side_agents.models import ProcessRef

# One life of a tmux server: ids like @0 and %0 begin again in the next one. Where the server's process cannot be seen
# (another pid namespace) ``started`` is this prefix and tmux's own start time, and nothing proves its end.
ServerIdentity = ProcessRef
_FOREIGN = "tmux:"

_FIELDS = (
    "pane_id", "window_id", "window_index", "session_id", "pane_pid", "pane_dead", "pane_dead_status", "pane_in_mode",
    "pane_active", "window_active", "session_attached", "pane_pipe", "alternate_on",
    "@side_agent_id", "pane_current_command", "window_name", "session_name",
)  # fmt: skip
_SERVER_FIELDS = ("pid", "start_time", "version")


class Outcome(StrEnum):
    """How a sweep ended; only ANSWERED says anything about panes."""

    ANSWERED = "answered"
    NO_SERVER = "no-server"
    NO_ANSWER = "no-answer"


class Presence(StrEnum):
    """Whether an agent's pane is there. UNKNOWN must change nothing."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PaneInfo:
    """One pane as tmux described it. All texts are untrusted: programs in the pane can set them."""

    pane_id: str
    window_id: str
    window_index: int
    session_id: str
    pane_pid: int
    dead: bool
    dead_status: int | None
    in_mode: bool
    active: bool
    watched: bool
    piped: bool
    alternate_screen: bool
    agent_tag: str
    current_command: str
    window_name: str
    session_name: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """All panes of one server at one moment, by pane id.

    ``outcome`` NO_SERVER means that nobody listens on the socket, which is not yet proof that the server has ended:
    its socket file may have been unlinked. Ask ``presence``.
    """

    outcome: Outcome
    server: ServerIdentity | None = None
    panes: Mapping[str, PaneInfo] = field(default_factory=dict)
    version: str = ""
    detail: str = ""

    def presence(self, pane_id: str, server: ServerIdentity | None, tag: str) -> Presence:
        """Whether the pane recorded with this server still is the agent ``tag``.

        A pane is ABSENT only when its own server said so, or when that server's process has surely ended.
        ``server`` None (a record from another tool) is judged by pane id and tag, and never absent without an answer.
        """
        if self.server is not None and server in (None, self.server):
            pane = self.panes.get(pane_id)
            return Presence.PRESENT if pane is not None and pane.agent_tag == tag else Presence.ABSENT
        if server is None:
            return Presence.UNKNOWN
        return Presence.ABSENT if self.proves_end_of(server) else Presence.UNKNOWN

    def proves_end_of(self, server: ServerIdentity) -> bool:
        """True when the recorded server has surely ended: its process is gone, or another server has its pid."""
        if self.server is not None and self.server.pid == server.pid:
            return self.server != server
        return not server.started.startswith(_FOREIGN) and not processes.is_alive(server)


@dataclass(frozen=True, slots=True)
class SweepQuery:
    """The arguments of the one tmux call of a sweep, and the reader of its answer."""

    word: str = field(default_factory=lambda: os.urandom(6).hex())

    def argv(self) -> tuple[str, ...]:
        """tmux commands; the first one names the server even when it has no panes (``exit-empty off``)."""
        return (
            "display-message", "-p", self._format(_SERVER_FIELDS), ";", "list-panes", "-a", "-F", self._format(_FIELDS),
        )  # fmt: skip

    def parse(self, text: str) -> Sweep:
        """Read the answer of a server. Raises ValueError when it is none."""
        if f"[{self.word}]" not in text:
            raise ValueError(text)
        header, *records = (part.rstrip("\n").split(f"={self.word}=") for part in text.split(f"[{self.word}]")[1:])
        pid, start_time, version = header
        panes: dict[str, PaneInfo] = {}
        for record in records:
            if len(record) == len(_FIELDS):
                # A window linked into several sessions is listed once per session.
                panes.setdefault(record[0], _pane(dict(zip(_FIELDS, record, strict=True))))
        return Sweep(Outcome.ANSWERED, _identity(int(pid), start_time), panes, version)

    def _format(self, names: tuple[str, ...]) -> str:
        return f"[{self.word}]" + f"={self.word}=".join(f"#{{{name}}}" for name in names)


def _identity(pid: int, start_time: str) -> ServerIdentity:
    process = processes.identify(pid)
    if process is None or "tmux" not in processes.command_line(pid):
        return ServerIdentity(pid, _FOREIGN + start_time)
    return process


def _pane(raw: dict[str, str]) -> PaneInfo:
    return PaneInfo(
        pane_id=raw["pane_id"],
        window_id=raw["window_id"],
        window_index=int(raw["window_index"]),
        session_id=raw["session_id"],
        pane_pid=int(raw["pane_pid"]),
        dead=raw["pane_dead"] == "1",
        dead_status=int(raw["pane_dead_status"]) if raw["pane_dead_status"] else None,
        in_mode=raw["pane_in_mode"] not in ("", "0"),
        active=raw["pane_active"] == raw["window_active"] == "1",
        watched=raw["pane_active"] == raw["window_active"] == "1" and raw["session_attached"] not in ("", "0"),
        piped=raw["pane_pipe"] == "1",
        alternate_screen=raw["alternate_on"] == "1",
        agent_tag=raw["@side_agent_id"],
        current_command=raw["pane_current_command"],
        window_name=raw["window_name"],
        session_name=raw["session_name"],
    )
