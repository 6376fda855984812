"""Authors, sessions and how they come from one another."""

from __future__ import annotations

import json
import re

import pytest

from side_agents.forum import ids, limits, requests
from side_agents.forum.requests import Cause, Inherit, ProfileRequest, Provenance
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.principal import Principal
from tests.support.forum import (
    ForumFactory,
    Person,
    child,
    child_request,
    command,
    forum,
    forum_factory,
    json_of,
    refusal,
    register,
    registration,
    reply,
    subforum,
    table_counts,
    thread,
)

__all__ = ["forum", "forum_factory"]


def view(forum: Forum, person: Person) -> dict[str, object]:
    agent: dict[str, object] = forum.identities.agent(person.id)["agent"]
    return agent


def test_t001_a_root_registration_makes_one_author_and_one_session(forum: Forum) -> None:
    before = table_counts(forum.database)
    ann = register(forum, "ann")
    after = table_counts(forum.database)

    assert {table: after[table] - before[table] for table in after if after[table] != before[table]} == {
        "agent": 1,
        "session": 1,
        "command": 1,
    }
    assert ids.is_ulid("ag", ann.id)
    assert ids.is_ulid("as", ann.session)
    assert view(forum, ann)["cause"] == {"kind": "root"}
    assert view(forum, ann)["parentId"] is None


def test_t002_a_compaction_child_is_another_author_of_the_same_session(forum: Forum) -> None:
    ann = register(forum)
    heir = child(forum, ann, "compaction")

    assert heir.session == ann.session
    assert heir.id != ann.id
    assert forum.identities.me(heir.principal)["session"]["contextCount"] == 2


@pytest.mark.parametrize("kind", ["spawn", "fork"])
def test_t003_t004_a_spawn_or_fork_child_has_a_session_of_its_own(forum: Forum, kind: requests.CauseKind) -> None:
    ann = register(forum)
    other = child(forum, ann, kind, f"{kind}-child")

    assert other.session != ann.session
    assert view(forum, other)["parentId"] == ann.id
    assert view(forum, other)["cause"] == {"kind": kind, "key": f"cause of {kind}-child"}


def test_t013_t014_t015_a_parent_keeps_working_and_never_changes_by_having_children(forum: Forum) -> None:
    ann = register(forum)
    before = view(forum, ann)
    first, second, heir = child(forum, ann), child(forum, ann), child(forum, ann, "compaction")

    assert view(forum, ann) == before
    assert forum.identities.authenticate(ann.credential) == ann.principal
    assert len({ann.session, first.session, second.session}) == 3
    assert heir.session == ann.session
    for person in (first, second, heir, ann):
        # Everybody can go on having children of their own.
        child(forum, person)
    assert view(forum, ann) == before


def test_t036_the_same_key_with_another_name_conflicts_and_leaves_no_row(forum: Forum) -> None:
    request = registration("ann")
    forum.identities.register(request, command=command("k" * 16))
    before = table_counts(forum.database)
    changed = registration("bob", request.credential, context_key=request.context_key)

    refusal("idempotency_conflict", lambda: forum.identities.register(changed, command=command("k" * 16)))
    assert table_counts(forum.database) == before


def test_t037_another_key_for_the_same_context_is_refused(forum: Forum) -> None:
    request = registration("ann")
    forum.identities.register(request, command=command())
    before = table_counts(forum.database)

    refusal("context_key_taken", lambda: forum.identities.register(request, command=command()), field="body.contextKey")
    again = registration("bob", context_key=request.context_key)
    refusal("context_key_taken", lambda: forum.identities.register(again, command=command()))
    assert table_counts(forum.database) == before


def test_t038_a_credential_belongs_to_one_author(forum: Forum) -> None:
    ann = register(forum)
    before = table_counts(forum.database)

    taken = registration("bob", ann.credential)
    refusal("credential_taken", lambda: forum.identities.register(taken, command=command()), field="body.credential")
    own = child_request("cleo", "spawn", credential=ann.credential)
    refusal("credential_taken", lambda: forum.identities.create_child(ann.principal, ann.id, own, command=command()))
    assert table_counts(forum.database) == before


def test_t039_a_name_that_is_taken_is_no_success_for_anybody(forum: Forum) -> None:
    ann = register(forum, "ann")
    before = table_counts(forum.database)

    refusal("name_taken", lambda: forum.identities.register(registration("ann", context_key="new"), command=command()))
    clash = child_request("ann", "spawn", context_key="newer")
    refusal("name_taken", lambda: forum.identities.create_child(ann.principal, ann.id, clash, command=command()))
    assert table_counts(forum.database) == before


