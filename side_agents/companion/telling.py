"""Notices and toasts for the session: each notice told once, and only while the session is idle.

A notice is written first and noted as told then, or when the extension says that it has arrived; whatever is cut off in
between is told again by the next companion (side_agents.core.notice_reader). Toasts are for the person and come at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from side_agents.companion.link import Link
from side_agents.core import notice_feed, notice_reader, routing, transitions
from side_agents.core.context import Context
from side_agents.core.notice_feed import Told
from side_agents.core.routing import Listener
from side_agents.core.transitions import Change
from side_agents.errors import BusyError
from side_agents.infra import clock, text
from side_agents.models import AgentStatus

_ALARMING = (AgentStatus.FAILED, AgentStatus.CRASHED)
# Another reader of the same session holds its lock for an instant, or for as long as it streams.
_LOCK_WAIT = 0.2


class Teller:
    """Tells one session at a time; used by one thread. ``acknowledges``: the extension says what has arrived."""

    def __init__(self, link: Link, settle: timedelta, *, acknowledges: bool) -> None:
        self._link = link
        self._settle = settle
        self._acknowledges = acknowledges
        self._born = clock.iso()
        self._seen = 0
        self._listeners: list[Listener] = []
        # By number: what was written and has not been acknowledged.
        self._on_the_way: dict[int, tuple[Listener, str]] = {}
        self._arrived: set[int] = set()

    def begin(self, context: Context) -> None:
        """Take what has happened so far for old: no toasts of it."""
        self._seen = _counter(context)

    def look(self, context: Context, who: Listener, *, is_idle: bool, arrived: Iterable[int]) -> float | None:
        """Tell what is due. Returns the seconds after which more will be, None when nothing waits for time to pass."""
        if who not in self._listeners:
            self._listeners.append(who)
        self._arrived.update(arrived)
        last = _counter(context)
        self._toast(context, last)
        if not context.paths.registry.exists():
            # Reading creates nothing.
            return None
        try:
            if not notice_reader.has_cursor(context, who):
                notice_reader.begin(context, who, self._born)
            self._confirm_arrivals(context, last)
            return self._tell(context, who, last) if is_idle else None
        except BusyError:
            # Whoever reads for this session now, tells it.
            return None

    def _confirm_arrivals(self, context: Context, last: int) -> None:
        for number in sorted(self._arrived):
            who, agent_id = self._on_the_way.get(number, (None, ""))
            if who is not None:
                with notice_reader.locked(context, who, timeout=_LOCK_WAIT):
                    notice_reader.open_feed(context, who).acknowledge(agent_id, number, last)
                del self._on_the_way[number]
            self._arrived.discard(number)

    def _tell(self, context: Context, who: Listener, last: int) -> float | None:
        feed = notice_reader.open_feed(context, who)
        feed.collect(last)
        if self._fresh(feed.due(clock.now(), self._settle)):
            with notice_reader.locked(context, who, timeout=_LOCK_WAIT):
                # Somebody else may just have told it.
                feed = notice_reader.collect(context, notice_reader.open_feed(context, who))
                for told in self._fresh(feed.due(clock.now(), self._settle)):
                    if told.notice.is_start:
                        # The start has answered that, and the status line shows it.
                        feed.confirm([told])
                        continue
                    self._link.event("notice", _view(context, told))
                    if self._acknowledges:
                        self._on_the_way[told.number] = (who, told.change.agent_id)
                    else:
                        feed.confirm([told])
        return feed.seconds_left(clock.now(), self._settle)

    def _fresh(self, due: Iterable[Told]) -> list[Told]:
        return [told for told in due if told.number not in self._on_the_way]

    def _toast(self, context: Context, last: int) -> None:
        # The registry may have been restored from an older state.
        changes = transitions.read(context.paths.transitions, self._seen, last) if last > self._seen else []
        self._seen = last
        for change in changes:
            if change.to_status in _ALARMING and any(routing.hears(who, change) for who in self._listeners):
                self._link.event("toast", {"level": "error", "text": _alarm(change), "agentId": change.agent_id})


def _counter(context: Context) -> int:
    found = context.registry.read().extra.get(transitions.COUNTER)
    return found if type(found) is int else 0


def _view(context: Context, told: Told) -> dict[str, object]:
    view = notice_feed.as_json(told, clock.iso())
    return {**view, "wake": context.config.wake_on_notice}


def _alarm(change: Change) -> str:
    reason = text.one_line(change.error or "", transitions.TEXT_LIMIT)
    adopted = f" (adopted: its parent {change.parent_agent_id} is gone)" if change.adopted else ""
    return text.printable(
        f"side-agent {change.agent_id} {change.to_status}{adopted}" + (f": {reason}" if reason else "")
    )
