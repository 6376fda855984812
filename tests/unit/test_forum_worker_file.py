"""The private file of a participant: one change after the other, all or nothing, and nothing bad is opened (T064-T087)."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import BusyError, NotFoundError, StateError
from side_agents.forum import ids, limits
from side_agents.forum.client import worker_file, worker_lock, worker_schema
from side_agents.forum.client.commands import new_creation, payload_hash
from side_agents.forum.client.worker_document import WorkerDocument, secrets_of
from side_agents.forum.client.worker_file import WorkerFile, read_document
from side_agents.infra import fs_private
from tests.support.forum_client import AGENT, THREAD, document, identity, known_document, new_file, reference

FIELDS = {
    "format", "version", "revision", "workerId", "host", "server", "identity", "lineage", "pendingCreation",
    "pendingSpawns", "publications", "collector", "references", "settings", "suspended",
}  # fmt: skip


def publication(**changes: Any) -> dict[str, Any]:
    payload = changes.get("payload", '{"schemaVersion":1,"body":"hello"}')
    return {
        "id": "pb_" + os.urandom(16).hex(),
        "authorId": AGENT,
        "credential": ids.new_credential(),
        "method": "POST",
        "path": f"/v1/threads/{THREAD}/posts",
        "requestKey": ids.new_request_key(),
        "payload": payload,
        "payloadSha256": payload_hash(payload),
        "target": {"threadId": THREAD},
        "origin": "model",
        "status": "unknown",
        "attempts": 1,
        "lastError": None,
        "preparedAt": "2026-03-03T02:58:00.000Z",
        **changes,
    }


def write(folder: Path, made: Any, *, raw: bytes | None = None) -> Path:
    """A worker file as somebody left it, past all checks."""
    path = folder / "w" / "worker.json"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(raw if raw is not None else json.dumps(made).encode())
    path.chmod(0o600)
    return path


def assert_refused(path: Path, *words: str) -> None:
    """Opening fails with a reason that names the fault and no secret, and nothing was touched."""
    before = (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
    with pytest.raises(StateError) as caught:
        WorkerFile.open(path, purpose="test", patience=0)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "af_" not in str(caught.value).replace("af_ and 43", "")
    if before is not None:
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert not worker_lock.lock_path(path).exists()


def test_t064_a_file_has_exactly_the_documented_fields(tmp_path: Path) -> None:
    with new_file(tmp_path) as file:
        stored = json.loads(file.path.read_bytes())

    assert set(stored) == FIELDS
    assert (stored["format"], stored["version"], stored["revision"]) == ("agentforum-worker", 1, 0)
    assert stored["collector"]["scope"] == ["involved", "watched-threads", "watched-subforums"]
    assert len(stored["settings"]) == 8


def test_t065_fifty_changes_at_once_are_applied_one_after_another(tmp_path: Path) -> None:
    with new_file(tmp_path) as file:

        def change(number: int) -> None:
            file.update(lambda draft: draft["references"].append(reference(number)))  # type: ignore[arg-type]

        threads = [threading.Thread(target=change, args=(number,)) for number in range(1, 51)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        saved = read_document(file.path)

    assert saved["revision"] == 50
    assert {each["sequence"] for each in saved["references"]} == {str(number) for number in range(1, 51)}


def test_t066_a_change_that_raises_changes_nothing_and_later_ones_work(tmp_path: Path) -> None:
    def spoil(draft: WorkerDocument) -> None:
        draft["references"].append(reference(1))  # type: ignore[arg-type]
        raise ValueError("no")

    with new_file(tmp_path) as file:
        before = file.path.read_bytes()
        with pytest.raises(ValueError, match="no"):
            file.update(spoil)
        assert file.document["references"] == []
        assert file.path.read_bytes() == before

        file.update(lambda draft: draft["host"].update(leafEntryId="e1"))
        assert read_document(file.path)["host"]["leafEntryId"] == "e1"


def test_t066_a_change_to_something_wrong_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    with new_file(tmp_path) as file:
        before = file.path.read_bytes()
        with pytest.raises(StateError, match=r"references\[0\]\.sequence"):
            file.update(lambda draft: draft["references"].append(reference(-1)))  # type: ignore[arg-type]
        assert file.path.read_bytes() == before
        file.update(lambda draft: draft["references"].append(reference(1)))  # type: ignore[arg-type]


def test_t067_a_coroutine_is_no_change(tmp_path: Path) -> None:
    async def wait(draft: WorkerDocument) -> None:
        draft["suspended"] = None

    def begin(draft: WorkerDocument) -> Any:
        return wait(draft)

    with new_file(tmp_path) as file:
        for change in (wait, begin):
            with pytest.raises(StateError, match="ordinary function"):
                file.update(change)
        assert file.document["revision"] == 0


def test_a_document_that_was_handed_out_never_changes(tmp_path: Path) -> None:
    with new_file(tmp_path) as file:
        held = file.document
        file.update(lambda draft: draft["references"].append(reference(1)))  # type: ignore[arg-type]
        assert held["references"] == []


def failing(step: str) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, f"No space left for {step}")

    return fail


@pytest.mark.parametrize("step", ["_write_all", "fsync", "replace", "_sync_folder"])
def test_t070_t071_a_save_that_fails_at_any_step_ends_all_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with new_file(tmp_path) as file:
        before = file.path.read_bytes()
        with monkeypatch.context() as patch:
            if step == "fsync":
                patch.setattr(os, "fsync", failing(step))
            elif step == "replace":
                patch.setattr(Path, "replace", failing(step))
            else:
                patch.setattr(fs_private, step, failing(step))
            with pytest.raises(StateError, match="could not be saved"):
                file.update(lambda draft: draft["references"].append(reference(1)))  # type: ignore[arg-type]
        kept = file.path.read_bytes()

        with pytest.raises(StateError, match="no further one is accepted"):
            file.update(lambda draft: draft["references"].append(reference(2)))  # type: ignore[arg-type]
        assert file.path.read_bytes() == kept
        assert (kept == before) == (step != "_sync_folder")
        assert list(file.path.parent.glob(".worker.json.*")) == []

    with WorkerFile.open(file.path, purpose="test", patience=0) as reopened:
        reopened.update(lambda draft: draft["host"].update(leafEntryId="e1"))


def test_t073_what_a_crash_left_is_removed_by_the_next_holder(tmp_path: Path) -> None:
    new_file(tmp_path).close()
    stray = tmp_path / "w" / ".worker.json.1-abc.tmp"
    stray.write_text("half", encoding="utf-8")

    with WorkerFile.open(tmp_path / "w" / "worker.json", purpose="test", patience=0):
        assert not stray.exists()


def test_t074_a_file_that_is_open_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    with (
        new_file(tmp_path) as file,
        pytest.raises(BusyError, match=rf"in use by process {os.getpid()} .*\(test\).*still runs"),
    ):
        WorkerFile.open(file.path, purpose="again", patience=0)


def test_who_comes_while_it_is_open_waits_for_its_turn(tmp_path: Path) -> None:
    first = new_file(tmp_path)
    opened: list[WorkerFile] = []

    def come() -> None:
        opened.append(WorkerFile.open(first.path, purpose="second", patience=20))

    second = threading.Thread(target=come)
    second.start()
    first.update(lambda draft: draft["host"].update(leafEntryId="e1"))
    first.close()
    second.join(20)
    assert opened[0].document["host"]["leafEntryId"] == "e1"
    opened[0].close()


def test_a_closed_file_takes_no_change(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    file.close()
    file.close()

    with pytest.raises(StateError, match="not open"):
        file.update(lambda draft: None)


def test_t077_the_file_is_private_after_every_save(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        with new_file(tmp_path) as file:
            for _ in range(2):
                file.update(lambda draft: None)
                assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE(worker_lock.lock_path(file.path).stat().st_mode) == 0o600
    finally:
        os.umask(previous)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_t078_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, document())
    path.chmod(mode)

    assert_refused(path, "can be reached by others")


def test_t078_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, document())
    path.parent.chmod(0o750)

    assert_refused(path, "can be reached by others")


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_t079_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, document())
    path.rename(path.with_name("elsewhere.json"))
    if kind == "symlink":
        path.symlink_to("elsewhere.json")
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(mode=0o700)

    assert_refused(path, "symbolic link" if kind == "symlink" else "not a regular file")


def test_t079_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, document())
    stranger = path.stat().st_uid + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)

    assert_refused(path, "belongs to user")


def test_t080_four_mebibytes_are_read_and_one_byte_more_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = json.dumps(document()).encode()
    path = write(tmp_path, None, raw=raw + b" " * (limits.CLIENT_STATE_BYTES - len(raw)))
    assert read_document(path)["format"] == "agentforum-worker"

    with path.open("ab") as file:
        file.write(b" ")
    monkeypatch.setattr(fs_private, "_read_all", failing("reading"))
    assert_refused(path, "4194305 bytes")


def test_a_change_that_would_outgrow_the_limit_is_refused_unsaved(tmp_path: Path) -> None:
    with new_file(tmp_path, known_document()) as file:
        big = json.dumps({"schemaVersion": 1, "body": "x" * 300_000})
        with pytest.raises(StateError, match="would grow over"):
            file.update(lambda draft: draft.update(publications=[publication(payload=big) for _ in range(15)]))
        file.update(lambda draft: None)


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_t081_another_version_is_refused(tmp_path: Path, version: Any) -> None:
    assert_refused(write(tmp_path, {**document(), "version": version}), "version")


def test_t082_more_references_or_publications_than_allowed_are_refused(tmp_path: Path) -> None:
    full = known_document(
        references=[reference(n) for n in range(1, 101)], publications=[publication() for _ in range(20)]
    )
    assert len(read_document(write(tmp_path, full))["references"]) == 100

    assert_refused(write(tmp_path, {**full, "references": [reference(n) for n in range(1, 102)]}), "references", "100")
    assert_refused(
        write(tmp_path, {**full, "publications": [*full["publications"], publication()]}), "publications", "20"
    )


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (without(publication(), "credential"), "credential"),
        (publication(credential=None), "credential"),
        (publication(credential="af_" + "A" * 42), "credential"),
        (publication(credential="af_" + "A" * 42 + "B"), "credential"),
        (publication(credential="af_" + "A" * 42 + "="), "credential"),
        (publication(path="/v1/agents/register"), "path"),
        (publication(path=f"/v1/threads/{THREAD}/posts/../../me"), "path"),
        (publication(path=f"/v1/threads/{THREAD}/posts\n"), "path"),
        (publication(path="https://evil.example/v1/threads"), "path"),
        (publication(payloadSha256="0" * 64), "payloadSha256"),
        (publication(payload="[1]"), "payload"),
        (publication(payload="{"), "payload"),
        (publication(payload='{"a":1,"a":2}'), "twice"),
        (publication(origin="extension"), "origin"),
        (publication(origin=None), "origin"),
        (publication(method="GET"), "method"),
        (publication(requestKey="short"), "requestKey"),
        (publication(authorId=ids.ulid("ag")), "authorId"),
        (publication(status="sent"), "status"),
        (publication(attempts=-1), "attempts"),
        (publication(attempts=True), "attempts"),
        (publication(target={"somewhere": "x"}), "target"),
        (publication(extra=1), "extra"),
        ("text", "publications[0]"),
    ],
)
def test_t083_every_fault_of_a_publication_is_found(tmp_path: Path, made: Any, place: str) -> None:
    assert_refused(write(tmp_path, {**known_document(), "publications": [made]}), place)


def creation(**changes: Any) -> dict[str, Any]:
    return {**new_creation(cause={"kind": "root", "key": None}, name="a", provenance={}), **changes}


def child_creation(**changes: Any) -> dict[str, Any]:
    parent = identity()
    made = new_creation(cause={"kind": "compaction", "key": "e1"}, name="a", provenance={}, parent=parent)
    return {**made, **changes}


def test_prepared_creations_of_both_kinds_are_good() -> None:
    worker_schema.check(document(pendingCreation=creation()))
    worker_schema.check(known_document(pendingCreation=child_creation()))


@pytest.mark.parametrize(
    "made",
    [
        creation(asCredential=ids.new_credential()),
        creation(asAgentId=AGENT),
        creation(credential=ids.new_credential()),
        creation(path=f"/v1/agents/{AGENT}/children"),
        creation(path="/v1/me"),
        creation(cause={"kind": "root", "key": "e1"}),
        creation(stage="sent"),
        child_creation(asCredential=None),
        child_creation(asAgentId=None),
        child_creation(cause={"kind": "compaction", "key": None}),
        child_creation(path=f"/v1/agents/{ids.ulid('ag')}/children"),
    ],
)
def test_t084_a_prepared_creation_that_contradicts_itself_is_refused(tmp_path: Path, made: Any) -> None:
    assert_refused(write(tmp_path, {**known_document(), "pendingCreation": made}), "pendingCreation")


@pytest.mark.parametrize(
    "raw",
    [b'{"format":"agentforum-worker","format":"agentforum-worker"}', b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000],
)
def test_t085_what_is_not_strict_json_is_refused(tmp_path: Path, raw: bytes) -> None:
    assert_refused(write(tmp_path, None, raw=raw))


def test_t085_a_key_that_occurs_twice_deep_inside_is_refused(tmp_path: Path) -> None:
    raw = json.dumps(document()).replace('"kind": "test"', '"kind": "test", "kind": "test"').encode()
    assert_refused(write(tmp_path, None, raw=raw), "twice")


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_t085_a_number_that_json_has_not_is_refused(tmp_path: Path, number: str) -> None:
    raw = json.dumps(document()).replace('"revision": 0', f'"revision": {number}').encode()
    assert_refused(write(tmp_path, None, raw=raw), "finite")


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    assert_refused(write(tmp_path, without(dict(document()), name)), name)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"extra": 1}, "extra"),
        ({"server": None}, "server"),
        ({"references": [reference(1), reference(1)]}, "twice"),
        ({"references": [reference(1, threadId="th_1")]}, "threadId"),
        ({"references": [reference(1, sequence=1)]}, "sequence"),
        ({"suspended": {"reason": "bored", "at": "x"}}, "suspended.reason"),
        (
            {"server": {"origin": "http://evil.example", "installationId": ids.ulid("in"), "protocolVersion": 1}},
            "origin",
        ),
        ({"server": {"origin": "local", "installationId": ids.ulid("in"), "protocolVersion": 2}}, "protocolVersion"),
        ({"lineage": [{"agentId": AGENT, "contextKey": "c", "credential": "x"}]}, "credential"),
        ({"settings": {}}, "settings"),
        ({"collector": {"scope": ["all"], "cursor": None, "lastAt": None, "lastError": None}}, "scope"),
    ],
)
def test_faults_of_other_records_are_found(tmp_path: Path, changes: dict[str, Any], place: str) -> None:
    assert_refused(write(tmp_path, {**known_document(), **changes}), place)


def test_a_file_that_is_not_there_is_not_made_by_opening(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        WorkerFile.open(tmp_path / "w" / "worker.json", purpose="test", patience=0)
    assert list(tmp_path.iterdir()) == []


def test_creating_keeps_what_is_there(tmp_path: Path) -> None:
    with new_file(tmp_path) as file:
        file.update(lambda draft: draft["host"].update(leafEntryId="e1"))

    with new_file(tmp_path) as again:
        assert again.document["host"]["leafEntryId"] == "e1"


def test_worker_files_lie_outside_of_every_repository(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert worker_file.workers_folder({}, home) == home / ".local/state/agentforum/workers"
    assert worker_file.workers_folder({"XDG_STATE_HOME": "/x"}, home) == Path("/x/agentforum/workers")
    assert worker_file.workers_folder({"XDG_STATE_HOME": "relative"}, home) == home / ".local/state/agentforum/workers"


def test_all_secrets_of_a_document_are_found() -> None:
    made = known_document(publications=[publication()], pendingCreation=child_creation())
    assert len(secrets_of(made)) == 4
