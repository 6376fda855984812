"""What a server is told when it starts: whom it answers and who may register."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from side_agents.forum import limits

Registration = Literal["open", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """``hosts`` are names (``forum.example``) or names with a port that are answered besides the loopback's own;
    ``origins`` are web origins (``https://forum.example``) that browsers may send besides the server's own address."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    registration: Registration = "open"
    waiters_per_session: int = limits.WAITERS_PER_SESSION
    waiters_per_server: int = limits.WAITERS_PER_SERVER
    large_content_in_flight: int = limits.LARGE_CONTENT_IN_FLIGHT
    body_seconds: float = 60.0
    heartbeat_seconds: float = 15.0
