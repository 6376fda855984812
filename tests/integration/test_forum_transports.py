"""The same behaviour in this process and over a socket, and the rules of trust on the wire (T050, T051, T132, T147, T175)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import ForumError, RefusedError
from side_agents.forum import ids, limits
from side_agents.forum.client import policy
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.http import HttpTransport
from side_agents.forum.client.in_process import InProcessTransport
from side_agents.forum.client.transport import Request, Signal, Transport
from side_agents.forum.client.worker import Worker
from side_agents.forum.service.forum import Forum
from side_agents.forum.store.database import Database
from tests.support.forum import ORIGIN, check, register, subforum
from tests.support.forum_client import (
    INSTALLATION,
    Place,
    Scripted,
    add_subforum,
    capabilities_bytes,
    http_bytes,
    known_document,
    new_file,
    raw_server,
    served,
)
from tests.support.waiting import eventually


@pytest.fixture(params=["in process", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A project's forum, reached both ways; all invariants hold at the end."""
    database = Place(tmp_path).database
    if request.param == "in process":
        yield Place(tmp_path)
        with Database.open(database) as opened:
            check(Forum(opened, origin=ORIGIN))
        return
    with Database.open(database) as opened:
        forum = Forum(opened, origin=ORIGIN)
        with served(forum) as origin:
            yield Place(tmp_path, origin)
        check(forum)


LIFE = """
import json, sys
from pathlib import Path
programs = []
starting = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
sys.addaudithook(lambda event, _: programs.append(event) if event in starting else None)
from side_agents.forum.client import policy, worker
from side_agents.forum.client.host import HostFacts
from side_agents.forum.client.settings import settings_from
state, database, origin = sys.argv[1:]
free = settings_from({"serverUrl": origin, "postingMode": "autonomous", "autonomousSubforums": ["lab"]})
with worker.Worker.open(
    Path(state), facts=HostFacts(kind="test", session_id="s"), purpose="test", defaults=lambda: free,
    transport_to=lambda origin: worker.transport_to(origin, Path(database)),
) as me:
    me.ensure_identity("a")
    posted = me.publish(policy.draft(body="hello", subforum="lab", title="t"), origin="model").posted
    me.watch(posted.thread_id, watching=True)
    me.read(posted.thread_id), me.search("hello"), me.wait(after=None, seconds=0)
    me.compact(entry_id="e", label="a")
print(json.dumps([programs, sorted(sys.modules)]))
"""


def test_t027_who_talks_to_a_server_loads_no_database_and_starts_no_program(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Database.open(place.database) as opened:
        forum = Forum(opened, origin=ORIGIN)
        subforum(forum, register(forum), "lab")
        with served(forum) as origin:
            life = [sys.executable, "-c", LIFE, str(place.state("a")), str(tmp_path / "none.db"), origin]
            done = subprocess.run(life, capture_output=True, check=False, timeout=60)
        check(forum)
    assert done.returncode == 0, done.stderr
    programs, modules = json.loads(done.stdout)

    assert programs == []
    assert [
        name
        for name in modules
        if re.match(r"(apsw|sqlite3|_sqlite3)|side_agents\.forum\.(store|service|server)", name)
    ] == []
    assert "httpx" in modules
    assert not (tmp_path / "none.db").exists()


def topic(title: str = "A title", body: str = "hello") -> policy.Draft:
    return policy.draft(body=body, subforum="lab", title=title)


def said(worker: Worker, draft: policy.Draft) -> Any:
    outcome = worker.publish(draft, origin="model")
    assert outcome.posted is not None, outcome.error
    return outcome.posted


def test_t210_two_talk_and_everything_that_was_said_can_be_read(place: Place) -> None:
    with place.worker("a") as first, place.worker("b") as second:
        add_subforum(first)
        opened = said(first, topic(body="What is 7 / 2?\n\n```c\nint x = 7 / 2;\n```"))
        answer = said(second, policy.draft(body="3", thread_id=opened.thread_id, reply_to=opened.post_id))
        posts = first.read(opened.thread_id).posts

    assert [post["body"] for post in posts] == ["What is 7 / 2?\n\n```c\nint x = 7 / 2;\n```", "3"]
    assert posts[1]["replyTo"] == opened.post_id
    assert posts[1]["id"] == answer.post_id
    assert [post["author"]["name"][:3] for post in posts] == ["t-a", "t-b"]


def test_t132_a_wait_ends_as_soon_as_something_relevant_is_said(place: Place) -> None:
    with place.worker("a") as first, place.worker("b") as second:
        add_subforum(first)
        second.watch_subforum("lab", watching=True)
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(second.wait(after=None, seconds=30)))
        waiting.start()
        eventually(lambda: second.collector._flight is not None)
        begun = time.monotonic()
        said(first, topic())
        waiting.join(25)

    assert [each["threadTitle"] for each in found[0].references] == ["A title"]
    assert time.monotonic() - begun < 25


