"""What all who stream share: which files and processes to watch for a set of agents, and how long to sleep."""

from __future__ import annotations

from collections.abc import Iterable

from side_agents.core.context import Context
from side_agents.core.observe import quiet_delay
from side_agents.infra.events import Watcher
from side_agents.models import AgentRecord

# A lost event must not be for ever.
_LONGEST_SLEEP = 60.0


def pause(context: Context, records: Iterable[AgentRecord]) -> float:
    """Seconds to sleep at most: a silent screen has to be looked at again."""
    delays = [delay for record in records if (delay := quiet_delay(context, record)) is not None]
    return min([_LONGEST_SLEEP, *delays])


def watch_new(context: Context, watcher: Watcher, watched: set[object], records: Iterable[AgentRecord]) -> bool:
    """Watch what is not in ``watched`` yet; True when there was something, so that one more look is needed."""
    before = len(watched)
    for record in records:
        runtime = context.paths.runtime(record.id)
        for path in (runtime.journal, runtime.exit_marker):
            if path not in watched:
                watched.add(path)
                watcher.add_directory(path)
        # Until an agent has a launcher, the death of its starter is what can happen to it.
        for ref in (record.launcher, record.owner if record.status.is_starting else None):
            if ref is not None and ref not in watched:
                watched.add(ref)
                watcher.add_process(ref)
    return len(watched) > before
