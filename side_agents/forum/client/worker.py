"""One participant of a forum: its private file, its connection, and everything it can do.

Opened by whoever acts for an agent, for as long as that takes. Failures of the forum that say something about the
identity or the place in the events suspend the worker; they never make it somebody else and never delete anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from side_agents.errors import ForumError, RefusedError, UsageError
from side_agents.forum import limits
from side_agents.forum.client import (
    children,
    commands,
    policy,
    projection,
    publication,
    registration,
    settings,
    suspension,
    worker_document,
)
from side_agents.forum.client.api import Api, EventPage, PostPage
from side_agents.forum.client.children import ChildPlan
from side_agents.forum.client.collector import (
    BackgroundCollection,
    Collected,
    Collector,
    check_after,
    note_failure,
)
from side_agents.forum.client.connection import Connection
from side_agents.forum.client.host import NOWHERE, HostFacts, Moment, Origin, new_host
from side_agents.forum.client.policy import Dialog, Draft
from side_agents.forum.client.publication import Outcome
from side_agents.forum.client.settings import Settings, settings_from
from side_agents.forum.client.transport import Signal, Transport
from side_agents.forum.client.worker_document import Identity, Spawn, WorkerDocument
from side_agents.forum.client.worker_file import PATIENCE, WorkerFile

T = TypeVar("T")


class Worker:
    """A participant. Made by :meth:`open`; closed by ``close`` or as a context manager. Methods may run in threads."""

    def __init__(self, file: WorkerFile, transport: Transport) -> None:
        self.file = file
        self._transport = transport
        self._connection = Connection(transport, file.document["server"])
        self.collector = Collector(file, self._events, self._note_collection)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        facts: HostFacts,
        transport_to: Callable[[str], Transport],
        defaults: Callable[[], Settings] | None = None,
        purpose: str,
        patience: float = PATIENCE,
    ) -> Self:
        """Hold a worker's file and judge whether the running conversation may use it; nothing is sent.

        With ``defaults`` a missing file is made, with these settings; its folder's name is the worker's id.
        ``transport_to`` gives the way to an origin. Raises NotFoundError, BusyError (names the holder) or StateError.
        """
        with ExitStack() as stack:
            file = stack.enter_context(_open_file(path, facts, defaults, purpose, patience))
            if suspension.needs_restoring(file.document, facts):
                file.update(lambda draft: suspension.restore(draft, facts))
            server = file.document["server"]
            origin = server["origin"] if server is not None else file.document["settings"]["serverUrl"]
            worker = cls(file, transport_to(origin))
            stack.pop_all()
            return worker

    def close(self) -> None:
        """Give up what is on its way and let go of the file."""
        try:
            self.collector.close()
            self._transport.close()
        finally:
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def document(self) -> WorkerDocument:
        """The saved state; not to be changed."""
        return self.file.document

    @property
    def settings(self) -> Settings:
        """This worker's own snapshot."""
        return settings_from(self.document["settings"])

    @property
    def label(self) -> str:
        """The current author's name, for status lines; empty while it is nobody."""
        identity = self.document["identity"]
        return identity["name"] if identity is not None else ""

    @property
    def is_local(self) -> bool:
        """Whether its forum is the project's own file, spoken to in this process."""
        return self._transport.origin == settings.LOCAL

    def ensure_identity(self, label: str, *, name: str | None = None) -> Identity:
        """The identity, registered on first use as ``name`` or under a fresh one made from ``label``. Raises ForumError."""
        suspension.require_active(self.document)
        name = name or commands.fresh_name(self.document["settings"]["namePrefix"], label)
        with self._watched():
            return registration.register(self.file, self._connection, name=name)

    def verify(self) -> bool:
        """Ask the forum who we are, at the start of a conversation; False when it cannot be reached, which is no harm.

        An answer that names somebody else suspends the worker. Raises RefusedError when it is suspended.
        """
        suspension.require_active(self.document)
        identity = self._identity()
        try:
            with self._watched():
                author = Api(self._connection, identity["credential"]).me()
        except ForumError as error:
            if suspension.reason_for(error) is not None:
                raise
            return False
        if (author.agent_id, author.session_id) != (identity["agentId"], identity["sessionId"]):
            self.file.update(lambda draft: suspension.set_reason(draft, "identity_mismatch"))
            suspension.require_active(self.document)
        return True

    def compact(self, *, entry_id: str, label: str, moment: Moment = NOWHERE, reason: str | None = None) -> Identity:
        """Become the next author of the same session, after a compaction that succeeded. Raises ForumError."""
        suspension.require_active(self.document)
        name = commands.fresh_name(self.document["settings"]["namePrefix"], label)
        with self._watched():
            return registration.compact(
                self.file, self._connection, entry_id=entry_id, name=name, moment=moment, reason=reason
            )

    def finish_registration(self) -> Identity:
        """Send a prepared registration or compaction again, exactly as it was. Raises ForumError."""
        suspension.require_active(self.document)
        with self._watched():
            return registration.finish(self.file, self._connection)

    def create_child(self, plan: ChildPlan) -> Spawn:
        """P1 to P5: a child with its own saved file, ready to be started; goes on where an earlier call stopped."""
        suspension.require_active(self.document)
        children.prepare(self.file, plan)
        with self._watched():
            children.create(self.file, self._connection, plan.cause_key)
        return children.save_child(self.file, plan.cause_key)

    def publish(
        self, draft: Draft, *, origin: Origin, moment: Moment = NOWHERE, dialog: Dialog | None = None
    ) -> Outcome:
        """Publish a draft when the policy allows it. Raises RefusedError and UsageError before anything was sent.

        Everything about the publication is fixed before a person is asked.
        """
        suspension.require_active(self.document)
        policy.refuse_read_only(self.settings, origin=origin)
        captured = publication.capture(self.document, draft, origin=origin, moment=moment)
        chosen = self.settings
        subforum = draft.subforum
        if draft.thread_id is not None and policy.needs_subforum(chosen, origin=origin):
            # Where a thread lies is the forum's word; the model's own could open a subforum that is not free.
            subforum = str(self.thread(draft.thread_id)["subforum"])
        policy.authorise(chosen, draft, subforum=subforum, origin=origin, dialog=dialog)
        publication.save(self.file, captured)
        return self._sent(captured["id"])

    def retry(self, publication_id: str, *, confirm: Callable[[worker_document.Publication], bool]) -> Outcome:
        """Send a saved publication again, for a person who confirms it. Nothing of it is changed."""
        suspension.require_active(self.document)
        if not confirm(publication.find(self.document, publication_id)):
            raise RefusedError("It was not confirmed. Nothing was sent.")
        return self._sent(publication_id)

    def discard(self, publication_id: str, *, confirm: Callable[[worker_document.Publication], bool]) -> None:
        """Forget a saved publication, for a person who confirms it."""
        if not confirm(publication.find(self.document, publication_id)):
            raise RefusedError("It was not confirmed. Nothing was changed.")
        publication.discard(self.file, publication_id)

    def search(self, text: str, *, subforum: str | None = None) -> tuple[dict[str, Any], ...]:
        """At most 20 hits. Raises ForumError."""
        return self.call(lambda api: api.search(text, subforum=subforum, limit=limits.CLIENT_HITS))

    def thread(self, thread_id: str) -> dict[str, Any]:
        """The view of a thread. Raises ForumError."""
        return self.call(lambda api: api.thread(thread_id))

    def read(self, thread_id: str, *, cursor: str | None = None) -> PostPage:
        """At most 20 posts, as many as can be shown whole; a single one may be longer. Raises UsageError or ForumError."""
        if cursor is not None and cursor.strip().isdecimal():
            raise UsageError(
                f"cursor {cursor[:20]!r} is a sequence number, not a page of posts. Nothing was asked.",
                hint="Pass pageInfo.nextCursor of the last forum_read unchanged, or leave cursor out to start anew.",
            )

        def page(limit: int) -> PostPage:
            return self.call(
                lambda api: api.posts(thread_id, cursor=cursor, limit=limit, max_bytes=limits.POSTS_PAGE_BYTES)
            )

        whole = page(limits.CLIENT_POSTS)
        count = projection.fitting(whole.posts)
        # Asked again, so that the cursor of the answer stands exactly behind what is shown.
        return whole if count == len(whole.posts) else page(count)

    def watch(self, thread_id: str, *, watching: bool) -> bool:
        """Set or remove the watch of a thread; returns what holds now. Raises ForumError."""
        return bool(self.call(lambda api: api.watch_thread(thread_id, watching=watching))["watching"])

    def watch_subforum(self, key: str, *, watching: bool) -> bool:
        """Set or remove the watch of a subforum; returns what holds now. Raises ForumError."""
        return bool(self.call(lambda api: api.watch_subforum(key, watching=watching))["watching"])

    def wait(self, *, after: str | None, seconds: int, cancellation: Signal | None = None) -> Collected:
        """References later than ``after``; see ``Collector.wait``. Raises UsageError for a time that is not 0 to 60."""
        start = check_after(after)
        if type(seconds) is not int or not 0 <= seconds <= limits.WAIT_SECONDS:
            raise UsageError(f"waitSeconds must be a whole number from 0 to {limits.WAIT_SECONDS}. Nothing was done.")
        suspension.require_active(self.document, collecting=True)
        self._identity()
        return self.collector.wait(after=start, seconds=seconds, cancellation=cancellation)

    def background(self) -> BackgroundCollection:
        """Collection beside the work of an agent, at this worker's interval."""
        return BackgroundCollection(self.collector, self.settings.poll_interval_seconds)

    def change_settings(self, changes: Mapping[str, Any]) -> Settings:
        """Change this worker's own settings. A worker that is bound to a forum keeps its server. Raises UsageError."""
        document = self.document
        chosen = settings_from({**document["settings"], **changes}, complete=True)
        if document["server"] is not None and chosen.server_url != document["settings"]["serverUrl"]:
            raise UsageError(
                "This worker is bound to its forum and cannot take its credentials to another. Nothing was changed.",
                hint="Save the new server in your defaults, then make a new worker: side-agents forum worker new",
            )

        def store(draft: WorkerDocument) -> None:
            draft["settings"] = chosen.document()

        self.file.update(store)
        return chosen

    def _sent(self, publication_id: str) -> Outcome:
        credential = publication.find(self.document, publication_id)["credential"]
        outcome = publication.send(self.file, self._connection, publication_id)
        if outcome.error is not None:
            self._note(outcome.error, credential)
        return outcome

    def call(self, call: Callable[[Api], T]) -> T:
        """What ``call`` asks of the forum as the current author. Raises ForumError, and RefusedError while suspended."""
        suspension.require_active(self.document)
        identity = self._identity()
        with self._watched():
            return call(Api(self._connection, identity["credential"]))

    def _events(self, *, cursor: str | None, limit: int, wait: int, cancellation: Signal) -> EventPage:
        suspension.require_active(self.document, collecting=True)
        return Api(self._connection, self._identity()["credential"]).events(
            self.document["collector"]["scope"], cursor=cursor, limit=limit, wait=wait, cancellation=cancellation
        )

    def _note_collection(self, error: ForumError) -> None:
        def note(draft: WorkerDocument) -> None:
            note_failure(draft, error)
            reason = suspension.reason_for(error)
            if reason is not None:
                suspension.set_reason(draft, reason)

        self.file.update(note)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Let failures through, and note those that suspend: about the credential of now, whatever comes meanwhile."""
        identity = self.document["identity"]
        try:
            yield
        except ForumError as error:
            if error.forum_code != "cursor_expired":
                self._note(error, identity["credential"] if identity is not None else None)
            raise

    def _note(self, error: ForumError, credential: str | None) -> None:
        """Suspend when the failure is about who we are now; one about a former author's credential is not."""
        reason = suspension.reason_for(error)
        identity = self.document["identity"]
        is_ours = identity is not None and identity["credential"] == credential
        if reason is not None and (reason != "auth_failed" or is_ours):
            self.file.update(lambda draft: suspension.set_reason(draft, reason))

    def _identity(self) -> Identity:
        identity = self.document["identity"]
        if identity is None:
            raise RefusedError("This worker is not registered with the forum yet. Nothing was sent.")
        return identity


def _open_file(
    path: Path, facts: HostFacts, defaults: Callable[[], Settings] | None, purpose: str, patience: float
) -> WorkerFile:
    if defaults is None:
        return WorkerFile.open(path, purpose=purpose, patience=patience)
    worker_id = worker_document.worker_id_of(path)

    def initial() -> WorkerDocument:
        return worker_document.new_document(worker_id, new_host(worker_id, facts), defaults().document())

    return WorkerFile.create(path, initial, purpose=purpose, patience=patience)


def transport_to(origin: str, local_database: Path) -> Transport:
    """The way to an origin: into the file of the project's own forum, or over HTTP. Nothing is opened yet."""
    if origin == settings.LOCAL:
        from side_agents.forum.client.in_process import local_transport

        return local_transport(local_database)
    from side_agents.forum.client.http import HttpTransport

    return HttpTransport(origin)
