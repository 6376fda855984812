"""``forum doctor`` can see each fault that it looks for: one is planted behind the product's back for every rule."""

from __future__ import annotations

import base64

import apsw
import pytest

from side_agents.forum.requests import AttachmentInput, PostContent, ThreadRequest
from side_agents.forum.service import doctor
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import invariants
from tests.support.forum import ForumFactory, command, forum, forum_factory, json_of
from tests.support.forum_talk import Talk, talk

__all__ = ["forum", "forum_factory", "talk"]

_INTERESTS = ("participation", "thread_watch", "subforum_watch", "thread_visit", "subforum_visit")
_COMMAND = (
    "INSERT INTO command SELECT 's', 'o', 'k', digest, payload_sha256, status, result, {}, at FROM command LIMIT 1"
)

# Statement by the rule that it breaks. The forum has the posts 1 (with a file), 2 and 3 (of another session), and a plan.
FAULTS: dict[str, str] = {
    "every post has its one activity": "UPDATE activity SET actor_id = 'ag_x' WHERE seq = 2",
    "a post's session is its author's": (
        "UPDATE post SET session_id = 'as_x' WHERE created_seq = 2; UPDATE activity SET session_id = 'as_x' WHERE seq = 2"
    ),
    "every activity that created content has its post": "DELETE FROM post WHERE created_seq = 3",
    "an activity lies in the subforum of its thread": "UPDATE activity SET subforum = 'elsewhere' WHERE seq = 2",
    "every thread has exactly one opening post": "UPDATE thread SET creator = 'ag_x'",
    "a thread was created by the one activity": "UPDATE activity SET type = 'thread.created' WHERE seq = 2",
    "a post replies to an earlier post": "UPDATE post SET reply_to = id WHERE created_seq = 2",
    "no sequence can be given out a second time": "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'activity'",
    "every post has the one saved command": "DELETE FROM command WHERE op = 'create_post'",
    "what a saved command made exists": _COMMAND.format("'po_gone'"),
    "one request key has one digest": (
        "CREATE TABLE copy AS SELECT * FROM command; DROP TABLE command; ALTER TABLE copy RENAME TO command;"
        " INSERT INTO command SELECT * FROM command"
    ),
    "a compaction child keeps its parent's session": "UPDATE agent SET session_id = 'as_x' WHERE cause_kind = 'compaction'",
    "every session has exactly one founder": "INSERT INTO session VALUES('as_nobody', 0)",
    "one compaction made at most one child": (
        "DROP INDEX one_child_per_compaction; UPDATE agent SET cause_kind = 'compaction', cause_key = 'same',"
        " parent_id = 'ag_x' WHERE parent_id IS NOT NULL"
    ),
    **{
        f"a baseline in {table} is no sequence of the future": f"UPDATE {table} SET baseline = 99"
        for table in _INTERESTS
    },
    **{
        f"{table} ties a session to something that exists": f"UPDATE {table} SET session_id = session_id || 'gone'"
        for table in (*_INTERESTS, "thread_mute", "read_progress")
    },
    "who posted in a thread is involved": "UPDATE participation SET baseline = 0",
    "only who posted in a thread is involved": (
        "INSERT INTO participation SELECT id, (SELECT id FROM thread), 0 FROM session WHERE id NOT IN"
        " (SELECT session_id FROM participation) LIMIT 1"
    ),
    "nothing is read that is not there": "UPDATE read_progress SET through_seq = 99",
    "nothing is acknowledged that is not there": "UPDATE inbox_ack SET through_seq = 99",
    "a thread's last sequence": "UPDATE thread SET last_seq = 1",
    "what is pinned was pinned by the activity": "UPDATE post SET pinned_seq = 1 WHERE pinned_seq IS NOT NULL",
    "attachments have the size of their bytes": "UPDATE attachment SET ordinal = 2",
    "every post that was not redacted can be searched": "DELETE FROM post_fts WHERE rowid = 1",
    "nothing else can be searched": "INSERT INTO post_fts(rowid, title, body) VALUES(99, '', 'ghost')",
    "there is exactly one installation": "DELETE FROM installation",
    "a catch-up plan and its receipts stay within": "UPDATE catchup_plan SET upper_seq = 99",
    "the file is sound": (
        "PRAGMA ignore_check_constraints = ON; UPDATE attachment SET size = 1; PRAGMA ignore_check_constraints = OFF"
    ),
    "no row refers to one that is missing": "UPDATE subforum SET creator = 'ag_gone'",
    "the triggers that forbid changes are there": "SELECT 1",
    "attachment hashes match the bytes": "UPDATE attachment SET data = CAST('other words' AS BLOB)",
    "terms are what the metadata says": "UPDATE term SET v = 'other'",
}


