"""The outer wall: every request passes here before anything is looked up (reference/forum 5.2).

Size of the header block, Host, Origin, secrets in the address, the wanted installation: in this order, and all before
authentication. What lies behind may raise ForumError as long as it has not begun to answer.
"""

from __future__ import annotations

import logging
import re
from urllib.parse import unquote

from side_agents.errors import ForumError
from side_agents.forum import ids, limits
from side_agents.forum.failures import fail
from side_agents.forum.server.asgi import App, ClientGoneError, Message, Receive, Scope, Send, header_values
from side_agents.forum.server.settings import ServerSettings
from side_agents.forum.server.wire import CREDENTIAL, Answer, error_answer, send_answer

_log = logging.getLogger(__name__)

# name[:port] or [v6][:port]; nothing else may stand in a Host header.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}))(?::([0-9]{1,5}))?", re.ASCII)
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]", re.ASCII)
# What one header costs on the wire besides its name and value: colon, blank and line end.
_HEADER_OVERHEAD = 4
_SECRET_NAMES = re.compile(r"(?:^|&)(?:access_token|authorization|credential|token)=", re.IGNORECASE)
REQUEST_ID = "side_agents.request_id"


class Border:
    """ASGI around ``app``. Turns ForumError into its answer, and everything else into ``internal`` without details."""

    def __init__(self, app: App, *, settings: ServerSettings, installation_id: str) -> None:
        self._app = app
        self._settings = settings
        self._installation_id = installation_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # A WebSocket: refused at the handshake.
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id = scope[REQUEST_ID] = ids.ulid("rq")
        has_begun = False

        async def watched_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            check(scope, self._settings, self._installation_id)
            await self._app(scope, receive, watched_send)
        except ClientGoneError:
            return
        except Exception as error:
            if has_begun:
                # Half an answer cannot be mended: the connection breaks, and the client knows that it knows nothing.
                _log.error("request %s broke while it was answered", request_id, exc_info=error)
                raise
            await send_answer(send, _refusal(error, request_id))


def _refusal(error: Exception, request_id: str) -> Answer:
    if isinstance(error, ForumError):
        # The rest of a body that is too large is not read, so nothing more can be asked on this connection.
        return error_answer(error, request_id, closes=error.status == 413)
    _log.error("request %s failed", request_id, exc_info=error)
    words = "The forum has hit a fault of its own; its log has the details under this request id."
    return error_answer(fail("internal", words), request_id)


def check(scope: Scope, settings: ServerSettings, installation_id: str) -> None:
    """Everything that can be refused by looking at the head of a request. Raises ForumError."""
    _check_size(scope)
    host = _check_host(scope, settings)
    _check_origin(scope, settings, host)
    _check_address(scope)
    _check_installation(scope, installation_id)


def is_origin(text: str) -> bool:
    """Whether a text has the form of a web origin, in lower case: scheme, host and perhaps a port."""
    scheme, mark, host = text.partition("://")
    return scheme in ("http", "https") and bool(mark) and _HOST.fullmatch(host) is not None


def _check_size(scope: Scope) -> None:
    line = len(scope["method"]) + len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    block = line + sum(len(name) + len(value) + _HEADER_OVERHEAD for name, value in scope["headers"])
    if block > limits.HEADER_BLOCK_BYTES:
        raise fail("payload_too_large", f"The header block is larger than {limits.HEADER_BLOCK_BYTES} bytes.")


def _check_host(scope: Scope, settings: ServerSettings) -> str:
    """A page of somebody else's name that resolves to this machine must not reach the forum (DNS rebinding)."""
    given = header_values(scope, b"host")
    text = given[0].decode("latin-1").lower() if len(given) == 1 else ""
    match = _HOST.fullmatch(text)
    if match is None or int(match[2] or 0) > 65535:
        raise fail("bad_host", "The request needs exactly one valid Host header.")
    if not (_LOOPBACK.fullmatch(match[1]) or {match[1], text} & settings.hosts):
        raise fail(
            "bad_host",
            "This forum does not answer to the name in the Host header.",
            hint="Start it with --allow-host NAME.",
        )
    return text


def _check_origin(scope: Scope, settings: ServerSettings, host: str) -> None:
    """Browsers say which page a request comes from; only the forum's own and the configured ones are let in."""
    for given in header_values(scope, b"origin"):
        origin = given.decode("latin-1").lower()
        if origin != f"http://{host}" and origin not in settings.origins:
            raise fail("origin_refused", "Pages of this origin may not use the forum.")


def _check_address(scope: Scope) -> None:
    """Addresses end up in logs, histories and Referer headers: a secret in one is refused, wherever it stands in it."""
    query = scope["query_string"].decode("latin-1")
    if CREDENTIAL.search(scope["path"]) or CREDENTIAL.search(unquote(query)) or _SECRET_NAMES.search(unquote(query)):
        raise fail(
            "invalid_argument",
            "A credential belongs into the Authorization header, never into an address. Treat that one as known to others.",
            field="url",
        )


def _check_installation(scope: Scope, installation_id: str) -> None:
    given = header_values(scope, b"forum-installation")
    if given and given != [installation_id.encode()]:
        raise fail("installation_mismatch", "This is another forum than the one that was expected; nothing was done.")
