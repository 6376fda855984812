"""The shapes of ASGI, named once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

DISCONNECT = "http.disconnect"


class ClientGoneError(Exception):
    """The other side went away before it had asked or been answered; there is nobody to tell."""


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of one header, in the order they came; ``name`` in lower case."""
    return [value for key, value in scope["headers"] if key.lower() == name]