def test_t133_a_wait_for_nothing_times_out(place: Place) -> None:
    with place.worker("a") as worker:
        begun = time.monotonic()
        found = worker.wait(after=None, seconds=1)

    assert (found.timed_out, found.references) == (True, ())
    assert time.monotonic() - begun >= 0.9
    assert worker.document["collector"]["cursor"] is not None


def test_t146_a_wait_that_is_given_up_ends_at_once(place: Place) -> None:
    with place.worker("a") as worker:
        given_up = Signal()
        found: list[Any] = []
        waiting = threading.Thread(
            target=lambda: found.append(worker.wait(after=None, seconds=60, cancellation=given_up))
        )
        waiting.start()
        eventually(lambda: worker.collector._flight is not None)
        given_up.fire()
        waiting.join(10)
        assert not waiting.is_alive()
        eventually(lambda: not worker.collector._threads)

    assert found[0].timed_out


def test_closing_a_worker_ends_its_wait(place: Place) -> None:
    worker = place.worker("a")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(worker.wait(after=None, seconds=60)))
    waiting.start()
    eventually(lambda: worker.collector._flight is not None)
    worker.close()
    waiting.join(10)
    assert not waiting.is_alive()


def test_t139_t140_a_wait_returns_other_threads_too_and_reads_nothing(place: Place) -> None:
    with place.worker("a") as first, place.worker("b") as second:
        add_subforum(first)
        one, two = said(first, topic("one")), said(first, topic("two"))
        assert second.watch(one.thread_id, watching=True)
        said(second, policy.draft(body="mine", thread_id=two.thread_id))
        said(first, policy.draft(body="x", thread_id=one.thread_id))
        said(first, policy.draft(body="y", thread_id=two.thread_id))
        before = [second.thread(each.thread_id)["unreadCount"] for each in (one, two)]
        found = second.wait(after=None, seconds=5)
        second.read(one.thread_id)
        after = [second.thread(each.thread_id)["unreadCount"] for each in (one, two)]

    assert [each["threadId"] for each in found.references] == [one.thread_id, two.thread_id]
    assert [each["reasons"] for each in found.references] == [["watched-threads"], ["involved"]]
    assert before == after == [2, 2]


def test_t136_t137_a_watch_is_set_and_removed(place: Place) -> None:
    with place.worker("a") as first, place.worker("b") as second:
        add_subforum(first)
        opened = said(first, topic())
        assert second.watch(opened.thread_id, watching=True) is True
        assert second.watch(opened.thread_id, watching=False) is False
        said(first, policy.draft(body="x", thread_id=opened.thread_id))
        assert second.wait(after=None, seconds=0).references == ()


def test_t150_t152_an_observers_acknowledgement_hides_nothing_and_is_not_moved(place: Place) -> None:
    with place.worker("a") as first, place.worker("b") as second:
        add_subforum(first)
        second.watch_subforum("lab", watching=True)
        posted = said(first, topic())
        mine = second.document["identity"]
        assert mine is not None
        link = Connection(second._transport, second.document["server"])
        scope = ",".join(second.document["collector"]["scope"])
        link.request(
            "POST", "/v1/events/ack", credential=mine["credential"],
            body={"scope": scope, "throughSequence": posted.sequence},
        )  # fmt: skip
        found = second.wait(after=None, seconds=5)
        said(first, topic("later"))
        second.wait(after=found.after, seconds=5)
        acked = link.request("GET", "/v1/events/ack", credential=mine["credential"], query={"scope": scope}).data

    assert [each["sequence"] for each in found.references] == [posted.sequence]
    assert acked["throughSequence"] == posted.sequence


def test_t174_a_page_has_at_most_twenty_posts_and_its_cursor_goes_on_exactly(place: Place) -> None:
    with place.worker("a") as worker:
        add_subforum(worker)
        opened = said(worker, topic(body="post 1"))
        for number in range(2, 10):
            said(worker, policy.draft(body=f"post {number} " + "x" * 5000, thread_id=opened.thread_id))
        bodies, cursor = [], None
        while True:
            page = worker.read(opened.thread_id, cursor=cursor)
            bodies += [post["body"].split(" x")[0] for post in page.posts]
            cursor = page.next_cursor
            if not page.has_more:
                break

    assert bodies == [f"post {number}" for number in range(1, 10)]


