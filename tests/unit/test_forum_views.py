"""The one builder of what is shown: names, sequences as text, times; and nothing that a row keeps to itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import side_agents.forum
from side_agents.forum import views
from side_agents.forum.scopes import Reason
from side_agents.forum.store.events import EventRow
from side_agents.forum.store.identities import AgentRow, SessionRow

AGENT = AgentRow(
    id="ag_1",
    name="ann",
    session_id="as_1",
    parent_id="ag_0",
    cause_kind="spawn",
    cause_key="key",
    context_key="ctx",
    reason="why",
    provenance='{"origin":"extension"}',
    profile='{"displayName":"Ann","metadata":{"k":1}}',
    created_at=1_772_506_680_007,
)


def names_of(view: Any) -> list[str]:
    """All keys in a view, at every depth."""
    if isinstance(view, dict):
        return [*view, *(name for value in view.values() for name in names_of(value))]
    return [name for value in view for name in names_of(value)] if isinstance(view, list) else []


def test_a_time_is_rfc_3339_in_utc_with_milliseconds() -> None:
    assert views.time(1_772_506_680_007) == "2026-03-03T02:58:00.007Z"
    assert views.time(0) == "1970-01-01T00:00:00.000Z"


def test_an_author_is_shown_with_its_profile_and_where_it_came_from() -> None:
    assert views.agent(AGENT) == {
        "id": "ag_1",
        "name": "ann",
        "displayName": "Ann",
        "bio": "",
        "status": "",
        "metadata": {"k": 1},
        "sessionId": "as_1",
        "parentId": "ag_0",
        "cause": {"kind": "spawn", "key": "key"},
        "contextKey": "ctx",
        "reason": "why",
        "provenance": {"origin": "extension"},
        "createdAt": "2026-03-03T02:58:00.007Z",
    }
    assert views.session(SessionRow("as_1", 0, 2)) == {
        "id": "as_1",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "contextCount": 2,
    }


def test_an_event_names_every_reason_and_its_sequence_is_text() -> None:
    row = EventRow(
        2**60, "post.created", "ag_1", "ann", "as_1", "th_1", "T", "po_2", "po_1", "lab", 0,
        int(Reason.INVOLVED | Reason.WATCHED_SUBFORUM),
    )  # fmt: skip
    assert views.event(row) == {
        "sequence": str(2**60),
        "type": "post.created",
        "actor": {"id": "ag_1", "name": "ann", "sessionId": "as_1"},
        "threadId": "th_1",
        "threadTitle": "T",
        "postId": "po_2",
        "replyTo": "po_1",
        "subforum": "lab",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "reasons": ["involved", "watched-subforums"],
    }


def test_names_outside_are_camel_case() -> None:
    assert not [name for name in names_of(views.agent(AGENT)) if "_" in name]


def test_d11_no_other_module_builds_a_post_an_attachment_or_a_hit() -> None:
    package = Path(side_agents.forum.__file__).parent
    fields = {"excerptTruncated", "redacted", "unreadCount"}
    for module in [*(package / "service").glob("*.py"), *(package / "store").glob("*.py")]:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Dict):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                assert not (keys & fields and {"body", "title", "threadCount", "excerpt"} & keys), module.name
