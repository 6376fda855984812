"""Looking at agents: gather facts, judge them, write what changed (reference/side-agents 6.2).

Files and /proc are read without any lock; tmux is asked at most once for each server. Only a record that really changed
is written, in one transaction that judges it anew from the row as it is then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from side_agents import names
from side_agents.client_spec import PromptDelivery
from side_agents.core import journal, leases, tree, windows
from side_agents.core.budget import QUEUED
from side_agents.core.context import Context
from side_agents.core.registry import RegistryState
from side_agents.core.results import BACKLOG_LINES, Checked, Listed
from side_agents.core.status import OWNER_DIED, Facts, is_new_stop, judge
from side_agents.errors import StateError, TmuxError, UsageError
from side_agents.infra import clock, fs, git_refs, processes
from side_agents.infra.tmux_sweep import Presence, Sweep
from side_agents.models import AgentRecord, AgentStatus, EndedBy, ExitMarker, ProcessRef, Tombstone
from side_agents.paths import RuntimePaths

# Key of the record's ``extra`` while ``stop`` is at work, see ``stopper``.
STOPPER = "stopper"


@dataclass(frozen=True, slots=True)
class Look:
    """What one refresh found: all records, those that left just now, and the tmux servers that were asked."""

    state: RegistryState
    ended: Mapping[str, Tombstone] = field(default_factory=dict)
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)


def refresh(context: Context, agent_ids: Collection[str] | None = None, *, probe: bool = True) -> Look:
    """Bring records up to date; ``agent_ids`` None means all. ``probe`` False asks no tmux server.

    Raises StateError for a registry that cannot be read, BusyError when a change cannot be written.
    """
    state = context.registry.read()
    chosen = [record for record in state.agents.values() if agent_ids is None or record.id in agent_ids]
    sweeps = _sweep(chosen) if probe else {}
    # A row that says done was left over by a command that died before it could move it to the history.
    changed = [
        record
        for record in chosen
        if _may_have_news(context, record, sweeps)
        and (record.status is AgentStatus.DONE or _judged(context, record, sweeps) != record)
    ]
    if not changed:
        return Look(state, {}, sweeps)
    return _write(context, changed, sweeps)


def _may_have_news(context: Context, record: AgentRecord, sweeps: Mapping[str, Sweep]) -> bool:
    """A cheap look before the full one: most of a thousand agents have nothing new (two stats and one read of /proc)."""
    unsettled = record.status.is_starting or record.status is AgentStatus.DONE or _lacks_window(record)
    if unsettled or record.runtime_dir is None or record.client in context.config.clients:
        return True
    runtime = f"{context.paths.meta}/runtime/{record.id}"
    if fs.size(f"{runtime}/events.jsonl") != record.journal_offset or fs.size(f"{runtime}/exit.json"):
        return True
    if record.status.is_terminal:
        return False
    if record.launcher is None or not processes.is_alive(record.launcher):
        return True
    return _pane(record, sweeps) is Presence.ABSENT


def _write(context: Context, changed: Iterable[AgentRecord], sweeps: Mapping[str, Sweep]) -> Look:
    ended: dict[str, Tombstone] = {}
    linked: list[AgentRecord] = []
    with context.registry.transaction("record what agents did") as state:
        for seen in changed:
            record = state.agents.get(seen.id)
            # A sweep says nothing about a window that was opened after it.
            if record is None or not is_same_start(record, seen) or record.tmux_pane_id != seen.tmux_pane_id:
                continue
            judged = count_stop(state, record, _judged(context, record, sweeps))
            if judged.status is AgentStatus.DONE:
                stone = entomb(context, judged, EndedBy.EXIT)
                state.bury(stone)
                ended[record.id] = stone
            else:
                state.put(judged)
                linked += [judged] if judged.child_session_file != record.child_session_file else []
    for stone in ended.values():
        if stone.worktree_path:
            leases.release(Path(stone.worktree_path), stone.id)
    for record in linked:
        _name_session(context, record)
    return Look(state, ended, sweeps)


def _name_session(context: Context, record: AgentRecord) -> None:
    slot = Path(record.worktree_path) if record.worktree_path else None
    if slot is None or not leases.name_session(slot, record.id, record.child_session_file or ""):
        return
    if record.id not in context.registry.read().ids:
        # It ended meanwhile, and the lease may have been given up just before it was written again.
        leases.release(slot, record.id)


def is_same_start(one: AgentRecord, other: AgentRecord) -> bool:
    """Whether two records are of one agent, and not of two that had the same id one after the other."""
    return (one.id, one.started_at, one.owner) == (other.id, other.started_at, other.owner)


def stopper(record: AgentRecord) -> ProcessRef | None:
    """The living process that is ending this agent, if any; what is seen of the agent meanwhile is that one's doing."""
    data = record.extra.get(STOPPER)
    if not isinstance(data, dict) or not isinstance(data.get("pid"), int) or not isinstance(data.get("started"), str):
        return None
    ref = ProcessRef(data["pid"], data["started"])
    return ref if processes.is_alive(ref) else None


