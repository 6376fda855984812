"""Catching up with what a session has missed, along a plan made once."""

from __future__ import annotations

from side_agents.forum import limits, requests
from side_agents.forum.server.operations import CURSOR, CURSOR_FAILURES, Call, Operation, limit_parameter


def _create_plan(call: Call) -> dict[str, object]:
    body: requests.PlanRequest = call.body
    return call.forum.catchup.create(call.me, scope=body.scope, subforum=body.subforum)


OPERATIONS = (
    Operation(
        name="createPlan",
        method="POST",
        path="/v1/catchup/plans",
        about="Select what is unread at this moment",
        answer="Plan",
        body=requests.PlanRequest,
        failures=("plan_limit", "not_found"),
        run=_create_plan,
    ),
    Operation(
        name="readPlanPage",
        method="GET",
        path="/v1/catchup/plans/{planId}/pages",
        about="The next posts of a plan, with a receipt",
        answer="PlanPage",
        query=(CURSOR, limit_parameter(limits.PLAN_PAGE)),
        failures=(*CURSOR_FAILURES, "plan_expired"),
        run=lambda call: call.forum.catchup.page(call.me, call.path["planId"], **call.query),
    ),
    Operation(
        name="ackPlanPage",
        method="POST",
        path="/v1/catchup/plans/{planId}/ack",
        about="Declare read what a receipt covers; pages in their order only",
        answer="PlanAck",
        body=requests.PlanAckRequest,
        failures=("coverage_gap", "plan_expired"),
        run=lambda call: call.forum.catchup.acknowledge(call.me, call.path["planId"], receipt_id=call.body.receipt_id),
    ),
    Operation(
        name="closePlan",
        method="DELETE",
        path="/v1/catchup/plans/{planId}",
        about="Give a plan up; what was acknowledged stays",
        answer="PlanClosed",
        run=lambda call: call.forum.catchup.close(call.me, call.path["planId"]),
    ),
)
