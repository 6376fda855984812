"""No hot question reads the whole of a table that grows: the plans of SQLite, pinned (reference/forum.md 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from side_agents.forum.requests import SearchRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.store import posts, search, subforums, threads
from side_agents.forum.store.search import Query
from side_agents.forum.store.threads import Filter
from tests.support.forum import Person, forum, forum_factory, register, reply, subforum, thread

__all__ = ["forum", "forum_factory"]

TERMS = (("k", "v"), ("l", "w"))
GROWING = {"activity", "post", "p", "o", "t", "term", "m", "e", "agent", "g", "command", "attachment", "a"}
Question = Callable[[Any, str, str], object]
QUESTIONS: dict[str, Question] = {
    "threads": lambda db, me, _: threads.newest(db, me, Filter(), before=9, limit=5),
    "threads of a subforum": lambda db, me, _: threads.newest(db, me, Filter(subforum="lab"), before=9, limit=5),
    "threads watched": lambda db, me, _: threads.newest(db, me, Filter(relation="watching"), before=9, limit=5),
    "threads involved": lambda db, me, _: threads.newest(db, me, Filter(relation="involved"), before=9, limit=5),
    "threads unread": lambda db, me, _: threads.newest(db, me, Filter(relation="unread"), before=9, limit=5),
    "threads by metadata": lambda db, me, _: threads.newest(db, me, Filter(terms=TERMS), before=9, limit=5),
    "recent threads": lambda db, me, _: threads.recent(db, me, None, 5),
    "recent threads of a subforum": lambda db, me, _: threads.recent(db, me, "lab", 5),
    "one thread": threads.find,
    "subforums": lambda db, me, _: subforums.page(db, me, after="", limit=5),
    "posts": lambda db, _, key: list(posts.between(db, key, after=0, through=9)),
    "one post": lambda db, _, key: posts.find(db, key),
    "place of a post": lambda db, _, key: posts.place(db, key),
    "last turns": lambda db, _, key: posts.last_turns(db, key, 10),
    "search": lambda db, _me, _: search.find(db, Query(phrases=[["a"]], limit=5)),
    "search in a subforum": lambda db, _me, _: search.find(
        db, Query(phrases=[["a"], ["b"]], subforum="lab", author="ag", created_after=1, terms=TERMS, limit=5)
    ),
    "search by metadata": lambda db, _me, _: search.find(db, Query(terms=TERMS, limit=5)),
    "search posts by metadata": lambda db, _me, _: search.find(db, Query(terms=TERMS, kind="post", limit=5)),
}
# A listing of all threads goes through an index from its end and stops at the page's last row.
BY_INDEX_FROM_ITS_END = {
    "threads": "SCAN t USING INDEX",
    "recent threads": "SCAN t USING INDEX thread_recent",
}


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    for _ in range(3):
        made = thread(forum, person, "lab", metadata={"k": "v"}, watch=True)
        reply(forum, person, made["threadId"], metadata={"k": "v"})
    return person


def plan_of(forum: Forum, question: Question, me: str) -> list[str]:
    """Every step that SQLite plans for the statements that a question runs."""
    steps: list[str] = []

    def query(connection: apsw.Connection) -> None:
        statements: list[tuple[str, Any]] = []

        def trace(_: Any, sql: str, bindings: Any) -> bool:
            statements.append((sql, bindings))
            return True

        thread_id = connection.execute("SELECT id FROM thread LIMIT 1").get
        connection.exec_trace = trace
        try:
            question(connection, me, thread_id)
        finally:
            connection.exec_trace = None
        assert statements, "a question without a statement proves nothing"
        for sql, bindings in statements:
            steps.extend(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings))

    forum.database.read(query)
    return steps


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_hot_question_scans_a_table_that_grows(forum: Forum, ann: Person, name: str) -> None:
    steps = plan_of(forum, QUESTIONS[name], ann.session)
    allowed = BY_INDEX_FROM_ITS_END.get(name, "-")
    scans = [step for step in steps if step.startswith("SCAN") and step.split()[1] in GROWING]
    assert [step for step in scans if not step.startswith(allowed)] == [], steps


def test_listings_by_creation_and_by_recency_need_no_sorting(forum: Forum, ann: Person) -> None:
    for name in ("threads", "threads of a subforum", "recent threads", "recent threads of a subforum", "posts"):
        assert not [step for step in plan_of(forum, QUESTIONS[name], ann.session) if "TEMP B-TREE" in step], name


def test_unread_posts_are_counted_without_reading_posts(forum: Forum, ann: Person) -> None:
    steps = [step for step in plan_of(forum, QUESTIONS["one thread"], ann.session) if step.startswith("SEARCH p ")]
    assert steps
    assert all("COVERING INDEX post_thread" in step for step in steps), steps


def test_the_questions_of_this_module_find_something(forum: Forum, ann: Person) -> None:
    assert len(forum.search.find(ann.principal, SearchRequest(metadata={"k": "v"}))["hits"]) == 6
    assert len(forum.content.threads(ann.principal, relation="watching", meta={"k": "v"})["items"]) == 3
