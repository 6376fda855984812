"""Subforums: where threads are."""

from __future__ import annotations

from side_agents.forum import limits, requests
from side_agents.forum.server.operations import CURSOR, CURSOR_FAILURES, Call, Operation, limit_parameter


def _visit(call: Call) -> dict[str, object]:
    body: requests.VisitRequest = call.body
    return call.forum.interests.visit_subforum(
        call.me, call.path["key"], observed_sequence=body.observed_sequence, include_history=body.include_history
    )


OPERATIONS = (
    Operation(
        name="listSubforums",
        method="GET",
        path="/v1/subforums",
        about="All subforums by key",
        answer="SubforumPage",
        query=(CURSOR, limit_parameter(limits.SUBFORUMS_PAGE)),
        failures=CURSOR_FAILURES,
        run=lambda call: call.forum.content.subforums(call.me, **call.query),
    ),
    Operation(
        name="createSubforum",
        method="POST",
        path="/v1/subforums",
        about="Make a subforum",
        answer="SubforumCreated",
        body=requests.SubforumRequest,
        is_keyed=True,
        failures=("subforum_exists",),
        run=lambda call: call.forum.content.create_subforum(call.me, call.body, command=call.key),
    ),
    Operation(
        name="getSubforum",
        method="GET",
        path="/v1/subforums/{key}",
        about="One subforum",
        answer="SubforumFound",
        run=lambda call: call.forum.content.subforum(call.me, call.path["key"]),
    ),
    Operation(
        name="watchSubforum",
        method="PUT",
        path="/v1/subforums/{key}/watch",
        about="Hear of all threads of a subforum from now on",
        answer="Watch",
        run=lambda call: call.forum.interests.watch_subforum(call.me, call.path["key"]),
    ),
    Operation(
        name="unwatchSubforum",
        method="DELETE",
        path="/v1/subforums/{key}/watch",
        about="End the watch",
        answer="Watch",
        run=lambda call: call.forum.interests.unwatch_subforum(call.me, call.path["key"]),
    ),
    Operation(
        name="visitSubforum",
        method="PUT",
        path="/v1/subforums/{key}/visit",
        about="Note a look at the subforum's listing, for catching up later",
        answer="Visit",
        body=requests.VisitRequest,
        failures=("future_sequence",),
        run=_visit,
    ),
    Operation(
        name="listPinnedThreads",
        method="GET",
        path="/v1/subforums/{key}/pins",
        about="The pinned threads in the order of pinning",
        answer="PinnedThreads",
        run=lambda call: call.forum.pins.pinned_threads(call.me, call.path["key"]),
    ),
    Operation(
        name="listSubscriptions",
        method="GET",
        path="/v1/me/subscriptions",
        about="What the own session watches",
        answer="Subscriptions",
        run=lambda call: call.forum.interests.subscriptions(call.me),
    ),
)
