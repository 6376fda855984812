"""Collecting what happened: one request at a time for each worker, shared by everybody who waits for it.

A page is saved whole together with its cursor, or not at all; when there is no room left nothing is asked. Whoever waits
keeps an own deadline, and the request lives as long as anybody is interested in it (seed 000, sections 8 to 10).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from side_agents.errors import ForumError, SideAgentsError, UsageError
from side_agents.forum import failpoints, ids, limits
from side_agents.forum.client import commands
from side_agents.forum.client.api import EventPage
from side_agents.forum.client.transport import BAD_ANSWER, CANCELLED, Signal
from side_agents.forum.client.worker_document import Reference, WorkerDocument
from side_agents.forum.client.worker_file import WorkerFile
from side_agents.infra import clock, text

PAGE_EXCEEDS_CAPACITY = "page_exceeds_capacity"

# A request that ends on time arrives a little after its time; whoever waits for it gives it that much.
_GRACE_SECONDS = 0.3


class Source(Protocol):
    """Asks the forum for a page; raises ForumError."""

    def __call__(self, *, cursor: str | None, limit: int, wait: int, cancellation: Signal) -> EventPage: ...


@dataclass(frozen=True, slots=True)
class Collected:
    """What a wait ended with; ``after`` is what to wait after next. ``has_backlog``: no room for more."""

    references: tuple[Reference, ...]
    after: str
    timed_out: bool
    has_backlog: bool


class _Flight:
    """One request on its way, in a thread of its own."""

    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.parties = 0
        self.cancellation = Signal()
        self.over = Signal()
        self.error: BaseException | None = None


class Collector:
    """Fills a worker file's references. All methods may be called from several threads."""

    def __init__(self, file: WorkerFile, source: Source, failed: Callable[[ForumError], None]) -> None:
        self._file = file
        self._source = source
        self._failed = failed
        self._guard = threading.Lock()
        self._flight: _Flight | None = None
        self._threads: set[threading.Thread] = set()
        self._closed = Signal()

    def collect(self) -> bool:
        """Ask once without waiting, or share the request that is on its way; False when there is no room. Raises ForumError."""
        flight = self._join(0)
        if flight is None:
            return False
        try:
            self._wait_for(flight, limits.WAIT_SECONDS, Signal())
        finally:
            self._leave(flight)
        return True

    def wait(self, *, after: str, seconds: int, cancellation: Signal | None = None) -> Collected:
        """References later than ``after``, waiting up to ``seconds`` for the first. Raises ForumError.

        What is already here is returned at once, without a request.
        """
        asked = cancellation or Signal()
        deadline = clock.monotonic() + seconds
        has_asked = False
        while True:
            found = _later(self._file.document["references"], after)
            left = deadline - clock.monotonic()
            if found or asked.is_set or self._closed.is_set or (has_asked and left <= 0):
                return _collected(found, after, timed_out=not found, has_backlog=self.has_backlog)
            flight = self._join(max(0, min(limits.WAIT_SECONDS, round(left))))
            if flight is None:
                return _collected(found, after, timed_out=False, has_backlog=True)
            has_asked = True
            try:
                self._wait_for(flight, max(0.0, left), asked)
            finally:
                self._leave(flight)

    @property
    def has_backlog(self) -> bool:
        """Whether there is no room for a further reference, so that nothing is asked until some are dismissed."""
        return len(self._file.document["references"]) >= limits.CLIENT_REFERENCES

    def close(self) -> None:
        """Give up what is on its way, let everybody who waits go, and wait for the end of both."""
        self._closed.fire()
        with self._guard:
            flight, threads = self._flight, set(self._threads)
        if flight is not None:
            flight.cancellation.fire()
        for thread in threads:
            thread.join()

    def _join(self, wait: int) -> _Flight | None:
        """Take part in the request that is on its way, or begin one; None when there is no room."""
        with self._guard:
            flight = self._flight
            if flight is None:
                room = limits.CLIENT_REFERENCES - len(self._file.document["references"])
                if room <= 0:
                    return None
                flight = self._flight = _Flight(wait)
                thread = threading.Thread(
                    target=self._fly,
                    args=(flight, min(limits.CLIENT_EVENTS, room)),
                    name="forum-collector",
                    daemon=True,
                )
                self._threads.add(thread)
                thread.start()
            flight.parties += 1
            return flight

    def _leave(self, flight: _Flight) -> None:
        with self._guard:
            flight.parties -= 1
            is_abandoned = flight.parties == 0 and not flight.over.is_set
            if is_abandoned and self._flight is flight:
                # Whoever comes now begins a new one.
                self._flight = None
        if is_abandoned:
            flight.cancellation.fire()

    def _wait_for(self, flight: _Flight, left: float, asked: Signal) -> None:
        """Until the request is over, or the caller's own time or interest is; the request itself is left alone."""
        # One that does not wait at the forum ends by itself; it may be slower than a caller who does not want to wait.
        patience = left + (limits.CLIENT_HTTP_GRACE_SECONDS if flight.wait == 0 else _GRACE_SECONDS)
        changed = threading.Event()
        flight.over.on_fire(changed.set)
        asked.on_fire(changed.set)
        changed.wait(patience)
        if flight.over.is_set:
            self._raise(flight)

    def _raise(self, flight: _Flight) -> None:
        error = flight.error
        if isinstance(error, ForumError) and error.forum_code == CANCELLED:
            return
        if error is not None:
            raise error

    def _fly(self, flight: _Flight, limit: int) -> None:
        try:
            cursor = self._file.document["collector"]["cursor"]
            page = self._source(cursor=cursor, limit=limit, wait=flight.wait, cancellation=flight.cancellation)
            failpoints.reach("E1")
            self._save(page, cursor, limit)
            failpoints.reach("E2")
        except ForumError as error:
            flight.error = error
            if error.forum_code != CANCELLED:
                self._note(flight, error)
        except BaseException as error:  # noqa: BLE001 - belongs to whoever waits for this, and is raised there
            flight.error = error
        finally:
            with self._guard:
                if self._flight is flight:
                    self._flight = None
                self._threads.discard(threading.current_thread())
            flight.over.fire()

    def _note(self, flight: _Flight, error: ForumError) -> None:
        try:
            self._failed(error)
        except SideAgentsError as worse:
            flight.error = worse

    def _save(self, page: EventPage, cursor: str | None, limit: int) -> None:
        if len(page.events) > limit:
            raise ForumError(
                f"The forum returned {len(page.events)} events where {limit} were asked for. None was kept, none is lost.",
                forum_code=PAGE_EXCEEDS_CAPACITY,
                status=0,
            )
        if not page.events and page.next_cursor == cursor:
            return
        now = clock.iso()
        fresh = [_reference(event, now) for event in page.events]
        if not all(map(_is_good, fresh)):
            raise ForumError(
                "The forum returned an event that makes no sense. Its page was not kept, and nothing is lost.",
                forum_code=BAD_ANSWER,
                status=0,
                retryable=True,
            )

        def keep(draft: WorkerDocument) -> None:
            # Another cursor means that somebody began anew meanwhile; this page belongs to the old way.
            if draft["collector"]["cursor"] != cursor:
                return
            known = {reference["sequence"] for reference in draft["references"]}
            draft["references"] += [reference for reference in fresh if reference["sequence"] not in known]
            draft["collector"] = {**draft["collector"], "cursor": page.next_cursor, "lastAt": now, "lastError": None}

        self._file.update(keep)


