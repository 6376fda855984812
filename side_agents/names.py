"""Slugs, agent ids, branch names and slot names (reference/side-agents 2). Pure text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePath

BRANCH_PREFIX = "side-agent/"
FALLBACK_SLUG = "agent"
SLUG_WORDS = 3
SLUG_MAX_CHARS = 48

_STOP_WORDS = frozenset(
    ("a", "an", "the", "to", "in", "on", "at", "of", "for", "and", "or", "is", "it", "be", "do", "with")
)
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


def slug_from_task(ascii_task: str) -> str:
    """First three meaningful words of a task that was made ASCII; ``agent`` when there are none (2.1)."""
    words = re.sub(r"[^A-Za-z0-9\s]", " ", ascii_task).lower().split()
    kept = [word for word in words if word not in _STOP_WORDS][:SLUG_WORDS]
    return _bounded("-".join(kept)) or FALLBACK_SLUG


def sanitise_slug(hint: str) -> str:
    """A hint as a kebab slug of at most three parts; empty when nothing usable is in it (2.2)."""
    parts = re.sub(r"[^a-z0-9]+", "-", hint.lower()).strip("-").split("-")
    return _bounded("-".join(parts[:SLUG_WORDS]))


def _bounded(slug: str) -> str:
    return slug[:SLUG_MAX_CHARS].strip("-")


def distinct_id(candidate: str, taken: Collection[str]) -> str:
    """The candidate, else ``candidate-2``, ``-3`` ...; letter case does not make a difference (2.4)."""
    folded = {name.casefold() for name in taken}
    if candidate.casefold() not in folded:
        return candidate
    number = 2
    while f"{candidate}-{number}".casefold() in folded:
        number += 1
    return f"{candidate}-{number}"


def branch_of(agent_id: str) -> str:
    """The branch of an agent: ``side-agent/<id>``."""
    return BRANCH_PREFIX + agent_id


def id_of_branch(branch: str) -> str | None:
    """The agent id in a branch name or full ref; None for other branches."""
    name = branch.removeprefix("refs/heads/")
    return name.removeprefix(BRANCH_PREFIX) or None if name.startswith(BRANCH_PREFIX) else None


def normalise_id(text: str) -> str:
    """An id as given to a tool: trimmed and cut at the first blank (reference/side-agents 3)."""
    words = text.split()
    return words[0].removeprefix(BRANCH_PREFIX) if words else ""


def normalise_ids(texts: Iterable[str]) -> tuple[str, ...]:
    """Ids in the order given, each once, empty ones dropped."""
    return tuple(dict.fromkeys(name for name in map(normalise_id, texts) if name))


def is_valid_id(text: str) -> bool:
    """Whether the text can be an id, so that it is safe as a folder and branch part."""
    return _ID.fullmatch(text) is not None and ".." not in text and not text.endswith((".lock", "."))


def slot_name(pool_name: str, number: int) -> str:
    """Folder name of a slot: ``<repo>-agent-worktree-NNNN``."""
    return f"{pool_name}-agent-worktree-{number:04d}"


def slot_number(pool: PurePath, path: str | PurePath | None) -> int | None:
    """Number of a slot that belongs to the pool at ``pool``; None for anything else (F-A10)."""
    if path is None or not str(path):
        return None
    slot = PurePath(path)
    if slot.parent != pool.parent:
        return None
    match = re.fullmatch(re.escape(pool.name) + r"-agent-worktree-([0-9]{4,9})", slot.name)
    if match is None or (len(match[1]) > 4 and match[1].startswith("0")):
        return None
    return int(match[1])


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that resemble ``name``, for an error message."""
    from difflib import get_close_matches  # only needed on the way to an error

    return get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=0.5)
