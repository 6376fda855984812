"""The one writer of a process: commands queue up, and those that are waiting together share one commit.

Each command has a savepoint, so a failing one leaves no trace and its neighbours go on. Nobody hears of anything before
the commit has returned; when it fails, nothing of the batch exists and everybody in it is told so (reference/forum.md 3.1).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import apsw

from side_agents.errors import ForumError
from side_agents.forum import failpoints
from side_agents.forum.failures import fail

T = TypeVar("T")

# Bounds how long a commit, and with it another process's turn, can be put off.
BATCH = 64
# How long the log may grow before it is moved into the database.
CHECKPOINT_PAGES = 1000


@dataclass(slots=True)
class _Job:
    run: Callable[[apsw.Connection], Any]
    done: Future[Any] = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None

    def release(self) -> None:
        if self.error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(self.error)


class Writer:
    """Owns a connection and the thread that alone uses it."""

    def __init__(self, connection: apsw.Connection, committed: Callable[[], None]) -> None:
        self._connection = connection
        self._committed = committed
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._accepting = threading.Lock()
        self._closed = False
        self._log_pages = 0
        connection.set_wal_hook(self._note_log)
        self._thread = threading.Thread(target=self._serve, name="forum-writer", daemon=True)
        self._thread.start()

    def run(self, function: Callable[[apsw.Connection], T]) -> T:
        """Run ``function`` in a transaction and return its result once that is durable.

        Raises what it raised, with nothing of it left; ``busy``, ``storage_full`` or ``storage_failed`` when the database
        could not keep it; ``shutting_down`` after ``finish``.
        """
        assert threading.current_thread() is not self._thread, "a command cannot wait for another one"
        job = _Job(function)
        with self._accepting:
            if self._closed:
                raise fail("shutting_down", "The forum is being closed; nothing was changed.")
            self._jobs.put(job)
        result: T = job.done.result()
        return result

    def finish(self) -> None:
        """Take no more commands and finish those that are queued. May be called twice."""
        with self._accepting:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def close(self) -> None:
        """Close the connection, which moves the log into the database when nobody else has it open."""
        self.finish()
        self._connection.close()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            batch: list[_Job] = []
            try:
                self._run_batch(job, batch)
            finally:
                for finished in batch:
                    finished.release()
            # Only now, so that nobody waits for it.
            self._shorten_log()

    def _run_batch(self, first: _Job, batch: list[_Job]) -> None:
        """Fill ``batch`` and settle the outcome of each job in it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            first.error = storage_error(error)
            batch.append(first)
            return
        failpoints.reach("S2")
        before = self._connection.total_changes()
        try:
            job: _Job | None = first
            while job is not None:
                batch.append(job)
                self._run_job(job)
                job = self._next_job() if len(batch) < BATCH else None
                if job is not None:
                    failpoints.reach("S17")
            failpoints.reach("S11")
            self._connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - nobody may hear of a success that is not durable; the thread goes on
            self._lose(batch, error)
            return
        failpoints.reach("S13")
        if self._connection.total_changes() != before:
            self._committed()
        failpoints.reach("S14")

    def _note_log(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _shorten_log(self) -> None:
        if self._log_pages >= CHECKPOINT_PAGES:
            # What is in the log is safe there; a failing disk or a busy reader only puts this off.
            with suppress(apsw.Error):
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _next_job(self) -> _Job | None:
        with suppress(queue.Empty):
            job = self._jobs.get_nowait()
            if job is None:
                self._jobs.put(None)
            return job
        return None

    def _run_job(self, job: _Job) -> None:
        """Run one command in its savepoint. Raises only when the whole transaction is lost with it."""
        self._connection.execute("SAVEPOINT command")
        try:
            job.result = job.run(self._connection)
        except BaseException as error:
            if not self._connection.in_transaction:
                # SQLite has rolled back everything by itself, the neighbours' work too.
                raise
            self._connection.execute("ROLLBACK TO command")
            job.error = storage_error(error) if isinstance(error, apsw.Error) else error
        self._connection.execute("RELEASE command")

    def _lose(self, batch: list[_Job], error: BaseException) -> None:
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        # Also those that had failed by themselves: they may have failed because of a neighbour that is gone now.
        for job in batch:
            job.error = storage_error(error, lost=True)


def storage_error(error: BaseException, *, lost: bool = False) -> BaseException:
    """What a failure of the database means to the one who gave the command; a fault of ours stays what it is."""
    if isinstance(error, apsw.FullError):
        return _because(error, "storage_full", "The disk is full; nothing of this request was kept.")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return _because(error, "busy", "The forum is busy; nothing of this request was kept.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        # A hint would not get over the wire.
        words = (
            "The forum's database is damaged; it was left as it is, and nothing of this request was kept. Whoever runs it can "
            "put a backup in its place: side-agents forum restore."
        )
        return _because(error, "storage_failed", words)
    if lost or isinstance(error, apsw.IOError | apsw.CantOpenError | apsw.NoMemError):
        return _because(error, "storage_failed", "The forum could not save; nothing of this request was kept.")
    return error


def _because(cause: BaseException, code: str, message: str) -> ForumError:
    error = fail(code, message)
    error.__cause__ = cause
    return error
