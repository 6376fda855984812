"""What must always hold in the database (reference/forum.md 6.2), checked in one look.

``forum doctor`` does this, and so does every test that writes. What concerns time (never decreases, never changes) is kept
by triggers and tested, for no single look can show it. Number 0 is what SQLite itself demands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from side_agents.forum import checks
from side_agents.forum.store.invariant_queries import QUERIES

if TYPE_CHECKING:
    from side_agents.forum.store.database import Connection

Row = tuple[object, ...]

_SHOWN = 5
_GUARDS = frozenset(
    (
        "activity_no_update",
        "activity_no_delete",
        "post_no_delete",
        "post_immutable",
        "agent_no_delete",
        "agent_immutable",
        "command_no_update",
        "command_no_delete",
        "read_monotone",
        "ack_monotone",
    )
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and the first few rows that break it."""

    number: int
    rule: str
    rows: tuple[Row, ...]


def violations(connection: Connection) -> list[Violation]:
    """All broken rules; empty for a sound database. Reads everything, attachments included."""
    found = [
        Violation(query.number, query.rule, _first(connection.execute(f"SELECT * FROM ({query.sql}) LIMIT {_SHOWN}")))
        for query in QUERIES
    ]
    found += [Violation(number, rule, _first(check(connection))) for number, rule, check in _CHECKS]
    return [each for each in found if each.rows]


def _first(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row for row, _ in zip(rows, range(_SHOWN), strict=False))


def _unsound(connection: Connection) -> list[Row]:
    return [row for row in connection.execute("PRAGMA integrity_check") if row != ("ok",)]


def _dangling(connection: Connection) -> list[Row]:
    return list(connection.execute("PRAGMA foreign_key_check"))


def _missing_guards(connection: Connection) -> list[Row]:
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    return [(name,) for name in sorted(_GUARDS - present)]


def _wrong_hashes(connection: Connection) -> list[Row]:
    rows = connection.execute("SELECT id, sha256, data FROM attachment")
    return [(file,) for file, sha256, data in rows if hashlib.sha256(data).digest() != sha256]


def _wrong_terms(connection: Connection) -> list[Row]:
    """What is stored as terms of a thread or post, and what its metadata says, where they differ."""
    wrong: list[Row] = []
    stored = "SELECT k, v FROM term WHERE kind = ? AND entity = ?"
    for kind in ("thread", "post"):
        for entity, metadata in connection.execute(f"SELECT id, metadata FROM {kind}"):
            if set(connection.execute(stored, (kind, entity))) != set(checks.terms(json.loads(metadata))):
                wrong.append((kind, entity))
        orphans = f"SELECT kind, entity FROM term WHERE kind = ? AND entity NOT IN (SELECT id FROM {kind})"
        wrong += connection.execute(orphans, (kind,))
    return wrong


_CHECKS: tuple[tuple[int, str, Callable[[Connection], list[Row]]], ...] = (
    (0, "the file is sound", _unsound),
    (0, "no row refers to one that is missing", _dangling),
    (18, "the triggers that forbid changes are there", _missing_guards),
    (20, "attachment hashes match the bytes", _wrong_hashes),
    (22, "terms are what the metadata says", _wrong_terms),
)
RULES = (*((query.number, query.rule) for query in QUERIES), *((number, rule) for number, rule, _ in _CHECKS))
