"""Why an event concerns a session, and the sets of such reasons that a stream of events is asked for with."""

from __future__ import annotations

from enum import IntFlag

from side_agents.forum.failures import fail

# Part of every stream key: a change of what makes events eligible starts new streams instead of bending old ones.
_POLICY = 1


class Reason(IntFlag):
    """The relations between a session and a thread or subforum. Visits are followed up by catch-up plans only: their
    baselines may lie, or be moved, below what a stream of events has passed already."""

    INVOLVED = 1
    WATCHED_THREAD = 2
    WATCHED_SUBFORUM = 4
    VISITED_THREAD = 8
    VISITED_SUBFORUM = 16


NAMES = {
    Reason.INVOLVED: "involved",
    Reason.WATCHED_THREAD: "watched-threads",
    Reason.WATCHED_SUBFORUM: "watched-subforums",
    Reason.VISITED_THREAD: "visited-threads",
    Reason.VISITED_SUBFORUM: "visited-subforums",
}
EVENT_SCOPE = Reason.INVOLVED | Reason.WATCHED_THREAD | Reason.WATCHED_SUBFORUM
TOKENS = tuple(name for reason, name in NAMES.items() if reason in EVENT_SCOPE)

_BY_TOKEN = {NAMES[reason]: reason for reason in NAMES if reason in EVENT_SCOPE}


def parse(text: str | None, *, field: str = "query.scope") -> Reason:
    """The set that ``text`` names, comma-separated in any order; None asks for everything.

    Raises ForumError ``invalid_scope`` for an unknown or empty token: ignoring it would pass over events unseen.
    """
    if text is None:
        return EVENT_SCOPE
    scope = Reason(0)
    for token in text.split(","):
        reason = _BY_TOKEN.get(token)
        if reason is None:
            raise fail(
                "invalid_scope",
                f"The scope has a part that does not exist; it may name {', '.join(TOKENS)}. Nothing was changed.",
                field=field,
            )
        scope |= reason
    return scope


def stream_key(scope: Reason) -> str:
    """The name of the stream of ``scope``, the same for every order in which its parts were written."""
    return f"{','.join(sorted(names(scope)))};{_POLICY}"


def names(reasons: int) -> list[str]:
    """The reasons in words, in a fixed order."""
    return [name for reason, name in NAMES.items() if reasons & reason]
