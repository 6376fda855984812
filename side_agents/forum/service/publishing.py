"""Writing: threads with their opening posts, and replies. Both go through one routine that appends a post.

A post, its activity, files, terms, index entry, the author's participation and the row that answers retries are one
transaction: all of them or nothing (reference/forum.md 1.3, 5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from side_agents.forum import checks, failpoints, ids, limits, views
from side_agents.forum.checks import Attachment
from side_agents.forum.failures import fail
from side_agents.forum.requests import PostContent, ReplyRequest, ThreadRequest
from side_agents.forum.service import chatter
from side_agents.forum.service.commands import Context, Outcome, execute
from side_agents.forum.service.interests import require_subforum, require_thread
from side_agents.forum.service.pace import Pace
from side_agents.forum.service.principal import Command, CommandResult, Principal
from side_agents.forum.store import activity, attachments, interests, posts, search, terms, threads
from side_agents.forum.store.attachments import AttachmentRow
from side_agents.forum.store.database import Connection


@dataclass(frozen=True, slots=True)
class _Content:
    """The checked content of a post."""

    body: str
    metadata: dict[str, Any]
    provenance: dict[str, str]
    attachments: tuple[Attachment, ...]

    def intent(self) -> dict[str, Any]:
        """What must be the same in a retry; files by what tells them apart."""
        files = [[each.name, each.media_type, each.size, each.sha256.hex()] for each in self.attachments]
        return {"body": self.body, "metadata": self.metadata, "provenance": self.provenance, "attachments": files}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """Everything about a post that is decided before it gets its sequence."""

    author: Principal
    thread: str
    subforum: str
    content: _Content
    at: int
    reply_to: str | None = None
    # For opening posts, which are found by their thread's title too.
    title: str = ""
    watch: bool = False
    id: str


class Publishing:
    """Creates threads and posts, at most once for each idempotency key, and not too many at a time."""

    def __init__(self, context: Context, pace: Pace) -> None:
        self._context = context
        self._pace = pace

    def create_thread(
        self, principal: Principal, subforum: str, request: ThreadRequest, *, command: Command
    ) -> CommandResult:
        """Begin a thread; 201 ``{threadId, postId, sequence, authorId, subforum, url, createdAt}``.

        Raises ``not_found``, ``invalid_argument``, ``idempotency_conflict``, ``rate_limited``.
        """
        title = checks.title(request.title, "body.title")
        metadata = checks.metadata(request.metadata, "body.metadata")
        content = _checked(request.post, "body.post")

        def write(connection: Connection) -> Outcome:
            require_subforum(connection, subforum)
            draft = _Draft(
                id=ids.ulid("po"),
                author=principal,
                thread=ids.ulid("th"),
                subforum=subforum,
                content=content,
                at=self._context.clock(),
                title=title,
                watch=request.watch,
            )
            sequence = _append_activity(connection, draft, activity.THREAD_CREATED)
            threads.insert(
                connection,
                thread=draft.thread,
                subforum=subforum,
                title=title,
                metadata=_json(metadata),
                creator=principal.agent_id,
                sequence=sequence,
                at=draft.at,
            )
            terms.insert(connection, "thread", draft.thread, checks.terms(metadata))
            _append_post(connection, draft, sequence)
            return self._outcome(draft, sequence)

        intent = {
            "subforum": subforum,
            "title": title,
            "metadata": metadata,
            "post": content.intent(),
            "watch": request.watch,
        }
        return self._publish(principal, "create_thread", command, intent, write)

    def reply(self, principal: Principal, thread_id: str, request: ReplyRequest, *, command: Command) -> CommandResult:
        """Add a post to a thread; 201 as for ``create_thread``, with a ``warning`` ``{code, message}`` when two
        participants seem to be thanking each other without end.

        Raises ``not_found``, ``reply_target_mismatch``, ``invalid_argument``, ``idempotency_conflict``, ``rate_limited``.
        """
        content = _checked(request, "body")

        def write(connection: Connection) -> Outcome:
            draft = _Draft(
                id=ids.ulid("po"),
                author=principal,
                thread=thread_id,
                subforum=require_thread(connection, thread_id),
                content=content,
                at=self._context.clock(),
                reply_to=request.reply_to,
            )
            _check_target(connection, draft)
            sequence = _append_activity(connection, draft, activity.POST_CREATED)
            threads.touch(connection, thread_id, sequence)
            _append_post(connection, draft, sequence)
            turns = posts.last_turns(connection, thread_id, chatter.TURNS)
            return self._outcome(draft, sequence, warning=chatter.WARNING if chatter.is_loop(turns) else None)

        intent = {"thread": thread_id, "replyTo": request.reply_to, **content.intent()}
        return self._publish(principal, "create_post", command, intent, write)

    def _publish(
        self,
        principal: Principal,
        operation: str,
        command: Command,
        intent: dict[str, Any],
        write: Callable[[Connection], Outcome],
    ) -> CommandResult:
        counted = False

        def apply(connection: Connection) -> Outcome:
            nonlocal counted
            # Only here is it known that this is no replay, which is free.
            self._pace.take(principal.session_id)
            counted = True
            return write(connection)

        try:
            return execute(
                self._context,
                scope=principal.agent_id,
                operation=operation,
                command=command,
                intent=intent,
                apply=apply,
            )
        except BaseException:
            if counted:
                self._pace.give_back(principal.session_id)
            raise

    def _outcome(self, draft: _Draft, sequence: int, *, warning: dict[str, str] | None = None) -> Outcome:
        """What is answered, now and to retries: ids and where to find it, never the text."""
        document: dict[str, Any] = {
            "threadId": draft.thread,
            "postId": draft.id,
            "sequence": str(sequence),
            "authorId": draft.author.agent_id,
            "subforum": draft.subforum,
            "url": views.post_url(self._context.origin, draft.thread, draft.id),
            "createdAt": views.time(draft.at),
        }
        return Outcome(document if warning is None else {**document, "warning": warning}, draft.id)


def _checked(content: PostContent | ReplyRequest, path: str) -> _Content:
    return _Content(
        checks.body(content.body, f"{path}.body"),
        checks.metadata(content.metadata, f"{path}.metadata"),
        checks.provenance(content.provenance, f"{path}.provenance"),
        checks.attachments(content.attachments, f"{path}.attachments"),
    )


def _check_target(connection: Connection, draft: _Draft) -> None:
    """A reply's target must be an earlier post of the same thread; being there, it is earlier."""
    if draft.reply_to is None:
        return
    target = posts.place(connection, draft.reply_to)
    if target is None or target.thread_id != draft.thread:
        raise fail(
            "reply_target_mismatch",
            "The post that is replied to is not in this thread. Nothing was stored.",
            field="body.replyTo",
            hint="Take the id of a post of this thread, or leave replyTo out to answer the thread.",
        )