def count_stop(state: RegistryState, before: AgentRecord, after: AgentRecord) -> AgentRecord:
    """Give a new stop its number in the registry's sequence."""
    return replace(after, stop_seq=state.next_sequence()) if is_new_stop(before, after) else after


def entomb(context: Context, record: AgentRecord, ended_by: EndedBy) -> Tombstone:
    """What the history keeps of a record that leaves the registry."""
    head = git_refs.read_branch_head(context.layout.common_dir, record.branch) if record.branch else None
    return Tombstone(
        id=record.id,
        status=record.status,
        ended_by=ended_by,
        task=record.task,
        branch=record.branch,
        branch_head=head,
        base_commit=record.base_commit,
        worktree_path=record.worktree_path,
        client=record.client,
        model=record.model,
        child_session_id=record.child_session_id,
        child_session_file=record.child_session_file,
        resumed_from=record.resumed_from,
        parent_agent_id=record.parent_agent_id,
        parent_session_id=record.parent_session_id,
        depth=record.depth,
        exit_code=record.exit_code,
        error=record.error,
        turn=record.turn,
        started_at=record.started_at,
        finished_at=record.finished_at or clock.iso(),
        stop_seq=record.stop_seq,
        landed_commit=record.landed_commit,
        landed_target=record.landed_target,
        forum=record.forum,
        extra={QUEUED: record.extra[QUEUED]} if QUEUED in record.extra else {},
    )


def _sweep(records: Iterable[AgentRecord]) -> dict[str, Sweep]:
    sockets = {record.tmux_socket for record in records if record.tmux_socket and _is_open(record)}
    if not sockets:
        return {}
    from side_agents.infra.tmux import Tmux

    return {socket: Tmux(Path(socket)).sweep() for socket in sorted(sockets)}


def _is_open(record: AgentRecord) -> bool:
    """Whether its window may still matter: it runs, or its starter died at the very moment of opening it."""
    return not record.status.is_terminal or _lacks_window(record)


def _lacks_window(record: AgentRecord) -> bool:
    cut_off = record.status is AgentStatus.CRASHED and record.error == OWNER_DIED
    return record.launcher is None and (record.status.is_starting or cut_off)


def _judged(context: Context, record: AgentRecord, sweeps: Mapping[str, Sweep]) -> AgentRecord:
    if stopper(record) is not None:
        # It writes the one result itself; a crash told before it would be told twice, and be no crash.
        return record
    adopted = _adopt(context, record, sweeps)
    return judge(adopted, _facts(context, adopted, sweeps))