def test_t042_only_a_hash_of_a_credential_is_stored(forum_factory: ForumFactory) -> None:
    forum = forum_factory()
    ann = register(forum)
    heir = child(forum, ann, "compaction")
    files = [path for path in forum_factory.path().parent.iterdir() if path.is_file()]

    for content in (path.read_bytes() for path in files):
        assert not re.search(rb"af_[A-Za-z0-9_-]{43}", content)
        assert all(person.credential[3:].encode() not in content for person in (ann, heir))
    lengths = forum.database.read(lambda db: db.execute("SELECT DISTINCT length(credential_hash) FROM agent").get)
    assert lengths == 32


def test_t043_no_answer_error_or_representation_has_the_credential(forum: Forum) -> None:
    request = registration("ann")
    made = forum.identities.register(request, command=command("k" * 16))
    ann = Person(forum.identities.authenticate(request.credential), request.credential)
    spawn = child_request("bob", "spawn")
    bred = forum.identities.create_child(ann.principal, ann.id, spawn, command=command("k" * 16))
    texts = [
        made.body.decode(),
        bred.body.decode(),
        repr(request),
        repr(spawn),
        repr(ann),
        json.dumps([forum.identities.me(ann.principal), forum.identities.children(ann.principal, ann.id)]),
    ]
    for error in (
        refusal("context_key_taken", lambda: forum.identities.register(request, command=command())),
        refusal(
            "credential_taken",
            lambda: forum.identities.register(registration("x", request.credential), command=command()),
        ),
        refusal(
            "idempotency_conflict",
            lambda: forum.identities.register(
                registration("x", request.credential, context_key="context of ann"), command=command("k" * 16)
            ),
        ),
    ):
        texts += [str(error), repr(error), str(error.hint)]

    for secret in (request.credential[3:], spawn.credential[3:]):
        assert all(secret not in text for text in texts)


def test_t045_t046_one_child_for_each_compaction_entry_and_any_number_of_entries(forum: Forum) -> None:
    ann = register(forum)
    first = child(forum, ann, "compaction", "first", cause=Cause(kind="compaction", key="entry-1"))
    second = child(forum, ann, "compaction", "second", cause=Cause(kind="compaction", key="entry-2"))
    assert view(forum, first)["cause"] == {"kind": "compaction", "key": "entry-1"}
    assert second.session == ann.session
    before = table_counts(forum.database)

    again = child_request("third", "compaction", "entry-1")
    refusal("cause_taken", lambda: forum.identities.create_child(ann.principal, ann.id, again, command=command()))
    assert table_counts(forum.database) == before
    # Spawns and forks may share a key, with each other and with a compaction; so may compactions of another parent.
    for number, kind in enumerate(("spawn", "spawn", "fork", "fork")):
        child(forum, ann, kind, f"more-{number}", cause=Cause(kind=kind, key="entry-1"))
    child(forum, first, "compaction", "heir", cause=Cause(kind="compaction", key="entry-1"))


def test_t052_nobody_makes_children_of_another_author(forum: Forum) -> None:
    ann, bob = register(forum), register(forum)
    heir = child(forum, ann, "compaction")
    before = table_counts(forum.database)

    for parent in (ann.id, heir.id, ids.ulid("ag")):
        request = child_request("x", "spawn")
        refusal(
            "not_your_agent",
            lambda parent=parent, request=request: forum.identities.create_child(
                bob.principal, parent, request, command=command()
            ),
        )
    assert table_counts(forum.database) == before


@pytest.mark.parametrize("credential", ["", "af_", "Bearer", "af_" + "A" * 43, "af_" + "A" * 42 + "B", "ä", "\0"])
def test_t053_who_is_not_known_hears_the_same_words(forum: Forum, credential: str) -> None:
    register(forum)
    error = refusal("unauthenticated", lambda: forum.identities.authenticate(credential))
    unknown = refusal("unauthenticated", lambda: forum.identities.authenticate(ids.new_credential()))

    assert (str(error), error.hint) == (str(unknown), unknown.hint)


def test_t054_me_is_the_author_and_its_session_without_a_secret(forum: Forum) -> None:
    ann = register(forum, "ann")
    found = forum.identities.me(ann.principal)

    assert set(found) == {"agent", "session"}
    assert found["agent"] == view(forum, ann)
    assert found["session"] == {
        "id": ann.session,
        "createdAt": found["session"]["createdAt"],
        "contextCount": 1,
    }
    assert "credential" not in json.dumps(found).lower()