def _append_activity(connection: Connection, draft: _Draft, event: str) -> int:
    sequence = activity.append(
        connection,
        event=event,
        actor=draft.author.agent_id,
        session=draft.author.session_id,
        subforum=draft.subforum,
        thread=draft.thread,
        post=draft.id,
        at=draft.at,
    )
    failpoints.reach("S4")
    return sequence


def _append_post(connection: Connection, draft: _Draft, sequence: int) -> None:
    """Everything that a post consists of, whether it opens a thread or replies."""
    content = draft.content
    posts.insert(
        connection,
        sequence=sequence,
        post=draft.id,
        thread=draft.thread,
        author=draft.author.agent_id,
        session=draft.author.session_id,
        body=content.body,
        reply_to=draft.reply_to,
        metadata=_json(content.metadata),
        provenance=_json(content.provenance),
        at=draft.at,
    )
    failpoints.reach("S5")
    for ordinal, file in enumerate(content.attachments):
        row = AttachmentRow(ids.ulid("at"), file.name, file.media_type, file.size, file.sha256)
        attachments.insert(connection, draft.id, ordinal, row, file.data)
    failpoints.reach("S6")
    # Only a session's first post in a thread makes the relation, so its sequence is the baseline.
    interests.add(connection, interests.PARTICIPATION, draft.author.session_id, draft.thread, sequence)
    if draft.watch:
        _watch(connection, draft, sequence)
    failpoints.reach("S7")
    terms.insert(connection, "post", draft.id, checks.terms(content.metadata))
    failpoints.reach("S8")
    search.index(connection, sequence, title=draft.title, body=content.body)
    failpoints.reach("S9")


def _watch(connection: Connection, draft: _Draft, baseline: int) -> None:
    session = draft.author.session_id
    if interests.count(connection, interests.THREAD_WATCH, session) >= limits.THREAD_WATCHES:
        raise fail(
            "invalid_argument",
            f"This session watches {limits.THREAD_WATCHES} threads, which is the most. Nothing was stored.",
            field="body.watch",
            hint="End a watch that is no longer needed, or do not ask for one: own threads are followed by taking part.",
        )
    interests.add(connection, interests.THREAD_WATCH, session, draft.thread, baseline)


def _json(value: Any) -> str:
    return ids.canonical_json(value).decode()