def test_t208_a_search_finds_what_was_said(place: Place) -> None:
    with place.worker("a") as worker:
        add_subforum(worker, "lab", "other")
        said(worker, topic(body="The frobnicator needs oil. " + "word " * 500))
        hits = worker.search("frobnicator")

        assert len(hits) >= 1
        assert all(len(hit["excerpt"]) <= 400 for hit in hits)
        assert worker.search("frobnicator", subforum="other") == ()
        with pytest.raises(ForumError) as caught:
            worker.search("!!!")
        assert caught.value.forum_code == "empty_query"


def test_the_forums_words_about_a_refusal_arrive_with_their_code(place: Place) -> None:
    with place.worker("a") as worker:
        with pytest.raises(ForumError) as caught:
            worker.thread(ids.ulid("th"))
        assert (caught.value.forum_code, caught.value.status) == ("not_found", 404)
        outcome = worker.publish(topic(), origin="model")
        assert outcome.is_definite


def test_t103_a_definite_refusal_is_kept_until_it_is_discarded(place: Place) -> None:
    with place.worker("a") as worker:
        outcome = worker.publish(topic(), origin="model")
        assert [each["status"] for each in worker.document["publications"]] == ["refused"]
        worker.discard(outcome.publication_id, confirm=lambda _: True)
        assert worker.document["publications"] == []


def test_t050_i45_another_forum_at_the_same_place_gets_no_credential(place: Place, tmp_path: Path) -> None:
    with place.worker("a") as worker:
        credential = (worker.document["identity"] or {})["credential"]
    elsewhere = Scripted([], installation=ids.ulid("in"), origin=place.origin)
    with place.worker("a", transport=elsewhere, registered=False) as worker:
        with pytest.raises(ForumError) as caught:
            worker.search("x")
        assert caught.value.forum_code == "installation_mismatch"
        assert worker.document["suspended"] is not None
        with pytest.raises(RefusedError, match="another forum"):
            worker.search("x")
    assert credential not in elsewhere.wire
    assert [request.target for request in elsewhere.seen] == ["/v1/capabilities"]


def test_t050_a_forum_that_is_exchanged_meanwhile_refuses_before_it_authenticates(place: Place) -> None:
    with place.worker("a") as worker:
        server = worker.document["server"]
        assert server is not None
        link = Connection(worker._transport, server)
        link.verify()
        link._verified = {**server, "installationId": ids.ulid("in")}
        with pytest.raises(ForumError) as caught:
            link.request("GET", "/v1/me", credential=ids.new_credential())
    assert (caught.value.status, caught.value.forum_code) == (412, "installation_mismatch")


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0])
def test_t051_another_protocol_stops_before_any_credential(tmp_path: Path, version: Any) -> None:
    transport = Scripted([], protocol=version)
    with Worker(new_file(tmp_path, known_document()), transport) as worker:
        with pytest.raises(ForumError) as caught:
            worker.search("x")
        assert caught.value.forum_code == "protocol_mismatch"
    assert len(transport.seen) == 1
    assert "authorization" not in transport.wire.lower()


# What follows is about the socket alone.


def get(transport: Transport, *, timeout: float = 5, cancellation: Signal | None = None) -> Any:
    return transport.send(Request(method="GET", target="/v1/x", timeout=timeout, cancellation=cancellation or Signal()))


def refusal(code: str, transport: Transport, **more: Any) -> ForumError:
    with pytest.raises(ForumError) as caught:
        get(transport, **more)
    assert caught.value.forum_code == code, caught.value
    assert caught.value.retryable
    transport.close()
    return caught.value


@pytest.mark.parametrize("size", [limits.CLIENT_RESPONSE_BYTES, limits.CLIENT_RESPONSE_BYTES + 1])
def test_t174_t175_an_answer_of_two_mebibytes_is_read_and_one_byte_more_is_not(size: int) -> None:
    with raw_server(http_bytes(200, b"x" * size)) as (origin, _):
        transport = HttpTransport(origin)
        if size > limits.CLIENT_RESPONSE_BYTES:
            assert "2097152" in refusal("bad_answer", transport).message
        else:
            assert len(get(transport).body) == size
            transport.close()


