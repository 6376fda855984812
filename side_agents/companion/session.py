"""The companion of one session: reads its extension's lines, answers calls concurrently, ends with it.

The main thread only reads. Each call has a thread of its own, the observer has one, and all of them end with the process:
whatever they are cut off in, the next look at the registry tidies up (DESIGN 5 "Start").
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from side_agents.companion import calls, protocol, warming
from side_agents.companion.cleaning import ShownTargets
from side_agents.companion.link import Link, LinkGoneError
from side_agents.companion.observer import Observer
from side_agents.companion.protocol import Call, CallId, Cancel, Hello, Idle, LineError, SessionChange, ToldNotice
from side_agents.companion.telling import Teller
from side_agents.core.context import Context
from side_agents.core.identity import may_start
from side_agents.core.views import failure_view
from side_agents.errors import BusyError, CancelledError, SideAgentsError, StateError
from side_agents.infra import clock
from side_agents.infra.events import Wakeup, Watcher
from side_agents.infra.line_pipe import read_lines
from side_agents.models import ProcessRef

_CALLS_AT_ONCE = 64
# Calls that are changing something when the session ends are given so long to come to their end.
_LAST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the border knows. ``open_context`` takes the conversation that the host shows, None for an unknown one.

    ``explain`` makes an answer of a fault of our own. The companion ends when ``parent`` does.
    """

    incoming: int
    outgoing: int
    parent: ProcessRef | None
    settle: timedelta
    open_context: Callable[[str | None], Context]
    explain: Callable[[Exception], dict[str, Any]]


def serve(surroundings: Surroundings) -> int:
    """Serve one session until its extension is gone; returns the exit status. Nothing expected is raised."""
    link = Link(surroundings.outgoing)
    if surroundings.parent is not None:
        threading.Thread(target=_await_end, args=(surroundings.parent, link), name="parent", daemon=True).start()
    lines = read_lines(
        surroundings.incoming, protocol.LINE_LIMIT, ending=link.ending.fileno(), answers=surroundings.outgoing
    )
    try:
        try:
            hello = _greeting(lines)
            if hello is None:
                return 0
            companion = Companion(surroundings, link, hello)
        except SideAgentsError as error:
            failure = failure_view(error)
            failure.pop("ok")
            link.send({"fatal": failure})
            return error.exit_status
        try:
            companion.serve(lines)
        finally:
            companion.close()
    except LinkGoneError:
        return 0
    return 0


def _await_end(parent: ProcessRef, link: Link) -> None:
    with Watcher(processes=[parent]) as watcher:
        watcher.wait(None)
    link.ending.fire()


def _greeting(lines: Iterator[bytes | None]) -> Hello | None:
    line = next(lines, b"")
    if line == b"":
        return None
    message = protocol.parse(line) if line is not None else None
    if not isinstance(message, Hello):
        raise LineError("The first line has to be a hello.")
    return message


