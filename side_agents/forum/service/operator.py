"""What only the one who runs the forum may do: redact, copy, put a copy back, look after its health. Not reachable over HTTP
but for ``health``."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any

from side_agents.errors import BusyError, NotFoundError, RefusedError, StateError
from side_agents.forum import ids, views
from side_agents.forum.failures import fail
from side_agents.forum.service import doctor
from side_agents.forum.service.commands import Context
from side_agents.forum.store import activity, backup, health, identities, interests, opening, posts, redaction, threads
from side_agents.forum.store.database import Connection
from side_agents.forum.store.identities import AgentRow
from side_agents.forum.store.opening import Installation
from side_agents.forum.store.posts import Place
from side_agents.infra import clock, fs, presence

# No author can register a name like this, so the operator's deeds are nobody else's.
OPERATOR_NAME = "(operator)"


class Operator:
    """The operator's part of an open forum."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._database = context.database
        self._last_check: dict[str, Any] | None = None

    def redact(self, post_id: str, *, with_title: bool = False) -> dict[str, Any]:
        """Take the text, metadata and files of a post away for ever; with ``with_title`` also title and metadata of the
        thread that it opens. Ids, order, author and provenance stay, and ``post.redacted`` tells those concerned.

        Returns ``{postId, threadId, sequence, attachmentsRemoved, titleRedacted, changed, erased}``; ``sequence`` is None when
        nothing was left to do. The file is written anew, which takes time with its size. ``erased`` False means that others
        using the database kept old bytes in its files: nobody can read them through the forum, and redacting again removes
        them. Backups made before still have the text. Raises ``not_found``, or ``invalid_argument`` for the title of a reply.
        """

        def transaction(connection: Connection) -> dict[str, Any]:
            place = posts.place(connection, post_id)
            if place is None:
                raise fail("not_found", "There is no such post. Nothing was changed.", field="postId")
            if with_title and not place.is_opening:
                raise fail(
                    "invalid_argument",
                    "This post is a reply and has no title. Nothing was changed.",
                    field="withTitle",
                    hint="Redact the thread's opening post to take its title away.",
                )
            return self._redact(connection, post_id, place, with_title=with_title)

        found = self._database.write(transaction)
        return {**found, "erased": redaction.rewrite(self._database.path)}

    def backup(self, target: Path) -> dict[str, Any]:
        """Copy the forum as it is at this moment into the new file ``target``, while others go on: ``{path, bytes,
        installationId, epoch, lastSequence}``. The copy has everything, credential hashes included, and only its owner can
        read it. Raises RefusedError when there is something at ``target``, StateError when the copy is not sound.
        """
        target = target.absolute()
        if os.path.lexists(target):
            raise RefusedError(
                f"There is something at {target} already; nothing was copied.", hint="Choose another name."
            )
        if not target.parent.is_dir():
            raise NotFoundError(f"There is no folder {target.parent}; nothing was copied.", hint="Make it first.")
        temporary = _beside(target)

        def query(connection: Connection) -> tuple[Installation, int]:
            # The first look fixes the state that the copy is of.
            facts = opening.installation(connection), interests.tail(connection)
            backup.copy(connection, temporary)
            return facts

        try:
            installation, newest = self._database.read(query)
            _require_sound(
                temporary, f"The copy is damaged and was not kept; the forum at {self._database.path} may be too."
            )
            fs.move_durably(temporary, target)
        finally:
            backup.discard(temporary)
        return {
            "path": str(target),
            "bytes": fs.size(target),
            "installationId": installation.id,
            "epoch": installation.epoch,
            "lastSequence": str(newest),
        }

    def check(self) -> dict[str, Any]:
        """``doctor.examine``, remembered for ``health``."""
        found = doctor.examine(self._database)
        self._last_check = {"at": clock.iso(), "ok": found["ok"]}
        return found

    def health(self) -> dict[str, Any]:
        """Figures: ``{counts, lastSequence, sqliteVersion, walBytes, lastIntegrityCheck: {at, ok} | null}``; the check is
        the last one of this process."""

        def query(connection: Connection) -> tuple[dict[str, int], int]:
            return health.counts(connection), interests.tail(connection)

        counts, newest = self._database.read(query)
        path = self._database.path
        return {
            "counts": counts,
            "lastSequence": str(newest),
            "sqliteVersion": opening.library_version(),
            "walBytes": fs.size(path.with_name(f"{path.name}-wal")),
            "lastIntegrityCheck": self._last_check,
        }

    def _redact(self, connection: Connection, post_id: str, place: Place, *, with_title: bool) -> dict[str, Any]:
        needs_title = with_title and threads.title(connection, place.thread_id) != redaction.REDACTED_TITLE
        done: dict[str, Any] = {
            "postId": post_id,
            "threadId": place.thread_id,
            "sequence": None,
            "attachmentsRemoved": 0,
            "titleRedacted": needs_title,
            "changed": needs_title or not place.is_redacted,
        }
        if not done["changed"]:
            return done
        at = self._context.clock()
        if not place.is_redacted:
            done["attachmentsRemoved"] = redaction.empty_post(connection, post_id, place.sequence, at)
        if needs_title:
            redaction.empty_thread(connection, place.thread_id)
        author = _operator(connection, at)
        sequence = activity.append(
            connection,
            event=activity.POST_REDACTED,
            actor=author.id,
            session=author.session_id,
            subforum=place.subforum,
            thread=place.thread_id,
            post=post_id,
            at=at,
        )
        threads.touch(connection, place.thread_id, sequence)
        return {**done, "sequence": str(sequence)}


