"""``python -m bench [NAME...]``: run the groups, all of them by default, and print one table."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from bench.harness import Row, print_table

GROUPS = {
    "cold": "commands from a cold start",
    "start": "one start in a warm process: new slot, reused slot, a dozen agents present, an odd prompt",
    "crowd": "sixteen starts at once",
    "list": "ten agents and a thousand",
    "resume": "the list of two thousand conversations",
    "wait": "how soon a waiter wakes",
    "idle": "what a waiter and ten idle agents cost",
    "companion": "tool calls, notices and idle cost of a session's companion",
    "journal": "one event appended by a hook",
    "forum": "posts, wake-ups, search, pages and memory of the forum",
}


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:9} {words}" for name, words in GROUPS.items()),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="groups to run, all by default")
    parser.add_argument("-n", type=int, help="rounds of each measurement, by default as many as the group finds right")
    options = parser.parse_args()
    for name in options.names:
        if name not in GROUPS:
            parser.error(f"there is no group {name}")
    rows: list[Row] = []
    for name in options.names or GROUPS:
        print(f"{name}: {GROUPS[name]}", file=sys.stderr)
        rows += import_module(f"bench.group_{name}").measure(options.n)
    print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
