"""When a worker must do nothing until a person decides (reference/forum 5.7, 6.2 rule 56). Pure.

A file that belongs to another conversation, or to a branch that is not the current one, is never bound anew by itself,
whatever is known of how the two are related.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from side_agents.errors import ForumError, RefusedError
from side_agents.forum.client.connection import INSTALLATION_MISMATCH
from side_agents.forum.client.host import HostFacts
from side_agents.forum.client.worker_document import SuspensionReason, WorkerDocument
from side_agents.infra import clock

# Judged anew at each start.
_PASSING = ("session_mismatch", "branch_mismatch")
# Asked anew at each start, before any credential is sent: the right forum may be back. The others stay until somebody decides.
_ASKED_AGAIN = ("installation_mismatch",)
_WORDS: Mapping[SuspensionReason, str] = {
    "session_mismatch": "this forum identity belongs to another conversation",
    "branch_mismatch": "the conversation was moved to a branch that this forum identity does not belong to",
    "auth_failed": "the forum does not accept its credential any more; the credential was kept",
    "installation_mismatch": "what answers is another forum than the one it belongs to",
    "identity_mismatch": "the forum says that its credential belongs to another author",
    "cursor_expired": "the forum was put back to an earlier state, so its place in the events means nothing any more",
}
_NEXT: Mapping[SuspensionReason, str] = {
    "session_mismatch": "Go back to that conversation, or make a new identity: side-agents forum worker new",
    "branch_mismatch": "Go back to that branch, or make a new identity: side-agents forum worker new",
    "auth_failed": "Look at it: side-agents forum worker show; make a new identity: side-agents forum worker new",
    "installation_mismatch": "Start the right forum or put its database back, then call again; or make a new identity: "
    "side-agents forum worker new",
    "identity_mismatch": "Look at it: side-agents forum worker show; make a new identity: side-agents forum worker new",
    "cursor_expired": "Collect from the beginning: side-agents forum worker retry --from-beginning",
}


def judge(document: WorkerDocument, facts: HostFacts) -> SuspensionReason | None:
    """Why the running conversation may not use this worker; None when it may. What is unknown is no reason."""
    host = document["host"]
    if host["sessionId"] and facts.session_id and host["sessionId"] != facts.session_id:
        return "session_mismatch"
    leaf = host["leafEntryId"]
    if leaf is not None and facts.branch is not None and leaf not in facts.branch:
        return "branch_mismatch"
    suspended = document["suspended"]
    if suspended is None or suspended["reason"] in (*_PASSING, *_ASKED_AGAIN):
        return None
    return suspended["reason"]


def restore(draft: WorkerDocument, facts: HostFacts) -> None:
    """Note the judgement in a draft, and where the conversation is now when it is the right one."""
    reason = judge(draft, facts)
    set_reason(draft, reason)
    if reason in _PASSING:
        return
    host = draft["host"]
    host["sessionId"] = host["sessionId"] or facts.session_id
    host["transcriptPath"] = facts.transcript_path or host["transcriptPath"]
    host["leafEntryId"] = facts.leaf_entry_id or host["leafEntryId"]


def needs_restoring(document: WorkerDocument, facts: HostFacts) -> bool:
    """Whether :func:`restore` would change anything, which is rare and costs a save."""
    draft = copy.deepcopy(document)
    restore(draft, facts)
    return (draft["host"], draft["suspended"]) != (document["host"], document["suspended"])


def set_reason(draft: WorkerDocument, reason: SuspensionReason | None) -> None:
    """Suspend a draft, or end its suspension."""
    current = draft["suspended"]
    if reason is None:
        draft["suspended"] = None
    elif current is None or current["reason"] != reason:
        draft["suspended"] = {"reason": reason, "at": clock.iso()}


def reason_for(error: ForumError) -> SuspensionReason | None:
    """Which failures suspend; they never lead to another registration, nor to forgetting anything."""
    if error.status == 401:
        return "auth_failed"
    if error.forum_code == INSTALLATION_MISMATCH:
        return "installation_mismatch"
    if error.forum_code == "cursor_expired":
        return "cursor_expired"
    return None


def require_active(document: WorkerDocument, *, collecting: bool = False) -> None:
    """Raise RefusedError while the worker is suspended; a lost place in the events stops collection only."""
    suspended = document["suspended"]
    if suspended is None or (suspended["reason"] == "cursor_expired" and not collecting):
        return
    reason = suspended["reason"]
    raise RefusedError(f"Nothing was sent to the forum: {_WORDS[reason]}. Nothing was lost.", hint=_NEXT[reason])
