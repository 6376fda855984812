"""One resume in a process of its own, which may be killed after a named step: see ``orchestra.boundaries``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from orchestra_child import boundaries

from side_agents.core.context import open_context
from side_agents.core.resume import resume


def main(agent_id: str, *die_at: str) -> None:
    steps: list[str] = []
    boundaries(die_at[0] if die_at else None, steps.append)
    record = resume(open_context(Path.cwd(), os.environ), agent_id).record
    sys.stdout.write(json.dumps({"id": record.id, "steps": steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
