"""``forum doctor``: whether everything in the database is as it must be. It only reads."""

from __future__ import annotations

from typing import Any

from side_agents.forum.store import invariants
from side_agents.forum.store.database import Connection, Database


def examine(database: Database) -> dict[str, Any]:
    """Check every rule of reference/forum.md 6.2 that one look can show: ``{ok, rulesChecked, problems: [{invariant, rule,
    rows}]}``. Each problem shows the first few rows that break its rule; ``invariant`` is the rule's number there."""

    def query(connection: Connection) -> list[invariants.Violation]:
        return invariants.violations(connection)

    found = database.read(query)
    return {
        "ok": not found,
        "rulesChecked": len(invariants.RULES),
        "problems": [
            {"invariant": each.number, "rule": each.rule, "rows": [_shown(row) for row in each.rows]} for each in found
        ],
    }


def _shown(row: tuple[object, ...]) -> list[object]:
    return [value.hex() if isinstance(value, bytes) else value for value in row]
