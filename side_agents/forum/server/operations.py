"""What an operation of the API is: one row of a table from which routing, parsing and the OpenAPI document all come."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from side_agents.forum import limits
from side_agents.forum.server.query import Kind, Parameter

if TYPE_CHECKING:
    from side_agents.forum.server.exchange import Exchange
    from side_agents.forum.server.settings import ServerSettings
    from side_agents.forum.server.waits import Waiters
    from side_agents.forum.service.forum import Forum
    from side_agents.forum.service.principal import Command, CommandResult, Principal

_ULID = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
# Placeholders of path templates. What has not this form names nothing that could exist, so it is not found.
PATH_PATTERNS: dict[str, str] = {
    "agentId": f"ag_{_ULID}",
    "sessionId": f"as_{_ULID}",
    "threadId": f"th_{_ULID}",
    "postId": f"po_{_ULID}",
    "attachmentId": f"at_{_ULID}",
    "planId": f"pl_{_ULID}",
    "key": limits.SUBFORUM_KEY_PATTERN.strip("^$"),
    "name": f"{limits.NAME_PATTERN.strip('^$*')}{{0,{limits.NAME_CHARACTERS - 1}}}",
}
CURSOR = Parameter(
    name="cursor",
    about="Where to go on: the nextCursor of an answer, unchanged.",
    low=1,
    high=2048,
    pattern=r"[A-Za-z0-9_-]+",
    code="invalid_cursor",
)
CURSOR_FAILURES = ("invalid_cursor", "cursor_scope_mismatch", "cursor_expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, authenticated and parsed, as an operation sees it. ``query`` has every declared parameter."""

    forum: Forum
    settings: ServerSettings
    waiters: Waiters
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    principal: Principal | None = None
    command: Command | None = None

    @property
    def me(self) -> Principal:
        """Who asks; only for operations that are not public."""
        if self.principal is None:
            raise RuntimeError("a public operation asked who is asking")
        return self.principal

    @property
    def key(self) -> Command:
        """The command's key and digest; only for keyed operations."""
        if self.command is None:
            raise RuntimeError("an operation without a key asked for it")
        return self.command

    def with_query(self, **values: object) -> Call:
        """The same call, asked with other values."""
        return replace(self, query={**self.query, **values})


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes of an attachment under the name that its author gave it."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``run`` is called in a worker thread, or ``converse`` on the event loop for what waits or streams.

    ``answer`` names the schema of a good answer; ``failures`` are the codes that this operation adds to the common ones.
    """

    name: str
    method: str
    path: str
    about: str
    answer: str
    run: Callable[[Call], Mapping[str, Any] | CommandResult | Download] | None = None
    converse: Callable[[Exchange, Call], Awaitable[None]] | None = None
    query: tuple[Parameter, ...] = ()
    body: type[Any] | None = None
    is_public: bool = False
    is_keyed: bool = False
    is_content: bool = False
    failures: tuple[str, ...] = ()
    details: str = ""
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The check of a form must not see a trailing newline as the end, which is why these are used with fullmatch.
        source = re.sub(
            r"\\\{(\w+)\\\}", lambda found: f"(?P<{found[1]}>{PATH_PATTERNS[found[1]]})", re.escape(self.path)
        )
        object.__setattr__(self, "pattern", re.compile(source, re.ASCII))


def limit_parameter(most: int, usual: int | None = None) -> Parameter:
    """The ``limit`` of a listing."""
    return Parameter(
        name="limit",
        about="How many items an answer has at most.",
        kind=Kind.INTEGER,
        default=usual or most,
        low=1,
        high=most,
    )
