"""What an examination finds, as values: the words that ``doctor``, its checks and ``repair`` share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from side_agents.models import ProcessRef


class Severity(StrEnum):
    """How much a finding matters. A ``warning`` costs something while it stays, a ``problem`` keeps something from working.

    ``ok`` and ``note`` are information.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"

    @property
    def is_fault(self) -> bool:
        """Whether the exit status tells of it."""
        return self in (Severity.WARNING, Severity.PROBLEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found.

    ``safe`` says what is not in danger, ``mend`` what a person can do, mostly a command of ours. ``repair`` is the sentence of
    what ``doctor --repair`` would do, None where it can do nothing. ``subject`` names the thing (an agent, a slot, a pane),
    ``place`` is its path or a tmux socket, ``process`` a process as it was seen: repairs look at all of them anew.
    """

    code: str
    severity: Severity
    what: str
    safe: str = ""
    mend: str = ""
    repair: str | None = None
    subject: str = ""
    place: Path | None = None
    process: ProcessRef | None = None
    check: str = ""

    @property
    def repairable(self) -> bool:
        """Whether ``--repair`` can mend it."""
        return self.repair is not None

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for the same fault in two examinations."""
        return (self.code, self.subject, str(self.place or ""))


def some(items: list[str], limit: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more