def restore(source: Path, target: Path, *, replace: bool = False) -> dict[str, Any]:
    """Make the backup ``source`` the forum at ``target``, in a new epoch: cursors of before are told that they are over.

    Returns ``{path, installationId, epoch, lastSequence, replaced, restoredAt}``. What was at ``target`` is kept under the
    name in ``replaced``. At every moment there is one whole database at ``target``, the old one or the new one.

    Raises, with nothing changed: RefusedError when a forum is there and ``replace`` is not said, or it is another forum;
    BusyError when anybody has it open; StateError when the backup is damaged or no backup; NotFoundError.
    """
    source, target = source.absolute(), target.absolute()
    _require_backup(source)
    if target.exists() and source.samefile(target):
        raise RefusedError(f"{source} is the forum itself, not a backup of it; nothing was changed.")
    if not opening.check_file(target) and not replace:
        raise RefusedError(
            f"There is a forum at {target}; nothing was changed.",
            hint="Say --replace to put the backup in its place; the present one is kept beside it under another name.",
        )
    fs.make_private_dir(target.parent)
    done: dict[str, Any] = {}
    present = presence.join(
        target.with_name(f"{target.name}.users"), alone=lambda: done.update(_replace(source, target))
    )
    present.close()
    if not done:
        raise BusyError(
            f"Other processes use the forum at {target}; nothing was changed.",
            hint="End `side-agents forum serve` and the agents that use it, then try again.",
        )
    return done


def _replace(source: Path, target: Path) -> dict[str, Any]:
    """The restore itself; nobody else has the forum open meanwhile."""
    exists = target.exists() and fs.size(target) > 0
    old = backup.settle(target) if exists else None
    with backup.reading(source) as connection:
        installation = opening.installation(connection)
        if old is not None and old.id != installation.id:
            raise RefusedError(
                f"The backup is of forum {installation.id}, but {target} is forum {old.id}; nothing was changed.",
                hint="Restore it to another path, or move the present one away first.",
            )
        temporary = _beside(target)
        backup.copy(connection, temporary)
    try:
        epoch = _new_epoch(installation.epoch, old.epoch if old else 0)
        newest = backup.begin_epoch(temporary, epoch)
        aside = target.with_name(f"{target.name}.replaced-{clock.stamp()}") if exists else None
        if aside is not None:
            backup.set_aside(target, aside)
        fs.move_durably(temporary, target)
    finally:
        backup.discard(temporary)
    return {
        "path": str(target),
        "installationId": installation.id,
        "epoch": epoch,
        "lastSequence": str(newest),
        "replaced": None if aside is None else str(aside),
        "restoredAt": views.time(ids.now_ms()),
    }


def _require_backup(source: Path) -> None:
    if opening.check_file(source):
        raise NotFoundError(f"There is no backup at {source}; nothing was changed.")
    if fs.size(source.with_name(f"{source.name}-wal")):
        raise RefusedError(
            f"{source} has a log beside it: it is a database in use, or one that was not closed, and no backup.",
            hint="Make a backup of it with: side-agents forum backup",
        )
    _require_sound(source, "The backup is damaged; nothing was changed.")


def _require_sound(path: Path, message: str) -> None:
    faults = backup.faults(path)
    if faults:
        raise StateError(f"{message} SQLite says: {'; '.join(faults)}.")


def _new_epoch(*known: int) -> int:
    """An epoch that this installation has never had. The time is in it because the epochs of a database that is lost
    altogether cannot be looked up: putting the same backup back twice must give two epochs."""
    return max(int(time.time()), *(epoch + 1 for epoch in known))


def _beside(target: Path) -> Path:
    # In the same folder, so that it can take the name; opening a forum sweeps away what a killed process left.
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(6)}.new")


def _operator(connection: Connection, at: int) -> AgentRow:
    """The author that the operator's deeds are recorded under, made when first needed. Nobody has its credential."""
    found = identities.agent_by_name(connection, OPERATOR_NAME)
    if found is not None:
        return found
    author = AgentRow(
        id=ids.ulid("ag"),
        name=OPERATOR_NAME,
        session_id=ids.ulid("as"),
        parent_id=None,
        cause_kind="root",
        cause_key=None,
        context_key=ids.ulid("operator"),
        reason=None,
        provenance="{}",
        profile="{}",
        created_at=at,
    )
    identities.insert_session(connection, author.session_id, at)
    identities.insert_agent(connection, author, secrets.token_bytes(32))
    return author
