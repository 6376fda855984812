"""``side-agents forum serve`` as a process: over a real socket, beside other processes, ended by signals and by kill."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from side_agents.forum import failpoints, ids, limits
from side_agents.forum.client.in_process import local_transport
from side_agents.forum.client.transport import Request
from side_agents.forum.server.serve import address_of, listening
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from tests.support.forum import Person, check, command, register, table_counts
from tests.support.waiting import eventually

SECONDS = 45.0


@dataclass
class Server:
    """A running ``forum serve`` and what it said about itself."""

    process: subprocess.Popen[bytes]
    told: dict[str, Any]
    database: Path

    @property
    def port(self) -> int:
        return int(self.told["address"].rpartition(":")[2])

    def ask(
        self,
        method: str,
        target: str,
        *,
        by: Person | None = None,
        body: Any = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            given = {"content-type": "application/json"} if raw is not None else {}
            given |= {"authorization": f"Bearer {by.credential}"} if by else {}
            given |= {"idempotency-key": key} if key else {}
            connection.request(method, target, raw, {**given, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """The exit status and what was written to standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, errors.decode()


def arguments(database: Path, *more: str) -> list[str]:
    # A temporary folder may well be in memory.
    words = ["forum", "serve", "--json", "--port", "0", "--database", str(database), "--allow-tmpfs", *more]
    return [sys.executable, "-m", "side_agents", *words]


@contextmanager
def serving(database: Path, *more: str, failpoint: str | None = None) -> Iterator[Server]:
    environment = {**os.environ, **({failpoints.VARIABLE: failpoint} if failpoint else {})}
    process = subprocess.Popen(
        arguments(database, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=database.parent
    )
    try:
        yield Server(process, told_by(process), database)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS)


def told_by(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], SECONDS)
    line = process.stdout.readline() if ready else b""
    assert line, process.stderr.read() if process.stderr and process.poll() is not None else "nothing was said"
    told: dict[str, Any] = json.loads(line)
    return told


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "forum"
    folder.mkdir(mode=0o700)
    return folder / "forum.db"


@contextmanager
def looking(place: Path) -> Iterator[Forum]:
    """The forum opened in this process, beside the server; sound when it is left."""
    with Database.open(place) as database:
        forum = Forum(database, origin="http://localhost")
        yield forum
        check(forum)


def talk(place: Path) -> tuple[Person, Person, str]:
    """Two authors and a thread that the second one watches."""
    from side_agents.forum import requests

    with looking(place) as forum:
        writer, watcher = register(forum, "writer"), register(forum, "watcher")
        subforum = requests.SubforumRequest(key="general", title="General")
        forum.content.create_subforum(writer.principal, subforum, command=command())
        request = requests.ThreadRequest(title="T", post=requests.PostContent(body="Opening."))
        made = json.loads(forum.content.create_thread(writer.principal, "general", request, command=command()).body)
        forum.interests.watch_thread(watcher.principal, made["threadId"])
        return writer, watcher, made["threadId"]


def test_it_says_where_it_is_answers_and_ends_in_order_on_a_signal(place: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving(place) as server:
            assert server.told["ok"] is True
            status, headers, body = server.ask("GET", "/v1/capabilities")
            assert status == 200
            assert json.loads(body)["installationId"] == server.told["installationId"]
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers
            assert server.end(number) == (0, "")
    # In order: nothing is left to be examined at the next start.
    assert not place.with_name("forum.db-wal").exists()


def test_t226_a_second_server_on_one_database_is_refused_and_names_the_first(place: Path) -> None:
    with serving(place) as server:
        second = subprocess.run(arguments(place), capture_output=True, timeout=SECONDS, check=False, cwd=place.parent)
        refused = json.loads(second.stdout)
        assert (second.returncode, refused["code"]) == (5, "busy")
        assert f"process {server.process.pid}" in refused["error"]
        assert server.ask("GET", "/healthz")[0] == 200
        server.process.kill()
        server.process.wait(SECONDS)
    with serving(place) as again:
        assert again.ask("GET", "/healthz")[0] == 200


def test_a_port_that_is_taken_is_told(place: Path, tmp_path: Path) -> None:
    with serving(place) as server:
        words = [*arguments(place.with_name("other.db")), "--port", str(server.port)]
        done = subprocess.run(words, capture_output=True, timeout=SECONDS, check=False, cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)["code"]) == (4, "conflict")