class Companion:
    """One session's companion after the greeting. Raises SideAgentsError from its beginning, where it cannot work here."""

    def __init__(self, surroundings: Surroundings, link: Link, hello: Hello) -> None:
        self._surroundings = surroundings
        self._link = link
        self._session = hello.session
        self._shown = ShownTargets()
        self._lock = threading.Lock()
        self._running: dict[CallId, tuple[threading.Thread, Wakeup, bool]] = {}
        self._is_warm = threading.Event()
        context = self._open_context()
        teller = Teller(link, surroundings.settle, acknowledges=hello.acknowledges)
        _begin(teller, context)
        self._observer = Observer(
            link,
            teller,
            self._open_context,
            surroundings.explain,
            registry=context.paths.registry,
            listens=hello.linked,
        )
        self._ready = _ready(context)

    def _open_context(self) -> Context:
        return self._surroundings.open_context(self._session)

    def serve(self, lines: Iterator[bytes | None]) -> None:
        """Say that we are ready and do what the lines ask for, until there are no more. Raises LinkGoneError."""
        self._link.send({"ready": self._ready})
        threading.Thread(target=self._warm, name="warming", daemon=True).start()
        self._observer.start()
        for line in lines:
            try:
                if line is None:
                    raise LineError(f"A line is longer than {protocol.LINE_LIMIT} bytes.")
                if line.strip():
                    self._take(line)
            except LineError as error:
                self._answer(error.call_id, failure_view(error))

    def close(self) -> None:
        """Cancel what waits, and give what is changing something a moment to come to its end."""
        self._link.ending.fire()
        with self._lock:
            running = list(self._running.values())
        for _, cancellation, _ in running:
            cancellation.fire()
        deadline = clock.monotonic() + _LAST_SECONDS
        self._observer.finish(_LAST_SECONDS)
        for thread, _, changes in running:
            if changes:
                thread.join(max(0.0, deadline - clock.monotonic()))

    def _take(self, line: bytes) -> None:
        match protocol.parse(line):
            case Call() as call:
                self._begin_call(call)
            case Cancel(call_id):
                with self._lock:
                    found = self._running.get(call_id)
                if found is not None:
                    found[1].fire()
            case Idle(is_idle):
                self._observer.set_idle(is_idle)
            case SessionChange(session):
                self._session = session
                self._observer.look_again()
            case ToldNotice(number):
                self._observer.acknowledge(number)
            case Hello():
                raise LineError("There was a hello before.")
            case None:
                pass

    def _begin_call(self, call: Call) -> None:
        try:
            operation = calls.find(call.name)
        except SideAgentsError as error:
            self._answer(call.call_id, failure_view(error))
            return
        cancellation = Wakeup()
        thread = threading.Thread(
            target=self._carry_out, args=(call, operation, cancellation), name=f"call-{call.name}", daemon=True
        )
        with self._lock:
            is_known, is_full = call.call_id in self._running, len(self._running) >= _CALLS_AT_ONCE
            if not is_known and not is_full:
                self._running[call.call_id] = (thread, cancellation, operation.changes)
        if is_known:
            # Without an id, because the answer to that id is still to come.
            cancellation.close()
            raise LineError(f"A call with the id {call.call_id!r} is still running.")
        if is_full:
            cancellation.close()
            busy = BusyError(
                f"{_CALLS_AT_ONCE} calls are running. Nothing was done.", hint="Try again when one has ended."
            )
            self._answer(call.call_id, operation.failure(busy))
            return
        thread.start()

    def _carry_out(self, call: Call, operation: calls.Operation, cancellation: Wakeup) -> None:
        try:
            message = {"id": call.call_id} | self._outcome(call, operation, cancellation)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a thread: the caller gets words
            message = {"id": call.call_id, "answer": self._surroundings.explain(error)}
        finally:
            # Before the answer: whoever reads that may use the id again.
            with self._lock:
                del self._running[call.call_id]
            cancellation.close()
        try:
            self._link.send(message)
        except LinkGoneError:
            return

    def _outcome(self, call: Call, operation: calls.Operation, cancellation: Wakeup) -> dict[str, Any]:
        # Two threads that import the same libraries at the same time may see them half made.
        self._is_warm.wait()
        try:
            if cancellation.fired:
                raise CancelledError(f"The call {call.name} was cancelled before it began. Nothing was done.")
            given = calls.read_input(call.name, operation, call.input)
            context = replace(self._open_context(), cancellation=cancellation)
            with self._observer.standing_back() if operation.changes else nullcontext():
                answer = operation.run(context, self._shown, given)
        except SideAgentsError as error:
            return {"answer": operation.failure(error)}
        return {"answer": answer} | calls.beside(context, call.name, answer)

    def _answer(self, call_id: CallId | None, answer: dict[str, Any]) -> None:
        self._link.send({"id": call_id, "answer": answer})

    def _warm(self) -> None:
        try:
            warming.warm(self._open_context())
        except SideAgentsError:
            # What is wrong with the repository now, is told by the calls.
            pass
        finally:
            self._is_warm.set()


def _begin(teller: Teller, context: Context) -> None:
    # A registry that cannot be read is told of by the observer; what does not need it works.
    with suppress(StateError):
        teller.begin(context)


def _ready(context: Context) -> dict[str, Any]:
    caller, config = context.caller, context.config
    try:
        client = context.choose_client(None, context.environment, config).name
    except SideAgentsError:
        client = None
    return {
        "protocol": protocol.VERSION,
        "agent": caller.agent_id,
        "depth": caller.depth,
        "mayStart": may_start(caller, config.max_depth),
        "root": str(context.paths.root),
        "client": client,
        "config": {
            "wakeOnNotice": config.wake_on_notice,
            "handoff": str(config.handoff),
            "contextBoundary": config.context_boundary,
            "parentSession": config.parent_session_in_prompt,
            "model": config.model,
        },
    }
