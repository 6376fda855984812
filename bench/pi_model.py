"""The model behind a Pi that is measured: each of Pi's requests waits until the benchmark has said what to answer."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Call = tuple[str, Json]

_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_numbers = itertools.count(1)


@dataclass
class Request:
    """One request that waits for its answer. ``came`` is when its last byte was there, by ``perf_counter``."""

    came: float
    messages: list[Json]
    _answer: queue.SimpleQueue[Json] = field(default_factory=queue.SimpleQueue)
    _sent: queue.SimpleQueue[float] = field(default_factory=queue.SimpleQueue)

    def results(self, ids: list[str]) -> list[Json]:
        """What the tools have answered to these calls, as JSON; text that is none stands under ``text``."""
        told = {each["tool_call_id"]: each["content"] for each in self.messages if each.get("role") == "tool"}
        return [_parsed(told[call_id]) for call_id in ids]

    def say(self, text: str) -> None:
        """End the turn with a text."""
        self._give({"content": text}, "stop")

    def call(self, calls: list[Call]) -> tuple[list[str], float]:
        """Call tools, all in this one message; their ids, and when the last byte was sent."""
        ids = [f"call-{next(_numbers)}" for _ in calls]
        told = [
            {"index": index, "id": ids[index], "type": "function"}
            | {"function": {"name": name, "arguments": json.dumps(given)}}
            for index, (name, given) in enumerate(calls)
        ]
        return ids, self._give({"tool_calls": told}, "tool_calls")

    def _give(self, delta: Json, reason: str) -> float:
        self._answer.put({"delta": {"role": "assistant", **delta}, "reason": reason})
        return self._sent.get(timeout=60)

    def serve(self, send: Any) -> None:
        """Write the answer once it is given; used by the server's thread."""
        answer = self._answer.get()
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench-model"}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": answer["delta"], "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer["reason"]}]},
            {**head, "choices": [], "usage": _USAGE},
        ]
        send("".join(f"data: {text}\n\n" for text in [*map(json.dumps, chunks), "[DONE]"]).encode())
        self._sent.put(time.perf_counter())


class Model:
    """The service; ``url`` ends with /v1."""

    def __init__(self, server: _Server) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        self._requests = server.requests

    def request(self, deadline: float = 60.0) -> Request:
        """The next request; TimeoutError when none comes."""
        try:
            return self._requests.get(timeout=deadline)
        except queue.Empty:
            raise TimeoutError(f"Pi asked its model nothing within {deadline:g} s") from None


@contextmanager
def model() -> Iterator[Model]:
    """Serve on 127.0.0.1; a request that is still waiting at the end is never answered."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Model(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.requests: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pi may be ended in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """Nobody reads it."""

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = Request(time.perf_counter(), [])
        request.messages = json.loads(raw).get("messages", [])
        self.server.requests.put(request)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        request.serve(self._send)

    def _send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


def _parsed(content: Any) -> Json:
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text}
    return value if isinstance(value, dict) else {"text": text}
