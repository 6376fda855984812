"""The way to the extension: messages from any thread, and the one moment at which it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from side_agents.companion import protocol
from side_agents.infra.events import Wakeup
from side_agents.infra.line_pipe import LineWriter


class LinkGoneError(Exception):
    """The extension takes no more messages; the companion is ending."""


class Link:
    """Sends messages. ``ending`` is fired once the other side is gone, whoever noticed it."""

    def __init__(self, handle: int) -> None:
        self._writer = LineWriter(handle)
        self.ending = Wakeup()

    def send(self, message: Mapping[str, Any]) -> None:
        """Returns when the pipe has the whole message. Raises LinkGoneError."""
        if self.ending.fired:
            raise LinkGoneError
        try:
            self._writer.write(protocol.encode(message))
        except OSError as error:
            self.ending.fire()
            raise LinkGoneError from error

    def event(self, kind: str, message: Mapping[str, Any]) -> None:
        """Send something that nobody asked for."""
        self.send({"event": kind, **message})
