"""The private state of one participant: one file, one holder, one change after the other (reference/forum 5.7, 5.8).

Nothing is sent that was not saved here first. A save that fails leaves it unknown which of two states a crash would
keep, so the instance takes no further change and has to be opened anew.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

from side_agents.errors import BusyError, NotFoundError, StateError
from side_agents.forum import failpoints, limits
from side_agents.forum.client import worker_lock, worker_schema
from side_agents.forum.client.worker_document import WorkerDocument
from side_agents.forum.client.worker_lock import WorkerLock
from side_agents.infra import clock, fs, fs_private

T = TypeVar("T")

STATE_VARIABLE = "AGENTFORUM_STATE"
PATIENCE = 10.0


def workers_folder(environment: Mapping[str, str], home: Path) -> Path:
    """Where worker folders lie: outside of every repository, because slots are cleaned and agents commit everything."""
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else home / ".local" / "state") / "agentforum" / "workers"


def state_path(folder: Path, worker_id: str) -> Path:
    """The file of one worker below :func:`workers_folder`."""
    return folder / worker_id / "worker.json"


def read_document(path: Path) -> WorkerDocument:
    """Read and check a worker file without holding it. Raises NotFoundError or StateError; nothing is changed."""
    try:
        fs_private.check_folder(path.parent)
        raw = fs_private.read(path, limit=limits.CLIENT_STATE_BYTES)
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no forum state at {path}. Nothing was changed.") from error
    return worker_schema.parse(raw, where=str(path))


def forget(path: Path) -> None:
    """Remove the file of a worker that nobody has been yet, with its folder; one that is held stays.

    Raises StateError when it cannot be removed.
    """
    if not path.is_file():
        return
    try:
        lock = worker_lock.acquire(path, purpose="forgetting a worker", patience=0)
    except BusyError:
        return
    try:
        fs_private.remove_strays(path)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StateError(f"{path} could not be removed ({error.strerror}).") from error
    finally:
        lock.release()
    with suppress(OSError):
        path.parent.rmdir()


def set_aside(path: Path, *, purpose: str, patience: float = PATIENCE) -> Path | None:
    """Keep a worker file, good or not, under another name beside its own; None when there is none. Raises BusyError."""
    if not path.exists():
        return None
    lock = worker_lock.acquire(path, purpose=purpose, patience=patience)
    try:
        kept = path.with_name(f"{path.stem}-{clock.stamp()}.json")
        fs.move_durably(path, kept)
        return kept
    finally:
        lock.release()


class WorkerFile:
    """An open worker file. Made by :meth:`open` or :meth:`create`; closed by ``close`` or as a context manager.

    All methods may be called from several threads.
    """

    def __init__(self, path: Path, lock: WorkerLock, document: WorkerDocument) -> None:
        self.path = path
        self._lock = lock
        self._document = document
        self._serial = threading.Lock()
        self._poison: str | None = None
        self._is_open = True

    @classmethod
    def open(cls, path: Path, *, purpose: str, patience: float = PATIENCE) -> Self:
        """Hold and read an existing file. Raises NotFoundError, BusyError (names the holder) or StateError."""
        read_document(path)
        lock = worker_lock.acquire(path, purpose=purpose, patience=patience)
        try:
            fs_private.remove_strays(path)
            return cls(path, lock, read_document(path))
        except BaseException:
            lock.release()
            raise

    @classmethod
    def create(
        cls, path: Path, initial: Callable[[], WorkerDocument], *, purpose: str, patience: float = PATIENCE
    ) -> Self:
        """Hold the file; where there is none, save the ``initial`` document first. Raises as :meth:`open` does."""
        fs_private.make_folder(path.parent)
        fs_private.check_folder(path.parent)
        lock = worker_lock.acquire(path, purpose=purpose, patience=patience)
        try:
            fs_private.remove_strays(path)
            try:
                return cls(path, lock, read_document(path))
            except NotFoundError:
                document = initial()
                _save(path, worker_schema.encode(document))
                return cls(path, lock, document)
        except BaseException:
            lock.release()
            raise

    @property
    def document(self) -> WorkerDocument:
        """The state as it is saved; never changed in place, so it may be kept and must not be written to."""
        return self._document

    def update(self, change: Callable[[WorkerDocument], T]) -> T:
        """Apply ``change`` to a copy, check it, save it durably, and only then make it the state.

        ``change`` must be quick and must not wait, send or call ``update``. What it raises passes through and changes
        nothing. Raises StateError when the result would be wrong (nothing changed) or could not be saved (no further
        change is accepted then).
        """
        if inspect.iscoroutinefunction(change):
            raise StateError("A change of the forum state must be an ordinary function. Nothing was changed.")
        with self._serial:
            self._refuse_if_unusable()
            draft = copy.deepcopy(self._document)
            result = change(draft)
            if inspect.iscoroutine(result):
                result.close()
                raise StateError("A change of the forum state must be an ordinary function. Nothing was changed.")
            draft["revision"] = self._document["revision"] + 1
            raw = worker_schema.encode(draft)
            try:
                _save(self.path, raw)
            except BaseException as error:
                self._poison = f"{type(error).__name__}: {error}"
                raise
            self._document = draft
            return result

    def close(self) -> None:
        """Let go of the file; later changes are refused."""
        with self._serial:
            if self._is_open:
                self._is_open = False
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_if_unusable(self) -> None:
        if not self._is_open:
            raise StateError(f"{self.path} is not open any more. Nothing was changed.")
        if self._poison is not None:
            raise StateError(
                f"An earlier change of {self.path} could not be saved ({self._poison}), so no further one is accepted. "
                "The file is whole: it holds the state before or after that change.",
                hint="Call again: the file is read anew then.",
            )


def _save(path: Path, raw: bytes) -> None:
    try:
        fs_private.replace(path, raw, reached=failpoints.reach)
    except OSError as error:
        raise StateError(
            f"{path} could not be saved ({error.strerror}). It is whole: it holds the state before or after this change.",
            hint="Free space or repair the disk, then call again.",
        ) from error