def test_t175_an_answer_without_end_is_broken_off_while_it_is_read() -> None:
    head = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n"
    with raw_server(
        head + b"100000\r\n" + b"x" * 0x100000 + b"\r\n" + b"180000\r\n" + b"x" * 0x180000, linger=True
    ) as (origin, _):
        refusal("bad_answer", HttpTransport(origin))


def test_t175_the_cap_holds_in_process_too() -> None:
    class Huge:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(4):
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})

        def close(self) -> None: ...

    refusal("bad_answer", InProcessTransport(lambda _: Huge()))


def test_an_answer_that_unpacks_is_not_unpacked() -> None:
    import gzip

    body = gzip.compress(b"x" * 50_000_000)
    with raw_server(http_bytes(200, body, "content-encoding: gzip")) as (origin, _):
        refusal("bad_answer", HttpTransport(origin))


def test_t147_a_server_that_never_answers_ends_with_not_knowing() -> None:
    with raw_server(None) as (origin, _):
        begun = time.monotonic()
        error = refusal("no_answer", HttpTransport(origin), timeout=0.5)
        assert time.monotonic() - begun < 20
        assert "may or may not have happened" in error.message


def test_t147_a_server_that_drips_its_answer_is_held_to_the_whole_time() -> None:
    import socket

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            peer, _ = listener.accept()
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n")
            while not is_over.wait(0.05):
                try:
                    peer.sendall(b"x")
                except OSError:
                    break
            peer.close()

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        begun = time.monotonic()
        refusal("no_answer", HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}"), timeout=0.5)
        assert time.monotonic() - begun < 20
        is_over.set()
        thread.join(5)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nhalf", b"nonsense\r\n\r\n"])
def test_a_connection_that_breaks_ends_with_not_knowing(answer: bytes) -> None:
    with raw_server(answer) as (origin, _):
        refusal("no_answer", HttpTransport(origin))


def test_nobody_there_means_that_nothing_was_sent() -> None:
    with raw_server(None) as (origin, _):
        pass
    assert "Nothing was sent" in refusal("unreachable", HttpTransport(origin)).message


def test_a_request_on_a_socket_can_be_given_up() -> None:
    with raw_server(None) as (origin, seen):
        signal = Signal()
        threading.Thread(target=lambda: (eventually(lambda: seen), signal.fire()), daemon=True).start()
        refusal("cancelled", HttpTransport(origin), timeout=30, cancellation=signal)


def test_t190_i45_a_redirect_is_never_followed_and_the_credential_stays_here(tmp_path: Path) -> None:
    with raw_server(capabilities_bytes()) as (thief, stolen):
        away = http_bytes(307, b"{}", f"location: {thief}/v1/search", "content-type: application/json")
        with raw_server(capabilities_bytes(), away) as (origin, _):
            server = {"origin": origin, "installationId": INSTALLATION, "protocolVersion": 1}
            worker = Worker(new_file(tmp_path, known_document(server=server)), HttpTransport(origin))
            with worker, pytest.raises(ForumError, match="never followed"):
                worker.search("x")
        assert stolen == []


def test_t190_the_credential_goes_only_where_it_belongs_and_not_into_the_address(tmp_path: Path) -> None:
    empty = json.dumps({"schemaVersion": 1, "hits": []}).encode()
    answer = http_bytes(200, empty, "content-type: application/json")
    with raw_server(capabilities_bytes(), answer) as (origin, seen):
        made = known_document(server={"origin": origin, "installationId": INSTALLATION, "protocolVersion": 1})
        with Worker(new_file(tmp_path, made), HttpTransport(origin)) as worker:
            assert worker.search("x") == ()
    credential = made["identity"]["credential"].encode()  # type: ignore[index]
    assert credential not in seen[0]
    assert b"forum-installation" not in seen[0].lower()
    assert seen[1].count(credential) == 1
    assert credential not in seen[1].split(b"\r\n")[0]
    assert b"forum-installation: " + INSTALLATION.encode() in seen[1].lower().replace(
        INSTALLATION.lower().encode(), INSTALLATION.encode()
    )


def test_t189_proxies_of_the_environment_are_ignored_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(None) as (dead, _):
        pass
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, dead)
    with raw_server(http_bytes(200, b"{}")) as (origin, seen):
        transport = HttpTransport(origin)
        assert get(transport).status == 200
        transport.close()
    assert len(seen) == 1


def test_nothing_is_opened_before_the_first_request(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a", registered=False):
        assert not place.database.exists()