class BackgroundCollection:
    """Collects while an agent works: every ``interval`` seconds, once more when it settles, and never while it is idle."""

    def __init__(self, collector: Collector, interval: float) -> None:
        self._collector = collector
        self._interval = interval
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """The agent begins to work; nothing happens when it does already."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="forum-background", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """The agent has come to rest: one last look, then silence. A failure is in the worker's state, not raised."""
        if self._thread is None:
            return
        self.stop()
        self._collect()

    def stop(self) -> None:
        """End without a last look."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._collect()

    def _collect(self) -> None:
        try:
            self._collector.collect()
        except SideAgentsError:
            # Kept as the collector's last error; there is nobody here to tell.
            return


def dismiss(file: WorkerFile, sequences: Sequence[str] | None = None) -> int:
    """Drop references, all by default, from this file only: nothing counts as read. Returns how many."""

    def drop(draft: WorkerDocument) -> int:
        before = len(draft["references"])
        kept = [] if sequences is None else [r for r in draft["references"] if r["sequence"] not in set(sequences)]
        draft["references"] = kept
        return before - len(kept)

    return file.update(drop)


def start_over(file: WorkerFile) -> None:
    """Collect from the beginning again, for a person who asked for it after the forum was put back."""

    def forget(draft: WorkerDocument) -> None:
        draft["collector"] = {**draft["collector"], "cursor": None, "lastError": None}
        if draft["suspended"] is not None and draft["suspended"]["reason"] == "cursor_expired":
            draft["suspended"] = None

    file.update(forget)


def note_failure(draft: WorkerDocument, error: ForumError) -> None:
    """Remember in a draft why collecting did not work."""
    draft["collector"]["lastError"] = commands.last_error(error)


def check_after(after: str | None) -> str:
    """A sequence to wait after; "0" for none. Raises UsageError."""
    if after is None:
        return "0"
    if not (after.isascii() and after.isdecimal() and len(after) <= 19):
        raise UsageError(
            "afterSequence must be a sequence in decimal digits, as the afterSequence of an earlier forum_watch. "
            "It is no cursor. Nothing was done."
        )
    return str(int(after))


def _later(references: Sequence[Reference], after: str) -> tuple[Reference, ...]:
    found = [reference for reference in references if int(reference["sequence"]) > int(after)]
    found.sort(key=lambda reference: int(reference["sequence"]))
    return tuple(found[: limits.CLIENT_EVENTS])


def _collected(found: tuple[Reference, ...], after: str, *, timed_out: bool, has_backlog: bool) -> Collected:
    return Collected(found, found[-1]["sequence"] if found else after, timed_out, has_backlog)


def _is_good(reference: Reference) -> bool:
    return (
        reference["sequence"].isdecimal()
        and ids.is_ulid("th", reference["threadId"])
        and (reference["postId"] is None or ids.is_ulid("po", reference["postId"]))
        and re.fullmatch(limits.SUBFORUM_KEY_PATTERN.removesuffix("$"), reference["subforum"]) is not None
        and bool(reference["type"])
    )


def _reference(event: dict[str, Any], now: str) -> Reference:
    actor = event.get("actor")
    name = actor.get("name") if isinstance(actor, dict) else None
    reasons = event.get("reasons")
    post = event.get("postId")
    return {
        "sequence": str(event.get("sequence", "")),
        "type": text.one_line(str(event.get("type", "")), 64),
        "threadId": str(event.get("threadId", "")),
        "threadTitle": text.one_line(text.printable(str(event.get("threadTitle", ""))), limits.TITLE_CHARACTERS),
        "postId": post if isinstance(post, str) else None,
        "subforum": str(event.get("subforum", "")),
        "actorName": text.one_line(str(name or "?"), limits.NAME_CHARACTERS),
        "reasons": [text.one_line(str(reason), 64) for reason in reasons] if isinstance(reasons, list) else [],
        "collectedAt": now,
    }
