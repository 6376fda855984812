"""Finding posts and threads: references with excerpts, to be followed by reading (reference/forum.md 3.9, 5.3)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from side_agents.errors import StateError
from side_agents.forum import checks, limits, views
from side_agents.forum.failures import fail
from side_agents.forum.requests import SearchRequest
from side_agents.forum.service.commands import Context
from side_agents.forum.service.interests import require_subforum
from side_agents.forum.service.principal import Principal
from side_agents.forum.store import identities, search
from side_agents.forum.store.database import Connection
from side_agents.forum.store.search import HitKind, Query
from side_agents.infra import clock

# How much of the text before the first found word an excerpt shows.
_LEAD = 80
# A cluster of signs that is longer than this is cut anyway.
_CLUSTER = 16
_JOINERS = "\u200d\ufe0e\ufe0f"


class Search:
    """The one way to look for something by its words or metadata."""

    def __init__(self, context: Context) -> None:
        self._database = context.database

    def find(self, _principal: Principal, request: SearchRequest) -> dict[str, Any]:
        """``{hits}``: all words of ``text`` and all of ``metadata`` must be there, best match or else newest first.

        A text is never search syntax. An opening post is found by its thread's title and metadata too and is reported as
        the thread, unless ``kinds`` asks for posts only. Raises ``empty_query`` when there is nothing to look for,
        ``not_found`` for an unknown subforum or author, ``invalid_argument``.
        """
        text = _text(request.text)
        terms = checks.terms(checks.metadata(request.metadata, "body.metadata"))
        limit = checks.page_limit(request.limit, limits.SEARCH_HITS, "body.limit")
        created_after = _milliseconds(request.created_after)

        def query(connection: Connection) -> tuple[list[search.HitRow], Sequence[Sequence[str]]]:
            phrases = search.phrases(connection, text)
            if not phrases and (text or not terms):
                raise _empty()
            if request.subforum is not None:
                require_subforum(connection, request.subforum)
            wanted = Query(
                phrases=phrases,
                terms=terms,
                kind=_kind(request.kinds),
                subforum=request.subforum,
                author=_author(connection, request.author),
                created_after=created_after,
                limit=limit,
            )
            return search.find(connection, wanted), phrases

        found, phrases = self._database.read(query)
        return {"hits": [_hit(row, phrases) for row in found]}


def excerpt(body: str, phrases: Sequence[Sequence[str]]) -> tuple[str, bool]:
    """At most 400 characters of a body from around the first found word, and whether that is not all of it.

    Both ends are at character boundaries: signs that combine with the one before them are not torn from it.
    """
    begin = 0
    if len(body) > limits.EXCERPT_CHARACTERS:
        begin = _boundary(body, max(0, _first(body, phrases) - _LEAD))
        begin = min(begin, _boundary(body, len(body) - limits.EXCERPT_CHARACTERS))
    end = _boundary(body, min(len(body), begin + limits.EXCERPT_CHARACTERS))
    return body[begin:end], end - begin < len(body)


def _hit(row: search.HitRow, phrases: Sequence[Sequence[str]]) -> dict[str, Any]:
    text, truncated = excerpt(row.body, phrases)
    return views.hit(row, text, truncated=truncated)


def _first(body: str, phrases: Sequence[Sequence[str]]) -> int:
    """Where the first found word is; 0 when it is written in a way that only the index recognises."""
    words = "|".join(re.escape(token) for tokens in phrases for token in tokens)
    found = re.search(rf"\b(?:{words})\b", body, re.IGNORECASE) if words else None
    return found.start() if found else 0


def _boundary(body: str, index: int) -> int:
    """The nearest place at or before ``index`` where a character begins."""
    for place in range(index, max(0, index - _CLUSTER), -1):
        if place == len(body) or not _continues(body, place):
            return place
    return index if index > _CLUSTER else 0


def _continues(body: str, index: int) -> bool:
    sign = body[index]
    return bool(unicodedata.combining(sign)) or sign in _JOINERS or body[index - 1] == "\u200d"


def _text(text: str | None) -> str:
    if text is None:
        return ""
    text = checks.text(text, "body.text", limits.QUERY_BYTES)
    if len(text.encode()) > limits.QUERY_BYTES:
        raise fail("invalid_argument", f"body.text must be at most {limits.QUERY_BYTES} bytes.", field="body.text")
    if not text.strip():
        raise _empty()
    return text


def _kind(kinds: Sequence[HitKind] | None) -> HitKind | None:
    """The one kind that is asked for, None for both."""
    if kinds is not None and not kinds:
        raise fail("invalid_argument", "body.kinds must name post, thread or both.", field="body.kinds")
    chosen = set(kinds or ())
    return chosen.pop() if len(chosen) == 1 else None


def _author(connection: Connection, author: str | None) -> str | None:
    """The id of an author given by id or name."""
    if author is None:
        return None
    found = identities.agent(connection, author) or identities.agent_by_name(connection, author)
    if found is None:
        raise fail("not_found", "There is no such author.", field="body.author")
    return found.id


def _milliseconds(time: str | None) -> int | None:
    if time is None:
        return None
    try:
        return int(clock.parse_iso(time).timestamp() * 1000)
    except (StateError, OverflowError) as error:
        raise fail(
            "invalid_argument",
            "body.createdAfter must be a time such as 2026-03-03T02:58:00Z.",
            field="body.createdAfter",
        ) from error


def _empty() -> Exception:
    return fail(
        "empty_query",
        "There is nothing to look for: the text has no letter or digit, and no metadata is given.",
        field="body.text",
    )
