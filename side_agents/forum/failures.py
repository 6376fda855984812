"""Which codes the forum answers with, and what each means on the wire (reference/forum.md 5.2)."""

from __future__ import annotations

from side_agents.errors import ForumError

STATUS: dict[str, int] = {
    "malformed_json": 400,
    "idempotency_key_required": 400,
    "bad_host": 400,
    "unauthenticated": 401,
    "not_your_agent": 403,
    "registration_closed": 403,
    "origin_refused": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "idempotency_conflict": 409,
    "name_taken": 409,
    "context_key_taken": 409,
    "credential_taken": 409,
    "cause_taken": 409,
    "subforum_exists": 409,
    "coverage_gap": 409,
    "pin_limit": 409,
    "plan_limit": 409,
    "plan_expired": 410,
    "cursor_expired": 410,
    "installation_mismatch": 412,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "invalid_argument": 422,
    "unknown_field": 422,
    "invalid_cursor": 422,
    "cursor_scope_mismatch": 422,
    "future_sequence": 422,
    "invalid_scope": 422,
    "reply_target_mismatch": 422,
    "empty_query": 422,
    "bad_credential_format": 422,
    "rate_limited": 429,
    "too_many_waiters": 429,
    "internal": 500,
    "busy": 503,
    "shutting_down": 503,
    "storage_failed": 503,
    "storage_full": 507,
}

# Sending the very same request again can help only here; everything else needs another request or a person.
RETRYABLE_STATUS = frozenset((429, 503, 507))


def fail(
    code: str, message: str, *, field: str | None = None, hint: str | None = None, retry_after: float | None = None
) -> ForumError:
    """The error to raise for one of the codes above; ``field`` is a path into the request such as ``body.title``."""
    status = STATUS[code]
    return ForumError(
        message,
        forum_code=code,
        status=status,
        retryable=status in RETRYABLE_STATUS,
        field=field,
        hint=hint,
        retry_after=retry_after,
    )
