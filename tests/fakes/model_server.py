"""A scripted model service on 127.0.0.1 for tests with real coding agents (reference/clients, section 0).

In a test: ``with ModelServer(log=path) as server: server.url``. By hand: ``python -m tests.fakes.model_server --log F``
prints the address and serves until it is interrupted. What it answers is in ``model_script``. Each request is one JSON
object in ``server.entries`` and one line of the log: number, api, model, tools, lastUser, userTexts, action. A line
with ``"event": "client-gone"`` says that the client hung up before its answer was complete.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakes.model_script import Step, next_step
from tests.fakes.model_wire import Event, Wire, wire_for

_LONGEST_WAIT = 120.0
_KEPT_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "thread-id")


class ClientGoneError(Exception):
    """The client hung up."""


class ModelServer:
    """The service; ``url`` has no trailing slash and no ``/v1``. Thread-safe."""

    def __init__(self, *, log: Path | None = None, port: int = 0) -> None:
        self.entries: list[dict[str, Any]] = []
        self.stopping = threading.Event()
        self._log = log
        self._changed = threading.Condition()
        self._failed: dict[str, int] = {}
        self._http = _HttpServer(("127.0.0.1", port), _Handler)
        self._http.model = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ModelServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and end answers that are still being given."""
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def record(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Append one entry and wake ``wait_for``."""
        with self._changed:
            entry = {"number": len(self.entries) + 1, "at": time.time(), **entry}
            self.entries.append(entry)
            if self._log is not None:
                with self._log.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(entry) + "\n")
            self._changed.notify_all()
        return entry

    def requests(self, text: str | None = None) -> list[dict[str, Any]]:
        """Return the model requests so far, or those whose last user text contains ``text``."""
        with self._changed:
            found = [e for e in self.entries if "lastUser" in e]
        return [e for e in found if text is None or text in e["lastUser"]]

    def wait_for(self, text: str, *, deadline: float = 10.0) -> dict[str, Any]:
        """Return the first request whose last user text contains ``text``; TimeoutError when none comes."""
        end = time.monotonic() + deadline
        with self._changed:
            while True:
                for entry in self.entries:
                    if text in entry.get("lastUser", ""):
                        return entry
                if not self._changed.wait(end - time.monotonic()) and time.monotonic() >= end:
                    raise TimeoutError(f"no request with {text[:80]!r} in {deadline} s")

    def wait_for_event(self, event: str, *, deadline: float = 10.0) -> dict[str, Any]:
        """Return the first entry of this event (``client-gone``); TimeoutError when none comes."""
        end = time.monotonic() + deadline
        with self._changed:
            while True:
                for entry in self.entries:
                    if entry.get("event") == event:
                        return entry
                if not self._changed.wait(end - time.monotonic()) and time.monotonic() >= end:
                    raise TimeoutError(f"no {event} in {deadline} s")

    def should_fail(self, key: str, times: int | None) -> bool:
        """Count a scripted failure; False once it has failed ``times`` times."""
        with self._changed:
            count = self._failed.get(key, 0)
            self._failed[key] = count + 1
        return times is None or count < times


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    model: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is the client's business and no noise in the test output."""


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """Requests are recorded as entries instead."""

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("/models"):
            models = [{"id": "fake-model", "object": "model", "created": 1, "owned_by": "tests"}]
            self._json(200, {"object": "list", "data": models})
            return
        self.server.model.record({"event": "other", "method": "GET", "path": self.path})
        self._json(404, {"error": {"message": "not here"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        wire = wire_for(self.path)
        if wire is None:
            self.server.model.record({"event": "other", "method": "POST", "path": self.path})
            count = "count_tokens" in self.path
            self._json(200 if count else 404, {"input_tokens": 10} if count else {"error": {"message": "not here"}})
            return
        try:
            self._answer(wire, json.loads(raw))
        except (ClientGoneError, ConnectionError):
            self.server.model.record({"event": "client-gone", "api": wire.name})
            self.close_connection = True

    def _answer(self, wire: Wire, body: dict[str, Any]) -> None:
        conversation = wire.read(body)
        step = next_step(conversation)
        self.server.model.record(
            {
                "api": wire.name,
                "model": body.get("model"),
                "stream": bool(body.get("stream")),
                "tools": [tool.name for tool in conversation.tools],
                "lastUser": conversation.last_text,
                "userTexts": list(conversation.user_texts),
                "results": conversation.results,
                "action": step.action,
                "headers": {k: self.headers[k] for k in _KEPT_HEADERS if k in self.headers},
            }
        )
        for key, status, times in step.failures:
            if self.server.model.should_fail(key, times):
                self._json(status, wire.failure(status))
                return
        for word, value in step.pauses:
            self._pause(word, value)
        model = str(body.get("model"))
        if body.get("stream"):
            self._stream(wire, step, model)
        else:
            self._json(200, wire.whole(step, model))

    def _pause(self, word: str, value: str) -> None:
        seconds = float(value) if word == "SLEEP" else _LONGEST_WAIT
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (word == "WAIT" and Path(value).exists()):
            self._sleep(min(0.02, max(0.0, end - time.monotonic())))

    def _sleep(self, seconds: float) -> None:
        """Sleep a little; raises ClientGoneError as soon as the other side has closed."""
        if self.server.model.stopping.is_set():
            raise ClientGoneError
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
            raise ClientGoneError

    def _stream(self, wire: Wire, step: Step, model: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in wire.events(step, model, self._pieces(step)):
            self._sleep(0)
            self._send(event)

    def _pieces(self, step: Step) -> Iterator[str]:
        """Yield the answer's pieces, each when its time has come; what precedes them is on the wire by then."""
        if step.call:
            return
        for number in range(step.pieces):
            end = time.monotonic() + step.seconds / step.pieces
            while (left := end - time.monotonic()) > 0:
                self._sleep(min(0.02, left))
            yield f"piece {number + 1} of {step.pieces}\n"
        yield step.text

    def _send(self, event: Event) -> None:
        name, data = event
        payload = data if isinstance(data, str) else json.dumps(data)
        head = f"event: {name}\n" if name else ""
        self.wfile.write(f"{head}data: {payload}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if self.command != "HEAD" else b"")


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a scripted model on 127.0.0.1 until interrupted.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    with ModelServer(log=options.log, port=options.port) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
