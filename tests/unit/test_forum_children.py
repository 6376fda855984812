"""Children of an author, in stages (T193-T203 as far as the client goes, invariants 48 and 49), and suspension (T088-T100)."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import ConflictError, ForumError, RefusedError, StateError
from side_agents.forum import ids
from side_agents.forum.client import children, host, policy, suspension
from side_agents.forum.client.children import ChildPlan
from side_agents.forum.client.host import HostFacts, Turns, facts_of_session
from side_agents.forum.client.transport import no_answer
from side_agents.forum.client.worker import Worker
from side_agents.forum.client.worker_document import secrets_of
from side_agents.forum.client.worker_file import WorkerFile, read_document
from tests.support.forum import sound_forums
from tests.support.forum_client import (
    FREE,
    Losing,
    Place,
    Scripted,
    add_subforum,
    document,
    error_response,
    facts,
    json_response,
    known_document,
    new_file,
    reference,
    scripted_worker,
)

__all__ = ["sound_forums"]


def plan(worker: Worker, place: Place, key: str = "spawn-1", **more: Any) -> ChildPlan:
    launch: Any = {"kind": "tmux", "target": "agent-x", "cwd": "/repo", "model": "m"}
    state = children.child_state_path(place.folder / "workers", worker.document, key)
    return ChildPlan(cause_key=key, name=f"t-{key}", child_state=state, launch=launch, **more)


def open_child(place: Place, state: str, session: str = "child-session") -> Worker:
    return Worker.open(Path(state), facts=facts(session), transport_to=place.transport, purpose="test", patience=5)


def test_t196_i48_a_childs_file_has_its_own_identity_and_nothing_of_its_parents(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent:
        add_subforum(parent)
        parent.watch_subforum("lab", watching=True)
        parent.wait(after=None, seconds=0)
        parent.file.update(lambda draft: draft["references"].append(reference(1)))  # type: ignore[arg-type]
        spawn = parent.create_child(plan(parent, place))
        child = read_document(Path(spawn["childStatePath"]))
        mine = parent.document["identity"]

    assert mine is not None
    assert child["identity"] is not None
    assert child["identity"]["sessionId"] != mine["sessionId"]
    assert child["identity"]["cause"] == {"kind": "spawn", "key": "spawn-1"}
    assert secrets_of(child) == {child["identity"]["credential"]}
    assert mine["credential"] not in json.dumps(child)
    assert (child["collector"]["cursor"], child["references"], child["publications"]) == (None, [], [])
    assert child["settings"] == parent.document["settings"]
    assert stat.S_IMODE(Path(spawn["childStatePath"]).stat().st_mode) == 0o600


def test_t197_t198_t186_targets_are_inherited_by_the_settings(tmp_path: Path) -> None:
    place = Place(tmp_path)
    settings = {**FREE, "copyThreadWatchesOnSpawn": False}
    with place.worker("a", **settings) as parent:
        add_subforum(parent)
        parent.watch_subforum("lab", watching=True)
        posted = parent.publish(policy.draft(body="x", subforum="lab", title="t"), origin="model").posted
        assert posted is not None
        parent.watch(posted.thread_id, watching=True)
        first = parent.create_child(plan(parent, place, "spawn-1"))
        parent.change_settings({"copySubforumsOnSpawn": False, "copyThreadWatchesOnSpawn": True})
        second = parent.create_child(plan(parent, place, "spawn-2"))
        parent.watch_subforum("lab", watching=False)
    watches = []
    for spawn in (first, second):
        with open_child(place, spawn["childStatePath"]) as child:
            found = child.call(lambda api: api.subscriptions())
            watches.append((len(found["subforums"]), len(found["threads"])))
            assert child.wait(after=None, seconds=0).references == ()

    assert watches == [(1, 0), (0, 1)]


def test_t200_t202_a_parent_has_several_children_and_children_have_their_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent:
        spawns = [parent.create_child(plan(parent, place, f"spawn-{n}")) for n in range(3)]
        assert parent.verify()
    with open_child(place, spawns[0]["childStatePath"]) as child:
        grandchild = child.create_child(plan(child, place, "spawn-x"))
        mine = child.document["identity"]
        assert child.verify()

    assert mine is not None
    assert grandchild["asAgentId"] == mine["agentId"]
    assert len({spawn["born"]["sessionId"] for spawn in [*spawns, grandchild] if spawn["born"]}) == 4


def test_t201_a_lost_answer_to_a_spawn_makes_no_second_child(tmp_path: Path) -> None:
    place = Place(tmp_path)
    losing = Losing(place.transport())
    with place.worker("a", transport=losing) as parent:
        losing.lose = 1
        with pytest.raises(ForumError):
            parent.create_child(plan(parent, place))
        assert parent.document["pendingSpawns"][0]["attempts"] == 1
        first = parent.create_child(plan(parent, place))
        second = parent.create_child(plan(parent, place))
    bodies = {request.body for request in losing.seen if request.target.endswith("/children")}

    assert first == second
    assert len(bodies) == 1


def test_p7_lets_go_of_every_secret_and_may_be_repeated(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent:
        children.prepare(parent.file, plan(parent, place))
        with pytest.raises(StateError, match="not saved yet"):
            children.launched(parent.file, "spawn-1")
        spawn = parent.create_child(plan(parent, place))
        child = read_document(Path(spawn["childStatePath"]))
        assert child["identity"] is not None
        for _ in range(2):
            assert children.launched(parent.file, "spawn-1")["stage"] == "launched"
        saved = parent.file.path.read_text(encoding="utf-8")

    assert child["identity"]["credential"] not in saved
    assert len(secrets_of(read_document(parent.file.path))) == 1


def test_only_eight_unfinished_children_and_the_launched_make_room(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent:
        for number in range(8):
            children.prepare(parent.file, plan(parent, place, f"spawn-{number}"))
        with pytest.raises(RefusedError, match="8 children"):
            children.prepare(parent.file, plan(parent, place, "spawn-8"))
        children.abandon(parent.file, "spawn-7")
        parent.create_child(plan(parent, place, "spawn-0"))
        children.launched(parent.file, "spawn-0")
        children.prepare(parent.file, plan(parent, place, "spawn-8"))
        children.prepare(parent.file, plan(parent, place, "spawn-9"))
        keys = [spawn["cause"]["key"] for spawn in parent.document["pendingSpawns"]]

    assert keys == [f"spawn-{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9)]


def test_a_file_of_somebody_else_is_never_overwritten(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent, place.worker("b") as other:
        wrong = plan(parent, place)
        wrong = ChildPlan(cause_key="x", name="t-x", child_state=other.file.path, launch=wrong.launch)
        other.close()
        before = other.file.path.read_bytes()
        with pytest.raises(ConflictError, match="somebody else"):
            parent.create_child(wrong)
        assert other.file.path.read_bytes() == before
        with pytest.raises(ConflictError, match="another state file"):
            children.prepare(parent.file, plan(parent, place, "x"))


def test_t203_a_fork_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent:
        spawn = parent.create_child(plan(parent, place, kind="fork"))
    with open_child(place, spawn["childStatePath"]) as child:
        mine = child.document["identity"]
        assert child.verify()
    assert mine is not None
    assert mine["cause"]["kind"] == "fork"


def me(made: Any, **changes: Any) -> Any:
    mine = made["identity"]
    agent = {"id": mine["agentId"], "name": mine["name"], "sessionId": mine["sessionId"], "createdAt": "x", **changes}
    return json_response(200, {"agent": agent, "session": {"id": agent["sessionId"]}})


def test_t088_a_matching_file_is_restored_and_verified(tmp_path: Path) -> None:
    made = known_document()
    worker, transport = scripted_worker(tmp_path, me(made), made=made)
    with worker:
        assert worker.verify()
        assert worker.document == made
    assert [request.target for request in transport.asked] == ["/v1/me"]


@pytest.mark.parametrize("wrong", [{"id": ids.ulid("ag")}, {"sessionId": ids.ulid("as")}])
def test_t089_a_forum_that_names_somebody_else_suspends(tmp_path: Path, wrong: dict[str, str]) -> None:
    made = known_document()
    worker, transport = scripted_worker(tmp_path, me(made, **wrong), made=made)
    with worker:
        with pytest.raises(RefusedError, match="another author"):
            worker.verify()
        asked = len(transport.asked)
        for action in (worker.verify, lambda: worker.search("x"), lambda: worker.ensure_identity("x")):
            with pytest.raises(RefusedError):
                action()  # type: ignore[operator]
        assert len(transport.asked) == asked
        assert worker.document["identity"] == made["identity"]


def test_t090_a_forum_that_cannot_be_reached_changes_nothing(tmp_path: Path) -> None:
    made = known_document()
    worker, transport = scripted_worker(tmp_path, no_answer("local", "down"), made=made)
    with worker:
        assert worker.verify() is False
        assert worker.document == made
    assert {request.method for request in transport.seen} == {"GET"}


def test_t191_i46_a_401_keeps_the_credential_and_stops(tmp_path: Path) -> None:
    made = known_document()
    worker, transport = scripted_worker(tmp_path, error_response(401, "unauthenticated"), made=made)
    with worker:
        with pytest.raises(ForumError):
            worker.search("x")
        assert worker.document["identity"] == made["identity"]
        with pytest.raises(RefusedError, match="credential was kept"):
            worker.ensure_identity("x")
    assert [request.target for request in transport.asked] == ["/v1/search"]


def test_d14_a_401_about_a_former_authors_credential_does_not_suspend(tmp_path: Path) -> None:
    place = Place(tmp_path)
    losing = Losing(place.transport())
    with place.worker("a", transport=losing) as worker:
        add_subforum(worker)
        losing.lose = 1
        draft = policy.draft(body="x", subforum="lab", title="t")
        pending = worker.publish(draft, origin="model").publication_id
        worker.compact(entry_id="e1", label="a")
        worker._connection._transport = Scripted(  # the server as it answers later
            [error_response(401, "unauthenticated")],
            installation=worker.document["server"]["installationId"],  # type: ignore[index]
        )
        outcome = worker.retry(pending, confirm=lambda _: True)
        assert outcome.error is not None
        assert worker.document["suspended"] is None
        assert [each["id"] for each in worker.document["publications"]] == [pending]


def reopened(tmp_path: Path, made: Any, now: HostFacts) -> tuple[Worker, Scripted]:
    new_file(tmp_path, made).close()
    transport = Scripted([json_response(500, {})])
    path = tmp_path / "w" / "worker.json"
    worker = Worker.open(path, facts=now, transport_to=lambda _: transport, purpose="test", patience=0)
    return worker, transport


def test_t095_a_leaf_that_is_not_on_the_branch_suspends_without_a_request(tmp_path: Path) -> None:
    made = known_document()
    made["host"]["leafEntryId"] = "e9"
    worker, transport = reopened(tmp_path, made, facts(branch=["e1", "e2"]))
    with worker:
        assert worker.document["suspended"] is not None
        assert worker.document["suspended"]["reason"] == "branch_mismatch"
        with pytest.raises(RefusedError, match="branch"):
            worker.search("x")
    assert transport.seen == []


def test_t096_i56_another_conversation_suspends_and_never_rebinds(tmp_path: Path) -> None:
    made = known_document()
    worker, transport = reopened(tmp_path, made, facts("other-session", leaf_entry_id="e5", transcript_path="/x"))
    with worker:
        with pytest.raises(RefusedError, match="another conversation") as caught:
            worker.publish(policy.draft(body="x", subforum="lab", title="t"), origin="model")
        assert "worker new" in str(caught.value.hint)
        assert worker.document["host"] == made["host"]
    assert transport.seen == []


def test_the_right_conversation_may_go_on_when_it_comes_back(tmp_path: Path) -> None:
    made = known_document()
    reopened(tmp_path, made, facts("other-session"))[0].close()
    back = Worker.open(
        tmp_path / "w" / "worker.json", facts=facts(), transport_to=lambda _: Scripted(), purpose="test", patience=0
    )
    with back:
        assert back.document["suspended"] is None


@pytest.mark.parametrize("reason", ["auth_failed", "identity_mismatch"])
def test_what_a_person_must_decide_is_not_ended_by_opening(tmp_path: Path, reason: str) -> None:
    made = known_document(suspended={"reason": reason, "at": "2026-03-03T02:58:00.000Z"})
    worker, _ = reopened(tmp_path, made, facts())
    with worker, pytest.raises(RefusedError):
        worker.search("x")


def test_t097_a_new_worker_leaves_the_old_file_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as old:
        before = old.file.path.read_bytes()
    with place.worker("a-2") as new:
        assert new.label
    assert old.file.path.read_bytes() == before


def test_t100_being_related_is_no_reason_to_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.worker("a") as parent:
        spawn = parent.create_child(plan(parent, place))
    open_child(place, spawn["childStatePath"], "child-session").close()
    with open_child(place, spawn["childStatePath"], "a") as child, pytest.raises(RefusedError):
        child.verify()


def test_a_child_is_bound_by_the_first_conversation_that_opens_its_file(tmp_path: Path) -> None:
    made = document()
    made["host"]["sessionId"] = ""
    worker, _ = reopened(tmp_path, made, facts("first", transcript_path="/t", leaf_entry_id="e1"))
    with worker:
        bound = worker.document["host"]
        assert (bound["sessionId"], bound["transcriptPath"], bound["leafEntryId"]) == ("first", "/t", "e1")


def test_what_is_unknown_is_no_reason() -> None:
    made = known_document()
    made["host"]["leafEntryId"] = "e1"
    assert suspension.judge(made, HostFacts(kind="test")) is None
    assert suspension.judge(made, facts(branch=["e1"])) is None


def test_t098_each_turn_has_a_new_id() -> None:
    turns = Turns()
    started = [turns.start() for _ in range(5)]
    assert len(set(started)) == 5
    assert turns.moment("call-1").turn_id == started[-1]


def test_t099_the_model_is_that_of_the_message_that_made_the_call() -> None:
    turns = Turns()
    turn = turns.start()
    turns.answered(entry_id="e1", provider="p", model="m1", calls=["call-1"])
    turns.answered(entry_id="e2", provider="p", model="m2", calls=["call-2"])

    first, second = turns.moment("call-1"), turns.moment("call-2")
    assert (first.model, first.entry_id, first.turn_id) == ("m1", "e1", turn)
    assert (second.model, second.tool_call_id) == ("m2", "call-2")
    turns.start()
    assert turns.moment("call-1").model is None


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (None, ""), ("abc", "abc"),
        ("/s/2026_0a1b2c3d-0000-4000-8000-0123456789ab.jsonl", "0a1b2c3d-0000-4000-8000-0123456789ab"),
    ],
)  # fmt: skip
def test_t119_a_conversation_is_known_by_its_id_and_never_by_its_path(session: str | None, expected: str) -> None:
    assert facts_of_session("pi", session).session_id == expected


def test_t119_a_path_without_an_id_gives_an_opaque_one() -> None:
    known = facts_of_session("pi", "/home/me/secret/notes.jsonl")
    assert known.session_id.startswith("hs_")
    assert "secret" not in known.session_id
    assert host.new_host("wk_1", known)["transcriptRef"] == host.new_host("wk_1", known)["transcriptRef"]


def test_opening_by_a_file_that_was_handed_over_wants_it_to_be_there(tmp_path: Path) -> None:
    from side_agents.errors import NotFoundError

    with pytest.raises(NotFoundError):
        WorkerFile.open(tmp_path / "worker.json", purpose="test", patience=0)
