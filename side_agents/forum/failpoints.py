"""Places where a test lets the process die by SIGKILL, at the boundaries of reference/forum.md 6.1.

What is armed belongs to the process as a whole, as the kill does, so it is kept here: the command line arms it once from
``FORUM_FAILPOINT``; nobody else needs to know. Unarmed, ``reach`` is one comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "FORUM_FAILPOINT"

_armed: dict[str, int] = {}


def arm(setting: str | None) -> None:
    """``"S5"`` kills when S5 is reached, ``"S5:3"`` when it is reached the third time; None or empty disarms."""
    _armed.clear()
    if setting:
        name, _, count = setting.partition(":")
        _armed[name] = int(count or "1")


def reach(name: str) -> None:
    """Die here when ``name`` is armed and its turn has come."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
