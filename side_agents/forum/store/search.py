"""Full-text search over posts (reference/forum.md 3.9).

The index holds one entry for each post that is not redacted, under its sequence; an opening post's entry has the thread's
title too. The index keeps no text of its own, so excerpts are cut from the stored body by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import apsw

if TYPE_CHECKING:
    from apsw import Connection

HitKind = Literal["post", "thread"]

# What weighs how much when hits are ranked: a word in the title, a word in the body.
_RANK = "bm25(post_fts, 4.0, 1.0)"
# As in the table's definition.
_TOKENIZER = ("unicode61", ["tokenchars", "_"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to look for; all conditions hold together.

    ``phrases`` are the token sequences that ``phrases`` makes of a text; ``kinds`` None stands for both: an opening post is
    then reported as its thread. Asked for posts only, opening posts are posts, found by their body alone.
    """

    phrases: Sequence[Sequence[str]] = ()
    terms: Sequence[tuple[str, str]] = ()
    kind: HitKind | None = None
    subforum: str | None = None
    author: str | None = None
    created_after: int | None = None
    limit: int


@dataclass(frozen=True, slots=True)
class HitRow:
    """A find; ``score`` grows with the match and is 0 where nothing was ranked."""

    kind: HitKind
    thread_id: str
    post_id: str
    subforum: str
    title: str
    body: str
    author_name: str
    created_at: int
    score: float


def index(db: Connection, sequence: int, *, title: str, body: str) -> None:
    """Make a post findable; ``title`` is empty for a reply."""
    db.execute("INSERT INTO post_fts(rowid, title, body) VALUES(?, ?, ?)", (sequence, title, body))


def drop(db: Connection, sequence: int) -> None:
    """Make a post unfindable."""
    db.execute("DELETE FROM post_fts WHERE rowid = ?", (sequence,))


def purge(db: Connection) -> None:
    """Rewrite the index so that the words of dropped entries are not in it any more; takes time with its size."""
    db.execute("INSERT INTO post_fts(post_fts) VALUES('optimize')")


def phrases(db: Connection, text: str) -> list[list[str]]:
    """The words of a text, each as the tokens that the index has for it; words without any are left out."""
    tokenize = db.fts5_tokenizer(*_TOKENIZER)
    found = (
        tokenize(word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
        for word in text.split()
    )
    as_text = ([str(token) for token in tokens] for tokens in found)
    return [tokens for tokens in as_text if tokens]


def find(db: Connection, query: Query) -> list[HitRow]:
    """The best hits of a text, or the newest posts with the metadata; at most ``query.limit``."""
    return [HitRow(*row) for row in db.execute(find_sql(query), _named(query))]


def find_sql(query: Query) -> str:
    """The query behind ``find``; its shape depends on which conditions there are.

    The inner query chooses and ranks by sequence, and looks beyond the index only for conditions that ask for it; only what
    is chosen is read with its text. Ties go to the newer post, so that an answer is always in the same order.
    """
    kind = "'post'" if query.kind == "post" else "iif(p.created_seq = t.created_seq, 'thread', 'post')"
    # The score is rounded for the eye.
    return (
        f"SELECT {kind}, p.thread_id, p.id, t.subforum, t.title, p.body, g.name, p.created_at, round(abs(h.rank), 6)"
        f" FROM ({_chosen(query)} ORDER BY rank, seq DESC LIMIT :limit) h"
        " CROSS JOIN post p ON p.created_seq = h.seq CROSS JOIN thread t ON t.id = p.thread_id"
        " CROSS JOIN agent g ON g.id = p.author_id ORDER BY h.rank, h.seq DESC"
    )


def _chosen(query: Query) -> str:
    """Sequences and ranks of all that meets the conditions, from the text index or else from the first metadata term."""
    terms = [_having(query, index) for index in range(len(query.terms))]
    if query.phrases:
        seq, rank, source, conditions = "post_fts.rowid", _RANK, "post_fts", ["post_fts MATCH :match"]
    else:
        seq, rank, source, conditions = "c.seq", "0.0", f"({terms.pop(0)}) c", []
    conditions += [f"{seq} IN ({sequences})" for sequences in terms]
    beyond = _beyond_the_index(query)
    if beyond:
        source += f" CROSS JOIN post p ON p.created_seq = {seq} CROSS JOIN thread t ON t.id = p.thread_id"
    where = " AND ".join([*conditions, *beyond])
    return f"SELECT {seq} AS seq, {rank} AS rank FROM {source}{f' WHERE {where}' if where else ''}"


def _beyond_the_index(query: Query) -> list[str]:
    """Conditions on the post and its thread."""
    asked = {
        "p.created_seq = t.created_seq": query.kind == "thread",
        "t.subforum = :subforum": query.subforum is not None,
        "p.author_id = :author": query.author is not None,
        "p.created_at > :created_after": query.created_after is not None,
    }
    return [condition for condition, is_asked in asked.items() if is_asked]


def _having(query: Query, index: int) -> str:
    """The sequences of what has a term: posts by their own, opening posts by their thread's too."""
    term = f"m.k = :k{index} AND m.v = :v{index}"
    posts = (
        f"SELECT o.created_seq AS seq FROM term m CROSS JOIN post o ON o.id = m.entity WHERE {term} AND m.kind = 'post'"
    )
    threads = (
        "SELECT o.created_seq AS seq FROM term m CROSS JOIN thread o ON o.id = m.entity"
        f" WHERE {term} AND m.kind = 'thread'"
    )
    return posts if query.kind == "post" else f"{posts} UNION {threads}"


def _named(query: Query) -> dict[str, object]:
    words = " AND ".join('"' + " ".join(tokens) + '"' for tokens in query.phrases)
    terms = {
        f"{part}{index}": text for index, pair in enumerate(query.terms) for part, text in zip("kv", pair, strict=True)
    }
    return {
        "match": f"{{body}} : ({words})" if query.kind == "post" else words,
        "subforum": query.subforum,
        "author": query.author,
        "created_after": query.created_after,
        "limit": query.limit,
        **terms,
    }
