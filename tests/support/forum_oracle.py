"""What a forum should answer, worked out from plain lists and dicts in the most obvious way, to compare the real one with.

Sequences are positions in ``activity`` counted from 1. Nothing here is indexed, remembered or shared with the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field

REASONS = {"involved": "participation", "watched-threads": "thread_watch", "watched-subforums": "subforum_watch"}
PLAN_REASONS = {
    **{relation: reason for reason, relation in REASONS.items()},
    "thread_visit": "visited-threads",
    "subforum_visit": "visited-subforums",
}
PLAN_RELATIONS = {
    "visited": ("thread_visit", "subforum_visit"),
    "subscriptions": ("thread_watch", "subforum_watch"),
    "all": ("participation", "thread_watch", "subforum_watch", "thread_visit", "subforum_visit"),
}


@dataclass(frozen=True)
class Activity:
    """One thing that happened; ``post`` only where one was created."""

    sequence: int
    kind: str
    session: str
    subforum: str
    thread: str
    post: str | None


@dataclass(frozen=True)
class PlannedThread:
    """A thread of a catch-up plan with all posts above its lower bound."""

    id: str
    lower: int
    posts: list[Activity]
    reasons: list[str]


@dataclass
class Oracle:
    """The state of a forum as far as sessions perceive it."""

    activity: list[Activity] = field(default_factory=list)
    # (relation, session, thread or subforum) -> baseline
    baselines: dict[tuple[str, str, str], int] = field(default_factory=dict)
    muted: set[tuple[str, str]] = field(default_factory=set)
    ever_muted: set[tuple[str, str]] = field(default_factory=set)
    read: dict[tuple[str, str], int] = field(default_factory=dict)
    acknowledged: dict[tuple[str, frozenset[str]], int] = field(default_factory=dict)
    pinned: list[str] = field(default_factory=list)

    @property
    def tail(self) -> int:
        return len(self.activity)

    def happen(self, kind: str, session: str, subforum: str, thread: str, post: str | None = None) -> Activity:
        """Note the next activity; a created post makes its session involved from its first one on."""
        new = Activity(self.tail + 1, kind, session, subforum, thread, post)
        self.activity.append(new)
        if post is not None:
            self.baselines.setdefault(("participation", session, thread), new.sequence)
        return new

    def relate(self, relation: str, session: str, target: str, baseline: int) -> bool:
        """Whether the relation is new."""
        if (relation, session, target) in self.baselines:
            return False
        self.baselines[relation, session, target] = baseline
        return True

    def reasons(self, session: str, event: Activity, scope: frozenset[str]) -> list[str]:
        """Rule 2, reason by reason; empty when the event is not for this session."""
        if event.session == session or (session, event.thread) in self.muted:
            return []
        found = []
        for reason, relation in REASONS.items():
            target = event.subforum if relation == "subforum_watch" else event.thread
            baseline = self.baselines.get((relation, session, target))
            if reason in scope and baseline is not None and baseline < event.sequence:
                found.append(reason)
        return found

    def eligible(self, session: str, scope: frozenset[str], after: int) -> dict[int, list[str]]:
        """All events above a sequence, in order."""
        found = {event.sequence: self.reasons(session, event, scope) for event in self.activity}
        return {sequence: reasons for sequence, reasons in found.items() if reasons and sequence > after}

    def posts(self, thread: str) -> list[Activity]:
        return [event for event in self.activity if event.thread == thread and event.post is not None]

    def unread(self, session: str, thread: str) -> int:
        through = self.read.get((session, thread), 0)
        return sum(post.sequence > through and post.session != session for post in self.posts(thread))

    def raise_read(self, session: str, thread: str, through: int) -> int:
        self.read[session, thread] = max(self.read.get((session, thread), 0), through)
        return self.read[session, thread]

    def plan(self, session: str, scope: str) -> list[PlannedThread]:
        """What a plan made now selects, in order of the threads' creation."""
        found = []
        for thread, subforum in {event.thread: event.subforum for event in self.activity}.items():
            reasons = {
                PLAN_REASONS[relation]: baseline
                for relation in PLAN_RELATIONS[scope]
                for target in (thread, subforum)
                if (baseline := self.baselines.get((relation, session, target), self.tail)) < self.tail
            }
            if not reasons or (session, thread) in self.muted:
                continue
            lower = max(min(reasons.values()), self.read.get((session, thread), 0))
            posts = [post for post in self.posts(thread) if post.sequence > lower]
            if any(post.session != session for post in posts):
                found.append(PlannedThread(thread, lower, posts, list(reasons)))
        return found
