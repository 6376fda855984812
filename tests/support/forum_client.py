"""Participants of a forum for tests: worker files in a temporary folder, transports that say what a test wants, servers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import ids, requests
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import HostFacts, new_host
from side_agents.forum.client.in_process import local_transport
from side_agents.forum.client.settings import Settings, settings_from
from side_agents.forum.client.transport import Request, Response, Transport
from side_agents.forum.client.worker import Worker
from side_agents.forum.client.worker_document import Identity, WorkerDocument, derived_worker_id, new_document
from side_agents.forum.client.worker_file import WorkerFile, state_path
from side_agents.forum.service.forum import Forum
from tests.support.forum import Person, command

INSTALLATION = ids.ulid("in")
AGENT, SESSION, THREAD, POST = ids.ulid("ag"), ids.ulid("as"), ids.ulid("th"), ids.ulid("po")
FREE = {"postingMode": "autonomous", "autonomousSubforums": ["lab"]}


def facts(session: str = "host-session", **more: Any) -> HostFacts:
    """A conversation."""
    return HostFacts(kind="test", session_id=session, **more)


def identity(**changes: Any) -> Identity:
    """An identity that some forum once gave."""
    made: Identity = {
        "agentId": AGENT,
        "sessionId": SESSION,
        "name": "pi-somebody-1",
        "contextKey": "ck_1",
        "credential": ids.new_credential(),
        "cause": {"kind": "root", "key": None},
        "createdAt": "2026-03-03T02:58:00.000Z",
    }
    made.update(changes)  # type: ignore[typeddict-item]  # the test says which
    return made


def document(label: str = "worker", **changes: Any) -> WorkerDocument:
    """A worker's first document, or with the given top-level fields."""
    worker_id = derived_worker_id(label)
    made = new_document(worker_id, new_host(worker_id, facts()), Settings().document())
    made.update(changes)  # type: ignore[typeddict-item]  # the test says which
    return made


def known_document(label: str = "worker", **changes: Any) -> WorkerDocument:
    """A worker that is registered with the scripted forum."""
    server = {"origin": "local", "installationId": INSTALLATION, "protocolVersion": 1}
    return document(label, **{"server": server, "identity": identity(), **changes})


def reference(number: int, **changes: Any) -> dict[str, Any]:
    """A stored reference."""
    return {
        "sequence": str(number),
        "type": "post.created",
        "threadId": THREAD,
        "threadTitle": "A thread",
        "postId": POST,
        "subforum": "lab",
        "actorName": "somebody",
        "reasons": ["involved"],
        "collectedAt": "2026-03-03T02:58:00.000Z",
        **changes,
    }


def event(number: int, **changes: Any) -> dict[str, Any]:
    """An event as the forum returns it."""
    return {
        "sequence": str(number),
        "type": "post.created",
        "actor": {"id": AGENT, "name": "somebody", "sessionId": SESSION},
        "threadId": THREAD,
        "threadTitle": "A thread",
        "postId": POST,
        "replyTo": None,
        "subforum": "lab",
        "createdAt": "2026-03-03T02:58:00.000Z",
        "reasons": ["involved"],
        **changes,
    }


def new_file(folder: Path, made: WorkerDocument | None = None, name: str = "w") -> WorkerFile:
    """An open worker file below a test's folder."""
    chosen = made or document()
    return WorkerFile.create(folder / name / "worker.json", lambda: chosen, purpose="test", patience=0)


def json_response(status: int, data: dict[str, Any], **headers: str) -> Response:
    """An answer of a forum."""
    body = json.dumps({"schemaVersion": 1, **data}).encode()
    return Response(status, {"content-type": "application/json", **headers}, body)


def error_response(status: int, code: str, message: str = "No.") -> Response:
    """A refusal of a forum."""
    return json_response(status, {"code": code, "message": message, "retryable": status >= 429, "requestId": "rq_1"})


Answer = Response | Exception | Callable[[Request], Response]


@dataclass
class Scripted:
    """A transport that answers what a test wants, the last answer again and again, and remembers what was sent.

    Capabilities are answered by itself.
    """

    answers: list[Answer] = field(default_factory=list)
    origin: str = "local"
    installation: str = INSTALLATION
    protocol: Any = 1
    seen: list[Request] = field(default_factory=list)
    is_closed: bool = False

    def send(self, request: Request) -> Response:
        self.seen.append(request)
        if request.target == "/v1/capabilities":
            return json_response(200, {"protocolVersion": self.protocol, "installationId": self.installation})
        request.sent()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else answer(request)

    def close(self) -> None:
        self.is_closed = True

    @property
    def asked(self) -> list[Request]:
        """What was sent besides the question for capabilities."""
        return [request for request in self.seen if request.target != "/v1/capabilities"]

    @property
    def wire(self) -> str:
        """Everything that left us, as text."""
        parts = [f"{r.method} {r.target} {dict(r.headers)} {(r.body or b'').decode()}" for r in self.seen]
        return "\n".join(parts)