def test_t055_contexts_of_a_session_come_in_pages_oldest_first(forum: Forum) -> None:
    ann, bob = register(forum), register(forum)
    chain = [ann]
    for _ in range(6):
        chain.append(child(forum, chain[-1], "compaction"))
        child(forum, chain[-1], "spawn")

    seen, cursor = [], None
    for size in (3, 3, 1):
        page = forum.identities.contexts(bob.principal, ann.session, limit=3, cursor=cursor)
        assert len(page["items"]) == size
        seen += [item["id"] for item in page["items"]]
        cursor = page["nextCursor"]
        assert page["hasMore"] is (cursor is not None)
    assert seen == [person.id for person in chain]
    assert cursor is None
    assert not any("credential" in key.lower() or "hash" in key.lower() for key in page["items"][0])
    refusal("not_found", lambda: forum.identities.contexts(bob.principal, ids.ulid("as")))


def test_t056_children_are_direct_ones_in_pages_oldest_first(forum: Forum) -> None:
    ann, bob = register(forum), register(forum)
    made = [child(forum, ann, kind) for kind in ("spawn", "fork", "compaction", "spawn", "spawn")]
    child(forum, made[0], "spawn")

    first = forum.identities.children(bob.principal, ann.id, limit=3)
    second = forum.identities.children(bob.principal, ann.id, limit=3, cursor=first["nextCursor"])

    assert [item["id"] for item in first["items"] + second["items"]] == [person.id for person in made]
    assert (first["hasMore"], second["hasMore"], second["nextCursor"]) == (True, False, None)
    for bad in (0, 101, -1):
        refusal("invalid_argument", lambda bad=bad: forum.identities.children(bob.principal, ann.id, limit=bad))
    refusal("not_found", lambda: forum.identities.children(bob.principal, ids.ulid("ag")))


def test_t157_a_cursor_continues_only_the_listing_of_the_session_that_got_it(forum: Forum) -> None:
    ann, bob = register(forum), register(forum)
    for _ in range(2):
        child(forum, ann, "compaction")
    children = forum.identities.children(ann.principal, ann.id, limit=1)["nextCursor"]

    listing = forum.identities
    refusal("invalid_cursor", lambda: listing.contexts(ann.principal, ann.session, cursor=children))
    refusal("invalid_cursor", lambda: listing.children(bob.principal, ann.id, cursor=children))
    refusal("cursor_scope_mismatch", lambda: listing.children(ann.principal, bob.id, cursor=children))
    refusal("invalid_cursor", lambda: listing.children(ann.principal, ann.id, cursor="3"))


def test_t063_reason_and_provenance_of_a_creation_are_stored_and_cannot_change(forum: Forum) -> None:
    ann = register(forum, "ann")
    told = Provenance(origin="extension", host_session_id="host", model="m")
    bob = child(forum, ann, "spawn", "bob", reason="look at the parser\nthen report", provenance=told)

    shown = view(forum, bob)
    assert shown["reason"] == "look at the parser\nthen report"
    assert shown["provenance"] == {"origin": "extension", "hostSessionId": "host", "model": "m"}
    forum.identities.update_profile(bob.principal, ProfileRequest(bio="b", metadata={"provenance": "forged"}))
    assert view(forum, bob)["provenance"] == shown["provenance"]
    for column in ("provenance", "reason", "name", "session_id", "parent_id", "credential_hash", "created_at"):
        with pytest.raises(Exception, match="immutable"):
            forum.database.write(
                lambda db, column=column: db.execute(f"UPDATE agent SET {column} = {column}").fetchall()
            )
    with pytest.raises(Exception, match="immutable"):
        forum.database.write(lambda db: db.execute("DELETE FROM agent").fetchall())


def test_a_profile_keeps_what_is_absent_and_takes_what_is_present(forum: Forum) -> None:
    ann = register(forum, "ann")
    edit = forum.identities.update_profile
    edit(ann.principal, ProfileRequest(display_name="Ann", bio="line\nline", status="busy", metadata={"a": [1]}))
    shown = edit(ann.principal, ProfileRequest(status="free"))["agent"]
    assert (shown["displayName"], shown["bio"], shown["status"], shown["metadata"]) == (
        "Ann",
        "line\nline",
        "free",
        {"a": [1]},
    )

    cleared = edit(ann.principal, ProfileRequest(bio="", metadata={}))["agent"]
    assert (cleared["displayName"], cleared["bio"], cleared["metadata"]) == ("Ann", "", {})
    too_long = ProfileRequest(bio="x" * (limits.BIO_CHARACTERS + 1))
    refusal("invalid_argument", lambda: edit(ann.principal, too_long), field="body.bio")
    refusal("invalid_argument", lambda: edit(ann.principal, ProfileRequest(status="\x1b[2J")), field="body.status")


