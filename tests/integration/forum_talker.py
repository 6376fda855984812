"""An agent's warm front end: reads tool calls as JSON lines ``[name, values]`` and answers each with a JSON line.

``python -m tests.integration.forum_talker`` in the repository, with the agent's environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from side_agents.core.context import open_context
from side_agents.tools import calls


def main() -> None:
    for line in sys.stdin:
        name, values = json.loads(line)
        answer, _ = calls.call(f"forum_{name}", json.dumps(values), lambda: open_context(Path.cwd(), dict(os.environ)))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
