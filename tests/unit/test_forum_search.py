"""Search: a text is words and never syntax, every filter narrows, excerpts are bounded and cut between characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from side_agents.errors import ForumError
from side_agents.forum import limits
from side_agents.forum.requests import PostContent, SearchRequest
from side_agents.forum.service.forum import Forum
from side_agents.forum.service.search import excerpt
from tests.support.forum import (
    ForumFactory,
    Person,
    forum,
    forum_factory,
    refusal,
    register,
    reply,
    subforum,
    thread,
)

__all__ = ["forum", "forum_factory"]

Find = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ann(forum: Forum) -> Person:
    person = register(forum, "ann")
    subforum(forum, person, "lab")
    return person


@pytest.fixture
def find(forum: Forum, ann: Person) -> Find:
    def search(text: str | None = None, **more: Any) -> list[dict[str, Any]]:
        hits: list[dict[str, Any]] = forum.search.find(ann.principal, SearchRequest(text=text, **more))["hits"]
        return hits

    return search


def found_or_code(find: Find, text: str, **more: Any) -> list[str] | str:
    """The ids of the posts that were found, or the code of the refusal."""
    try:
        return posts_of(find(text, **more))
    except ForumError as error:
        return error.forum_code


def posts_of(hits: list[dict[str, Any]]) -> list[str]:
    return [hit["postId"] for hit in hits]


def test_all_words_must_be_there_in_any_order_and_case(forum: Forum, ann: Person, find: Find) -> None:
    made = thread(forum, ann, "lab", body="The Parser drops the last token.")
    reply(forum, ann, made["threadId"], body="Which parser?")
    assert posts_of(find("token PARSER")) == [made["postId"]]
    assert len(find("parser")) == 2
    assert find("parser missing") == []
    assert find("pars") == [], "words, not parts of words"


def test_d17_a_hit_is_a_reference_with_an_excerpt(forum: Forum, ann: Person, find: Find) -> None:
    made = thread(forum, ann, "lab", title="On parsers", body="It drops a token.")
    (hit,) = find("token")
    assert hit.pop("score") > 0
    assert hit == {
        "kind": "thread",
        "threadId": made["threadId"],
        "postId": made["postId"],
        "subforum": "lab",
        "title": "On parsers",
        "excerpt": "It drops a token.",
        "excerptTruncated": False,
        "authorName": "ann",
        "createdAt": made["createdAt"],
    }


def test_an_opening_post_is_its_thread_unless_only_posts_are_asked_for(forum: Forum, ann: Person, find: Find) -> None:
    made = thread(forum, ann, "lab", title="Zebra", body="About a horse.", metadata={"k": "thread"})
    answer = reply(forum, ann, made["threadId"], body="A zebra is no horse.", metadata={"k": "post"})

    def kinds(*args: Any, **more: Any) -> list[tuple[str, str]]:
        return sorted((hit["kind"], hit["postId"]) for hit in find(*args, **more))

    opening, second = made["postId"], answer["postId"]
    assert kinds("zebra") == kinds("zebra", kinds=("post", "thread")) == [("post", second), ("thread", opening)]
    assert kinds("zebra horse", kinds=("thread",)) == [("thread", opening)], "title and body together"
    assert kinds("zebra", kinds=("post",)) == [("post", second)], "a title is no part of a post"
    assert kinds("horse", kinds=("post",)) == sorted([("post", opening), ("post", second)])
    assert kinds(metadata={"k": "thread"}) == [("thread", opening)]
    assert kinds(metadata={"k": "thread"}, kinds=("post",)) == []
    refusal("invalid_argument", lambda: find("zebra", kinds=()), field="body.kinds")


def test_filters_narrow_by_subforum_author_and_time(forum_factory: ForumFactory) -> None:
    times = [1_000_000]
    forum = forum_factory(clock=lambda: times[0])
    ann, bob = register(forum, "ann"), register(forum, "bob")
    for key in ("lab", "art"):
        subforum(forum, ann, key)
    early = thread(forum, ann, "lab", body="needle")["postId"]
    times[0] = 5_000_000
    late = thread(forum, bob, "lab", body="needle")["postId"]
    other = thread(forum, ann, "art", body="needle")["postId"]

    def find(**more: Any) -> set[str]:
        request = SearchRequest(text="needle", **more)
        return set(posts_of(forum.search.find(ann.principal, request)["hits"]))

    assert find() == {early, late, other}
    assert find(subforum="lab") == {early, late}
    assert find(author="bob") == find(author=bob.id) == {late}
    assert find(created_after="1970-01-01T01:00:00Z") == {late, other}
    assert find(created_after="1970-01-01T01:00:00Z", subforum="lab", author="ann") == set()
    for wrong, field in (({"author": "nobody"}, "body.author"), ({"subforum": "none"}, None)):
        refusal("not_found", lambda wrong=wrong: find(**wrong), field=field)
    for time in ("yesterday", "", "9999999"):
        refusal("invalid_argument", lambda time=time: find(created_after=time), field="body.createdAfter")


def test_metadata_alone_finds_the_newest_first_and_all_of_it_must_match(forum: Forum, ann: Person, find: Find) -> None:
    opened = thread(
        forum, ann, "lab", metadata={"kind": "bug"}, post=PostContent(body="b", metadata={"area": {"x": 1}})
    )
    second = reply(forum, ann, opened["threadId"], body="b", metadata={"kind": "bug", "tags": ["p", "q"]})
    assert posts_of(find(metadata={"kind": "bug"})) == [second["postId"], opened["postId"]]
    assert posts_of(find(metadata={"kind": "bug", "tags": "q"})) == [second["postId"]]
    assert posts_of(find(metadata={"kind": "bug", "area": {"x": 1}})) == [opened["postId"]]
    assert posts_of(find("b", metadata={"tags": ["q", "p"]})) == [second["postId"]]
    assert find(metadata={"kind": "bug", "tags": "r"}) == []
    assert find(metadata={"kind": "bug"})[0]["score"] == 0


def test_a_better_match_comes_first_and_a_title_weighs_more(forum: Forum, ann: Person, find: Find) -> None:
    filler = " ".join(["word"] * 60)
    weak = thread(forum, ann, "lab", title="Other", body=f"{filler} zebra {filler}")
    strong = thread(forum, ann, "lab", title="Zebra", body=filler)
    for _ in range(5):
        reply(forum, ann, weak["threadId"], body=filler)
    hits = find("zebra")
    assert posts_of(hits) == [strong["postId"], weak["postId"]]
    assert hits[0]["score"] > hits[1]["score"]


def test_t174_a_search_has_at_most_as_many_hits_as_are_asked_for(forum: Forum, ann: Person, find: Find) -> None:
    opened = thread(forum, ann, "lab", body="needle")["threadId"]
    for _ in range(25):
        reply(forum, ann, opened, body="needle")
    assert (len(find("needle")), len(find("needle", limit=1)), len(find("needle", limit=50))) == (20, 1, 26)
    for limit in (0, 51):
        refusal("invalid_argument", lambda limit=limit: find("needle", limit=limit), field="body.limit")


@pytest.mark.parametrize("text", ["", "   ", "--", '"', "***", "()", "\n\t", "^ : -"])
def test_a_text_without_a_letter_or_digit_is_an_empty_query(forum: Forum, find: Find, text: str) -> None:
    refusal("empty_query", lambda: find(text))
    refusal("empty_query", lambda: find(text, metadata={"k": "v"}))


def test_nothing_to_look_for_is_an_empty_query(find: Find) -> None:
    for metadata in (None, {}, {"k": []}):
        refusal("empty_query", lambda metadata=metadata: find(metadata=metadata))


def test_a_query_has_at_most_512_bytes(find: Find) -> None:
    assert find("é" * 256) == []
    refusal("invalid_argument", lambda: find("é" * 256 + "x"), field="body.text")
    refusal("invalid_argument", lambda: find("a\x00b"), field="body.text")


@pytest.mark.parametrize(
    "text",
    [
        "token OR zzz",
        "NOT zzz",
        "body:token zzz",
        "tok*",
        '"token" zzz',
        "NEAR(token, 2)",
        "{title}: token zzz",
        "%",
        "_",
    ],
)
def test_d15_a_text_is_never_syntax(forum: Forum, ann: Person, find: Find, text: str) -> None:
    thread(forum, ann, "lab", body="one token here")
    assert found_or_code(find, text) in ([], "empty_query")


def test_words_with_signs_are_found_as_they_are_written(forum: Forum, ann: Person, find: Find) -> None:
    made = thread(forum, ann, "lab", body="Call foo_bar.baz() in src/main.c; it's naïve about 日本語 and C++.")[
        "postId"
    ]
    for text in ("foo_bar", "foo_bar.baz()", "src/main.c", "it's", "naive", "NAÏVE", "日本語", "c++", "-- foo_bar"):
        assert posts_of(find(text)) == [made], text
    assert find("foo") == [], "an identifier is one word"
    assert find("main/src") == [], "what is written together is found together"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60))
def test_any_text_is_searched_or_refused_by_name(find: Find, text: str) -> None:
    assert found_or_code(find, text) in ([], "empty_query", "invalid_argument")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40))
def test_a_post_is_found_by_every_word_of_its_own(forum: Forum, ann: Person, find: Find, body: str) -> None:
    made = thread(forum, ann, "lab", body=body)["postId"]
    for word in body.split():
        found = found_or_code(find, word, limit=50)
        assert found == "empty_query" or made in found or len(found) == 50


def test_t208_an_excerpt_has_at_most_400_characters_around_the_first_word(
    forum: Forum, ann: Person, find: Find
) -> None:
    thread(forum, ann, "lab", body="lead " * 300 + "needle " + "tail " * 300)
    (hit,) = find("needle")
    assert len(hit["excerpt"]) == limits.EXCERPT_CHARACTERS
    assert "needle" in hit["excerpt"]
    assert hit["excerptTruncated"]


@pytest.mark.parametrize("length", [399, 400, 401])
def test_t208_an_excerpt_says_whether_it_is_everything(length: int) -> None:
    text, truncated = excerpt("é" * length, [["é"]])
    assert (len(text), truncated) == (min(length, 400), length > 400)


@pytest.mark.parametrize("cluster", ["e\u0301", "👩\u200d👩\u200d👧", "☝\ufe0f", "a\u0323\u0307"])
def test_t208_an_excerpt_never_tears_a_character(cluster: str) -> None:
    for shift in range(8):
        body = "x" * shift + cluster * 500
        text, truncated = excerpt(body, [])
        assert truncated
        assert 380 < len(text) <= 400
        assert (text[shift:]).replace(cluster, "") == ""


@settings(max_examples=200, deadline=None)
@given(body=st.text(max_size=900), word=st.text(max_size=5))
def test_t208_an_excerpt_is_always_a_bounded_part_of_the_body(body: str, word: str) -> None:
    text, truncated = excerpt(body, [[word]] if word else [])
    assert text in body
    assert len(text) <= limits.EXCERPT_CHARACTERS
    assert truncated == (text != body)
    assert text or not body


def test_hostile_combining_signs_do_not_empty_an_excerpt() -> None:
    text, _ = excerpt("a" + "\u0301" * 2000, [])
    assert 300 < len(text) <= 400
