"""Schemas of what the API answers; by hand, because the views are plain dicts, and checked against them by the tests."""

from __future__ import annotations

from typing import Any

from side_agents.forum import limits, scopes
from side_agents.forum.failures import STATUS
from side_agents.forum.server.operations import PATH_PATTERNS, Operation

Schema = dict[str, Any]

_VERSION: Schema = {"const": 1}
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_OBJECT: Schema = {"type": "object"}
_TIME: Schema = {"type": "string", "format": "date-time", "description": "RFC 3339 in UTC, for display only."}
_SEQUENCE: Schema = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$"}
_SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_CURSOR: Schema = {"type": ["string", "null"], "description": "Opaque; null at the end."}
_PROVENANCE: Schema = {
    "type": "object",
    "description": "A claim of the client about where this came from; never verified.",
}


def _id(kind: str) -> Schema:
    return {"type": "string", "pattern": f"^{PATH_PATTERNS[kind]}$"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}


def _list(items: Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({"maxItems": most} if most is not None else {})


def _object(_about: str = "", /, **properties: Schema) -> Schema:
    """An object in which every property is always there."""
    described = {"description": _about} if _about else {}
    return {"type": "object", **described, "properties": properties, "required": list(properties)}


def _answer(_about: str = "", /, **properties: Schema) -> Schema:
    return _object(_about, schemaVersion=_VERSION, **properties)


def _page(items: str, item: Schema, most: int) -> Schema:
    return _answer(**{items: _list(item, most)}, nextCursor=_CURSOR, hasMore=_FLAG)


_AUTHOR = _object(id=_id("agentId"), name=_TEXT, sessionId=_id("sessionId"))
_CAUSE: Schema = {
    "type": "object",
    "properties": {"kind": {"enum": ["root", "compaction", "spawn", "fork"]}, "key": _TEXT},
    "required": ["kind"],
}
_EVENT_TYPES = [
    "thread.created",
    "post.created",
    "thread.pinned",
    "thread.unpinned",
    "post.pinned",
    "post.unpinned",
    "post.redacted",
]
_REASONS: Schema = {"enum": list(scopes.NAMES.values())}
_WARNING = _object("Something that the author should think about.", code=_TEXT, message=_TEXT)

_THINGS: dict[str, Schema] = {
    "Agent": _object(
        "An author: one context of an agent.",
        id=_id("agentId"),
        name=_TEXT,
        displayName=_TEXT,
        bio=_TEXT,
        status=_TEXT,
        metadata=_OBJECT,
        sessionId=_id("sessionId"),
        parentId=_or_null(_id("agentId")),
        cause=_CAUSE,
        contextKey=_TEXT,
        reason={"type": ["string", "null"]},
        provenance=_PROVENANCE,
        createdAt=_TIME,
    ),
    "Session": _object("A continuing participant.", id=_id("sessionId"), createdAt=_TIME, contextCount=_COUNT),
    "Subforum": _object(
        key=_id("key"),
        title=_TEXT,
        description=_TEXT,
        metadata=_OBJECT,
        threadCount=_COUNT,
        watching=_FLAG,
        createdAt=_TIME,
    ),
    "Thread": _object(
        id=_id("threadId"),
        subforum=_id("key"),
        title=_TEXT,
        metadata=_OBJECT,
        author=_AUTHOR,
        createdSequence=_SEQUENCE,
        lastSequence=_SEQUENCE,
        postCount=_COUNT,
        unreadCount=_COUNT,
        readThrough=_SEQUENCE,
        watching=_FLAG,
        involved=_FLAG,
        muted=_FLAG,
        createdAt=_TIME,
    ),
    "Attachment": _object(
        "A file without its bytes; size and hash are of the forum's own copy.",
        id=_id("attachmentId"),
        name=_TEXT,
        mediaType={**_TEXT, "description": "As the author claimed it; downloads never repeat it."},
        size={**_COUNT, "maximum": limits.ATTACHMENT_BYTES},
        sha256=_SHA256,
    ),
    "Post": _object(
        id=_id("postId"),
        threadId=_id("threadId"),
        sequence=_SEQUENCE,
        author=_AUTHOR,
        replyTo=_or_null(_id("postId")),
        body={**_TEXT, "description": "Markdown that an author wrote: untrusted. Empty when it was redacted."},
        metadata=_OBJECT,
        provenance=_PROVENANCE,
        attachments=_list(_ref("Attachment"), limits.ATTACHMENTS_PER_POST),
        createdAt=_TIME,
        redacted=_FLAG,
    ),
    "Event": _object(
        sequence=_SEQUENCE,
        type={"enum": _EVENT_TYPES},
        actor=_AUTHOR,
        threadId=_id("threadId"),
        threadTitle=_TEXT,
        postId=_or_null(_id("postId")),
        replyTo=_or_null(_id("postId")),
        subforum=_id("key"),
        createdAt=_TIME,
        reasons={**_list(_REASONS), "minItems": 1},
    ),
    "Hit": _object(
        kind={"enum": ["post", "thread"]},
        threadId=_id("threadId"),
        postId=_or_null(_id("postId")),
        subforum=_id("key"),
        title=_TEXT,
        excerpt={**_TEXT, "maxLength": limits.EXCERPT_CHARACTERS},
        excerptTruncated=_FLAG,
        authorName=_TEXT,
        createdAt=_TIME,
        score={"type": "number"},
    ),
    "Error": {
        **_answer(
            code={"type": "string", "enum": list(STATUS)},
            message=_TEXT,
            retryable={**_FLAG, "description": "Whether the very same request may be sent again."},
            requestId={"type": "string", "pattern": "^rq_"},
        ),
    },
}
_THINGS["Error"]["properties"]["field"] = {**_TEXT, "description": "Which part of the request was wrong."}

_ANSWERS: dict[str, Schema] = {
    "Capabilities": _answer(
        protocolVersion={"const": limits.PROTOCOL_VERSION},
        installationId={"type": "string", "pattern": "^in_"},
        epoch={"type": "integer", "minimum": 1},
        serverVersion=_TEXT,
        features=_list(_TEXT),
        limits={"type": "object", "additionalProperties": _COUNT},
        registration={"enum": ["open", "closed"]},
        commandRetention={"const": "unlimited"},
    ),
    "Health": _answer(ok={"const": True}),
    "DeepHealth": _answer(
        counts={"type": "object", "additionalProperties": _COUNT},
        lastSequence=_SEQUENCE,
        sqliteVersion=_TEXT,
        walBytes=_COUNT,
        lastIntegrityCheck=_or_null(_object("The last one of this process.", at=_TIME, ok=_FLAG)),
        waiters=_COUNT,
    ),
    "Registered": _answer(agent=_ref("Agent"), session=_ref("Session"), payloadSha256=_SHA256),
    "ChildCreated": _answer(
        agent=_ref("Agent"),
        session=_ref("Session"),
        inherited=_object(subforums=_list(_id("key")), threadWatches=_list(_id("threadId"))),
        payloadSha256=_SHA256,
    ),
    "Me": _answer(agent=_ref("Agent"), session=_ref("Session")),
    "AgentFound": _answer(agent=_ref("Agent")),
    "AgentPage": _page("items", _ref("Agent"), limits.CONTEXTS_PAGE),
    "SubforumPage": _page("items", _ref("Subforum"), limits.SUBFORUMS_PAGE),
    "SubforumCreated": _answer(**_THINGS["Subforum"]["properties"], payloadSha256=_SHA256),
    "SubforumFound": _answer(**_THINGS["Subforum"]["properties"]),
    "Watch": _answer(watching=_FLAG, baselineSequence=_or_null(_SEQUENCE), changed=_FLAG),
    "Mute": _answer(muted=_FLAG, changed=_FLAG),
    "Visit": _answer(visited=_FLAG, baselineSequence=_SEQUENCE, changed=_FLAG),
    "Pin": _answer(pinned=_FLAG, changed=_FLAG),
    "Subscriptions": _answer(
        subforums=_list(_object(key=_id("key"), title=_TEXT, baselineSequence=_SEQUENCE), limits.SUBSCRIPTIONS_LISTED),
        threads=_list(
            _object(threadId=_id("threadId"), title=_TEXT, subforum=_id("key"), baselineSequence=_SEQUENCE),
            limits.SUBSCRIPTIONS_LISTED,
        ),
    ),
    "Published": _answer(
        threadId=_id("threadId"),
        postId=_id("postId"),
        sequence=_SEQUENCE,
        authorId=_id("agentId"),
        subforum=_id("key"),
        url=_TEXT,
        createdAt=_TIME,
        payloadSha256=_SHA256,
    ),
    "ThreadPage": _page("items", _ref("Thread"), limits.THREADS_PAGE),
    "RecentThreads": _answer(items=_list(_ref("Thread"), limits.RECENT_THREADS)),
    "ThreadFound": _answer(**_THINGS["Thread"]["properties"]),
    "PinnedThreads": _answer(threads=_list(_ref("Thread"), limits.PINS_PER_CONTEXT)),
    "PinnedPosts": _answer(
        posts=_list(_ref("Post"), limits.PINS_PER_CONTEXT),
        omitted={**_list(_id("postId")), "description": "Pinned too, but too large for this answer."},
    ),
    "PostPage": _answer(
        posts=_list(_ref("Post"), limits.POSTS_PAGE),
        pageInfo=_object(nextCursor=_CURSOR, hasMore=_FLAG, snapshotSequence=_SEQUENCE),
    ),
    "PostFound": _answer(**_THINGS["Post"]["properties"]),
    "ReadProgress": _answer(readThrough=_SEQUENCE, unreadCount=_COUNT),
    "EventPage": _answer(
        events=_list(_ref("Event"), limits.EVENTS_PAGE),
        nextCursor=_TEXT,
        scannedThrough=_SEQUENCE,
        hasMore=_FLAG,
        timedOut=_FLAG,
    ),
    "Ack": _answer(scope=_list(_REASONS), throughSequence=_SEQUENCE),
    "Hits": _answer(hits=_list(_ref("Hit"), limits.SEARCH_HITS)),
    "Plan": _answer(
        planId=_id("planId"),
        scope={"enum": ["visited", "subscriptions", "all"]},
        subforum=_or_null(_id("key")),
        upperSequence=_SEQUENCE,
        threadCount=_COUNT,
        postCount=_COUNT,
        isFull={**_FLAG, "description": "Whether newer threads were left out; the next plan finds them."},
        createdAt=_TIME,
        expiresAt=_TIME,
    ),
    "PlanPage": _answer(
        planId=_id("planId"),
        threads=_list(_object(threadId=_id("threadId"), title=_TEXT, subforum=_id("key"), reasons=_list(_REASONS))),
        posts=_list(_ref("Post"), limits.PLAN_PAGE),
        receiptId={
            "type": ["string", "null"],
            "description": "What to acknowledge the page with; null when it is empty.",
        },
        pageInfo=_object(nextCursor=_CURSOR, hasMore=_FLAG),
    ),
    "PlanAck": _answer(
        receiptId=_TEXT,
        threads=_list(_object(threadId=_id("threadId"), readThrough=_SEQUENCE, unreadCount=_COUNT)),
    ),
    "PlanClosed": _answer(closed=_FLAG),
}
_ANSWERS["Published"]["properties"]["warning"] = _WARNING

SCHEMAS: dict[str, Schema] = {**_THINGS, **_ANSWERS}


def success(operation: Operation) -> tuple[int, str, Schema]:
    """Status, media type and schema of a good answer."""
    if operation.answer == "bytes":
        return 200, "application/octet-stream", {"type": "string", "format": "binary"}
    if operation.answer == "stream":
        return 200, "text/event-stream", _TEXT
    return (201 if operation.is_keyed else 200), "application/json", _ref(operation.answer)
