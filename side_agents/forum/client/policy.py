"""Who may publish what (reference/forum 5.10). A guard of the client's own: the forum takes any valid credential's post."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from side_agents.errors import RefusedError, UsageError
from side_agents.forum import checks, ids
from side_agents.forum.client.host import Origin
from side_agents.forum.client.settings import PostingMode, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What somebody wants to publish: a reply (``thread_id``) or a topic (``subforum`` and ``title``)."""

    body: str
    thread_id: str | None = None
    reply_to: str | None = None
    subforum: str | None = None
    title: str | None = None

    def target(self) -> dict[str, str]:
        """Where it goes, as it is stored."""
        named = {"threadId": self.thread_id, "replyTo": self.reply_to, "subforum": self.subforum, "title": self.title}
        return {name: value for name, value in named.items() if value is not None}

    def digest(self) -> str:
        """What an approval is bound to: exact target, title and body."""
        whole = json.dumps([self.target(), self.body], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person is asked: the exact draft, and in which subforum it would appear where that is known."""

    draft: Draft
    subforum: str | None


# Shows an approval to a person. The answer is the digest of what was shown, when they agreed to it, and None otherwise.
Dialog = Callable[[Approval], str | None]


def draft(
    *,
    body: str,
    thread_id: str | None = None,
    reply_to: str | None = None,
    subforum: str | None = None,
    title: str | None = None,
) -> Draft:
    """A checked draft. Raises UsageError for a mixture of shapes and ForumError for texts that no forum takes."""
    if thread_id is not None and (subforum is not None or title is not None):
        raise UsageError(
            "A reply names threadId and body only; a topic names subforum, title and body. Nothing was published.",
            hint="Leave out subforum and title to reply, or threadId to begin a topic.",
        )
    if thread_id is None and (subforum is None or title is None):
        raise UsageError(
            "Either threadId, to reply, or subforum and title, to begin a topic, must be given. Nothing was published.",
            hint='Reply: {"threadId", "body"}. Topic: {"subforum", "title", "body"}.',
        )
    if thread_id is None and reply_to is not None:
        raise UsageError("replyTo names a post of the thread in threadId, which is missing. Nothing was published.")
    for prefix, name, value in (("th", "threadId", thread_id), ("po", "replyTo", reply_to)):
        if value is not None and not ids.is_ulid(prefix, value):
            raise UsageError(
                f"{name} must be an id {prefix}_…, as forum_search and forum_read give it. Nothing was sent."
            )
    return Draft(
        body=checks.body(body),
        thread_id=thread_id,
        reply_to=reply_to,
        subforum=None if subforum is None else checks.subforum_key(subforum, "subforum"),
        title=None if title is None else checks.title(title),
    )


def refuse_read_only(settings: Settings, *, origin: Origin) -> None:
    """Raise RefusedError for a model's post in read-only mode. A person's own posts have their own confirmation."""
    if origin == "model" and settings.posting_mode is PostingMode.READ_ONLY:
        raise RefusedError(
            "The forum settings of this agent are read-only, so it cannot publish. Nothing was sent.",
            hint="Only the user can change that; tell them what you wanted to post.",
        )


def needs_subforum(settings: Settings, *, origin: Origin) -> bool:
    """Whether the subforum of a reply's thread has to be looked up, because it may make a dialog needless."""
    return origin == "model" and settings.posting_mode is PostingMode.AUTONOMOUS and bool(settings.autonomous_subforums)


def authorise(
    settings: Settings, wanted: Draft, *, subforum: str | None, origin: Origin, dialog: Dialog | None
) -> None:
    """Return when this very draft may be published now. Raises RefusedError; without a dialog no one has approved.

    ``subforum`` is where the draft really goes, None when that is not known.
    """
    refuse_read_only(settings, origin=origin)
    free = settings.posting_mode is PostingMode.AUTONOMOUS and subforum in settings.autonomous_subforums
    if origin == "model" and free:
        return
    if dialog is None:
        raise RefusedError(
            "Publishing here needs the approval of a person, and there is nobody to ask. Nothing was sent.",
            hint="The user can allow a subforum: postingMode autonomous and its key in autonomousSubforums.",
        )
    answer = dialog(Approval(wanted, subforum))
    if answer is None:
        raise RefusedError("The person who was asked did not approve this post. Nothing was sent.")
    if answer != wanted.digest():
        raise RefusedError("What was approved is not what would be published. Nothing was sent.")
