"""The thread that watches the agents: asleep in the kernel, it pushes the status line and notices when they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from side_agents.companion import session_view
from side_agents.companion.link import Link, LinkGoneError
from side_agents.companion.telling import Teller
from side_agents.core import aftermath, watching
from side_agents.core.context import Context
from side_agents.core.observe import list_agents
from side_agents.core.results import Listed
from side_agents.core.routing import Listener
from side_agents.errors import SideAgentsError, StateError
from side_agents.infra import clock, fs, processes
from side_agents.infra.events import Wakeup, Watcher
from side_agents.models import AgentRecord, ProcessRef, json_text

_RETRY_SECONDS = 60.0
# One change often is the first of several, such as the steps of a start: they are looked at together.
_SPACING = 0.04
# While a call of our own is changing things, looking at each of its steps would only slow it down; but not for ever.
_CALL_SECONDS = 0.25
# What else follows from a change is done once the burst is over.
_AFTERMATH_DELAY = 0.3
# What agents that left have left in the watcher goes when there is so much more in it than the living need.
_PER_AGENT = 6
_SPARE = 200


class Observer:
    """Watches for one session. ``open_context`` gives the context of the session that is shown now.

    ``listens`` False: the host is not the agent whose variables it inherited, and must not take that one's notices.
    """

    def __init__(
        self,
        link: Link,
        teller: Teller,
        open_context: Callable[[], Context],
        explain: Callable[[Exception], dict[str, Any]],
        *,
        registry: Path,
        listens: bool,
    ) -> None:
        self._link = link
        self._teller = teller
        self._open_context = open_context
        self._explain = explain
        self._registry = registry
        self._listens = listens
        self._wakeup = Wakeup()
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._is_idle = False
        self._arrived: list[int] = []
        self._shown: dict[str, Any] = {"groups": [], "text": ""}
        self._trouble = ""
        self._asked_for: set[ProcessRef] = set()
        self._published: tuple[object, ...] = ()
        self._calls = 0
        self._no_call = threading.Event()
        self._no_call.set()
        self._aftermath = _Aftermath(open_context, self._no_call)

    def start(self) -> None:
        """Watch from now on, in threads of its own that end with the process."""
        self._aftermath.start()
        threading.Thread(target=self._run, name="observer", daemon=True).start()

    def set_idle(self, is_idle: bool) -> None:
        """Whether notices may be told."""
        self._is_idle = is_idle
        self._wakeup.fire()

    def acknowledge(self, number: int) -> None:
        """A notice has arrived."""
        with self._lock:
            self._arrived.append(number)
        self._wakeup.fire()

    @contextmanager
    def standing_back(self) -> Iterator[None]:
        """While a call of this companion is changing things."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        with self._lock:
            self._calls += step
            if self._calls:
                self._no_call.clear()
            else:
                self._no_call.set()

    def look_again(self) -> None:
        """Something about the session itself has changed."""
        self._wakeup.fire()

    def finish(self, timeout: float) -> None:
        """Once the link is ending: return when a notice that was written is noted as told, or after ``timeout`` seconds."""
        self._wakeup.fire()
        # Never given back: nothing is told from here on.
        self._telling.acquire(timeout=timeout)

    def _run(self) -> None:
        while not self._link.ending.fired:
            try:
                try:
                    self._watch()
                except (SideAgentsError, OSError) as error:
                    self._pause(str(error))
                except LinkGoneError:
                    raise
                except Exception as error:  # noqa: BLE001 - a fault of ours must not end the status line for good
                    self._pause(str(self._explain(error)["error"]))
            except LinkGoneError:
                return

    def _pause(self, problem: str) -> None:
        """Say once what is wrong, and try again when the registry changes, or after a while."""
        if problem != self._trouble:
            self._trouble = problem
            self._link.event("toast", {"level": "warning", "text": f"side-agents: {problem}"})
        with Watcher([self._registry], wakeup=self._wakeup) as watcher:
            self._wakeup.reset()
            watcher.wait(_RETRY_SECONDS)

    def _watch(self) -> None:
        with Watcher([self._registry], wakeup=self._wakeup) as watcher:
            watched: set[object] = set()
            limit = _SPARE
            while len(watched) <= limit:
                self._wakeup.reset()
                # In this order: who is idle now, may be another conversation than that of a moment ago.
                is_idle = self._is_idle
                context = self._open_context()
                listed = self._list(context)
                limit = _SPARE + _PER_AGENT * len(listed.records)
                if watching.watch_new(context, watcher, watched, listed.records):
                    # What happened before the watch was in place would be missed without a second look.
                    continue
                seconds = self._push(context, listed, is_idle=is_idle)
                self._trouble = ""
                longest = watching.pause(context, listed.records)
                looked = clock.monotonic()
                watcher.wait(longest if seconds is None else min(longest, seconds))
                # The first change after a quiet time is looked at without delay.
                clock.pause(max(0.0, looked + _SPACING - clock.monotonic()))
                self._no_call.wait(_CALL_SECONDS)

    def _list(self, context: Context) -> Listed:
        listed = list_agents(context, probe=False)
        stranded = {record.owner for record in listed.records if _is_stranded(record)} - self._asked_for
        if not stranded:
            return listed
        # Only its tmux server can say what became of an agent whose starter died; it is asked once.
        self._asked_for |= {owner for owner in stranded if owner is not None}
        return list_agents(context)

    def _push(self, context: Context, listed: Listed, *, is_idle: bool) -> float | None:
        who = Listener(context.caller.agent_id, context.caller.session)
        view = session_view.status_view(session_view.groups_of(context, who, listed))
        if view != self._shown:
            self._link.event("status", view)
            self._shown = view
        if context.paths.registry.exists():
            self._publish(context, listed)
        seconds = None
        if self._listens:
            with self._lock:
                arrived, self._arrived = self._arrived, []
            with self._telling:
                seconds = self._teller.look(context, who, is_idle=is_idle, arrived=arrived)
        self._aftermath.poke()
        return seconds

    def _publish(self, context: Context, listed: Listed) -> None:
        """Write the agents' status lines for sessions without a companion; ``pid`` tells whether somebody keeps them true."""
        path = context.paths.status_lines
        facts = session_view.published_facts(listed)
        try:
            known = fs.read_json(path)
        except StateError:
            known = None
        is_kept = isinstance(known, dict) and _lives(known.get("pid"))
        if is_kept and facts == self._published:
            return
        lines = session_view.published_lines(listed)
        if not is_kept or not isinstance(known, dict) or known.get("lines") != lines:
            content = {"version": 1, "pid": processes.current().pid, "lines": lines}
            fs.replace(path, json_text(content), durable=False)
        self._published = facts


def _is_stranded(record: AgentRecord) -> bool:
    return record.status.is_starting and record.owner is not None and not processes.is_alive(record.owner)


def _lives(pid: object) -> bool:
    return isinstance(pid, int) and pid > 0 and processes.identify(pid) is not None


class _Aftermath:
    """Passes notices on and starts what waits, apart from the observer: a notification command may take seconds."""

    def __init__(self, open_context: Callable[[], Context], no_call: threading.Event) -> None:
        self._open_context = open_context
        self._no_call = no_call
        self._due = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="aftermath", daemon=True).start()

    def poke(self) -> None:
        """There was a look."""
        self._due.set()

    def _run(self) -> None:
        while self._due.wait():
            clock.pause(_AFTERMATH_DELAY)
            self._no_call.wait(_CALL_SECONDS)
            self._due.clear()
            try:
                context = self._open_context()
            except SideAgentsError:
                continue
            aftermath.follow_up(context)
