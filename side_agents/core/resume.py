"""Going on with the conversation and the branch of an agent that quit (seed 001 5.3b, reference/side-agents 8.4).

The exact conversation, never a guess: it is linked to its agent by an entry in itself, and where two things say
different things nothing is started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from side_agents import names
from side_agents.clients.interface import SessionStore, SessionSummary
from side_agents.core import observe
from side_agents.core.context import Context
from side_agents.core.placement import slot_of
from side_agents.core.registry import RegistryState
from side_agents.core.results import Resume, Started, StartRequest
from side_agents.core.start import start
from side_agents.core.stop import STOPPED
from side_agents.errors import ConflictError, NotFoundError, RefusedError, StateError
from side_agents.infra import text
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, AgentStatus, Tombstone

# So many failures of the same kind, one after the other, and the next attempt has to be asked for (field report 82).
SAME_FAILURES = 2
_TASK_CHARS = 2000


class Claim(StrEnum):
    """Who may take the branch ``side-agent/<id>``."""

    OWN = "own"
    ACTIVE = "held by active agent"
    NEWER = "owned by newer session"


@dataclass(frozen=True, slots=True)
class Resumable:
    """One conversation that can go on. ``note`` says what is special about its branch, empty for the ordinary case."""

    session: SessionSummary
    claim: Claim
    note: str


@dataclass(frozen=True, slots=True)
class _Look:
    """Everything that a choice is made from; ``sessions`` are newest first."""

    state: RegistryState
    sessions: tuple[SessionSummary, ...]
    history: tuple[Tombstone, ...]
    stores: Mapping[str, SessionStore]


def assign_branches(sessions: Iterable[SessionSummary], active: Collection[str]) -> list[tuple[SessionSummary, Claim]]:
    """Give each id's branch to the newest of its conversations, unless an agent of that id is there (N11, N12, B57).

    ``sessions`` are newest first; those without a link are left out. Letter case makes no difference, as for ids.
    """
    held = {name.casefold() for name in active}
    seen: set[str] = set()
    assigned: list[tuple[SessionSummary, Claim]] = []
    for session in sessions:
        if session.agent_id is None:
            continue
        name = session.agent_id.casefold()
        claim = Claim.ACTIVE if name in held else Claim.NEWER if name in seen else Claim.OWN
        seen.add(name)
        assigned.append((session, claim))
    return assigned


def list_resumable(context: Context) -> list[Resumable]:
    """Every conversation of an agent of this repository that nobody is having now, newest first.

    Of each file at most 256 KiB are read. Raises StateError for a registry that cannot be read.
    """
    look = _look(context)
    branches = {names.id_of_branch(ref.name) for ref in Git(context.layout.main_top).side_agent_refs()}
    return [
        Resumable(session, claim, _note(claim, session.agent_id in branches))
        for session, claim in assign_branches(look.sessions, look.state.ids)
    ]


def _note(claim: Claim, exists: bool) -> str:
    if claim is Claim.OWN:
        return "" if exists else "branch pruned"
    return f"branch {claim}"


def _look(context: Context) -> _Look:
    from side_agents.clients import session_stores

    state = observe.refresh(context).state
    history = context.registry.history()
    stores = session_stores()
    pool = context.paths.root
    prefix = str(pool.parent / names.slot_name(pool.name, 0)).removesuffix("0000")
    found: dict[Path, SessionSummary] = {}
    for store in stores.values():
        for file in store.files(context.environment, prefix):
            _add(found, store.summarise(file))
    for stone in history:
        # One that was held with other settings lies elsewhere; its agent's tombstone still knows where.
        known = Path(stone.child_session_file or "")
        if stone.child_session_file and known not in found and stone.client in stores:
            _add(found, stores[stone.client].summarise(known))
    tracked = {key for record in state.agents.values() for key in (record.child_session_file, record.child_session_id)}
    # Far fewer directories than conversations, and telling whose one is takes longer than finding its link.
    is_slot = {cwd: slot_of(pool, cwd) is not None for cwd in {each.cwd for each in found.values()}}
    held = [each for each in found.values() if is_slot[each.cwd] and _is_an_agents(each)]
    mine = [each for each in held if not {str(each.file), each.session_id} & tracked]
    newest_first = sorted(mine, key=lambda each: (each.modified, str(each.file)), reverse=True)
    return _Look(state, tuple(newest_first), tuple(history), stores)


def _add(found: dict[Path, SessionSummary], session: SessionSummary | None) -> None:
    if session is not None:
        found[session.file] = session


def _is_an_agents(session: SessionSummary) -> bool:
    # Ids become names of folders and branches.
    return session.messages > 0 and session.agent_id is not None and names.is_valid_id(session.agent_id)


def resume(
    context: Context, target: str | Path | None, *, fork: bool = False, model: str | None = None, again: bool = False
) -> Started:
    """Reopen a conversation, idle, in a window of its own, with its branch; no prompt, and no model unless given.

    ``target`` is an agent's id, the (absolute) file of a conversation, or None for the newest conversation. ``fork`` goes
    on in a copy. Raises, before anything changed: UnknownAgentError, NotFoundError (no such conversation), ConflictError
    (the id does not name one conversation), RefusedError (it is not over; its branch is in use; it failed the same way
    twice, unless ``again``); and what ``start`` raises.
    """
    look = _look(context)
    session = _chosen(context, look, target)
    stone = _stone_of(look, session)
    session, claim = _relinked(look, session, target)
    if not again:
        _refuse_repetition(look, session)
    agent_id = session.agent_id or ""
    known = stone or next((each for each in reversed(look.history) if each.id == agent_id), None)
    request = StartRequest(
        task=(known.task if known else "") or _title(session) or agent_id,
        client=session.client,
        model=model,
        session=context.caller.session,
        resume=Resume(
            agent_id=agent_id,
            takes_branch=claim is Claim.OWN,
            session_file=str(session.file),
            directory=session.cwd,
            fork=fork,
            base_commit=known.base_commit if known else None,
            model=known.model if known else None,
            parent_agent_id=known.parent_agent_id if known else None,
            depth=known.depth if known else None,
        ),
    )
    return start(context, request)


def _title(session: SessionSummary) -> str:
    cut = text.one_line(text.strip_controls(session.title), _TASK_CHARS)
    return cut.encode("utf-8", "replace").decode()


def _stone_of(look: _Look, session: SessionSummary) -> Tombstone | None:
    file = str(session.file)
    return next((stone for stone in reversed(look.history) if stone.child_session_file == file), None)


def _chosen(context: Context, look: _Look, target: str | Path | None) -> SessionSummary:
    if isinstance(target, Path):
        return _by_file(look, target)
    if target is not None:
        return _by_id(context, look, names.normalise_id(target))
    if not look.sessions:
        raise NotFoundError(
            "There is no conversation to resume in this repository. Nothing was started.",
            hint="`side-agents start TASK` starts a new agent.",
        )
    return look.sessions[0]


def _by_file(look: _Look, file: Path) -> SessionSummary:
    wanted = file.resolve()
    session = next((each for each in look.sessions if each.file.resolve() == wanted), None)
    if session is not None:
        return session
    if not file.is_file():
        raise NotFoundError(f"The session file {file} does not exist. Nothing was started.", hint=_LIST_HINT)
    for record in look.state.agents.values():
        if record.child_session_file and Path(record.child_session_file).resolve() == wanted:
            raise _still_there(record)
    raise RefusedError(
        f"{file} is no conversation of a side agent of this repository: it has no message, no link to an agent, or was held "
        "elsewhere. Nothing was started.",
        hint=_LIST_HINT,
    )


_LIST_HINT = "`side-agents resume --list` shows what can be resumed."


def _by_id(context: Context, look: _Look, agent_id: str) -> SessionSummary:
    record = look.state.agents.get(agent_id)
    if record is not None or agent_id in look.state.ids:
        raise _still_there(record) if record is not None else context.registry.unknown(agent_id)
    mine = [session for session in look.sessions if session.agent_id == agent_id]
    stone = next((each for each in reversed(look.history) if each.id == agent_id), None)
    if stone is not None:
        _require_its_session(look, stone, mine)
    if not mine:
        if stone is None:
            raise context.registry.unknown(agent_id)
        raise NotFoundError(f"Nothing is left of the conversation of {agent_id}. Nothing was started.", hint=_LIST_HINT)
    return mine[0]


def _require_its_session(look: _Look, stone: Tombstone, mine: Sequence[SessionSummary]) -> None:
    """The agent's last conversation has to be there and to be the newest of its id: anything else would be a guess."""
    kept = f"Its branch is {stone.branch}: `side-agents start --base {stone.branch} TASK` goes on without the conversation."
    if stone.client not in look.stores:
        raise RefusedError(
            f"The client {stone.client or 'of unknown name'} of {stone.id} keeps no conversation that could be reopened. "
            "Nothing was started.",
            hint=kept,
        )
    if stone.child_session_file is None:
        return
    file = Path(stone.child_session_file)
    if not file.is_file():
        raise NotFoundError(
            f"The conversation of {stone.id} was in {file}, which does not exist (any more). Nothing was started.",
            hint=f"{kept} Other conversations: side-agents resume --list",
        )
    if mine and mine[0].file.resolve() == file.resolve():
        return
    if any(session.file.resolve() == file.resolve() for session in mine):
        raise ConflictError(
            f"The last conversation of agent {stone.id} is {file}, but {mine[0].file} of the same id is newer. "
            "Nothing was started.",
            hint="Name the one you mean: `side-agents resume --session FILE`.",
        )
    raise RefusedError(
        f"The conversation of {stone.id}, {file}, belongs to another agent now, or has no message. Nothing was started.",
        hint=_LIST_HINT,
    )


