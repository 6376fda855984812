# pathlib would cost the program a quarter of its start.
# ruff: noqa: PTH118, PTH123
"""What a resumed script agent is told at its start: ``resume-notice.json`` in its runtime folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from side_agents.clients.script_session import Session


def take(environment: Mapping[str, str], session: Session, cwd: str) -> str:
    """Return the notice for this session in this directory, the first time; else an empty text."""
    path = os.path.join(environment.get("PI_SIDE_RUNTIME_DIR", ""), "resume-notice.json")
    try:
        with open(path, encoding="utf-8") as file:
            notice = json.load(file)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"warning: the resume notice {path} cannot be read: {error}"
    if not isinstance(notice, dict):
        return f"warning: {path} holds no resume notice"
    return session.take_notice(notice, cwd) or ""
