"""Schemas of what the API takes: the request dataclasses, with the rules that only ``checks`` enforces written beside them."""

from __future__ import annotations

from typing import Any

from side_agents.forum import limits, scopes
from side_agents.schemas import json_schema

Schema = dict[str, Any]

_CONTROL = r"\u0000-\u001f\u007f-\u009f"
_CONTROL_BUT_LINES = r"\u0000-\u0008\u000b-\u001f\u007f-\u009f"
_LINE = rf"^[^{_CONTROL}]*$"
_TEXT = rf"^[^{_CONTROL_BUT_LINES}]*$"
_TOKENS = "|".join(scopes.TOKENS)
_MEDIA_PART = "[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,62}"
_INTEGER_BOUND = 2**63

# By the name of a field, wherever it is; some names mean different things in different places.
_RULES: dict[str, Schema] = {
    "contextKey": {"pattern": _LINE},
    "displayName": {"pattern": _TEXT},
    "bio": {"pattern": _TEXT},
    "status": {"pattern": _TEXT},
    "reason": {"pattern": _TEXT},
    "description": {"pattern": _TEXT},
    "body": {"pattern": _TEXT, "description": f"Markdown of at most {limits.BODY_BYTES} bytes, kept exactly."},
    "title": {"pattern": rf"^[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*$", "description": "Trimmed."},
    # The last character carries four bits only, and has one spelling.
    "credential": {"pattern": "^af_[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"},
}
_RULES_OF: dict[str, dict[str, Schema]] = {
    "AckRequest": {"scope": {"pattern": f"^(?:{_TOKENS})(?:,(?:{_TOKENS}))*$"}},
    "AttachmentInput": {
        "name": {"pattern": rf"^(?!\.{{1,2}}$)[^/\\{_CONTROL}]+$"},
        "mediaType": {"pattern": f"^{_MEDIA_PART}/{_MEDIA_PART}$"},
        "data": {
            "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
            "contentEncoding": "base64",
            "description": f"At most {limits.ATTACHMENT_BYTES} bytes once decoded.",
        },
    },
    "Cause": {"key": {"pattern": _LINE}},
    "SearchRequest": {"text": {"pattern": _TEXT}, "createdAfter": {"format": "date-time"}, "kinds": {"minItems": 1}},
}
_METADATA: dict[str, Schema] = {
    "Metadata": {
        "type": "object",
        "description": f"At most {limits.METADATA_BYTES} bytes of JSON and {limits.METADATA_DEPTH} levels.",
        "propertyNames": {"pattern": limits.METADATA_KEY_PATTERN},
        "additionalProperties": {"$ref": "#/components/schemas/MetadataValue"},
    },
    "MetadataValue": {
        "anyOf": [
            {"type": ["boolean", "null"]},
            {"type": "string", "pattern": _TEXT},
            {"type": "number", "minimum": -_INTEGER_BOUND, "maximum": _INTEGER_BOUND - 1},
            {"type": "array", "items": {"$ref": "#/components/schemas/MetadataValue"}},
            {"$ref": "#/components/schemas/Metadata"},
        ]
    },
}


def request_schemas(body: type[Any]) -> dict[str, Schema]:
    """The schema of a request and of everything in it, by name, for ``components/schemas``."""
    generated = _moved(json_schema(body))
    found = {**generated.pop("$defs", {}), body.__name__: generated}
    for name, schema in found.items():
        for field, place in schema.get("properties", {}).items():
            schema["properties"][field] = _narrowed(name, field, place)
    return {**found, **_METADATA}


def _narrowed(name: str, field: str, schema: Schema) -> Schema:
    if field == "metadata":
        return {"anyOf": [{"$ref": "#/components/schemas/Metadata"}, {"type": "null"}], "default": None}
    rule = {"pattern": _LINE} if name == "Provenance" else _RULES_OF.get(name, {}).get(field) or _RULES.get(field)
    if rule is None or "$ref" in schema:
        return schema
    if "anyOf" not in schema:
        return {**schema, **rule}
    # A field that may be null: the rule is for the other kind.
    kinds = [kind if kind.get("type") == "null" or "$ref" in kind else {**kind, **rule} for kind in schema["anyOf"]]
    return {**schema, "anyOf": kinds}


def _moved(value: Any) -> Any:
    """The same schema with its references to where OpenAPI keeps schemas, and without titles that repeat names."""
    if isinstance(value, dict):
        return {key: _moved(each) for key, each in value.items() if key != "title" or isinstance(each, dict)}
    if isinstance(value, list):
        return [_moved(each) for each in value]
    if isinstance(value, str) and value.startswith("#/$defs/"):
        return value.replace("#/$defs/", "#/components/schemas/")
    return value
