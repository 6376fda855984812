"""Putting it together: the application for a server, and the same one without a framework for use inside a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from side_agents.forum.server.api import Api
from side_agents.forum.server.asgi import App, Receive, Scope, Send
from side_agents.forum.server.border import Border
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.server.waits import Waiters

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from side_agents.forum.service.forum import Forum


class LocalApp:
    """The API behind its border, for callers in the same process: no framework, no socket, the same answers.

    Used from one event loop at a time. ``close`` ends its threads; the forum stays open.
    """

    def __init__(self, forum: Forum, settings: ServerSettings | None = None) -> None:
        chosen = settings or ServerSettings()
        self._api = Api(forum, chosen)
        self._border = Border(self._api, settings=chosen, installation_id=forum.database.installation.id)

    @property
    def waiters(self) -> Waiters:
        """Who waits at this moment."""
        return self._api.waiters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._border(scope, receive, send)

    def close(self) -> None:
        """End the threads once what they do is done."""
        self._api.close()


def create_app(forum: Forum, settings: ServerSettings, *, pages: Sequence[BaseRoute] = ()) -> Starlette:
    """The application for a server. ``pages`` are routes for people (an observer), behind the same border as the API.

    ``app.state.api`` is the API; tell its ``waiters`` to ``close`` before the server waits for open requests.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Mount

    api = Api(forum, settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        api.close()

    app = Starlette(
        routes=[*pages, Mount("", api)],
        middleware=[Middleware(_border, settings=settings, installation_id=forum.database.installation.id)],
        lifespan=lifespan,
    )
    # Starlette's default answers a path that lacks a slash with a redirect, and the forum never redirects.
    app.router.redirect_slashes = False
    app.state.api = api
    return app


def _border(app: App, *, settings: ServerSettings, installation_id: str) -> App:
    return Border(app, settings=settings, installation_id=installation_id)