def _still_there(record: AgentRecord) -> RefusedError:
    if not record.status.is_terminal:
        return RefusedError(
            f"Agent {record.id} has not ended ({record.status}), so there is nothing to resume.",
            hint=f"Go to its window: `side-agents attach {record.id}`.",
        )
    why = f": {record.error}" if record.error else ""
    return RefusedError(
        f"Agent {record.id} {record.status}{why}. Its worktree is held for you to look at. Nothing was started.",
        hint=f"`side-agents stop {record.id}` clears it and keeps the work; then resume it.",
    )


def _relinked(look: _Look, session: SessionSummary, target: str | Path | None) -> tuple[SessionSummary, Claim]:
    """The chosen conversation by its last link in the whole file, of which only the ends had been read (B55)."""
    try:
        agent_id = look.stores[session.client].linked_agent(session.file)
    except StateError as error:
        raise NotFoundError(f"{error.message} Nothing was started.", hint=_LIST_HINT) from error
    if agent_id is None or not names.is_valid_id(agent_id):
        raise RefusedError(f"{session.file} is linked to no agent any more. Nothing was started.", hint=_LIST_HINT)
    if agent_id != session.agent_id and isinstance(target, str):
        raise ConflictError(
            f"The conversation of {session.agent_id} was taken over by {agent_id} later. Nothing was started.",
            hint=f"If you mean it: `side-agents resume --session {session.file}`.",
        )
    corrected = [replace(each, agent_id=agent_id) if each is session else each for each in look.sessions]
    return next(pair for pair in assign_branches(corrected, look.state.ids) if pair[0].file == session.file)


def _refuse_repetition(look: _Look, session: SessionSummary) -> None:
    """Not again what failed the same way each of the last times, before it had done anything."""
    tries = [stone for stone in reversed(look.history) if stone.resumed_from == str(session.file)][:SAME_FAILURES]
    errors = {stone.error if _failed_at_once(stone) else None for stone in tries}
    if len(tries) == SAME_FAILURES and len(errors) == 1 and None not in errors:
        raise RefusedError(
            f"Resuming {session.file} failed {SAME_FAILURES} times in the same way: {errors.pop()}. It was not tried again.",
            hint=f"Look at `side-agents log {tries[0].id}`; then try once more with --again.",
        )


def _failed_at_once(stone: Tombstone) -> bool:
    return stone.turn == 0 and stone.status is not AgentStatus.DONE and stone.error != STOPPED
