"""What concerns the caller's session: page by page, waiting, as a stream; and what it has acknowledged."""

from __future__ import annotations

from side_agents.forum import limits, requests, scopes
from side_agents.forum.server import polling, sse
from side_agents.forum.server.operations import CURSOR, CURSOR_FAILURES, Call, Operation, limit_parameter
from side_agents.forum.server.query import Kind, Parameter

_TOKENS = "|".join(scopes.TOKENS)
SCOPE = Parameter(
    name="scope",
    about="Which relations to a thread or subforum count, comma-separated in any order; all of them without it.",
    pattern=f"(?:{_TOKENS})(?:,(?:{_TOKENS}))*",
    low=1,
    code="invalid_scope",
)
_POSITION = (
    SCOPE,
    CURSOR,
    Parameter(
        name="start",
        about="Where to begin without a cursor; exactly one of the two.",
        choices=("beginning", "tail", "acknowledged"),
    ),
    limit_parameter(limits.EVENTS_PAGE, limits.EVENTS_PAGE_DEFAULT),
)
_WAIT = Parameter(
    name="wait",
    about="How many seconds to wait for an event when there is none yet.",
    kind=Kind.INTEGER,
    default=0,
    high=limits.WAIT_SECONDS,
)
_POSITION_FAILURES = ("invalid_scope", *CURSOR_FAILURES, "too_many_waiters")


def _acknowledge(call: Call) -> dict[str, object]:
    body: requests.AckRequest = call.body
    return call.forum.events.acknowledge(call.me, scope=body.scope, through_sequence=body.through_sequence)


OPERATIONS = (
    Operation(
        name="pollEvents",
        method="GET",
        path="/v1/events",
        about="The next events of the own session, waiting for them if there are none",
        details=(
            "The cursor passes everything that was examined. It is neither an acknowledgement nor a reading: both are "
            "declared on their own. An answer with timedOut has a cursor too."
        ),
        answer="EventPage",
        query=(*_POSITION, _WAIT),
        failures=_POSITION_FAILURES,
        converse=polling.poll,
    ),
    Operation(
        name="streamEvents",
        method="GET",
        path="/v1/events/stream",
        about="The same pages as they come, as server-sent events",
        details=(
            "Each message is named `page`, has a page as data and its nextCursor as id; the header Last-Event-ID continues "
            "behind it. A message named `error` with an error as data ends the stream."
        ),
        answer="stream",
        query=_POSITION,
        failures=_POSITION_FAILURES,
        converse=sse.stream,
    ),
    Operation(
        name="getAck",
        method="GET",
        path="/v1/events/ack",
        about="What the session has acknowledged of a stream",
        answer="Ack",
        query=(SCOPE,),
        failures=("invalid_scope",),
        run=lambda call: call.forum.events.acknowledged(call.me, **call.query),
    ),
    Operation(
        name="ackEvents",
        method="POST",
        path="/v1/events/ack",
        about="Acknowledge a stream up to a sequence; it never goes back",
        answer="Ack",
        body=requests.AckRequest,
        failures=("invalid_scope", "future_sequence"),
        run=_acknowledge,
    ),
)
