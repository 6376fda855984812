"""A forum on a server, over HTTP. Nothing is followed, nothing is kept open, nothing large is read to its end."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from side_agents.forum import limits
from side_agents.forum.client import settings
from side_agents.forum.client.transport import Request, Response, bad_answer, cancelled, no_answer, unreachable

if TYPE_CHECKING:
    import httpx

_CONNECT_SECONDS = 10.0


class HttpTransport:
    """Speaks to one origin, over one connection for each request, so that any one can be ended by itself.

    May be used from several threads. Raises UsageError for an origin that may not be trusted.
    """

    def __init__(self, origin: str) -> None:
        self.origin = settings.check_origin(origin)
        self._is_loopback = settings.is_loopback(urlsplit(self.origin).hostname or "")
        self._opening = threading.Lock()
        self._client: httpx.Client | None = None

    def send(self, request: Request) -> Response:
        """Carry out one request. Raises ForumError."""
        import httpx

        client = self._open()
        with _Exchange(request) as exchange:
            try:
                return self._send(client, request, exchange)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise self._why(exchange, str(error)) or unreachable(self.origin, str(error)) from error
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
                raise self._why(exchange, reason) or no_answer(self.origin, reason) from error

    def close(self) -> None:
        """Close what is open."""
        with self._opening:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _open(self) -> httpx.Client:
        import httpx

        with self._opening:
            if self._client is None:
                self._client = httpx.Client(
                    base_url=self.origin,
                    follow_redirects=False,
                    # A proxy in the environment would see what never has to leave this machine.
                    trust_env=not self._is_loopback,
                    limits=httpx.Limits(max_keepalive_connections=0),
                    # Building the list of trusted authorities costs 15 ms and means nothing without TLS.
                    verify=not self.origin.startswith("http:"),
                )
            return self._client

    def _send(self, client: httpx.Client, request: Request, exchange: _Exchange) -> Response:
        import httpx

        with client.stream(
            request.method,
            request.target,
            headers={"accept-encoding": "identity", **request.headers},
            content=request.body,
            timeout=httpx.Timeout(request.timeout, connect=min(_CONNECT_SECONDS, request.timeout)),
            extensions={"trace": exchange.trace},
        ) as answer:
            body = self._read(answer)
        return Response(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, body)

    def _read(self, answer: httpx.Response) -> bytes:
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            # What unpacks to any size is not read at all.
            raise bad_answer(self.origin, "it is compressed, which was not asked for", status=answer.status_code)
        parts = bytearray()
        for part in answer.iter_raw():
            parts += part
            if len(parts) > limits.CLIENT_RESPONSE_BYTES:
                raise bad_answer(
                    self.origin, f"more than {limits.CLIENT_RESPONSE_BYTES} bytes", status=answer.status_code
                )
        return bytes(parts)

    def _why(self, exchange: _Exchange, reason: str) -> Exception | None:
        if exchange.is_late:
            return no_answer(self.origin, f"not within {exchange.request.timeout:g} s")
        if exchange.request.cancellation.is_set:
            return cancelled(self.origin)
        if not exchange.is_connected:
            return unreachable(self.origin, reason)
        return None


class _Exchange:
    """Ends one connection when its time is up or its caller gives up: a blocked read notices nothing else."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.is_late = False
        self.is_connected = False
        self._socket: Any = None
        self._guard = threading.Lock()
        self._is_over = False
        self._timer = threading.Timer(request.timeout, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> _Exchange:
        self._timer.start()
        self.request.cancellation.on_fire(self._break)
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._is_over = True
            self._socket = None
        self._timer.cancel()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """What httpx reports on its way."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            with self._guard:
                self.is_connected = True
                self._socket = info["return_value"].get_extra_info("socket")
            if self.is_late or self.request.cancellation.is_set:
                self._break()
        elif event == "http11.send_request_body.complete":
            self.request.sent()

    def _expire(self) -> None:
        self.is_late = True
        self._break()

    def _break(self) -> None:
        import socket

        with self._guard:
            if self._socket is not None and not self._is_over:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
