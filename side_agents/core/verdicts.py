"""What may be discarded and why not: the words that ``discard``, its proofs and ``clean`` share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from side_agents.errors import RefusedError


class Kind(StrEnum):
    """The kinds of things that can be discarded, in the order in which ``clean`` takes them."""

    RECORD = "record"
    WINDOW = "window"
    LEASE = "lease"
    SLOT = "slot"
    BRANCH = "branch"
    TRASH = "trash"


@dataclass(frozen=True, slots=True)
class Target:
    """One thing: ``name`` is an agent's id, a branch, a pane (``%7``), or the folder name of a slot or trash entry.

    ``path`` is that folder. ``token`` is what the thing was when it was looked at (a commit, a lease's text, the start of an
    agent); where it has become something else, it is not discarded. ``socket`` is the tmux server of a window.
    """

    kind: Kind
    name: str
    path: Path | None = None
    token: str | None = None
    socket: Path | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something may not be discarded: a stable code, a sentence, and what a person can do about it."""

    code: str
    text: str
    way_out: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a proof. Safe only with no reason against it; ``keeps`` says what survives a discard."""

    target: Target
    reasons: tuple[Reason, ...] = ()
    keeps: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons

    def refusal(self) -> RefusedError:
        """The error for a target that has to stay."""
        why = " ".join(reason.text for reason in self.reasons)
        ways = " ".join(dict.fromkeys(reason.way_out for reason in self.reasons))
        return RefusedError(f"{self.target.name} was not discarded. {why}", hint=ways)


@dataclass(frozen=True, slots=True)
class Discarded:
    """One thing that is gone; ``entry`` names the trash entry that can bring it back, where there is one."""

    target: Target
    keeps: str
    entry: str | None = None


def refuse(target: Target, *reasons: Reason) -> Verdict:
    """A verdict against it."""
    return Verdict(target, tuple(reasons))


def could_not_look(what: str, error: Exception) -> Reason:
    """The reason for everything that could not be inspected: unknown is not safe."""
    return Reason(
        "could-not-inspect",
        f"{what} could not be inspected: {str(error).rstrip('.')}.",
        "Mend that, then clean again.",
    )


def some(items: Sequence[str], limit: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more