@pytest.fixture
def furnished(talk: Talk) -> Forum:
    """A forum with at least one row in every table that a rule is about."""
    me, other = talk.person(), talk.person()
    file = AttachmentInput(name="a.txt", media_type="text/plain", data=base64.b64encode(b"eleven byte").decode())
    content = PostContent(body="with a file", metadata={"k": "v"}, attachments=(file,))
    request = ThreadRequest(title="T", post=content, watch=True)
    thread = json_of(talk.content.create_thread(me.principal, "general", request, command=command()))["threadId"]
    talk.reply(me, thread)
    answer = talk.reply(other, thread)
    talk.compacted(me)
    talk.spawned(me)
    api = talk.forum.interests
    api.watch_subforum(me.principal, "general")
    api.visit_subforum(me.principal, "general", observed_sequence="1")
    api.visit_thread(me.principal, thread)
    plan = talk.forum.catchup.create(me.principal, scope="all")
    talk.forum.catchup.page(me.principal, plan["planId"])
    api.mark_read(me.principal, thread, through_post_id=answer.id)
    talk.forum.events.acknowledge(me.principal, scope="involved", through_sequence="1")
    talk.forum.pins.pin_post(me.principal, answer.id)
    api.mute_thread(me.principal, thread)
    return talk.forum


def test_a_forum_in_use_is_sound(furnished: Forum) -> None:
    report = doctor.examine(furnished.database)
    assert report == {"ok": True, "rulesChecked": len(invariants.RULES), "problems": []}
    assert len(invariants.RULES) == len(FAULTS)


@pytest.mark.parametrize("rule", FAULTS)
def test_each_rule_sees_its_fault(furnished: Forum, forum_factory: ForumFactory, rule: str) -> None:
    forum_factory.close(furnished)
    connection = apsw.Connection(str(forum_factory.path()))
    connection.execute("PRAGMA foreign_keys = OFF")
    for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(FAULTS[rule])
    changed = connection.total_changes()
    found = invariants.violations(connection)
    connection.close()
    broken = [violation for violation in found if violation.rule.startswith(rule)]
    assert broken, [violation.rule for violation in found]
    assert changed or rule == "the triggers that forbid changes are there"
    assert 0 < len(broken[0].rows) <= 5


def test_the_report_shows_what_is_wrong_as_json_can_say_it(furnished: Forum, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = invariants.Violation(14, "a rule", ((b"\x00\xff", 3, None, "text"),))
    monkeypatch.setattr(invariants, "violations", lambda _connection: [broken])
    report = doctor.examine(furnished.database)
    monkeypatch.undo()
    assert not report["ok"]
    assert report["problems"] == [{"invariant": 14, "rule": "a rule", "rows": [["00ff", 3, None, "text"]]}]


def test_invariant_18_what_is_immutable_cannot_be_changed_even_by_sql(furnished: Forum) -> None:
    for statement in (
        "UPDATE activity SET actor_id = 'ag_x'",
        "DELETE FROM activity",
        "DELETE FROM post",
        "UPDATE post SET provenance = '{}'",
        "UPDATE post SET author_id = 'ag_x'",
        "UPDATE agent SET provenance = '{}'",
        "UPDATE command SET result = x''",
        "DELETE FROM command",
        "UPDATE read_progress SET through_seq = through_seq - 1",
        "UPDATE inbox_ack SET through_seq = through_seq - 1",
    ):
        with pytest.raises(apsw.ConstraintError):
            furnished.database.write(lambda connection, statement=statement: connection.execute(statement))
