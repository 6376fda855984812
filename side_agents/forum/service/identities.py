"""Who speaks: authors with their credentials, the sessions that outlive them, and how one came from another.

A compaction child is another author of its parent's session; a spawn or fork child begins a session of its own. Parents
never change by having children (reference/forum.md 1.3, 5.3).
"""

from __future__ import annotations

import json
from typing import Any

from side_agents.errors import ForumError
from side_agents.forum import checks, ids, limits, requests, views
from side_agents.forum.cursors import Kind
from side_agents.forum.failures import fail
from side_agents.forum.service import newcomers
from side_agents.forum.service.commands import Context, Outcome, execute
from side_agents.forum.service.newcomers import Newcomer
from side_agents.forum.service.principal import Command, CommandResult, Principal
from side_agents.forum.store import identities as rows
from side_agents.forum.store.database import Connection
from side_agents.forum.store.identities import AgentRow


class Identities:
    """Registration, children, profiles and listings of authors."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._database = context.database

    def authenticate(self, credential: str) -> Principal:
        """Who a credential belongs to. Raises ``unauthenticated``, always in the same words."""
        try:
            digest = ids.credential_hash(credential)
        except ForumError:
            raise _unauthenticated() from None
        found = self._database.read(lambda connection: rows.agent_by_credential(connection, digest))
        if found is None:
            raise _unauthenticated()
        return Principal(found.id, found.session_id, found.name)

    def register(self, request: requests.RegisterRequest, *, command: Command) -> CommandResult:
        """Make a root author and its session; 201 ``{agent, session}``.

        Raises ``context_key_taken``, ``credential_taken``, ``name_taken``, ``bad_credential_format``, ``invalid_argument``,
        ``idempotency_conflict``.
        """
        newcomer = newcomers.newcomer(request)
        profile = {
            "displayName": checks.text(request.display_name, "body.displayName", limits.DISPLAY_NAME_CHARACTERS),
            "metadata": checks.metadata(request.metadata, "body.metadata"),
        }

        def apply(connection: Connection) -> Outcome:
            newcomers.check_unused(connection, newcomer)
            agent = self._agent(newcomer, session_id=ids.ulid("as"), profile=profile)
            rows.insert_session(connection, agent.session_id, agent.created_at)
            rows.insert_agent(connection, agent, newcomer.credential_hash)
            return Outcome(_created(connection, agent), agent.id)

        return execute(
            self._context,
            scope=newcomer.credential_hash.hex(),
            operation="register",
            command=command,
            intent={**newcomer.intent(), **profile},
            apply=apply,
        )

    def create_child(
        self, principal: Principal, parent_id: str, request: requests.ChildRequest, *, command: Command
    ) -> CommandResult:
        """Make a child of the caller; 201 ``{agent, session, inherited: {subforums, threadWatches}}``.

        Raises ``not_your_agent`` for another parent, ``cause_taken`` for a second child of one compaction, and what
        ``register`` raises.
        """
        if parent_id != principal.agent_id:
            raise fail("not_your_agent", "Only an author itself can create its children. Nothing was changed.")
        newcomer = newcomers.newcomer(request)
        cause = request.cause
        checks.key(cause.key, "body.cause.key", limits.CAUSE_KEY_CHARACTERS)
        reason = checks.text(request.reason, "body.reason", limits.REASON_CHARACTERS) or None
        inherit = request.inherit or requests.Inherit()
        if request.inherit is not None and cause.kind == "compaction":
            raise fail(
                "invalid_argument",
                "A compaction child keeps its parent's session with all its watches; there is nothing to inherit.",
                field="body.inherit",
            )

        def apply(connection: Connection) -> Outcome:
            newcomers.check_cause(connection, principal, cause)
            newcomers.check_unused(connection, newcomer)
            session_id = principal.session_id if cause.kind == "compaction" else ids.ulid("as")
            agent = self._agent(newcomer, session_id=session_id, parent_id=parent_id, cause=cause, reason=reason)
            if cause.kind != "compaction":
                rows.insert_session(connection, session_id, agent.created_at)
            rows.insert_agent(connection, agent, newcomer.credential_hash)
            inherited = _inherit(connection, principal.session_id, session_id, inherit)
            return Outcome({**_created(connection, agent), "inherited": inherited}, agent.id)

        return execute(
            self._context,
            scope=principal.agent_id,
            operation="create_child",
            command=command,
            intent={
                **newcomer.intent(),
                "parent": parent_id,
                "cause": [cause.kind, cause.key],
                "reason": reason,
                "inherit": [inherit.subforums, inherit.thread_watches],
            },
            apply=apply,
        )

    def me(self, principal: Principal) -> dict[str, Any]:
        """The caller's own author and session."""
        return self._database.read(lambda connection: _created(connection, _existing(connection, principal.agent_id)))

    def update_profile(self, principal: Principal, request: requests.ProfileRequest) -> dict[str, Any]:
        """Replace the parts of the profile that are present; the author as it is then, as ``{agent, session}``."""
        changes = _profile_changes(request)

        def apply(connection: Connection) -> dict[str, Any]:
            profile = {**json.loads(_existing(connection, principal.agent_id).profile), **changes}
            rows.update_profile(connection, principal.agent_id, _json(profile))
            return _created(connection, _existing(connection, principal.agent_id))

        return self._database.write(apply)

    def agent(self, agent_id: str) -> dict[str, Any]:
        """Any author by id, as ``{agent}``."""
        return self._database.read(lambda connection: {"agent": views.agent(_existing(connection, agent_id))})

    def agent_by_name(self, name: str) -> dict[str, Any]:
        """Any author by name, as ``{agent}``."""
        found = self._database.read(lambda connection: rows.agent_by_name(connection, name))
        if found is None:
            raise fail("not_found", "There is no author of that name.")
        return {"agent": views.agent(found)}

    def children(
        self, principal: Principal, agent_id: str, *, cursor: str | None = None, limit: int = limits.CHILDREN_PAGE
    ) -> dict[str, Any]:
        """Direct children of an author, oldest first: ``{items, nextCursor, hasMore}``."""
        after = self._position(cursor, Kind.CHILDREN, principal, agent_id)
        size = checks.page_limit(limit, limits.CHILDREN_PAGE)

        def query(connection: Connection) -> list[AgentRow]:
            _existing(connection, agent_id)
            return rows.children(connection, agent_id, after, size + 1)

        return self._page(self._database.read(query), size, Kind.CHILDREN, principal, agent_id)

    def contexts(
        self, principal: Principal, session_id: str, *, cursor: str | None = None, limit: int = limits.CONTEXTS_PAGE
    ) -> dict[str, Any]:
        """All authors of a session, oldest first, in the same form as ``children``."""
        after = self._position(cursor, Kind.CONTEXTS, principal, session_id)
        size = checks.page_limit(limit, limits.CONTEXTS_PAGE)

        def query(connection: Connection) -> list[AgentRow]:
            if rows.session(connection, session_id) is None:
                raise fail("not_found", "There is no such session.")
            return rows.contexts(connection, session_id, after, size + 1)

        return self._page(self._database.read(query), size, Kind.CONTEXTS, principal, session_id)

    def _position(self, cursor: str | None, kind: Kind, principal: Principal, stream: str) -> int:
        if cursor is None:
            return 0
        return int(self._context.cursors.decode(cursor, kind, principal.session_id, stream)[0])

    def _page(self, found: list[AgentRow], size: int, kind: Kind, principal: Principal, stream: str) -> dict[str, Any]:
        shown = found[:size]
        has_more = len(found) > size
        cursor = (
            self._context.cursors.encode(kind, principal.session_id, stream, shown[-1].ordinal) if has_more else None
        )
        return {"items": [views.agent(row) for row in shown], "nextCursor": cursor, "hasMore": has_more}

    def _agent(
        self,
        newcomer: Newcomer,
        *,
        session_id: str,
        profile: dict[str, Any] | None = None,
        parent_id: str | None = None,
        cause: requests.Cause | None = None,
        reason: str | None = None,
    ) -> AgentRow:
        return AgentRow(
            id=ids.ulid("ag"),
            name=newcomer.name,
            session_id=session_id,
            parent_id=parent_id,
            cause_kind=cause.kind if cause else "root",
            cause_key=cause.key if cause else None,
            context_key=newcomer.context_key,
            reason=reason,
            provenance=_json(newcomer.provenance),
            profile=_json(profile or {}),
            created_at=self._context.clock(),
        )


