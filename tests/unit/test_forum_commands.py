"""Registrations and publications: saved before they are sent, the same bytes for ever, kept until they are proved done."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import ForumError, NotFoundError, RefusedError
from side_agents.forum import ids
from side_agents.forum.client import commands, policy, publication, registration
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import NOWHERE, Moment
from side_agents.forum.client.transport import Request, Response, no_answer
from side_agents.forum.client.worker import Worker
from side_agents.forum.client.worker_file import read_document
from tests.support.forum import sound_forums
from tests.support.forum_client import (
    AGENT,
    FREE,
    SESSION,
    THREAD,
    Losing,
    Place,
    add_subforum,
    document,
    error_response,
    json_response,
    known_document,
    scripted_worker,
)

__all__ = ["sound_forums"]

TOPIC = policy.draft(body="hello", subforum="lab", title="A title")
REPLY = policy.draft(body="hello", thread_id=THREAD)


def free_document(**more: Any) -> Any:
    return known_document(settings={**document()["settings"], **FREE}, **more)


def published(request: Request, **changes: Any) -> Response:
    """The answer of a forum that took a publication."""
    payload = (request.body or b"").decode()
    data = {
        "threadId": THREAD, "postId": ids.ulid("po"), "sequence": "7", "authorId": AGENT, "subforum": "lab",
        "url": "http://127.0.0.1:8080/x", "createdAt": "x", "payloadSha256": commands.payload_hash(payload), **changes,
    }  # fmt: skip
    return json_response(201, data)


def created(request: Request, **changes: Any) -> Response:
    """The answer of a forum that made an author."""
    payload = (request.body or b"").decode()
    asked = json.loads(payload)
    agent = {"id": AGENT, "name": asked["name"], "sessionId": SESSION, "createdAt": "2026-03-03T02:58:00.000Z"}
    data = {"agent": agent, "session": {"id": SESSION}, "payloadSha256": commands.payload_hash(payload), **changes}
    return json_response(201, data)


def saved_when_sent(worker: Worker, seen: list[Any]) -> Any:
    """An answer that looks at the file at the moment when the request arrives."""

    def answer(request: Request) -> Response:
        seen.append((request, read_document(worker.file.path)))
        return published(request) if "posts" in request.target or "threads" in request.target else created(request)

    return answer


def test_t032_i37_a_registration_is_in_the_file_before_its_first_byte_leaves(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, json_response(500, {}), made=document())
    seen: list[Any] = []
    transport.answers = [saved_when_sent(worker, seen)]
    with worker:
        worker.ensure_identity("lab")

    request, stored = seen[0]
    assert stored["pendingCreation"]["payload"].encode() == request.body
    assert stored["pendingCreation"]["requestKey"] == request.headers["idempotency-key"]
    assert json.loads(request.body)["credential"] == stored["pendingCreation"]["credential"]
    assert "authorization" not in request.headers


def test_t044_identity_and_the_absence_of_the_request_are_one_revision(tmp_path: Path) -> None:
    worker, _ = scripted_worker(tmp_path, created, made=document())
    with worker:
        worker.ensure_identity("lab")
        stored = read_document(worker.file.path)

    assert stored["revision"] == 2
    assert stored["identity"] is not None
    assert stored["pendingCreation"] is None


def test_t033_t035_a_lost_answer_is_asked_for_again_with_the_same_bytes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    losing = Losing(place.transport(), lose=1)
    with place.worker("a", transport=losing, registered=False) as worker, pytest.raises(ForumError, match="lost"):
        worker.ensure_identity("a")
    prepared = read_document(place.state("a"))["pendingCreation"]

    again = Losing(place.transport())
    with place.worker("a", transport=again) as worker:
        made = worker.document["identity"]
        children = worker.call(lambda api: api.me())
    assert prepared is not None
    assert made is not None
    assert (prepared["attempts"], made["credential"]) == (1, prepared["credential"])
    assert children.agent_id == made["agentId"]
    sent = [request for request in (*losing.seen, *again.seen) if request.target == "/v1/agents/register"]
    assert len(sent) == 2
    assert sent[0].body == sent[1].body
    assert sent[0].headers["idempotency-key"] == sent[1].headers["idempotency-key"]


@pytest.mark.parametrize("code", ["name_taken", "context_key_taken", "credential_taken", "idempotency_conflict"])
def test_t039_t040_a_conflict_is_no_success_and_leaves_the_request_for_the_user(tmp_path: Path, code: str) -> None:
    worker, transport = scripted_worker(tmp_path, error_response(409, code), made=document())
    with worker:
        with pytest.raises(ForumError, match="kept as it is") as caught:
            worker.ensure_identity("lab")
        first = worker.document["pendingCreation"]
        with pytest.raises(ForumError):
            worker.ensure_identity("another")
        second = worker.document["pendingCreation"]

        assert caught.value.forum_code == code
        assert "discard" in str(caught.value.hint)
        assert worker.document["identity"] is None
        assert first is not None
        assert second is not None
        assert {**second, "attempts": 1} == first
        assert len({request.body for request in transport.asked}) == 1
        assert len({request.headers["idempotency-key"] for request in transport.asked}) == 1

        registration.discard(worker.file)
        transport.answers = [created]
        assert worker.ensure_identity("lab")["agentId"] == AGENT


def test_t041_a_prepared_credential_has_the_form_that_the_forum_takes() -> None:
    for _ in range(50):
        made = commands.new_creation(cause={"kind": "root", "key": None}, name="a", provenance={})
        assert len(ids.credential_hash(made["credential"])) == 32


@pytest.mark.parametrize(
    "wrong",
    [
        {"payloadSha256": "0" * 64},
        {"payloadSha256": None},
        {"session": {"id": ids.ulid("as")}},
        {"agent": {"id": "me", "name": "x", "sessionId": SESSION, "createdAt": "x"}},
        {"agent": {"id": AGENT, "name": "other", "sessionId": SESSION, "createdAt": "x"}},
        {"agent": None},
    ],
)
def test_an_answer_that_is_not_about_this_registration_is_not_believed(tmp_path: Path, wrong: dict[str, Any]) -> None:
    worker, _ = scripted_worker(tmp_path, lambda request: created(request, **wrong), made=document())
    with worker:
        with pytest.raises(ForumError) as caught:
            worker.ensure_identity("lab")
        assert caught.value.forum_code == "bad_answer"
        assert worker.document["identity"] is None
        assert worker.document["pendingCreation"] is not None


@pytest.mark.parametrize(
    ("prefix", "label"),
    [("pi", "shop"), ("x" * 32, "y" * 200), ("-_", "shop"), ("pi", "修复 登录"), ("pi", ""), ("p", "a b/c")],
)
def test_names_that_are_made_are_good_and_never_the_same(prefix: str, label: str) -> None:
    from side_agents.forum import checks

    made = {commands.fresh_name(prefix, label) for _ in range(20)}
    assert len(made) == 20
    assert all(checks.name(name) == name for name in made)


def test_t102_i38_a_publication_is_saved_before_it_is_sent_with_everything_it_needs(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, json_response(500, {}), made=free_document())
    seen: list[Any] = []
    transport.answers = [saved_when_sent(worker, seen)]
    with worker:
        outcome = worker.publish(TOPIC, origin="model")

    request, stored = seen[0]
    prepared = stored["publications"][0]
    assert outcome.posted is not None
    assert prepared["payload"].encode() == request.body
    assert prepared["requestKey"] == request.headers["idempotency-key"]
    assert request.headers["authorization"] == f"Bearer {prepared['credential']}"
    assert read_document(worker.file.path)["publications"] == []


def test_t101_i38_after_a_lost_answer_and_a_compaction_the_author_is_the_original(tmp_path: Path) -> None:
    place = Place(tmp_path)
    losing = Losing(place.transport())
    with place.worker("a", transport=losing) as worker:
        add_subforum(worker)
        losing.lose = 1
        first = worker.publish(TOPIC, origin="model")
        author = worker.document["identity"]
        worker.compact(entry_id="e1", label="a")
        second = worker.retry(first.publication_id, confirm=lambda _: True)
        posts = [request for request in losing.seen if request.target.endswith("/threads")]
        page = worker.read(second.posted.thread_id) if second.posted else None
        now = worker.document["identity"]

    assert first.error is not None
    assert author is not None
    assert now is not None
    assert page is not None
    assert author["agentId"] != now["agentId"]
    assert [post["author"]["id"] for post in page.posts] == [author["agentId"]]
    assert len(posts) == 2
    assert posts[0] == Request(**{**_fields(posts[1]), "sent": posts[0].sent, "cancellation": posts[0].cancellation})
    assert read_document(place.state("a"))["publications"] == []


def _fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


@pytest.mark.parametrize(
    "wrong",
    [
        {"threadId": ids.ulid("th")}, {"threadId": "th_1"}, {"authorId": ids.ulid("ag")}, {"authorId": None},
        {"payloadSha256": "0" * 64}, {"postId": "42"}, {"sequence": "x"}, {"url": None},
    ],
)  # fmt: skip
def test_t109_a_201_that_is_not_about_this_post_is_not_accepted(tmp_path: Path, wrong: dict[str, Any]) -> None:
    view = json_response(200, {"id": THREAD, "subforum": "lab"})
    worker, transport = scripted_worker(tmp_path, made=free_document())
    transport.answers = [view, lambda request: published(request, **wrong)]
    with worker:
        outcome = worker.publish(REPLY, origin="model")
        kept = worker.document["publications"][0]

    assert outcome.posted is None
    assert not outcome.is_definite
    assert (kept["status"], kept["attempts"]) == ("unknown", 1)


def test_t109_another_subforum_than_meant_is_not_accepted(tmp_path: Path) -> None:
    worker, _ = scripted_worker(tmp_path, lambda request: published(request, subforum="other"), made=free_document())
    with worker:
        assert worker.publish(TOPIC, origin="model").posted is None
        assert worker.document["publications"][0]["status"] == "unknown"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (error_response(409, "idempotency_conflict"), "refused"), (error_response(413, "payload_too_large"), "refused"),
        (error_response(422, "invalid_argument"), "refused"), (error_response(404, "not_found"), "refused"),
        (error_response(500, "internal"), "unknown"), (error_response(503, "busy"), "unknown"),
        (error_response(507, "storage_full"), "unknown"), (error_response(429, "rate_limited"), "unknown"),
        (error_response(401, "unauthenticated"), "unknown"), (error_response(412, "installation_mismatch"), "unknown"),
        (no_answer("local", "silence"), "unknown"), (json_response(200, {}), "unknown"), (json_response(302, {}), "unknown"),
        (Response(201, {"content-type": "application/json"}, b'{"schemaVersion":1'), "unknown"),
        (Response(201, {"content-type": "text/html"}, b"<html>"), "unknown"),
        (Response(201, {"content-type": "application/json"}, b'{"schemaVersion":2}'), "unknown"),
        (Response(409, {"content-type": "text/html"}, b"<html>"), "unknown"),
    ],
)  # fmt: skip
def test_t103_t105_i39_only_a_proved_success_removes_a_publication(tmp_path: Path, answer: Any, status: str) -> None:
    worker, transport = scripted_worker(tmp_path, answer, made=free_document())
    with worker:
        outcome = worker.publish(TOPIC, origin="model")
        kept = worker.document["publications"]

        assert outcome.posted is None
        assert [each["status"] for each in kept] == [status]
        assert kept[0]["lastError"] is not None
        assert outcome.is_definite is (status == "refused")
        assert len(transport.asked) == 1


def test_i40_no_retry_ever_makes_another_key(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, error_response(503, "busy"), made=free_document())
    with worker:
        outcome = worker.publish(TOPIC, origin="model")
        for _ in range(3):
            worker.retry(outcome.publication_id, confirm=lambda _: True)
        transport.answers = [published]
        assert worker.retry(outcome.publication_id, confirm=lambda _: True).posted is not None

    assert len({(request.headers["idempotency-key"], request.body) for request in transport.asked}) == 1


def test_t104_what_was_published_and_not_removed_is_replayed_and_removed_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as worker:
        add_subforum(worker)
        captured = publication.capture(worker.document, TOPIC, origin="model", moment=NOWHERE)
        publication.save(worker.file, captured)
        first = worker.retry(captured["id"], confirm=lambda _: True)
        publication.save(worker.file, captured)
        second = worker.retry(captured["id"], confirm=lambda _: True)
        assert first.posted is not None
        assert first.posted == second.posted
        assert len(worker.read(first.posted.thread_id).posts) == 1


def test_t105_other_bytes_under_the_same_key_are_refused_and_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as worker:
        add_subforum(worker)
        captured = publication.capture(worker.document, TOPIC, origin="model", moment=NOWHERE)
        publication.save(worker.file, captured)
        worker.retry(captured["id"], confirm=lambda _: True)
        payload = captured["payload"].replace("hello", "other")
        changed = {**captured, "payload": payload, "payloadSha256": commands.payload_hash(payload)}
        publication.save(worker.file, changed)  # type: ignore[arg-type]
        outcome = worker.retry(captured["id"], confirm=lambda _: True)

        assert outcome.error is not None
        assert outcome.error.forum_code == "idempotency_conflict"
        assert [each["status"] for each in worker.document["publications"]] == ["refused"]
        assert worker.document["publications"][0]["requestKey"] == captured["requestKey"]


def test_t106_the_same_request_many_times_at_once_is_one_post(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as worker:
        add_subforum(worker)
        captured = publication.capture(worker.document, TOPIC, origin="model", moment=NOWHERE)
        link = Connection(worker._transport, worker.document["server"])
        answers: list[Any] = []

        def send() -> None:
            answers.append(
                link.send_prepared(
                    captured["path"],
                    key=captured["requestKey"],
                    payload=captured["payload"],
                    credential=captured["credential"],
                ).data
            )

        threads = [threading.Thread(target=send) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(answers) == 30
        assert all(answer == answers[0] for answer in answers)
        assert len(worker.read(answers[0]["threadId"]).posts) == 1


def test_t112_opening_a_worker_sends_nothing(tmp_path: Path) -> None:
    made = free_document()
    pending = publication.capture(made, TOPIC, origin="model", moment=NOWHERE)
    worker, transport = scripted_worker(tmp_path, published, made={**made, "publications": [pending]})
    with worker:
        assert worker.label == "pi-somebody-1"
    assert transport.seen == []


def test_t113_a_person_retries_and_discards_each_with_a_confirmation(tmp_path: Path) -> None:
    made = free_document()
    pending = [publication.capture(made, TOPIC, origin="model", moment=NOWHERE) for _ in range(2)]
    worker, transport = scripted_worker(tmp_path, published, made={**made, "publications": pending})
    with worker:
        for action in (worker.retry, worker.discard):
            with pytest.raises(RefusedError, match="not confirmed"):
                action(pending[0]["id"], confirm=lambda _: False)
        assert (transport.seen, len(worker.document["publications"])) == ([], 2)
        worker.discard(pending[0]["id"], confirm=lambda each: each["id"] == pending[0]["id"])
        assert worker.retry(pending[1]["id"], confirm=lambda _: True).posted is not None
        assert worker.document["publications"] == []
        with pytest.raises(NotFoundError):
            worker.retry(pending[0]["id"], confirm=lambda _: True)


def test_t119_t120_the_transcripts_path_never_leaves_and_its_name_is_opaque_and_stable(tmp_path: Path) -> None:
    made = free_document()
    path = "/home/me/.pi/sessions/secret-project/2026_0a1b2c3d-0000-4000-8000-0123456789ab.jsonl"
    made["host"]["transcriptPath"] = path
    worker, transport = scripted_worker(tmp_path, published, made=made)
    with worker:
        for _ in range(2):
            worker.publish(TOPIC, origin="model")
    sent = [json.loads(request.body or b"{}")["post"]["provenance"] for request in transport.asked]

    assert "secret-project" not in transport.wire
    assert "/home/me" not in transport.wire
    assert {each["transcriptRef"] for each in sent} == {made["host"]["transcriptRef"]}


MOMENT = Moment(turn_id="turn-1", entry_id="e1", tool_call_id="call-1", provider="p", model="m")


def provenance_of(tmp_path: Path, *, origin: Any = "model", **settings: Any) -> dict[str, Any]:
    made = known_document(settings={**document()["settings"], **FREE, **settings})
    captured = publication.capture(made, TOPIC, origin=origin, moment=MOMENT)
    claims: dict[str, Any] = json.loads(captured["payload"])["post"]["provenance"]
    return claims


def test_t118_all_nine_claims_are_separate_fields(tmp_path: Path) -> None:
    claims = provenance_of(tmp_path)
    assert claims == {
        "hostSessionId": "host-session", "transcriptRef": claims["transcriptRef"], "contextKey": "ck_1",
        "turnId": "turn-1", "entryId": "e1", "toolCallId": "call-1", "provider": "p", "model": "m", "origin": "model",
    }  # fmt: skip


def test_t122_a_persons_post_has_no_turn_tool_call_or_model(tmp_path: Path) -> None:
    assert set(provenance_of(tmp_path, origin="user")) == {"hostSessionId", "transcriptRef", "contextKey", "origin"}


def test_t125_without_model_provenance_only_provider_and_model_are_left_out(tmp_path: Path) -> None:
    left_out = set(provenance_of(tmp_path)) - set(provenance_of(tmp_path, includeModelProvenance=False))
    assert left_out == {"provider", "model"}


def test_t121_another_model_later_does_not_change_what_is_prepared(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, error_response(503, "busy"), made=free_document())
    with worker:
        first = worker.publish(TOPIC, origin="model", moment=MOMENT)
        worker.publish(TOPIC, origin="model", moment=Moment(provider="q", model="n"))
        worker.retry(first.publication_id, confirm=lambda _: True)
    models = [json.loads(request.body or b"{}")["post"]["provenance"]["model"] for request in transport.asked]
    assert models == ["m", "n", "m"]


def test_t123_t045_a_compaction_is_caused_by_its_entry_and_originates_from_the_extension(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, created, made=known_document())
    with worker:
        worker.compact(entry_id="entry-7", label="a", moment=MOMENT)
    sent = json.loads(transport.asked[0].body or b"{}")

    assert sent["cause"] == {"kind": "compaction", "key": "entry-7"}
    assert (sent["provenance"]["origin"], sent["provenance"]["model"]) == ("extension", "m")


def test_t091_t094_t046_a_compaction_makes_another_author_of_the_same_session(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as worker:
        authors = [worker.document["identity"]]
        for entry in ("e1", "e1", "e2"):
            before = worker.label
            made = worker.compact(entry_id=entry, label="a")
            assert worker.label == made["name"]
            if made["agentId"] != (authors[-1] or {}).get("agentId"):
                assert worker.label != before
                authors.append(made)
        lineage = worker.document["lineage"]
        assert worker.verify()

    assert len(authors) == 3
    assert len({author["sessionId"] for author in authors if author}) == 1
    assert [each["agentId"] for each in lineage] == [author["agentId"] for author in authors[:2] if author]
    assert not any("credential" in each for each in lineage)


def test_t092_a_crash_after_a_compaction_was_prepared_is_finished_by_the_same_request(tmp_path: Path) -> None:
    place = Place(tmp_path)
    losing = Losing(place.transport())
    with place.worker("a", transport=losing) as worker:
        losing.lose = 1
        with pytest.raises(ForumError):
            worker.compact(entry_id="e1", label="a")
    with place.worker("a") as worker:
        assert worker.compact(entry_id="e1", label="a")["cause"] == {"kind": "compaction", "key": "e1"}
        assert worker.document["pendingCreation"] is None
        me = worker.document["identity"]
        assert me is not None
        parent = worker.document["lineage"][0]["agentId"]
        link = Connection(worker._transport, worker.document["server"])
        children = link.request("GET", f"/v1/agents/{parent}/children", credential=me["credential"]).data
    assert len(next(value for value in children.values() if isinstance(value, list))) == 1


def test_t093_t162_cursor_and_references_survive_a_compaction_without_gap_or_repeat(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("writer") as writer, place.worker("reader") as reader:
        add_subforum(writer)
        reader.watch_subforum("lab", watching=True)
        for title in ("one", "two"):
            writer.publish(policy.draft(body="x", subforum="lab", title=title), origin="model")
        reader.wait(after=None, seconds=5)
        before = (reader.document["collector"], reader.document["references"])
        reader.compact(entry_id="e1", label="reader")
        assert (reader.document["collector"], reader.document["references"]) == before
        writer.publish(policy.draft(body="x", subforum="lab", title="three"), origin="model")
        found = reader.wait(after=before[1][-1]["sequence"], seconds=5)
        titles = [each["threadTitle"] for each in reader.document["references"]]

    assert [each["threadTitle"] for each in found.references] == ["three"]
    assert titles == ["one", "two", "three"]


def test_a_worker_that_is_nobody_publishes_nothing(tmp_path: Path) -> None:
    worker, transport = scripted_worker(tmp_path, published, made=document(settings={**document()["settings"], **FREE}))
    with worker:
        for action in (lambda: worker.publish(TOPIC, origin="model"), lambda: worker.wait(after=None, seconds=0)):
            with pytest.raises(RefusedError, match="not registered"):
                action()
    assert transport.seen == []
