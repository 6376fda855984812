"""The program behind ``side-agents forum serve``: one process, one event loop, one forum, until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from side_agents.errors import ConflictError, RefusedError, UsageError
from side_agents.forum.server.app import create_app
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.server.wire import CREDENTIAL
from side_agents.infra import fs

if TYPE_CHECKING:
    from side_agents.forum.service.forum import Forum

LOCK_SUFFIX = ".serve-lock"
# Longer than clients keep idle connections, so that they close first and never send into a closing one.
_KEEP_ALIVE_SECONDS = 120
_SHUTDOWN_SECONDS = 10
_BACKLOG = 256


def run(forum: Forum, settings: ServerSettings, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` is called once the forum answers. Hold ``serving`` meanwhile."""
    import uvicorn

    from side_agents.forum.server.http_server import BoundedProtocol, ForumServer

    app = create_app(forum, settings)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = ForumServer(config, announce=announce, end_waits=app.state.api.waiters.close)
    with redacted_log():
        asyncio.run(server.serve([listener]))


def serving(database: Path, what: str) -> AbstractContextManager[None]:
    """The one server of a database, or who must be sure that there is none. Raises BusyError, which names the holder."""
    return fs.locked(database.with_name(database.name + LOCK_SUFFIX), purpose=what, timeout=0)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_reach(host: str, settings: ServerSettings) -> None:
    """Raises RefusedError when everybody in a network could register."""
    if settings.registration == "open" and not is_loopback(host):
        raise RefusedError(
            f"Whoever reaches {host} could register as an author; the forum was not served.",
            hint="Add --registration closed, or listen on 127.0.0.1.",
        )


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises UsageError for a host that is none, ConflictError for a port that cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise UsageError(f"{host} is no address of this machine ({error.strerror}).") from error
    # With the protocol named, asyncio switches Nagle's delay off; without it every answer takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConflictError(
            f"{host}:{port} cannot be listened on ({error.strerror}); the forum was not served.",
            hint="Choose another one with --port, or 0 for any that is free.",
        ) from error
    with listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    """The address for clients on this machine, such as ``http://127.0.0.1:8080``."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


@contextmanager
def redacted_log(stream: TextIO | None = None) -> Iterator[None]:
    """Warnings of server and forum on standard error, without anything that looks like a credential."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Redacting("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("uvicorn", "side_agents.forum", "asyncio")]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class _Redacting(logging.Formatter):
    """Cuts credentials out of whole records, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        return CREDENTIAL.sub("af_…", super().format(record))