@dataclass
class Losing:
    """A real way to a forum that loses answers: the request arrives, what comes back does not."""

    inner: Transport
    lose: int = 0
    seen: list[Request] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return self.inner.origin

    def send(self, request: Request) -> Response:
        self.seen.append(request)
        answer = self.inner.send(request)
        if request.method == "POST" and self.lose > 0:
            self.lose -= 1
            raise ForumError("lost", forum_code="no_answer", status=0, retryable=True)
        return answer

    def close(self) -> None:
        self.inner.close()


def scripted_worker(folder: Path, *answers: Answer, made: WorkerDocument | None = None) -> tuple[Worker, Scripted]:
    """An open worker whose forum is scripted."""
    transport = Scripted(list(answers))
    return Worker(new_file(folder, made or known_document()), transport), transport


def connection(transport: Transport, file: WorkerFile) -> Connection:
    """What a worker sends through."""
    return Connection(transport, file.document["server"])


@dataclass(frozen=True)
class Place:
    """A project with a forum of its own, and participants that use it in this process or by HTTP."""

    folder: Path
    origin: str = "local"

    @property
    def database(self) -> Path:
        return self.folder / "forum" / "forum.db"

    def state(self, name: str) -> Path:
        return state_path(self.folder / "workers", derived_worker_id(name))

    def worker(
        self,
        name: str,
        *,
        transport: Transport | None = None,
        session: str | None = None,
        registered: bool = True,
        **settings: Any,
    ) -> Worker:
        """The participant of that name, registered when it is new; ``settings`` are those of its first opening."""
        chosen = settings_from({"serverUrl": self.origin, "namePrefix": "t", **(settings or FREE)})
        worker = Worker.open(
            self.state(name),
            facts=facts(name if session is None else session),
            transport_to=lambda origin: transport or self.transport(origin),
            defaults=lambda: chosen,
            purpose="test",
            patience=5,
        )
        if registered:
            worker.ensure_identity(name)
        return worker

    def transport(self, origin: str | None = None) -> Transport:
        if (origin or self.origin) == "local":
            return local_transport(self.database)
        from side_agents.forum.client.http import HttpTransport

        return HttpTransport(origin or self.origin)


def make_subforum(forum: Forum, person: Person, key: str = "lab") -> None:
    """A subforum to talk in."""
    forum.content.create_subforum(person.principal, requests.SubforumRequest(key=key, title=key), command=command())


def add_subforum(worker: Worker, *keys: str) -> None:
    """Subforums to talk in, made by a participant over its own connection; ``lab`` by default."""
    mine = worker.document["identity"]
    assert mine is not None
    for key in keys or ("lab",):
        body = json.dumps({"schemaVersion": 1, "key": key, "title": key})
        Connection(worker._transport, worker.document["server"]).send_prepared(
            "/v1/subforums", key=ids.new_request_key(), payload=body, credential=mine["credential"]
        )


@contextmanager
def served(forum: Forum) -> Iterator[str]:
    """The forum behind a real socket of this machine; gives its origin."""
    import uvicorn

    from side_agents.forum.server.app import create_app
    from side_agents.forum.server.http_server import BoundedProtocol, ForumServer
    from side_agents.forum.server.settings import ServerSettings

    app = create_app(forum, ServerSettings())
    ready = threading.Event()
    config = uvicorn.Config(
        app, http=BoundedProtocol, ws="none", loop="asyncio", lifespan="on", log_config=None, access_log=False
    )
    server = ForumServer(config, announce=ready.set, end_waits=app.state.api.waiters.close)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            thread.join(15)
            assert not thread.is_alive()


@contextmanager
def raw_server(*answers: bytes | None, linger: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """A socket that answers whatever it is sent with these bytes, one for each connection; None never answers.

    Gives its origin and what it was sent. ``linger`` keeps the connection open after the bytes.
    """
    seen: list[bytes] = []
    held: list[socket.socket] = []
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def serve() -> None:
            waiting: list[bytes | None] = list(answers)
            while not is_over.is_set():
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    continue
                held.append(peer)
                peer.settimeout(5)
                seen.append(peer.recv(65536))
                answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                if answer is not None:
                    try:
                        peer.sendall(answer)
                    except OSError:
                        continue
                    if not linger:
                        peer.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        finally:
            is_over.set()
            thread.join(10)
            for peer in held:
                peer.close()


def http_bytes(status: int, body: bytes, *headers: str) -> bytes:
    """A whole HTTP answer."""
    lines: Sequence[str] = (f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def capabilities_bytes(installation: str = INSTALLATION) -> bytes:
    """What a forum says about itself, as HTTP."""
    body = json.dumps({"schemaVersion": 1, "protocolVersion": 1, "installationId": installation}).encode()
    return http_bytes(200, body, "content-type: application/json")