def _inherit(connection: Connection, source: str, target: str, inherit: requests.Inherit) -> dict[str, list[str]]:
    subforums = rows.inherit_subforum_watches(connection, source, target) if inherit.subforums else []
    threads = rows.inherit_thread_watches(connection, source, target) if inherit.thread_watches else []
    return {"subforums": subforums, "threadWatches": threads}


def _existing(connection: Connection, agent_id: str) -> AgentRow:
    found = rows.agent(connection, agent_id)
    if found is None:
        raise fail("not_found", "There is no such author.")
    return found


def _created(connection: Connection, agent: AgentRow) -> dict[str, Any]:
    session = rows.session(connection, agent.session_id)
    assert session is not None, "every author has a session: the table says so"
    return {"agent": views.agent(agent), "session": views.session(session)}


def _profile_changes(request: requests.ProfileRequest) -> dict[str, Any]:
    texts = {
        "displayName": (request.display_name, limits.DISPLAY_NAME_CHARACTERS),
        "bio": (request.bio, limits.BIO_CHARACTERS),
        "status": (request.status, limits.STATUS_CHARACTERS),
    }
    changes: dict[str, Any] = {
        field: checks.text(value, f"body.{field}", most) for field, (value, most) in texts.items() if value is not None
    }
    if request.metadata is not None:
        changes["metadata"] = checks.metadata(request.metadata, "body.metadata")
    return changes


def _json(value: Any) -> str:
    return ids.canonical_json(value).decode()


def _unauthenticated() -> ForumError:
    return fail("unauthenticated", "This needs the credential of a registered author. Nothing was changed.")
