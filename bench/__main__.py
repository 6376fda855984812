"""``python -m bench [NAME...]``: run the groups, all of them by default, and print one table."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from bench.harness import Row, UnavailableError, print_table

GROUPS = {
    "cold": "commands from a cold start",
    "start": "one start in a warm process: new slot, reused slot, a dozen agents present, an odd prompt",
    "crowd": "sixteen starts at once",
    "list": "ten agents and a thousand",
    "resume": "the list of two thousand conversations",
    "wait": "how soon a waiter wakes",
    "idle": "what a waiter and ten idle agents cost",
    "companion": "tool calls, notices and idle cost of a session's companion",
    "pi": "tool calls, notices and idle cost in a real Pi",
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
    is_complete = True
    for name in options.names or GROUPS:
        print(f"{name}: {GROUPS[name]}", file=sys.stderr)
        try:
            rows += import_module(f"bench.group_{name}").measure(options.n)
        except UnavailableError as reason:
            print(f"{name}: left out. {reason}", file=sys.stderr)
            is_complete = False
    if rows:
        print_table(rows)
    # Of the whole lot, what this machine cannot measure may be left out.
    return 0 if is_complete or not options.names else 1


if __name__ == "__main__":
    sys.exit(main())
