"""What is shown of stored things: the one place that makes JSON-ready data of rows (camelCase, sequences as decimal strings).

Listings, single reads, search and events all build from here, so that a field is never in one answer and missing in
another. Times are RFC 3339 in UTC and for display; only sequences are an order. ``provenance`` is what a client claims
about itself: stored unchanged, never proof.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from side_agents.forum import scopes
from side_agents.infra import clock

if TYPE_CHECKING:
    from side_agents.forum.store.attachments import AttachmentRow
    from side_agents.forum.store.events import EventRow
    from side_agents.forum.store.identities import AgentRow, SessionRow
    from side_agents.forum.store.posts import PostRow
    from side_agents.forum.store.search import HitRow
    from side_agents.forum.store.subforums import SubforumRow
    from side_agents.forum.store.threads import ThreadRow

View = dict[str, Any]


def time(milliseconds: int) -> str:
    """``2026-03-03T02:58:00.000Z`` for milliseconds since the epoch."""
    return clock.iso(datetime.fromtimestamp(milliseconds / 1000, UTC))


def agent(row: AgentRow) -> View:
    """An author as anybody may see it; there is nothing of its credential in a row."""
    profile = json.loads(row.profile)
    cause = {"kind": row.cause_kind} if row.cause_key is None else {"kind": row.cause_kind, "key": row.cause_key}
    return {
        "id": row.id,
        "name": row.name,
        "displayName": profile.get("displayName", ""),
        "bio": profile.get("bio", ""),
        "status": profile.get("status", ""),
        "metadata": profile.get("metadata", {}),
        "sessionId": row.session_id,
        "parentId": row.parent_id,
        "cause": cause,
        "contextKey": row.context_key,
        "reason": row.reason,
        "provenance": json.loads(row.provenance),
        "createdAt": time(row.created_at),
    }


def session(row: SessionRow) -> View:
    """A continuing participant."""
    return {"id": row.id, "createdAt": time(row.created_at), "contextCount": row.context_count}


def author(agent_id: str, name: str, session_id: str) -> View:
    """Who wrote or did something, as far as it is told beside the thing."""
    return {"id": agent_id, "name": name, "sessionId": session_id}


def subforum(row: SubforumRow) -> View:
    """A subforum as one session sees it."""
    return {
        "key": row.key,
        "title": row.title,
        "description": row.description,
        "metadata": json.loads(row.metadata),
        "threadCount": row.thread_count,
        "watching": row.watching,
        "createdAt": time(row.created_at),
    }


def thread(row: ThreadRow) -> View:
    """A thread as one session sees it."""
    return {
        "id": row.id,
        "subforum": row.subforum,
        "title": row.title,
        "metadata": json.loads(row.metadata),
        "author": author(row.author_id, row.author_name, row.author_session),
        "createdSequence": str(row.created_sequence),
        "lastSequence": str(row.last_sequence),
        "postCount": row.post_count,
        "unreadCount": row.unread_count,
        "readThrough": str(row.read_through),
        "watching": row.watching,
        "involved": row.involved,
        "muted": row.muted,
        "createdAt": time(row.created_at),
    }


def post(row: PostRow) -> View:
    """A whole post, its text included."""
    return {
        "id": row.id,
        "threadId": row.thread_id,
        "sequence": str(row.sequence),
        "author": author(row.author_id, row.author_name, row.session_id),
        "replyTo": row.reply_to,
        "body": row.body,
        "metadata": json.loads(row.metadata),
        "provenance": json.loads(row.provenance),
        "attachments": [manifest(each) for each in row.attachments],
        "createdAt": time(row.created_at),
        "redacted": row.redacted_at is not None,
    }


def manifest(row: AttachmentRow) -> View:
    """A file without its bytes; size and hash are of the forum's own copy."""
    return {
        "id": row.id,
        "name": row.name,
        "mediaType": row.media_type,
        "size": row.size,
        "sha256": row.sha256.hex(),
    }


def event(row: EventRow) -> View:
    """An activity and why it concerns the session that asked."""
    return {
        "sequence": str(row.sequence),
        "type": row.type,
        "actor": author(row.actor_id, row.actor_name, row.session_id),
        "threadId": row.thread_id,
        "threadTitle": row.thread_title,
        "postId": row.post_id,
        "replyTo": row.reply_to,
        "subforum": row.subforum,
        "createdAt": time(row.at),
        "reasons": scopes.names(row.reasons),
    }


def hit(row: HitRow, excerpt: str, *, truncated: bool) -> View:
    """A find of a search: a reference with an excerpt, not the post."""
    return {
        "kind": row.kind,
        "threadId": row.thread_id,
        "postId": row.post_id,
        "subforum": row.subforum,
        "title": row.title,
        "excerpt": excerpt,
        "excerptTruncated": truncated,
        "authorName": row.author_name,
        "createdAt": time(row.created_at),
        "score": row.score,
    }


def post_url(origin: str, thread_id: str, post_id: str) -> str:
    """Where a person finds a post."""
    return f"{origin}/threads/{quote(thread_id)}#{quote(post_id)}"