def test_answers_are_not_held_back_by_the_kernel(place: Path) -> None:
    """asyncio switches Nagle's delay off only for sockets that name their protocol."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert address_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    with serving(place) as server:
        taken = []
        for _ in range(20):
            begun = time.monotonic()
            server.ask("GET", "/v1/capabilities")
            taken.append(time.monotonic() - begun)
        assert min(taken) < 0.03


def test_open_registration_is_for_this_machine_only(place: Path) -> None:
    words = [*arguments(place, "--host", "0.0.0.0"), "--registration", "open"]
    done = subprocess.run(words, capture_output=True, timeout=SECONDS, check=False, cwd=place.parent)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (8, "refused")
    assert not place.exists()
    with serving(place, "--host", "0.0.0.0") as server:
        assert server.told["registration"] == "closed"
        body = {"contextKey": "c", "credential": ids.new_credential(), "name": "carl"}
        status, _, answer = server.ask("POST", "/v1/agents/register", body=body, key="k" * 16)
        assert (status, json.loads(answer)["code"]) == (403, "registration_closed")


def waiting(server: Server, who: Person, seconds: int = 60) -> tuple[threading.Thread, list[Any]]:
    """A wait for events in a thread of its own, begun and known to the server."""
    found: list[Any] = []
    target = f"/v1/events?start=tail&wait={seconds}"
    thread = threading.Thread(target=lambda: found.append(server.ask("GET", target, by=who)))
    thread.start()
    eventually(lambda: json.loads(server.ask("GET", "/v1/health/deep", by=who)[2])["waiters"] == 1)
    return thread, found


def test_t132_a_post_of_another_process_wakes_who_waits_at_the_server(place: Path) -> None:
    from side_agents.forum import requests

    writer, watcher, thread = talk(place)
    with serving(place) as server:
        running, found = waiting(server, watcher)
        with looking(place) as forum:
            begun = time.monotonic()
            forum.content.reply(writer.principal, thread, requests.ReplyRequest(body="Now."), command=command())
            running.join(SECONDS)
            taken = time.monotonic() - begun
        status, _, body = found[0]
        assert (status, len(json.loads(body)["events"])) == (200, 1)
        # Without news from the other process it would be the second after which the database is looked at.
        assert taken < 0.9


def test_a_post_at_the_server_wakes_who_waits_in_another_process(place: Path) -> None:
    writer, watcher, thread = talk(place)
    transport = local_transport(place)
    with serving(place) as server:
        headers = {"authorization": f"Bearer {watcher.credential}"}
        found: list[Any] = []
        request = Request(method="GET", target="/v1/events?start=tail&wait=60", headers=headers, timeout=SECONDS)
        running = threading.Thread(target=lambda: found.append(transport.send(request)))
        running.start()
        try:
            keys = iter(range(1000))

            def woken() -> bool:
                body = {"body": "Now."}
                server.ask("POST", f"/v1/threads/{thread}/posts", by=writer, body=body, key=f"key-{next(keys):020}")
                running.join(0.2)
                return bool(found)

            eventually(woken)
        finally:
            running.join(SECONDS)
            transport.close()
    assert json.loads(found[0].body)["events"]


def test_t146_invariant_35_a_connection_that_breaks_frees_its_place(place: Path) -> None:
    _, watcher, _ = talk(place)
    with serving(place) as server:
        line = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
        head = f"Host: localhost\r\nAuthorization: Bearer {watcher.credential}\r\n\r\n"
        line.sendall(b"GET /v1/events?start=tail&wait=60 HTTP/1.1\r\n" + head.encode())

        def waiters() -> int:
            return int(json.loads(server.ask("GET", "/v1/health/deep", by=watcher)[2])["waiters"])

        eventually(lambda: waiters() == 1)
        line.close()
        eventually(lambda: waiters() == 0)


def test_whoever_waits_is_told_when_the_server_ends(place: Path) -> None:
    _, watcher, _ = talk(place)
    with serving(place) as server:
        running, found = waiting(server, watcher)
        begun = time.monotonic()
        assert server.end() == (0, "")
        running.join(SECONDS)
        assert time.monotonic() - begun < 20
    status, headers, body = found[0]
    assert (status, json.loads(body)["code"]) == (503, "shutting_down")
    assert int(headers["retry-after"]) >= 1


@pytest.mark.parametrize("size", [limits.ORDINARY_REQUEST_BYTES + 1, 4 * limits.ORDINARY_REQUEST_BYTES])
def test_t217_a_client_that_sends_too_much_gets_to_read_why(place: Path, size: int) -> None:
    writer, _, _ = talk(place)
    with serving(place) as server:
        status, headers, body = server.ask("POST", "/v1/subforums", by=writer, body=b" " * size, key="k" * 16)
        assert (status, json.loads(body)["code"]) == (413, "payload_too_large")
        assert headers["connection"] == "close"


def test_t174_a_header_block_without_an_end_is_cut_off(place: Path) -> None:
    with serving(place) as server:
        line = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        received = b""
        try:
            for _ in range(64):
                line.sendall(b"y" * 4096)
                if select.select([line], [], [], 0.02)[0]:
                    received += line.recv(65536)
                    break
        except OSError:
            pass
        finally:
            line.close()
        assert received.startswith(b"HTTP/1.1 413 ")
        assert json.loads(received.partition(b"\r\n\r\n")[2])["code"] == "payload_too_large"
        assert server.ask("GET", "/healthz")[0] == 200


def test_t228_over_the_wire_too(place: Path) -> None:
    with serving(place) as server:
        assert server.ask("GET", "/healthz", headers={"host": "evil.example"})[0] == 400
        assert server.ask("GET", "/healthz", headers={"origin": "http://evil.example"})[0] == 403
        own = server.told["address"]
        assert server.ask("GET", "/healthz", headers={"origin": own})[0] == 200


@pytest.mark.parametrize(
    ("failpoint", "is_kept"), [("S1", False), ("S11", False), ("S13", True), ("S14", True), ("S15", True)]
)
def test_t115_a_server_that_dies_answers_the_retry_once_and_rightly(place: Path, failpoint: str, is_kept: bool) -> None:
    writer, _, thread = talk(place)
    raw = json.dumps({"body": "Exactly once."}).encode()
    target = f"/v1/threads/{thread}/posts"

    def post(server: Server) -> tuple[int, dict[str, str], bytes]:
        return server.ask("POST", target, by=writer, body=raw, key="the-same-key-always")

    with serving(place, failpoint=failpoint) as server:
        with pytest.raises((OSError, http.client.HTTPException)):
            post(server)
        assert server.process.wait(SECONDS) == -signal.SIGKILL
    with looking(place) as forum:
        assert table_counts(forum.database)["post"] == 1 + is_kept

    with serving(place) as server:
        status, headers, body = post(server)
        assert (status, headers.get("idempotency-replayed")) == (201, "true" if is_kept else None)
        assert json.loads(body)["payloadSha256"] == hashlib.sha256(raw).hexdigest()
        assert post(server)[2] == body
        assert server.end() == (0, "")
    with looking(place) as forum:
        assert table_counts(forum.database)["post"] == 2


def test_t043_what_goes_wrong_is_logged_without_a_credential(place: Path) -> None:
    writer, _, _ = talk(place)
    with serving(place) as server:
        server.ask("GET", f"/v1/me?token={writer.credential}", by=writer)
        server.ask("GET", f"/v1/agents/{writer.credential}", by=writer)
        line = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
        line.sendall(f"{writer.credential} / HTTP/9.9\r\n\r\n".encode())
        line.recv(4096)
        line.close()
        status, errors = server.end()
    assert status == 0
    assert writer.credential not in errors


def test_t059_t026_server_info_is_the_capabilities_from_both_sides(place: Path) -> None:
    def info(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "side_agents", "forum", "server-info", "--json", *words],
            capture_output=True, timeout=SECONDS, check=True, cwd=place.parent,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        assert found.pop("ok") is True
        return found

    with serving(place) as server:
        capabilities = json.loads(server.ask("GET", "/v1/capabilities")[2])
        assert capabilities.pop("schemaVersion") == 1
        assert info("--url", server.told["address"]) == capabilities
        assert info("--database", str(place)) == capabilities
