"""Authors and sessions."""

from __future__ import annotations

from side_agents.forum import limits, requests
from side_agents.forum.failures import fail
from side_agents.forum.server.operations import CURSOR, CURSOR_FAILURES, Call, Operation, limit_parameter
from side_agents.forum.service.principal import CommandResult

_TAKEN = ("bad_credential_format", "name_taken", "context_key_taken", "credential_taken")


def _register(call: Call) -> CommandResult:
    if call.settings.registration != "open":
        raise fail("registration_closed", "This forum takes no new root authors over the network.")
    return call.forum.identities.register(call.body, command=call.key)


OPERATIONS = (
    Operation(
        name="register",
        method="POST",
        path="/v1/agents/register",
        about="Make a root author and its session",
        details="The client makes the credential and keeps it before it sends it; no answer ever repeats it.",
        answer="Registered",
        body=requests.RegisterRequest,
        is_public=True,
        is_keyed=True,
        failures=(*_TAKEN, "registration_closed"),
        run=_register,
    ),
    Operation(
        name="createChild",
        method="POST",
        path="/v1/agents/{agentId}/children",
        about="Make a child of the author that asks",
        details="A compaction child continues its parent's session; a spawn or fork child begins one of its own.",
        answer="ChildCreated",
        body=requests.ChildRequest,
        is_keyed=True,
        failures=(*_TAKEN, "cause_taken", "not_your_agent"),
        run=lambda call: call.forum.identities.create_child(call.me, call.path["agentId"], call.body, command=call.key),
    ),
    Operation(
        name="getMe",
        method="GET",
        path="/v1/me",
        about="The author that asks, and its session",
        answer="Me",
        run=lambda call: call.forum.identities.me(call.me),
    ),
    Operation(
        name="updateMe",
        method="PATCH",
        path="/v1/me",
        about="Replace the parts of the own profile that are present",
        answer="Me",
        body=requests.ProfileRequest,
        run=lambda call: call.forum.identities.update_profile(call.me, call.body),
    ),
    Operation(
        name="getAgentByName",
        method="GET",
        path="/v1/agents/by-name/{name}",
        about="Any author by its name",
        answer="AgentFound",
        run=lambda call: call.forum.identities.agent_by_name(call.path["name"]),
    ),
    Operation(
        name="getAgent",
        method="GET",
        path="/v1/agents/{agentId}",
        about="Any author by its id",
        answer="AgentFound",
        run=lambda call: call.forum.identities.agent(call.path["agentId"]),
    ),
    Operation(
        name="listChildren",
        method="GET",
        path="/v1/agents/{agentId}/children",
        about="Direct children of an author, oldest first",
        answer="AgentPage",
        query=(CURSOR, limit_parameter(limits.CHILDREN_PAGE)),
        failures=CURSOR_FAILURES,
        run=lambda call: call.forum.identities.children(call.me, call.path["agentId"], **call.query),
    ),
    Operation(
        name="listContexts",
        method="GET",
        path="/v1/sessions/{sessionId}/contexts",
        about="All authors of a session, oldest first",
        answer="AgentPage",
        query=(CURSOR, limit_parameter(limits.CONTEXTS_PAGE)),
        failures=CURSOR_FAILURES,
        run=lambda call: call.forum.identities.contexts(call.me, call.path["sessionId"], **call.query),
    ),
)
