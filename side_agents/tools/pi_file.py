"""The tools as the Pi extension declares them: ``python -m side_agents.tools.pi_file FILE`` writes ``tools.json`` anew.

The extension is plain JavaScript and must not start a process only to learn texts and schemas, so they ship as a file; a
test compares it with the table. What only the extension knows (the caller's session) is left out, and the schemas use
only what every provider of models understands: no null, no references, no defaults.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from side_agents.schemas import json_schema
from side_agents.tools.table import TOOLS, Tool

_PREFIX = "agent-"
_FILLED_IN = frozenset({"parentSession"})
_KEPT = ("type", "description", "enum", "items")


def generate() -> str:
    """The whole content of the file."""
    tools = [_declaration(tool) for tool in TOOLS.values() if tool.name.startswith(_PREFIX)]
    return json.dumps(tools, indent=2, ensure_ascii=False) + "\n"


def _declaration(tool: Tool) -> dict[str, Any]:
    schema = json_schema(tool.input)
    properties = {
        name: _plain(value, schema.get("$defs", {}))
        for name, value in schema["properties"].items()
        if name not in _FILLED_IN
    }
    return {
        "name": tool.name,
        "description": tool.description,
        "snippet": " ".join(tool.description.split(". ")[0].removesuffix(".").split()),
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": schema["required"],
            "additionalProperties": False,
        },
    }


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one value: an optional one as what it is when it is given."""
    merged = dict(schema)
    for choice in merged.pop("anyOf", ()):
        if choice != {"type": "null"}:
            merged = {**choice, **merged}
    if reference := merged.pop("$ref", None):
        merged = {**definitions[reference.rpartition("/")[2]], **merged}
    plain = {key: merged[key] for key in _KEPT if key in merged}
    if isinstance(plain.get("items"), Mapping):
        items = _plain(plain["items"], definitions)
        items.pop("description", None)
        plain["items"] = items
    return plain


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(generate(), encoding="utf-8")
