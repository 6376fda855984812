"""``side-agents log``: what an agent's window has printed, from its capped log file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agent_argument, json_option
from side_agents.cli.output import safe, write_json
from side_agents.errors import NotFoundError, UsageError

_CHUNK = 65536
_TAIL = 1024 * 1024


@click.command()
@agent_argument
@click.option("--lines", "-n", type=click.IntRange(0), default=100, show_default=True, help="How many last lines.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is printed from now on; Ctrl+C ends it.")
@click.option("--raw", is_flag=True, help="The bytes as they are, terminal sequences included, from the log's start.")
@json_option
def log(agent_id: str, lines: int, follow: bool, raw: bool, as_json: bool) -> int:
    """Show what the window of agent ID has printed.

    A full-screen client redraws its screen all the time; `side-agents check` shows the screen itself.
    """
    if as_json and (follow or raw):
        raise UsageError("--json goes with neither --follow nor --raw.")
    from side_agents.infra import fs, text

    context = open_here()
    state = context.registry.read()
    if agent_id not in state.agents and context.registry.tombstone(agent_id) is None:
        raise context.registry.unknown(agent_id)
    path = context.paths.runtime(agent_id).backlog
    if not path.exists() and not follow:
        raise NotFoundError(f"{agent_id} has left no log.", hint=f"`side-agents check {agent_id}` shows what is known.")
    if raw:
        offset = _write_raw(path, 0)
    else:
        tail = fs.read_tail(path, _TAIL)
        offset = path.stat().st_size if follow and path.exists() else 0
        shown = text.select_backlog(tail.decode("utf-8", "replace").splitlines(), lines)
        cleaned = [safe(line).rstrip() for line in shown]
        if as_json:
            write_json({"ok": True, "id": agent_id, "path": str(path), "lines": cleaned})
            return 0
        for line in cleaned:
            click.echo(line)
    if follow:
        _follow(path, offset, raw=raw)
    return 0


def _write_raw(path: Path, offset: int) -> int:
    from side_agents.infra import fs

    while data := fs.read_slice(path, offset, _CHUNK):
        sys.stdout.buffer.write(data)
        offset += len(data)
    sys.stdout.buffer.flush()
    return offset


def _follow(path: Path, offset: int, *, raw: bool) -> None:
    from side_agents.infra import events, fs

    pending = b""
    with events.Watcher([path]) as watcher:
        while True:
            size = path.stat().st_size if path.exists() else 0
            if size < offset:
                # The log was trimmed to its last part; what was lost in between is gone.
                offset, pending = size, b""
            if raw:
                offset = _write_raw(path, offset)
            else:
                data = fs.read_slice(path, offset, _CHUNK)
                offset += len(data)
                whole, newline, pending = (pending + data).rpartition(b"\n")
                if newline:
                    _write_clean(whole)
                if len(data) == _CHUNK:
                    continue
            watcher.wait(None)


def _write_clean(data: bytes) -> None:
    from side_agents.infra import text

    for line in text.select_backlog(data.decode("utf-8", "replace").splitlines(), _CHUNK):
        click.echo(safe(line).rstrip())
    sys.stdout.flush()
