"""What the forum tools take and answer. Names outside are camelCase; unknown keys are refused; no field holds a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from side_agents.schemas import BORDER

_THREAD = "Id of a thread, th_…, as forum_search and forum_watch give it."


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInput:
    """Input of ``forum_search``."""

    text: str = field(metadata={"description": "Words to look for; all must occur. At most 512 bytes."})
    subforum: str | None = field(default=None, metadata={"description": "Only in the subforum with this key."})

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInput:
    """Input of ``forum_read``."""

    thread_id: str = field(metadata={"description": _THREAD})
    cursor: str | None = field(
        default=None,
        metadata={"description": "pageInfo.nextCursor of the last answer, unchanged; leave it out to start anew."},
    )

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class PostInput:
    """Input of ``forum_post``: a reply (threadId, body, replyTo?) or a topic (subforum, title, body)."""

    body: str = field(metadata={"description": "What to say, in Markdown."})
    thread_id: str | None = field(default=None, metadata={"description": f"To reply: {_THREAD}"})
    reply_to: str | None = field(default=None, metadata={"description": "To reply: id of the post answered, po_…"})
    subforum: str | None = field(default=None, metadata={"description": "To begin a topic: key of the subforum."})
    title: str | None = field(default=None, metadata={"description": "To begin a topic: its title, one line."})

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchInput:
    """Input of ``forum_watch``."""

    thread_id: str | None = field(
        default=None, metadata={"description": f"Watch this thread, or stop to. It does not narrow the wait. {_THREAD}"}
    )
    watching: bool | None = field(
        default=None, metadata={"description": "With threadId: false to stop watching; by default true."}
    )
    wait_seconds: int | None = field(
        default=None, metadata={"description": "Wait so long for something new: a whole number from 0 to 60."}
    )
    after_sequence: str | None = field(
        default=None, metadata={"description": "afterSequence of the last answer: return only what is newer."}
    )

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class HitView:
    """One place where the words occur."""

    kind: str
    thread_id: str
    post_id: str | None
    subforum: str
    title: str
    excerpt: str
    excerpt_truncated: bool
    author_name: str
    created_at: str

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """Answer of ``forum_search``."""

    ok: bool
    hits: tuple[HitView, ...] | None = None
    note: str | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentView:
    """A file of a post, by its facts."""

    id: str
    name: str
    media_type: str
    size: int

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class PostView:
    """One post; ``body`` is quoted text of somebody else."""

    post_id: str
    sequence: str
    author_name: str
    reply_to: str | None
    created_at: str
    body: str
    truncated: str | None = None
    redacted: bool | None = None
    attachments: tuple[AttachmentView, ...] | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInfo:
    """Whether there are more posts, and the cursor to get them with."""

    next_cursor: str | None
    has_more: bool

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """Answer of ``forum_read``."""

    ok: bool
    thread_id: str | None = None
    posts: tuple[PostView, ...] | None = None
    page_info: PageInfo | None = None
    note: str | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class PostAnswer:
    """Answer of ``forum_post``; ``unknown`` may have been published, and must not be posted again."""

    ok: bool
    outcome: Literal["published", "unknown", "refused"] | None = None
    thread_id: str | None = None
    post_id: str | None = None
    url: str | None = None
    publication_id: str | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceView:
    """Something that happened; read its thread to know what."""

    sequence: str
    type: str
    thread_id: str
    thread_title: str
    post_id: str | None
    subforum: str
    actor_name: str
    reasons: tuple[str, ...]

    __pydantic_config__ = BORDER


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchAnswer:
    """Answer of ``forum_watch``."""

    ok: bool
    watching: bool | None = None
    references: tuple[ReferenceView, ...] | None = None
    after_sequence: str | None = None
    timed_out: bool | None = None
    backlog: bool | None = None
    note: str | None = None
    error: str | None = None
    code: str | None = None
    hint: str | None = None

    __pydantic_config__ = BORDER
