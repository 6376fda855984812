"""Where notices go besides to those who ask for them; each place is switched on by a setting of its own.

There is no daemon: whoever looks at agents calls ``pump`` afterwards. One process at a time tells what is due, under a
lock and a cursor of its own, so that each notice goes to each sink once; what has not settled waits for the next look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from side_agents.core import notice_feed, notice_state, routing, transitions
from side_agents.core.context import Context
from side_agents.core.notice_feed import Feed, Told
from side_agents.core.notices import SETTLE
from side_agents.core.transitions import ParentPane
from side_agents.errors import BusyError, SideAgentsError
from side_agents.infra import clock, fs, text
from side_agents.models import json_text

JOURNAL = "notices.jsonl"
JOURNAL_LIMIT = 1024 * 1024
# Sinks that were switched on just now are not told of old times.
_FIRST_LOOK = timedelta(minutes=10)
_SECONDS = 10.0
_OSASCRIPT = "display notification (item 2 of argv) with title (item 1 of argv)"

Sink = Callable[[Context, Told], None]


@dataclass(frozen=True, slots=True)
class Pumped:
    """How many notices were told, and what went wrong with single sinks."""

    told: int = 0
    problems: tuple[str, ...] = ()


def pump(context: Context, *, settle: timedelta = SETTLE) -> Pumped:
    """Give what is due to every sink that is switched on. Nothing is created where side agents were never used.

    A sink that fails keeps neither the others nor the caller; its words are kept for ``side-agents notices``. Raises
    StateError only for a registry that cannot be read.
    """
    sinks = chosen(context)
    if not sinks or not context.paths.transitions.exists():
        return Pumped()
    try:
        with fs.locked(_file(context, "notices.lock"), purpose="tell notices", timeout=0):
            return _tell(context, sinks, settle)
    except BusyError:
        # Whoever has it tells these too.
        return Pumped()


def chosen(context: Context) -> dict[str, Sink]:
    """The sinks that the settings switch on, by name."""
    config = context.config
    switches: tuple[tuple[str, object, Sink], ...] = (
        ("notify_journal", config.notify_journal, to_journal),
        ("notify_tmux", config.notify_tmux, to_tmux),
        ("notify_desktop", config.notify_desktop, to_desktop),
        ("notify_command", config.notify_command, to_command),
    )
    return {name: sink for name, is_on, sink in switches if is_on}


def trouble(context: Context) -> tuple[str, ...]:
    """What went wrong with sinks the last time that one failed."""
    found = notice_state.read(context.paths).get("problems")
    return tuple(str(each) for each in found) if isinstance(found, list) else ()


def _file(context: Context, name: str) -> Path:
    return context.paths.meta / name


def _tell(context: Context, sinks: Mapping[str, Sink], settle: timedelta) -> Pumped:
    mark = notice_state.mark(context.paths)
    now = clock.now()
    feed = Feed(
        context.paths.transitions,
        _file(context, "notices.cursor"),
        lambda _: True,
        since=clock.iso(now - _FIRST_LOOK),
    )
    feed.open()
    feed.collect(context.registry.read().extra.get(transitions.COUNTER))
    due = feed.due(now, settle)
    problems = [problem for each in due for problem in _deliver(context, sinks, each)]
    feed.confirm(due)
    left = feed.seconds_left(now, settle)
    state: dict[str, Any] = {"seen": mark, "problems": problems if due else list(trouble(context))}
    if left is not None:
        state["dueAt"] = clock.iso(now + timedelta(seconds=left))
    fs.replace(notice_state.file(context.paths), json_text(state), durable=False)
    return Pumped(len(due), tuple(problems))


def _deliver(context: Context, sinks: Mapping[str, Sink], told: Told) -> Iterable[str]:
    for name, sink in sinks.items():
        try:
            sink(context, told)
        except (SideAgentsError, OSError) as error:
            yield text.one_line(f"{name}: {error}", 300)


def to_journal(context: Context, told: Told) -> None:
    """Append to the notices of the session that the notice is for; once, also when the last pump was cut off."""
    who = routing.recipient(told.change)
    if who.agent_id is not None:
        folder = context.paths.runtime(who.agent_id).directory
        if not folder.is_dir():
            return
    else:
        folder = context.paths.session(routing.key(who))
        fs.make_private_dir(folder)
    path = folder / JOURNAL
    if _holds(path, told.number, told.change.agent_id):
        return
    fs.append_line(path, json_text(notice_feed.as_json(told, clock.iso())))
    if path.stat().st_size > JOURNAL_LIMIT:
        tail = fs.read_tail(path, JOURNAL_LIMIT // 2)
        fs.replace(path, tail[tail.find(b"\n") + 1 :], durable=False)


def _holds(path: Path, number: int, agent_id: str) -> bool:
    for line in fs.read_tail(path, 64 * 1024).split(b"\n"):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict) and (data.get("seq"), data.get("agentId")) == (number, agent_id):
            return True
    return False


def to_tmux(context: Context, told: Told) -> None:
    """A line in the terminals that look at the session of the parent's pane; none where that pane is gone."""
    from side_agents.infra.tmux import Tmux

    pane = _parent_pane(context, told)
    if pane is None:
        return
    tmux = Tmux(Path(pane.socket))
    sweep = tmux.sweep()
    if sweep.server == pane.server and pane.pane_id in sweep.panes:
        tmux.display_message(pane.pane_id, notice_feed.describe(told))


def _parent_pane(context: Context, told: Told) -> ParentPane | None:
    """Where the recipient is now: an agent's own pane, or the pane of main that the agent was started from."""
    who = routing.recipient(told.change)
    if who.agent_id is None:
        return told.change.pane if not told.change.orphaned else None
    record = context.registry.read().agents.get(who.agent_id)
    if record is None or not (record.tmux_socket and record.tmux_server and record.tmux_pane_id):
        return None
    return ParentPane(record.tmux_socket, record.tmux_server, record.tmux_pane_id)


def to_desktop(context: Context, told: Told) -> None:
    """A desktop notification by notify-send or osascript; nothing where neither is installed."""
    from side_agents.infra import proc

    path = context.environment.get("PATH", "")
    title, body = f"side-agents: {context.paths.root.name}", notice_feed.describe(told)
    if program := proc.find_program("notify-send", path=path):
        # Some servers read the body as markup.
        marked = body.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        argv = [str(program), "--app-name=side-agents", "--", title, marked]
    elif program := proc.find_program("osascript", path=path):
        argv = [str(program), "-e", "on run argv", "-e", _OSASCRIPT, "-e", "end run", "--", title, body]
    else:
        return
    proc.run(argv, deadline=_SECONDS, env=dict(context.environment))


def to_command(context: Context, told: Told) -> None:
    """The command of the settings, in the main repository, with the notice as one line of JSON."""
    from side_agents.infra import proc

    command = context.config.notify_command
    if command is None:
        return
    line = json.dumps(notice_feed.as_json(told, clock.iso())) + "\n"
    proc.run(
        ["sh", "-c", command],
        deadline=_SECONDS,
        input=line.encode(),
        cwd=context.paths.root,
        env=dict(context.environment),
    )
