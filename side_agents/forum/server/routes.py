"""All operations of the API, by subject."""

from __future__ import annotations

from side_agents.forum.server import (
    routes_catchup,
    routes_content,
    routes_events,
    routes_identity,
    routes_installation,
    routes_subforums,
)
from side_agents.forum.server.operations import Operation

SECTIONS: dict[str, tuple[Operation, ...]] = {
    "Installation": routes_installation.OPERATIONS,
    "Identity": routes_identity.OPERATIONS,
    "Subforums": routes_subforums.OPERATIONS,
    "Threads and posts": routes_content.OPERATIONS,
    "Events": routes_events.OPERATIONS,
    "Catch-up": routes_catchup.OPERATIONS,
}
OPERATIONS: tuple[Operation, ...] = tuple(each for section in SECTIONS.values() for each in section)
