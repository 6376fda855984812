"""What ``clean`` finds, and doing it: one survey decides for the dry run and for the real one alike.

The survey proves everything it lists; carrying out proves each thing anew, in :mod:`side_agents.core.discard`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from side_agents import names
from side_agents.core import claim_proofs, discard, leases, observe, slot_proof, slots, trash, tree
from side_agents.core.context import Context
from side_agents.core.registry import RegistryState
from side_agents.core.slots import SlotKind
from side_agents.core.verdicts import Discarded, Kind, Target, Verdict
from side_agents.errors import SideAgentsError
from side_agents.infra import clock, fs_tree, processes
from side_agents.infra.git import Git
from side_agents.infra.git_registration import registrations
from side_agents.models import AgentRecord

KINDS = (Kind.RECORD, Kind.WINDOW, Kind.LEASE, Kind.SLOT, Kind.BRANCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """What to look for. ``everyone`` includes what other parents started; ``agent_ids`` names records, whoever's they are.

    ``slots_kept`` None leaves all idle slots.
    """

    kinds: Collection[Kind] = KINDS
    everyone: bool = False
    agent_ids: tuple[str, ...] = ()
    slots_kept: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was considered, with its verdict, and things to know."""

    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def safe(self) -> tuple[Verdict, ...]:
        """What may be discarded."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_safe)

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """What has to stay."""
        return tuple(verdict for verdict in self.verdicts if not verdict.is_safe)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one thing: discarded, or the error that kept it."""

    target: Target
    discarded: Discarded | None = None
    error: SideAgentsError | None = None


@dataclass(frozen=True, slots=True)
class TrashListing:
    """One run in the trash; ``size`` in bytes."""

    stamp: str
    labels: tuple[str, ...]
    size: int


def survey(context: Context, request: CleanRequest) -> Plan:
    """Look at everything and prove it. Changes nothing but records that turn out to have ended.

    Raises UnknownAgentError for an id that is not on the list, StateError for a registry that cannot be read.
    """
    state = observe.refresh(context).state
    unknown = [name for name in request.agent_ids if name not in state.agents]
    if unknown:
        raise context.registry.unknown(*unknown)
    finders: dict[Kind, Callable[[], Iterable[Target]]] = {
        Kind.RECORD: lambda: _records(context, state, request),
        Kind.WINDOW: lambda: _windows(context),
        Kind.LEASE: lambda: _leases(context, state),
        Kind.SLOT: lambda: _slots(context, state, request.slots_kept),
        Kind.BRANCH: lambda: _branches(context, state),
    }
    kinds = (Kind.RECORD,) if request.agent_ids else tuple(kind for kind in KINDS if kind in request.kinds)
    verdicts: list[Verdict] = []
    notes = [f"{name} was written by another version and is left alone." for name in sorted(state.foreign)]
    for kind in kinds:
        try:
            verdicts += [discard.prove(context, target) for target in finders[kind]()]
        except (SideAgentsError, OSError) as error:
            notes.append(f"The {kind} part was passed over: {error}")
    return Plan(tuple(verdicts), tuple(notes))


def carry_out(context: Context, chosen: Iterable[Verdict]) -> Iterator[Outcome]:
    """Discard what was chosen, each after a proof of its own; one that has to stay does not stop the others."""
    stamp = clock.stamp()
    discard.tidy(context)
    for verdict in chosen:
        try:
            yield Outcome(verdict.target, discard.discard(context, verdict.target, stamp=stamp))
        except SideAgentsError as error:
            yield Outcome(verdict.target, error=error)


def list_trash(context: Context) -> list[TrashListing]:
    """The runs in the trash, newest first, with what they take on disk."""
    runs: dict[str, list[trash.TrashEntry]] = {}
    for entry in trash.entries(context):
        runs.setdefault(entry.stamp, []).append(entry)
    return [
        TrashListing(
            stamp, tuple(sorted(entry.label for entry in found)), sum(_size(context, entry) for entry in found)
        )
        for stamp, found in runs.items()
    ]


