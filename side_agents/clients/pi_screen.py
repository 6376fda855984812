"""What the visible pane tells of Pi, as seen with 0.73.1 and 1.6.0 (reference/clients 1). Pure.

The input box lies between two rules, the footer below it::

     ⠹ Working...                    0.73: a line above the box
    ── ⠹ Working ─────────────       1.6: in the upper rule
    text, or [paste #1 +41 lines]    more of it than fits: "─── ↑ 15 more ───" in a rule
    ──────────────────────────
    ~/project (main)
    0.0%/128k (auto)       model

Dialogs take the place of the box between the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_RULE = re.compile(r"^─{2,}.*─$")
_SPINNER = re.compile(r"^ ?(?:─+ )?[⠁-⣿] ")
_DIALOG = re.compile(
    r"^\s*(?:→ |❯ )|↑↓ navigate|to select\b|(?:escape|esc|ctrl\+c)(?:/ctrl\+c)? (?:to )?cancel|enter submit",
    re.IGNORECASE,
)
# The spinner's line is directly above the box; extensions may put a few lines of their own between.
_LINES_ABOVE = 8


def draft(screen: Sequence[str]) -> str | None:
    """Return the text in the box, "" when it is empty, None when there is a dialog or no box to be seen."""
    box = _box(screen)
    if box is None:
        return None
    lines = [line.rstrip() for line in screen[box[0] + 1 : box[1]]]
    if any(_DIALOG.search(line) for line in lines):
        return None
    return "\n".join(lines).strip()


def is_busy(screen: Sequence[str]) -> bool | None:
    """Tell whether a spinner turns at the box; None when no box is to be seen."""
    box = _box(screen)
    if box is None:
        return None
    return any(_SPINNER.match(line) for line in screen[max(0, box[0] - _LINES_ABOVE) : box[0] + 1])


def _box(screen: Sequence[str]) -> tuple[int, int] | None:
    """Return the places of the two rules around the box: the last two on the screen."""
    rules = [place for place, line in enumerate(screen) if _RULE.match(line.rstrip())]
    return (rules[-2], rules[-1]) if len(rules) > 1 else None
