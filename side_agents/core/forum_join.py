"""Who an agent is in the forum, from its start to its resume (reference/forum 5.11).

A start makes its agent a child of the caller's author, in stages that survive a kill; the window is given nothing but
the path of the agent's private file. The next start of the same caller finishes or drops what a killed one left. The
forum never keeps an agent from starting: what goes wrong here is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from side_agents.core import placement
from side_agents.core.context import Context
from side_agents.core.start_plan import StartPlan
from side_agents.errors import SideAgentsError
from side_agents.infra import clock
from side_agents.models import AgentRecord, ForumIdentity

if TYPE_CHECKING:
    from side_agents.forum.client.worker import Worker
    from side_agents.forum.client.worker_document import Spawn

STATE_VARIABLE = "AGENTFORUM_STATE"
_TARGET = "agent-"

# So long a start waits for others of the same caller, of which a worker file holds only a few at a time.
_ROOM_SECONDS = 10.0
_ROOM_PAUSE = 0.05
# So long a start waits for whoever holds the caller's forum state, and so long for a last word that the next start can say.
_PATIENCE = 20.0
_LAST_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Joined:
    """The agent's identity, None where it has none; and what to say about that."""

    identity: ForumIdentity | None = None
    warnings: tuple[str, ...] = ()


class Joining:
    """One agent's way into the forum, taken beside the making of its worktree, which mostly waits for git."""

    def __init__(self, context: Context, plan: StartPlan, record: AgentRecord) -> None:
        self._context = context
        self._plan = plan
        self._record = record
        self._is_born_here = False
        self._pool: ThreadPoolExecutor | None = None
        self._result: Future[Joined] | None = None
        # Where a resumed agent goes decides whether it stays who it was, so that has to be known first.
        if context.config.forum and plan.placement is None:
            self._pool = ThreadPoolExecutor(1, "forum")
            self._result = self._pool.submit(self._joined, self._born)

    def identity(self, record: AgentRecord) -> Joined:
        """Who the agent is; ``record`` is as it is now, for its name or slot may have changed meanwhile."""
        if not self._context.config.forum:
            return Joined()
        if self._result is not None:
            joined = self._result.result()
            self._close()
            return joined
        self._record = record
        return self._joined(self._restored)

    def launched(self) -> None:
        """The window is there (P6): the caller's file lets go of the child's secret (P7)."""
        self._end(_let_go)

    def abandon(self) -> None:
        """The start was taken back: nobody will be this child."""
        if self._result is not None:
            self._result.exception()
            self._close()
        self._end(_drop)

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _end(self, end: Callable[[Worker, Spawn], None]) -> None:
        if not self._is_born_here:
            return
        try:
            with _worker(self._context, self._context.environment, "end a start", _LAST_PATIENCE) as worker:
                spawn = _find(worker, _cause_key(self._record))
                if spawn is not None:
                    end(worker, spawn)
        except (SideAgentsError, OSError):
            # The next start of this caller settles it.
            return

    def _joined(self, join: Callable[[], Joined]) -> Joined:
        try:
            return join()
        except (SideAgentsError, OSError) as error:
            return Joined(None, (f"{self._record.id} takes no part in the forum: {error}",))

    def _restored(self) -> Joined:
        """A conversation that goes on in place stays who it was; a copy of it is a fork of that (T203)."""
        place = self._plan.placement
        before = _identity_before(self._context, place.resume.agent_id) if place is not None else None
        if before is None:
            return self._born()
        if not Path(before.state).is_file():
            why = f"{self._record.id} is somebody new in the forum: the file that said who it was is gone."
            return Joined(self._born().identity, (why,))
        _, is_fork = placement.conversation(place, Path(self._record.worktree_path or ""))
        if not is_fork:
            return Joined(before)
        return Joined(self._child({**self._context.environment, STATE_VARIABLE: before.state}, "fork"))

    def _born(self) -> Joined:
        return Joined(self._child(self._context.environment, "spawn"))

    def _child(self, environment: Mapping[str, str], kind: Literal["spawn", "fork"]) -> ForumIdentity:
        from side_agents.forum.client import children, in_process

        # Before the caller's file is held, for which the other starts of a storm are waiting.
        in_process.load()
        until = clock.monotonic() + _ROOM_SECONDS
        while True:
            with _worker(self._context, environment, f"make {self._record.id} known to the forum") as worker:
                _settle(self._context, worker)
                if children.has_room(worker.document) or clock.monotonic() >= until:
                    return self._make_child(worker, kind)
            # Many starts at once, each of them soon over.
            clock.pause(_ROOM_PAUSE)

    def _make_child(self, worker: Worker, kind: Literal["spawn", "fork"]) -> ForumIdentity:
        """P1 to P5."""
        from side_agents.forum.client import children, commands, worker_file

        record, key = self._record, _cause_key(self._record)
        worker.ensure_identity(self._context.caller.agent_id or self._context.paths.root.name)
        folder = worker_file.workers_folder(self._context.environment, _home(self._context))
        plan = children.ChildPlan(
            cause_key=key,
            name=commands.fresh_name(worker.settings.name_prefix, record.id),
            child_state=children.child_state_path(folder, worker.document, key),
            launch={
                "kind": record.client or "side-agent",
                "target": f"{_TARGET}{record.id}",
                "cwd": record.worktree_path or "",
                "model": record.model,
            },
            kind=kind,
        )
        spawn = worker.create_child(plan)
        identity = _identity(spawn)
        if kind == "spawn":
            self._is_born_here = True
        else:
            _let_go(worker, spawn)
        return identity


