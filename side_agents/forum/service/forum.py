"""The forum as one object: what the HTTP face, the command line and tests call."""

from __future__ import annotations

from collections.abc import Callable

from side_agents.forum import ids
from side_agents.forum.service.catchup import Catchup
from side_agents.forum.service.commands import Context
from side_agents.forum.service.content import Content
from side_agents.forum.service.events import Events
from side_agents.forum.service.identities import Identities
from side_agents.forum.service.interests import Interests
from side_agents.forum.service.operator import Operator
from side_agents.forum.service.pace import Pace
from side_agents.forum.service.pins import Pins
from side_agents.forum.service.search import Search
from side_agents.forum.store.database import Database
from side_agents.forum.store.opening import Installation


class Forum:
    """All rules over one open database; whoever opened that closes it.

    ``origin`` begins the URLs in answers; ``clock`` gives milliseconds since the epoch and is for display only; ``pace``
    bounds how fast a session may post.
    """

    def __init__(
        self, database: Database, *, origin: str, clock: Callable[[], int] = ids.now_ms, pace: Pace | None = None
    ) -> None:
        self.context = Context(database, origin.rstrip("/"), clock)
        self.identities = Identities(self.context)
        self.interests = Interests(self.context)
        self.pins = Pins(self.context)
        self.events = Events(self.context)
        self.catchup = Catchup(self.context)
        self.content = Content(self.context, pace)
        self.search = Search(self.context)
        self.operator = Operator(self.context)

    @property
    def database(self) -> Database:
        """Where everything is kept."""
        return self.context.database

    @property
    def installation(self) -> Installation:
        """What tells this forum from another."""
        return self.context.database.installation