def _adopt(context: Context, record: AgentRecord, sweeps: Mapping[str, Sweep]) -> AgentRecord:
    """A window that was opened just before its starter died still belongs to its record: find it by its tag."""
    if not _lacks_window(record) or record.tmux_socket is None:
        return record
    sweep = sweeps.get(record.tmux_socket)
    if sweep is None or sweep.server is None or sweep.server != record.tmux_server:
        return record
    pane = next((pane for pane in sweep.panes.values() if pane.agent_tag == record.id), None)
    launcher = processes.identify(pane.pane_pid) if pane is not None else None
    if pane is None or launcher is None or not _has_launched(context, record, pane.pane_pid):
        return record
    return replace(
        record,
        launcher=launcher,
        tmux_pane_id=pane.pane_id,
        tmux_window_id=pane.window_id,
        tmux_window_index=pane.window_index,
        tmux_session=pane.session_name,
        status=AgentStatus.RUNNING,
        finished_at=None,
        error=None,
    )


def _has_launched(context: Context, record: AgentRecord, pid: int) -> bool:
    events = journal.read(context.paths.runtime(record.id).journal, 0).events
    return any(event["type"] == "launcher" and event.get("pid") == pid for event in events)


def _facts(context: Context, record: AgentRecord, sweeps: Mapping[str, Sweep]) -> Facts:
    runtime = context.paths.runtime(record.id)
    # The marker last: a launcher writes it before it ends, so a death seen first cannot hide it.
    launcher = _process(record.launcher)
    # Until the runtime folder is this agent's own, what lies there is of an earlier one with the same id (I2).
    is_own = record.runtime_dir is not None
    tail = journal.read(runtime.journal, record.journal_offset) if is_own else journal.JournalTail((), 0)
    return Facts(
        launcher=launcher,
        owner=_owner(record, sweeps),
        owner_expired=_is_expired(record, context.config.start_owner_timeout),
        pane=_pane(record, sweeps),
        events=tail.events,
        journal_offset=tail.offset,
        quiet=_is_quiet(context, record, runtime),
        marker=read_marker(runtime.exit_marker) if is_own else None,
        now=clock.iso(),
    )


def read_marker(path: Path) -> ExitMarker | None:
    """The exit marker, None when there is none; one that is half written or odd counts as absent."""
    try:
        data = fs.read_json(path)
        return ExitMarker.from_json(data) if isinstance(data, dict) else None
    except (StateError, ValueError, TypeError):
        return None


def _process(ref: ProcessRef | None) -> Presence:
    if ref is None:
        return Presence.UNKNOWN
    return Presence.PRESENT if processes.is_alive(ref) else Presence.ABSENT


def _owner(record: AgentRecord, sweeps: Mapping[str, Sweep]) -> Presence:
    owner = _process(record.owner)
    if owner is not Presence.ABSENT or record.status is not AgentStatus.SPAWNING_TMUX:
        return owner
    # The window may be there already; only its own server can say that it is not.
    sweep = sweeps.get(record.tmux_socket or "")
    if sweep is None or record.tmux_server is None:
        return Presence.UNKNOWN
    return owner if sweep.server is not None or sweep.proves_end_of(record.tmux_server) else Presence.UNKNOWN


def _pane(record: AgentRecord, sweeps: Mapping[str, Sweep]) -> Presence:
    sweep = sweeps.get(record.tmux_socket or "")
    if sweep is None or record.tmux_pane_id is None:
        return Presence.UNKNOWN
    return sweep.presence(record.tmux_pane_id, record.tmux_server, record.id)


def _is_expired(record: AgentRecord, limit_seconds: float) -> bool:
    if not record.status.is_starting:
        return False
    try:
        age = clock.now() - clock.parse_iso(record.started_at)
    except ValueError:
        return True
    return age > timedelta(seconds=limit_seconds)