def _size(context: Context, entry: trash.TrashEntry) -> int:
    where = trash.place(context, entry.name)
    return fs_tree.size_of(where.folder) + fs_tree.size_of(where.admin)


def survey_trash(context: Context) -> Plan:
    """All trash entries, proven to be what they were when they were put there."""
    targets = [Target(Kind.TRASH, entry.name) for entry in trash.entries(context)]
    return Plan(tuple(discard.prove(context, target) for target in targets))


def _records(context: Context, state: RegistryState, request: CleanRequest) -> Iterator[Target]:
    for record in tree.in_order(state.agents.values()):
        if record.status not in claim_proofs.CLEARABLE and record.id not in request.agent_ids:
            continue
        wanted = record.id in request.agent_ids if request.agent_ids else _is_own(context, record, state)
        if wanted or (request.everyone and not request.agent_ids):
            yield Target(Kind.RECORD, record.id, token=record.started_at)


def _is_own(context: Context, record: AgentRecord, state: RegistryState) -> bool:
    """Whether the caller started it; an agent whose parent is gone is everybody's in main (reference/side-agents 8.2)."""
    caller = context.caller
    if record.parent_agent_id != caller.agent_id:
        return caller.agent_id is None and tree.is_orphan(record, state.ids)
    return None in (caller.session, record.parent_session_id) or caller.session == record.parent_session_id


def _windows(context: Context) -> Iterator[Target]:
    for socket, sweep in claim_proofs.sweeps(context).items():
        for pane in claim_proofs.orphan_windows(context, [sweep]):
            launcher = str(context.paths.runtime(pane.agent_tag).launcher)
            # Agents of other repositories carry tags of the same kind.
            if names.is_valid_id(pane.agent_tag) and launcher in processes.command_line(pane.pane_pid):
                yield Target(Kind.WINDOW, pane.pane_id, token=pane.agent_tag, socket=socket)


def _leases(context: Context, state: RegistryState) -> Iterator[Target]:
    rows = {record.worktree_path for record in state.agents.values()}
    for slot in slots.scan(context.paths.root, context.layout.common_dir):
        if slot.lease is None or slot.lease.agent_id in state.ids or str(slot.path) in rows:
            continue
        yield Target(Kind.LEASE, slot.path.name, slot.path, claim_proofs.lease_text(slot.path))


def _slots(context: Context, state: RegistryState, kept: int | None) -> Iterator[Target]:
    """Idle slots beyond the number that is kept, the highest numbers first to go; and those that were deleted by hand."""
    root, common = context.paths.root, context.layout.common_dir
    taken = {path for row in state.agents.values() for path in (row.worktree_path, row.parent_worktree_path)}
    idle = [
        slot.path
        for slot in slots.scan(root, common)
        if slot.kind in (SlotKind.WORKTREE, SlotKind.LOCKED_WORKTREE)
        and str(slot.path) not in taken
        and _is_free(slot.path)
    ]
    gone = [
        each.worktree
        for each in registrations(common)
        if names.slot_number(root, each.worktree) is not None
        and not each.worktree.exists()
        and str(each.worktree) not in taken
    ]
    for path in [*(idle[kept:] if kept is not None else []), *sorted(gone)]:
        yield slot_proof.slot_target(path)


def _is_free(path: Path) -> bool:
    lease = leases.read(path)
    return lease is None or slot_proof.is_left_over(lease)


def _branches(context: Context, state: RegistryState) -> Iterator[Target]:
    git = Git(context.paths.root)
    tracked = state.ids | {names.id_of_branch(row.branch or "") for row in state.agents.values()}
    held = {entry.branch for entry in git.worktrees()}
    for ref in git.side_agent_refs():
        branch = ref.name.removeprefix("refs/heads/")
        if names.id_of_branch(branch) in tracked or branch in held or names.id_of_branch(branch) is None:
            # An agent's own branch, or that of a slot, is no news.
            continue
        yield Target(Kind.BRANCH, branch, token=ref.commit)


def with_slots_kept(request: CleanRequest, context: Context) -> CleanRequest:
    """The request with the configured number of slots where none was asked for."""
    return request if request.slots_kept is not None else replace(request, slots_kept=context.config.slots_kept)