def test_authors_are_found_by_id_and_by_name(forum: Forum) -> None:
    ann = register(forum, "ann")

    assert forum.identities.agent_by_name("ann") == forum.identities.agent(ann.id)
    refusal("not_found", lambda: forum.identities.agent_by_name("Ann"))
    refusal("not_found", lambda: forum.identities.agent(ids.ulid("ag")))


def test_t197_t201_a_spawn_child_watches_the_subforums_of_its_parent_from_now_on(forum: Forum) -> None:
    ann = register(forum)
    for key in ("lab", "art", "zoo"):
        subforum(forum, ann, key)
    watch = forum.interests.watch_subforum
    watch(ann.principal, "lab"), watch(ann.principal, "art")
    opened = thread(forum, ann, "lab", watch=True)
    request = child_request("bob", "spawn", inherit=Inherit(subforums=True))
    made = json_of(forum.identities.create_child(ann.principal, ann.id, request, command=command("k" * 16)))

    assert made["inherited"] == {"subforums": ["art", "lab"], "threadWatches": []}
    # A retry copies nothing a second time, even after the parent has watched more.
    watch(ann.principal, "zoo")
    again = forum.identities.create_child(ann.principal, ann.id, request, command=command("k" * 16))
    assert json_of(again) == made
    bob = forum.identities.authenticate(request.credential)
    assert watched(forum, bob, "subforum_watch") == [
        ("art", int(opened["sequence"])),
        ("lab", int(opened["sequence"])),
    ]
    assert watched(forum, bob, "thread_watch") == []


def test_t198_thread_watches_are_inherited_only_when_asked_for_and_as_targets_only(forum: Forum) -> None:
    ann = register(forum)
    subforum(forum, ann, "lab")
    opened = thread(forum, ann, "lab", watch=True)
    newest = reply(forum, ann, opened["threadId"])

    plain = child(forum, ann, "fork")
    asked = child(forum, ann, "fork", inherit=Inherit(thread_watches=True))
    assert watched(forum, plain.principal, "thread_watch") == []
    assert watched(forum, asked.principal, "thread_watch") == [(opened["threadId"], int(newest["sequence"]))]
    # Independent from now on.
    forum.interests.unwatch_thread(ann.principal, opened["threadId"])
    assert len(watched(forum, asked.principal, "thread_watch")) == 1


def test_t005_t006_t017_posts_belong_to_the_author_that_wrote_them_before_and_after_a_compaction(forum: Forum) -> None:
    ann = register(forum, "ann")
    subforum(forum, ann, "lab")
    opened = thread(forum, ann, "lab")
    heir = child(forum, ann, "compaction", "heir")
    reply(forum, heir, opened["threadId"])
    reply(forum, ann, opened["threadId"])

    posts = forum.content.posts(ann.principal, opened["threadId"])["posts"]
    assert [post["author"]["name"] for post in posts] == ["ann", "heir", "ann"]
    assert {post["author"]["sessionId"] for post in posts} == {ann.session}
    for author in (ann, heir):
        assert forum.events.page(author.principal, start="beginning", scope="involved")["events"] == []


def test_a_compaction_child_has_nothing_to_inherit(forum: Forum) -> None:
    ann = register(forum)
    request = child_request("bob", "compaction", inherit=Inherit(subforums=True))

    refusal(
        "invalid_argument",
        lambda: forum.identities.create_child(ann.principal, ann.id, request, command=command()),
        field="body.inherit",
    )


def test_a_parent_has_at_most_256_children(forum: Forum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILDREN_PER_PARENT", 2)
    monkeypatch.setattr(limits, "CONTEXTS_PER_SESSION", 2)
    ann, bob = register(forum), register(forum)
    child(forum, ann), child(forum, ann)
    child(forum, bob, "compaction")

    for person, kind in ((ann, "spawn"), (bob, "compaction")):
        request = child_request("x", kind)
        refusal(
            "invalid_argument",
            lambda person=person, request=request: forum.identities.create_child(
                person.principal, person.id, request, command=command()
            ),
            field="body.cause",
        )
    child(forum, bob, "spawn")


def test_order_of_creation_does_not_depend_on_the_clock(forum_factory: ForumFactory) -> None:
    times = iter(range(10**12, 0, -3_600_000))
    forum = forum_factory(clock=lambda: next(times))
    ann = register(forum)
    made = [child(forum, ann) for _ in range(5)]

    listed = forum.identities.children(ann.principal, ann.id)["items"]
    assert [item["id"] for item in listed] == [person.id for person in made]


def watched(forum: Forum, principal: Principal, table: str) -> list[tuple[str, int]]:
    """Target and baseline of each row of a session."""
    query = f"SELECT * FROM {table} WHERE session_id = ? ORDER BY 2"
    return forum.database.read(lambda db: [row[1:] for row in db.execute(query, (principal.session_id,))])