def _worker(context: Context, environment: Mapping[str, str], purpose: str, patience: float = _PATIENCE) -> Worker:
    from side_agents.forum.client.locating import Asker, open_worker

    is_own = environment is context.environment
    asker = Asker(
        environment=environment,
        state_root=context.paths.root,
        database=context.paths.forum_db,
        agent_id=context.caller.agent_id if is_own else None,
        session=context.caller.session if is_own else None,
    )
    return open_worker(asker, purpose=purpose, patience=patience)


def _settle(context: Context, worker: Worker) -> None:
    """Finish what starts that were killed have left: an agent has the file, or nobody will ever be that child."""
    state = context.registry.read()
    identities = [
        *(record.forum for record in state.agents.values()),
        *(stone.forum for stone in context.registry.history()),
    ]
    used = {identity.state for identity in identities if identity is not None}
    starting = {record.started_at for record in state.agents.values() if record.status.is_starting}
    for spawn in [spawn for spawn in worker.document["pendingSpawns"] if spawn["stage"] != "launched"]:
        if not spawn["launch"]["target"].startswith(_TARGET):
            # Made for somebody else than an agent of ours, who settles it; its folder is none of ours.
            continue
        # An agent may get another name while it starts, but not another time.
        if _key(spawn).rpartition(" ")[2] in starting:
            continue
        has_file = spawn["childStatePath"] in used and spawn["stage"] == "childSaved"
        (_let_go if has_file else _drop)(worker, spawn)


def _let_go(worker: Worker, spawn: Spawn) -> None:
    from side_agents.forum.client import children

    children.launched(worker.file, _key(spawn))


def _drop(worker: Worker, spawn: Spawn) -> None:
    from side_agents.forum.client import children, worker_file

    children.abandon(worker.file, _key(spawn))
    worker_file.forget(Path(spawn["childStatePath"]))


def _find(worker: Worker, key: str) -> Spawn | None:
    return next((spawn for spawn in worker.document["pendingSpawns"] if _key(spawn) == key), None)


def _key(spawn: Spawn) -> str:
    return spawn["cause"]["key"] or ""


def _cause_key(record: AgentRecord) -> str:
    """What one start is called, the same after a crash; ids are used again, starts are not."""
    return f"{record.id} {record.started_at}"


def _identity(spawn: Spawn) -> ForumIdentity:
    born = spawn["born"]
    if born is None:
        raise SideAgentsError("The forum did not say who it is.")
    return ForumIdentity(
        name=born["name"], agent_id=born["agentId"], session_id=born["sessionId"], state=spawn["childStatePath"]
    )


def _identity_before(context: Context, agent_id: str) -> ForumIdentity | None:
    known = [stone.forum for stone in context.registry.history() if stone.id == agent_id and stone.forum is not None]
    return known[-1] if known else None


def _home(context: Context) -> Path:
    return Path(context.environment.get("HOME") or "/")
