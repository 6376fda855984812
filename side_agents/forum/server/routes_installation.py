"""What a client may know before it trusts a forum with a credential, and how the forum is."""

from __future__ import annotations

from side_agents import __version__
from side_agents.forum import limits
from side_agents.forum.server.operations import Call, Operation

FEATURES = ("attachments", "catchup", "event-stream", "metadata", "mute", "pins", "search", "visits")


def capabilities(call: Call) -> dict[str, object]:
    """The document of ``GET /v1/capabilities`` without its schema version."""
    installation = call.forum.installation
    return {
        "protocolVersion": limits.PROTOCOL_VERSION,
        "installationId": installation.id,
        "epoch": installation.epoch,
        "serverVersion": __version__,
        "features": list(FEATURES),
        "limits": published_limits(),
        "registration": call.settings.registration,
        # Saved answers of commands are never dropped, so a retry works however late it comes.
        "commandRetention": "unlimited",
    }


def published_limits() -> dict[str, object]:
    """Every bound that a client can run into; sizes in bytes, lengths in characters."""
    return {
        "nameCharacters": limits.NAME_CHARACTERS,
        "namePrefixCharacters": limits.PREFIX_CHARACTERS,
        "contextKeyCharacters": limits.CONTEXT_KEY_CHARACTERS,
        "causeKeyCharacters": limits.CAUSE_KEY_CHARACTERS,
        "titleCharacters": limits.TITLE_CHARACTERS,
        "bodyBytes": limits.BODY_BYTES,
        "metadataBytes": limits.METADATA_BYTES,
        "metadataDepth": limits.METADATA_DEPTH,
        "provenanceBytes": limits.PROVENANCE_BYTES,
        "provenanceFieldCharacters": limits.PROVENANCE_FIELD_CHARACTERS,
        "attachmentBytes": limits.ATTACHMENT_BYTES,
        "attachmentsPerPost": limits.ATTACHMENTS_PER_POST,
        "attachmentsBytesPerPost": limits.ATTACHMENTS_BYTES,
        "attachmentNameBytes": limits.ATTACHMENT_NAME_BYTES,
        "queryBytes": limits.QUERY_BYTES,
        "threadsWatchedPerSession": limits.THREAD_WATCHES,
        "subforumsWatchedPerSession": limits.SUBFORUM_WATCHES,
        "contextsPerSession": limits.CONTEXTS_PER_SESSION,
        "childrenPerParent": limits.CHILDREN_PER_PARENT,
        "pinsPerContext": limits.PINS_PER_CONTEXT,
        "plansPerSession": limits.PLANS_PER_SESSION,
        "postsPerMinute": limits.POSTS_PER_MINUTE,
        "postsBurst": limits.POSTS_BURST,
        "waitSeconds": limits.WAIT_SECONDS,
        "waitersPerSession": limits.WAITERS_PER_SESSION,
        "waitersPerServer": limits.WAITERS_PER_SERVER,
        "eventsPerPage": limits.EVENTS_PAGE,
        "postsPerPage": limits.POSTS_PAGE,
        "threadsPerPage": limits.THREADS_PAGE,
        "subforumsPerPage": limits.SUBFORUMS_PAGE,
        "agentsPerPage": limits.CONTEXTS_PAGE,
        "searchHits": limits.SEARCH_HITS,
        "pageBytes": limits.POSTS_PAGE_BYTES,
        "headerBytes": limits.HEADER_BLOCK_BYTES,
        "requestBytes": limits.ORDINARY_REQUEST_BYTES,
        "contentRequestBytes": limits.CONTENT_REQUEST_BYTES,
        "largeRequestsInFlight": limits.LARGE_CONTENT_IN_FLIGHT,
    }


def _deep(call: Call) -> dict[str, object]:
    return {**call.forum.operator.health(), "waiters": len(call.waiters)}


OPERATIONS = (
    Operation(
        name="getCapabilities",
        method="GET",
        path="/v1/capabilities",
        about="Which forum this is, what it can do and what it takes",
        answer="Capabilities",
        is_public=True,
        run=capabilities,
    ),
    Operation(
        name="getHealth",
        method="GET",
        path="/healthz",
        about="Whether the forum answers",
        answer="Health",
        is_public=True,
        run=lambda _call: {"ok": True},
    ),
    Operation(
        name="getDeepHealth",
        method="GET",
        path="/v1/health/deep",
        about="How the forum's store is",
        answer="DeepHealth",
        run=_deep,
    ),
)
