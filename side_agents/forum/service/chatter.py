"""Tells two agents that answer each other with little more than thanks; they would go on for ever. It never refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from side_agents.forum.store.posts import Turn

# How many posts in a row, and up to how many characters each, look like an exchange of acknowledgements.
TURNS = 10
SHORT_CHARACTERS = 200

WARNING = {
    "code": "loop",
    "message": (
        f"The last {TURNS} posts of this thread are short ones of you and one other participant. Your post was stored."
        " If nothing is left to decide, stop answering; post again only with a question, a finding or a result."
    ),
}


def is_loop(turns: Sequence[Turn]) -> bool:
    """Whether the newest posts of a thread, the one just written included, are an exchange of acknowledgements."""
    return (
        len(turns) >= TURNS
        and len({turn.session_id for turn in turns}) == 2
        and all(turn.characters <= SHORT_CHARACTERS for turn in turns)
        and not any(turn.has_attachments or turn.is_redacted for turn in turns)
    )
