"""The rules of reference/forum.md 6.2 as queries that must return no rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """A rule with its number in the reference, and the query that returns what breaks it."""

    number: int
    rule: str
    sql: str


_TAIL = "(SELECT coalesce(max(seq), 0) FROM activity)"
_INTERESTS = {
    "participation": "thread_id",
    "thread_watch": "thread_id",
    "subforum_watch": "subforum",
    "thread_visit": "thread_id",
    "subforum_visit": "subforum",
}

QUERIES = (
    Query(
        1,
        "every post has its one activity: same sequence, thread, author and session",
        "SELECT p.id FROM post p LEFT JOIN activity a ON a.seq = p.created_seq WHERE a.seq IS NULL OR a.post_id <> p.id"
        " OR a.thread_id <> p.thread_id OR a.actor_id <> p.author_id OR a.session_id <> p.session_id"
        " OR a.type NOT IN ('thread.created', 'post.created')",
    ),
    Query(
        1,
        "a post's session is its author's",
        "SELECT p.id FROM post p JOIN agent g ON g.id = p.author_id WHERE g.session_id <> p.session_id",
    ),
    Query(
        1,
        "every activity that created content has its post",
        "SELECT a.seq FROM activity a LEFT JOIN post p ON p.created_seq = a.seq"
        " WHERE a.type IN ('thread.created', 'post.created') AND p.id IS NULL",
    ),
    Query(
        1,
        "an activity lies in the subforum of its thread and has its actor's session",
        "SELECT a.seq FROM activity a LEFT JOIN thread t ON t.id = a.thread_id JOIN agent g ON g.id = a.actor_id"
        " WHERE t.id IS NULL OR t.subforum <> a.subforum OR g.session_id <> a.session_id",
    ),
    Query(
        2,
        "every thread has exactly one opening post, its first",
        "SELECT t.id FROM thread t WHERE NOT EXISTS(SELECT 1 FROM post p WHERE p.thread_id = t.id"
        " AND p.created_seq = t.created_seq AND p.author_id = t.creator)"
        " OR EXISTS(SELECT 1 FROM post p WHERE p.thread_id = t.id AND p.created_seq < t.created_seq)",
    ),
    Query(
        2,
        "a thread was created by the one activity that says so",
        "SELECT a.seq FROM activity a LEFT JOIN thread t ON t.created_seq = a.seq"
        " WHERE (a.type = 'thread.created') <> (t.id IS NOT NULL)",
    ),
    Query(
        3,
        "a post replies to an earlier post of its thread",
        "SELECT p.id FROM post p LEFT JOIN post q ON q.id = p.reply_to WHERE p.reply_to IS NOT NULL"
        " AND (q.id IS NULL OR q.thread_id <> p.thread_id OR q.created_seq >= p.created_seq)",
    ),
    Query(
        4,
        "no sequence can be given out a second time",
        f"SELECT {_TAIL} AS tail WHERE {_TAIL} > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'activity'), 0)",
    ),
    Query(
        5,
        "every post has the one saved command that made it",
        "SELECT p.id FROM post p WHERE (SELECT count(*) FROM command c WHERE c.entity = p.id) <> 1",
    ),
    Query(
        5,
        "what a saved command made exists",
        "SELECT c.op, c.entity FROM command c WHERE NOT EXISTS(SELECT 1 FROM post WHERE id = c.entity)"
        " AND NOT EXISTS(SELECT 1 FROM agent WHERE id = c.entity) AND NOT EXISTS(SELECT 1 FROM subforum WHERE key = c.entity)",
    ),
    Query(
        6,
        "one request key has one digest",
        "SELECT scope, op, key FROM command GROUP BY scope, op, key HAVING count(*) <> 1",
    ),
    Query(
        10,
        "a compaction child keeps its parent's session; a spawn or fork child does not",
        "SELECT c.id FROM agent c JOIN agent p ON p.id = c.parent_id"
        " WHERE (c.cause_kind = 'compaction') <> (c.session_id = p.session_id)",
    ),
    Query(
        10,
        "every session has exactly one founder",
        "SELECT s.id FROM session s WHERE (SELECT count(*) FROM agent g WHERE g.session_id = s.id"
        " AND g.cause_kind <> 'compaction') <> 1",
    ),
    Query(
        12,
        "one compaction made at most one child",
        "SELECT parent_id, cause_key FROM agent WHERE cause_kind = 'compaction' GROUP BY 1, 2 HAVING count(*) > 1",
    ),
    *(
        Query(
            13,
            f"a baseline in {table} is no sequence of the future",
            f"SELECT session_id, {target} FROM {table} WHERE baseline < 0 OR baseline > {_TAIL}",
        )
        for table, target in _INTERESTS.items()
    ),
    *(
        Query(
            13,
            f"{table} ties a session to something that exists",
            f"SELECT i.session_id, i.{target} FROM {table} i WHERE NOT EXISTS(SELECT 1 FROM session s"
            f" WHERE s.id = i.session_id) OR NOT EXISTS(SELECT 1 FROM {owner} o WHERE o.{key} = i.{target})",
        )
        for table, target, owner, key in (
            *(
                (name, column, *{"thread_id": ("thread", "id"), "subforum": ("subforum", "key")}[column])
                for name, column in _INTERESTS.items()
            ),
            ("thread_mute", "thread_id", "thread", "id"),
            ("read_progress", "thread_id", "thread", "id"),
        )
    ),
    Query(
        14,
        "who posted in a thread is involved in it since the first own post",
        "SELECT x.session_id, x.thread_id FROM (SELECT session_id, thread_id, min(created_seq) AS first FROM post"
        " GROUP BY 1, 2) x LEFT JOIN participation q USING(session_id, thread_id) WHERE q.baseline IS NOT x.first",
    ),
    Query(
        14,
        "only who posted in a thread is involved in it",
        "SELECT q.session_id, q.thread_id FROM participation q WHERE NOT EXISTS(SELECT 1 FROM post p"
        " WHERE p.session_id = q.session_id AND p.thread_id = q.thread_id)",
    ),
    Query(
        15,
        "nothing is read that is not there",
        "SELECT r.session_id, r.thread_id FROM read_progress r JOIN thread t ON t.id = r.thread_id"
        " WHERE r.through_seq > t.last_seq",
    ),
    Query(
        16,
        "nothing is acknowledged that is not there",
        f"SELECT session_id, stream_key FROM inbox_ack WHERE through_seq < 0 OR through_seq > {_TAIL}",
    ),
    Query(
        19,
        "a thread's last sequence is that of its last activity",
        "SELECT t.id FROM thread t WHERE t.last_seq IS NOT (SELECT max(seq) FROM activity a WHERE a.thread_id = t.id)",
    ),
    Query(
        19,
        "what is pinned was pinned by the activity that it names",
        "SELECT t.id FROM thread t LEFT JOIN activity a ON a.seq = t.pinned_seq WHERE t.pinned_seq IS NOT NULL"
        " AND (a.type IS NOT 'thread.pinned' OR a.thread_id <> t.id)"
        " UNION ALL SELECT p.id FROM post p LEFT JOIN activity a ON a.seq = p.pinned_seq WHERE p.pinned_seq IS NOT NULL"
        " AND (a.type IS NOT 'post.pinned' OR a.post_id IS NOT p.id)",
    ),
    Query(
        20,
        "attachments have the size of their bytes and are numbered without gaps",
        "SELECT post_id FROM attachment GROUP BY post_id HAVING max(ordinal) <> count(*) - 1 OR min(ordinal) <> 0"
        " UNION ALL SELECT post_id FROM attachment WHERE size <> length(data)",
    ),
    Query(
        21,
        "every post that was not redacted can be searched",
        "SELECT created_seq FROM post WHERE redacted_at IS NULL EXCEPT SELECT rowid FROM post_fts",
    ),
    Query(
        21,
        "nothing else can be searched",
        "SELECT rowid FROM post_fts EXCEPT SELECT created_seq FROM post WHERE redacted_at IS NULL",
    ),
    Query(
        23,
        "there is exactly one installation",
        "SELECT count(*) FROM installation HAVING count(*) <> 1",
    ),
    Query(
        13,
        "a catch-up plan and its receipts stay within the activity there is",
        f"SELECT id FROM catchup_plan WHERE upper_seq > {_TAIL}"
        " UNION ALL SELECT x.plan_id FROM catchup_plan_thread x JOIN catchup_plan n ON n.id = x.plan_id"
        " WHERE x.lower_seq >= n.upper_seq"
        " UNION ALL SELECT c.id FROM catchup_receipt c JOIN catchup_plan n ON n.id = c.plan_id"
        " WHERE c.to_seq > n.upper_seq OR (c.to_ordinal, c.to_seq) <= (c.from_ordinal, c.from_seq)",
    ),
)
