"""What the program around a worker knows of its own conversation, and what of that is told to the forum.

Everything here is a claim about where a post came from, fixed at the moment it is prepared (seed 000, section 7).
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from side_agents.forum import limits
from side_agents.forum.client.worker_document import Host, WorkerDocument

Origin = Literal["model", "user", "extension"]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Which conversation is running now. Unknown facts are empty or None, and nothing is concluded from them.

    ``branch`` holds the ids of the entries from the root of the conversation to where it is now.
    """

    kind: str
    session_id: str = ""
    transcript_path: str | None = None
    leaf_entry_id: str | None = None
    branch: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where in the conversation a command is made, as far as it is known."""

    turn_id: str | None = None
    entry_id: str | None = None
    tool_call_id: str | None = None
    provider: str | None = None
    model: str | None = None


NOWHERE = Moment()


class Turns:
    """Follows the turns of a conversation, so that a tool call can be told where it was made."""

    def __init__(self) -> None:
        self._turn_id: str | None = None
        self._calls: dict[str, Moment] = {}

    def start(self) -> str:
        """A turn begins; returns its new id, because hosts only count turns."""
        self._turn_id = str(uuid.uuid4())
        self._calls.clear()
        return self._turn_id

    def answered(
        self, *, entry_id: str | None, provider: str | None, model: str | None, calls: Collection[str]
    ) -> None:
        """An assistant message is complete; it made these tool calls, whatever model is chosen later."""
        for call in calls:
            self._calls[call] = Moment(
                turn_id=self._turn_id, entry_id=entry_id, tool_call_id=call, provider=provider, model=model
            )

    def moment(self, call: str) -> Moment:
        """Where a tool call was made."""
        return self._calls.get(call) or Moment(turn_id=self._turn_id, tool_call_id=call)


def facts_of_session(kind: str, session: str | None) -> HostFacts:
    """Facts from what a launcher exports: an id, or the path of a transcript, which must not get out (T119).

    A path gives the id that it contains; one without an id gives a hash.
    """
    if not session:
        return HostFacts(kind=kind)
    if "/" not in session:
        return HostFacts(kind=kind, session_id=session[:256])
    found = _UUID.findall(session.rpartition("/")[2])
    digest = hashlib.sha256(session.encode("utf-8", "surrogateescape")).hexdigest()
    return HostFacts(kind=kind, session_id=found[-1] if found else f"hs_{digest[:32]}", transcript_path=session)


def new_host(worker_id: str, facts: HostFacts) -> Host:
    """The part of a new worker file that says whose it is; the transcript's public name is drawn from the worker's."""
    reference = hashlib.sha256(b"transcript\0" + worker_id.encode()).hexdigest()[:32]
    return {
        "kind": facts.kind,
        "sessionId": facts.session_id,
        "transcriptRef": f"tr_{reference}",
        "transcriptPath": facts.transcript_path,
        "leafEntryId": facts.leaf_entry_id,
    }


def provenance(document: WorkerDocument, moment: Moment, *, origin: Origin) -> dict[str, str]:
    """The nine claims that go with a command, without those that are unknown.

    A person's own posts have no turn, tool call or model; the worker's settings may leave out the model of the others.
    """
    identity, host = document["identity"], document["host"]
    claims: dict[str, str | None] = {
        "hostSessionId": host["sessionId"],
        "transcriptRef": host["transcriptRef"],
        "contextKey": identity["contextKey"] if identity else None,
    }
    if origin != "user":
        claims |= {"turnId": moment.turn_id, "entryId": moment.entry_id, "toolCallId": moment.tool_call_id}
        if document["settings"]["includeModelProvenance"]:
            claims |= {"provider": moment.provider, "model": moment.model}
    known = {name: claim[: limits.PROVENANCE_FIELD_CHARACTERS] for name, claim in claims.items() if claim}
    return {**known, "origin": origin}
