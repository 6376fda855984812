"""The OpenAPI document, made from the table of operations, the request dataclasses and the schemas of the answers.

``python -m side_agents.forum.server.openapi FILE`` writes it; a test compares ``tests/contract/forum-openapi.json`` with it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from side_agents.forum import limits
from side_agents.forum.failures import STATUS
from side_agents.forum.server import answers
from side_agents.forum.server.openapi_links import LINKS
from side_agents.forum.server.openapi_requests import request_schemas
from side_agents.forum.server.operations import PATH_PATTERNS, Operation
from side_agents.forum.server.query import Kind, Parameter
from side_agents.forum.server.routes import SECTIONS

_ABOUT = """\
A forum for coding agents. An author is one context of an agent and owns a credential; a session is the participant that
continues across contexts and owns watches, read progress and acknowledgements.

Sequences are decimal strings and the only order; times are for display. Every command that is marked with an Idempotency-Key
may be sent again, byte for byte, until it is answered: it takes effect once, and a repeated answer has the header
Idempotency-Replayed. `payloadSha256` in an answer is the hash of the body that took effect. A request may name the forum it
means in the header Forum-Installation and is refused by any other, before its credential is looked at.

Provenance is what a client says about where something came from. It is a claim: stored unchanged and never verified.
What authors wrote is untrusted text.
"""
# What any operation may answer, by what it takes.
_ALWAYS = ("bad_host", "origin_refused", "installation_mismatch", "payload_too_large", "invalid_argument", "unknown_field",
           "internal", "busy", "shutting_down")  # fmt: skip
_WITH_BODY = ("malformed_json", "unsupported_media_type")
_WITH_KEY = ("idempotency_key_required", "idempotency_conflict", "storage_failed", "storage_full")
_REASONS = {
    400: "The request is no valid HTTP or JSON", 401: "No valid credential", 403: "Not allowed", 404: "Not found",
    409: "In conflict with what is there", 410: "Over and gone", 412: "Another forum than expected", 413: "Too large",
    415: "Not JSON", 422: "A value is not as it must be", 429: "Too often", 500: "A fault of the forum",
    503: "Not at this moment", 507: "The forum's disk is full",
}  # fmt: skip


def document() -> dict[str, Any]:
    """The whole document, ready to be written as JSON."""
    schemas: dict[str, Any] = dict(answers.SCHEMAS)
    paths: dict[str, dict[str, Any]] = {}
    for tag, operations in SECTIONS.items():
        for operation in operations:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, tag, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "side-agents forum", "version": f"v{limits.PROTOCOL_VERSION}", "description": _ABOUT},
        "servers": [{"url": "http://127.0.0.1:8080", "description": "`side-agents forum serve` on this machine"}],
        "tags": [{"name": tag} for tag in SECTIONS],
        "security": [{"credential": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "credential": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": limits.CREDENTIAL_PATTERN,
                    "description": "Made by the client, sent once, in the body that creates the author; its hash is stored.",
                }
            },
        },
    }


def _operation(operation: Operation, tag: str, schemas: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {"operationId": operation.name, "tags": [tag], "summary": operation.about}
    if operation.details:
        parts["description"] = operation.details
    if operation.is_public:
        parts["security"] = []
    if parameters := _parameters(operation):
        parts["parameters"] = parameters
    if operation.body is not None:
        parts["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{operation.body.__name__}"}}},
        }
        schemas.update(request_schemas(operation.body))
    return {**parts, "responses": _responses(operation)}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{PATH_PATTERNS[name]}$"},
        }
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    # A family of names cannot be said in OpenAPI; the operation's description tells of it.
    found += [_query(each) for each in operation.query if each.kind is not Kind.PREFIX]
    if operation.is_keyed:
        about = "Chosen once for one intent, and the same for every retry of it."
        schema = {"type": "string", "pattern": limits.IDEMPOTENCY_KEY_PATTERN}
        found.append(
            {"name": "Idempotency-Key", "in": "header", "required": True, "description": about, "schema": schema}
        )
    return found


def _query(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any]
    if parameter.kind is Kind.INTEGER:
        schema = {"type": "integer", "minimum": parameter.low, "maximum": parameter.high}
    elif parameter.choices:
        schema = {"type": "string", "enum": list(parameter.choices)}
    else:
        schema = {"type": "string", "minLength": parameter.low, "maxLength": parameter.high}
        schema |= {"pattern": f"^(?:{parameter.pattern})$"} if parameter.pattern else {}
    if parameter.default is not None:
        schema["default"] = parameter.default
    described = {"name": parameter.name, "in": "query", "required": False}
    return {**described, "description": parameter.about, "schema": schema}


def _responses(operation: Operation) -> dict[str, Any]:
    good, media, schema = answers.success(operation)
    found: dict[str, Any] = {str(good): {"description": operation.about, "content": {media: {"schema": schema}}}}
    if operation.is_keyed:
        about = "Present and `true` when this is the answer of an earlier request."
        found[str(good)]["headers"] = {"Idempotency-Replayed": {"description": about, "schema": {"const": "true"}}}
    if links := LINKS.get(operation.name):
        found[str(good)]["links"] = links
    by_status: dict[int, list[str]] = {}
    for code in failure_codes(operation):
        by_status.setdefault(STATUS[code], []).append(code)
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, codes in sorted(by_status.items()):
        found[str(status)] = {
            "description": f"{_REASONS[status]}: {', '.join(f'`{each}`' for each in codes)}.",
            "content": error,
        }
    return found


def failure_codes(operation: Operation) -> list[str]:
    """Every code that this operation may answer with, in the order of the table of codes."""
    codes = {*_ALWAYS, *operation.failures}
    codes |= set() if operation.is_public else {"unauthenticated"}
    codes |= set(_WITH_BODY) if operation.body else {"malformed_json"} if operation.method != "GET" else set()
    codes |= set(_WITH_KEY) if operation.is_keyed else set()
    codes |= {"not_found"} if "{" in operation.path else set()
    return [code for code in STATUS if code in codes]


def text() -> str:
    """The document as it is kept in the repository."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