def _is_quiet(context: Context, record: AgentRecord, runtime: RuntimePaths) -> bool | None:
    """For a client without events: whether its log, which receives all that the pane prints, has been still."""
    spec = context.config.clients.get(record.client or "")
    if spec is None or record.launcher is None:
        return None
    client = context.find_client(spec.name, context.config)
    if client.reports_events:
        return None
    if record.kickoff_pending and spec.prompt is PromptDelivery.PASTE and _process(record.owner) is Presence.PRESENT:
        # Its starter is about to paste the first prompt: being quiet before that is no turn.
        return None
    try:
        still = clock.now().timestamp() - runtime.backlog.stat().st_mtime
    except FileNotFoundError:
        return None
    return still >= client.quiet_seconds


def quiet_delay(context: Context, record: AgentRecord) -> float | None:
    """Seconds after which a silent screen should be looked at again; None for clients that report events."""
    spec = context.config.clients.get(record.client or "")
    if spec is None or record.status.is_terminal:
        return None
    client = context.find_client(spec.name, context.config)
    return None if client.reports_events else client.quiet_seconds / 2


def check(context: Context, agent_id: str, *, lines: int = BACKLOG_LINES) -> Checked:
    """One agent as it is now, with the last lines that it showed; ``done`` for one that has finished (X18).

    Raises UsageError for an empty id and UnknownAgentError for one never seen.
    """
    name = names.normalise_id(agent_id)
    if not name:
        raise UsageError("No agent id was given. Nothing was done.", hint="`side-agents list` shows the ids.")
    look = refresh(context, (name,))
    record = look.state.agents.get(name)
    if record is not None:
        shown = last_lines(context, name, visible(look, record), lines)
        return Checked(record, None, tuple(shown), windows.lingers(record))
    stone = look.ended.get(name) or context.registry.tombstone(name)
    if stone is None:
        raise context.registry.unknown(name)
    return Checked(None, stone, tuple(last_lines(context, name, None, lines)))


def visible(look: Look, record: AgentRecord | None) -> AgentRecord | None:
    """The record, or None where its tmux server has just not answered: asking for its pane would only wait once more."""
    sweep = look.sweeps.get(record.tmux_socket or "") if record is not None else None
    return record if sweep is None or sweep.server is not None else None


def last_lines(context: Context, agent_id: str, record: AgentRecord | None, lines: int = BACKLOG_LINES) -> list[str]:
    """What the agent showed last: its visible pane while it runs, else the end of its log."""
    from side_agents.core import backlog
    from side_agents.infra.tmux import Tmux

    if record is not None and windows.has_pane(record):
        try:
            pane = Tmux(Path(record.tmux_socket or "")).capture(record.tmux_pane_id or "")
        except TmuxError:
            pane = []
        shown = backlog.from_screen(pane, lines)
        if shown:
            return shown
    return backlog.from_log(context.paths.runtime(agent_id).backlog, lines)


def list_agents(context: Context, *, everything: bool = False, probe: bool = True) -> Listed:
    """All agents in tree order; ``everything`` adds those that left. ``probe`` False reads files only."""
    look = refresh(context, probe=probe)
    notes = [
        f"The tmux server at {socket} gave no answer: what is shown of its agents may be old."
        for socket, sweep in look.sweeps.items()
        if sweep.server is None and not _is_gone(look.state, socket, sweep)
    ]
    stones: tuple[Tombstone, ...] = ()
    waiting: frozenset[str] = frozenset()
    if everything:
        from side_agents.core.paused import paused

        newest = {stone.id: stone for stone in context.registry.history() if stone.id not in look.state.ids}
        stones = tuple(newest.values())
        waiting = paused(context, stones)
    return Listed(
        records=tuple(tree.in_order(look.state.agents.values())),
        tombstones=stones,
        unreadable=tuple(sorted(look.state.foreign)),
        notes=tuple(notes),
        paused=waiting,
        lingering=windows.lingering(look.state.agents.values()),
    )


def _is_gone(state: RegistryState, socket: str, sweep: Sweep) -> bool:
    servers = {record.tmux_server for record in state.agents.values() if record.tmux_socket == socket}
    return all(server is None or sweep.proves_end_of(server) for server in servers)
