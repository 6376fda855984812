"""Entry point of the ``side-agents`` command and of ``python -m side_agents``."""

from __future__ import annotations

import sys

from side_agents.cli.border import run


def main() -> int:
    """Run the command line of this process and return its exit status."""
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
