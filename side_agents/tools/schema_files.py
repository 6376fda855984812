"""JSON schemas of all tools as files: ``python -m side_agents.tools.schema_files FOLDER`` writes them anew.

The tests compare the files with what this generates, so that a change of the contract is seen in review.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from side_agents.schemas import json_schema
from side_agents.tools.table import TOOLS, Tool


def schema_of(tool: Tool) -> dict[str, Any]:
    """Name, description and both schemas of one tool."""
    return {
        "name": tool.name,
        "description": tool.description,
        "input": json_schema(tool.input),
        "output": json_schema(tool.output),
    }


def generate() -> dict[str, str]:
    """File names and their whole contents."""
    return {f"{tool.name}.json": json.dumps(schema_of(tool), indent=2) + "\n" for tool in TOOLS.values()}


def write(folder: Path) -> None:
    """Write all schema files into an existing folder."""
    for name, content in generate().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
