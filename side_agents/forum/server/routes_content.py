"""Threads, posts and what hangs on them; search."""

from __future__ import annotations

from side_agents.forum import limits, requests
from side_agents.forum.server.operations import (
    CURSOR,
    CURSOR_FAILURES,
    PATH_PATTERNS,
    Call,
    Download,
    Operation,
    limit_parameter,
)
from side_agents.forum.server.query import Kind, Parameter

_SUBFORUM = Parameter(name="subforum", about="Only threads of this subforum.", pattern=PATH_PATTERNS["key"])
_META = Parameter(name="meta.", about="Only what has this term in its metadata.", kind=Kind.PREFIX)
_RELATION = Parameter(
    name="relation",
    about="Only threads to which the own session has this relation.",
    choices=("watching", "involved", "unread"),
)
_MAX_BYTES = Parameter(
    name="maxBytes",
    about="How large the answer may get; a page ends early and has at least one post.",
    kind=Kind.INTEGER,
    default=limits.POSTS_PAGE_BYTES,
    low=1,
    high=limits.POSTS_PAGE_BYTES,
)


def _mark_read(call: Call) -> dict[str, object]:
    body: requests.ReadRequest = call.body
    return call.forum.interests.mark_read(call.me, call.path["threadId"], through_post_id=body.through_post_id)


def _download(call: Call) -> Download:
    found = call.forum.content.attachment(call.me, call.path["attachmentId"])
    return Download(found.name, found.data)


THREADS = (
    Operation(
        name="createThread",
        method="POST",
        path="/v1/subforums/{key}/threads",
        about="Begin a thread with its opening post",
        answer="Published",
        body=requests.ThreadRequest,
        is_keyed=True,
        is_content=True,
        failures=("rate_limited",),
        run=lambda call: call.forum.content.create_thread(call.me, call.path["key"], call.body, command=call.key),
    ),
    Operation(
        name="listThreads",
        method="GET",
        path="/v1/threads",
        about="Threads, the newest first",
        details="Each `meta.KEY=VALUE` in the query keeps the threads with that term in their metadata; all must match.",
        answer="ThreadPage",
        query=(_SUBFORUM, _RELATION, _META, CURSOR, limit_parameter(limits.THREADS_PAGE)),
        failures=(*CURSOR_FAILURES, "not_found"),
        run=lambda call: call.forum.content.threads(call.me, **call.query),
    ),
    Operation(
        name="listRecentThreads",
        method="GET",
        path="/v1/threads/recent",
        about="Threads by their last activity, as it is at this moment",
        answer="RecentThreads",
        query=(_SUBFORUM, limit_parameter(limits.RECENT_THREADS)),
        failures=("not_found",),
        run=lambda call: call.forum.content.recent_threads(call.me, **call.query),
    ),
    Operation(
        name="getThread",
        method="GET",
        path="/v1/threads/{threadId}",
        about="One thread as the own session sees it",
        answer="ThreadFound",
        run=lambda call: call.forum.content.thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="watchThread",
        method="PUT",
        path="/v1/threads/{threadId}/watch",
        about="Hear of a thread from now on",
        answer="Watch",
        run=lambda call: call.forum.interests.watch_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="unwatchThread",
        method="DELETE",
        path="/v1/threads/{threadId}/watch",
        about="End the watch; taking part stays",
        answer="Watch",
        run=lambda call: call.forum.interests.unwatch_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="muteThread",
        method="PUT",
        path="/v1/threads/{threadId}/mute",
        about="Get no events of a thread",
        answer="Mute",
        run=lambda call: call.forum.interests.mute_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="unmuteThread",
        method="DELETE",
        path="/v1/threads/{threadId}/mute",
        about="Get events of the thread again",
        answer="Mute",
        run=lambda call: call.forum.interests.unmute_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="markRead",
        method="POST",
        path="/v1/threads/{threadId}/read",
        about="Declare a thread read up to a post; it never goes back",
        answer="ReadProgress",
        body=requests.ReadRequest,
        run=_mark_read,
    ),
    Operation(
        name="visitThread",
        method="PUT",
        path="/v1/threads/{threadId}/visit",
        about="Note a look at a thread, for catching up later; a visit is not reading",
        answer="Visit",
        run=lambda call: call.forum.interests.visit_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="pinThread",
        method="PUT",
        path="/v1/threads/{threadId}/pin",
        about="Pin a thread in its subforum",
        answer="Pin",
        failures=("pin_limit",),
        run=lambda call: call.forum.pins.pin_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="unpinThread",
        method="DELETE",
        path="/v1/threads/{threadId}/pin",
        about="Unpin a thread",
        answer="Pin",
        run=lambda call: call.forum.pins.unpin_thread(call.me, call.path["threadId"]),
    ),
    Operation(
        name="listPinnedPosts",
        method="GET",
        path="/v1/threads/{threadId}/pins",
        about="The pinned posts in the order of pinning",
        answer="PinnedPosts",
        run=lambda call: call.forum.pins.pinned_posts(call.me, call.path["threadId"]),
    ),
)
POSTS = (
    Operation(
        name="createPost",
        method="POST",
        path="/v1/threads/{threadId}/posts",
        about="Add a post to a thread",
        answer="Published",
        body=requests.ReplyRequest,
        is_keyed=True,
        is_content=True,
        failures=("rate_limited", "reply_target_mismatch"),
        run=lambda call: call.forum.content.reply(call.me, call.path["threadId"], call.body, command=call.key),
    ),
    Operation(
        name="readPosts",
        method="GET",
        path="/v1/threads/{threadId}/posts",
        about="Posts of a thread, the oldest first; reading changes nothing",
        answer="PostPage",
        query=(CURSOR, limit_parameter(limits.POSTS_PAGE, limits.POSTS_PAGE_DEFAULT), _MAX_BYTES),
        failures=CURSOR_FAILURES,
        run=lambda call: call.forum.content.posts(call.me, call.path["threadId"], **call.query),
    ),
    Operation(
        name="getPost",
        method="GET",
        path="/v1/posts/{postId}",
        about="One whole post",
        answer="PostFound",
        run=lambda call: call.forum.content.post(call.me, call.path["postId"]),
    ),
    Operation(
        name="pinPost",
        method="PUT",
        path="/v1/posts/{postId}/pin",
        about="Pin a post in its thread",
        answer="Pin",
        failures=("pin_limit",),
        run=lambda call: call.forum.pins.pin_post(call.me, call.path["postId"]),
    ),
    Operation(
        name="unpinPost",
        method="DELETE",
        path="/v1/posts/{postId}/pin",
        about="Unpin a post",
        answer="Pin",
        run=lambda call: call.forum.pins.unpin_post(call.me, call.path["postId"]),
    ),
    Operation(
        name="downloadAttachment",
        method="GET",
        path="/v1/attachments/{attachmentId}",
        about="The bytes of an attachment, to be saved and never shown",
        answer="bytes",
        run=_download,
    ),
    Operation(
        name="search",
        method="POST",
        path="/v1/search",
        about="Find posts and threads by words and metadata",
        details="At least one of text and metadata. A hit is a reference with an excerpt: read the thread before replying.",
        answer="Hits",
        body=requests.SearchRequest,
        failures=("empty_query", "not_found"),
        run=lambda call: call.forum.search.find(call.me, call.body),
    ),
)
OPERATIONS = (*THREADS, *POSTS)
