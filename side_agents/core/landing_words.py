"""Words and messages of a landing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from side_agents.models import AgentRecord, FinishPolicy, Tombstone

_SHOWN_FILES = 5


def update_verb(policy: FinishPolicy) -> str:
    """How a branch is brought up to date with its target."""
    return "merge" if policy is FinishPolicy.MERGE else "rebase"


def shown_files(files: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = len(files) - _SHOWN_FILES
    return ", ".join(files[:_SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")


def count_commits(count: int) -> str:
    """``1 commit``, ``2 commits``."""
    return "1 commit" if count == 1 else f"{count} commits"


def squash_message(messages: Sequence[str]) -> str:
    """One commit's message from those of a branch, oldest first: a single one as it is, several as a list below the
    first subject."""
    cleaned = [message.strip("\n") for message in messages]
    if len(cleaned) == 1:
        return cleaned[0] + "\n"
    subject = next((line for message in cleaned for line in message.splitlines() if line.strip()), "Squashed changes")
    return "\n\n".join([subject, *(f"* {message}" for message in cleaned)]) + "\n"


def worktree_words(agent: AgentRecord | Tombstone) -> str | None:
    """What becomes of the worktree after a landing; nothing to say of an agent that has ended."""
    lives = isinstance(agent, AgentRecord) and not agent.status.is_terminal
    return f"The worktree stays with {agent.id} until it ends." if lives else None


def merge_message(branch: str, target: str) -> str:
    """The message of a merge commit, in git's own words."""
    return f"Merge branch '{branch}' into {target}\n"
