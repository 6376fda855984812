"""Clearing records and reclaiming orphan leases, as ``/agents`` does it: shown first, confirmed, then proven anew.

What was shown is remembered as it was then. Whatever has become something else since, is refused: a person's yes is for what
they saw (reference/side-agents 5.5).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from side_agents.core import clean, leases
from side_agents.core.clean import CleanRequest
from side_agents.core.context import Context
from side_agents.core.verdicts import Kind, Target, Verdict
from side_agents.core.views import failure_view
from side_agents.errors import RefusedError, SideAgentsError, UsageError


class ShownTargets:
    """What ``agents`` has offered to clear and to reclaim, as it was shown last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._targets: dict[tuple[Kind, str], Target] = {}

    def remember(self, verdicts: Sequence[Verdict]) -> None:
        """These, and no others, can be confirmed now."""
        with self._lock:
            self._targets = {(each.target.kind, each.target.name): each.target for each in verdicts if each.is_safe}

    def find(self, kind: Kind, name: str) -> Target:
        """A target that was offered. Raises RefusedError for any other."""
        with self._lock:
            target = self._targets.get((kind, name))
        if target is None:
            what = "clear" if kind is Kind.RECORD else "reclaim"
            raise RefusedError(
                f"{name} was not offered to {what}. Nothing was changed.", hint="Look at the list again: /agents"
            )
        return target


def survey(context: Context, shown: ShownTargets) -> dict[str, Any]:
    """What can be cleared of this session's own, and the orphan leases with what speaks against reclaiming them."""
    plan = clean.survey(context, CleanRequest(kinds=(Kind.RECORD, Kind.LEASE)))
    shown.remember(plan.verdicts)
    answer: dict[str, Any] = {
        "clearable": [each.target.name for each in plan.safe if each.target.kind is Kind.RECORD],
        "orphans": [_orphan(each) for each in plan.verdicts if each.target.kind is Kind.LEASE],
    }
    return answer | ({"notes": list(plan.notes)} if plan.notes else {})


def _orphan(verdict: Verdict) -> dict[str, Any]:
    lease = leases.read(verdict.target.path) if verdict.target.path is not None else None
    facts = (("agentId", lease.agent_id), ("window", lease.tmux_window_id), ("pid", lease.pid)) if lease else ()
    return {
        "slot": verdict.target.name,
        **{key: value for key, value in facts if value is not None},
        "reclaimable": verdict.is_safe,
        "blockers": [reason.text for reason in verdict.reasons],
        "waysOut": list(dict.fromkeys(reason.way_out for reason in verdict.reasons)),
    }


def discard(context: Context, shown: ShownTargets, kind: Kind, names: Sequence[str]) -> dict[str, Any]:
    """Discard each of the things that were shown, after a proof of its own; one that has to stay hinders no other."""
    if not names:
        raise UsageError("Nothing was named. Nothing was done.")
    key = "id" if kind is Kind.RECORD else "slot"
    results = [{key: name} | _discard_one(context, shown, kind, name) for name in dict.fromkeys(names)]
    return {"ok": all(result["ok"] for result in results), "results": results}


def _discard_one(context: Context, shown: ShownTargets, kind: Kind, name: str) -> dict[str, Any]:
    try:
        target = shown.find(kind, name)
        outcome = next(clean.carry_out(context, [Verdict(target)]))
    except SideAgentsError as error:
        return failure_view(error)
    if outcome.error is not None or outcome.discarded is None:
        return failure_view(outcome.error or RefusedError(f"{name} was left as it is."))
    return {"ok": True, "kept": outcome.discarded.keeps}
