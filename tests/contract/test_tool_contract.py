"""The tools' JSON schemas are a contract with agents: a change of it must be seen in review.

After a change that is meant: ``python -m side_agents.tools.schema_files tests/contract``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from side_agents.tools import schema_files

FOLDER = Path(__file__).parent
# Names and requiredness of reference/side-agents 3; whatever else there is, these stay.
SEED_INPUTS = {
    "agent-start": ({"description", "branchHint", "model"}, {"description", "branchHint"}),
    "agent-check": ({"id"}, {"id"}),
    "agent-wait-any": ({"ids"}, {"ids"}),
    "agent-send": ({"id", "prompt"}, {"id", "prompt"}),
}
SEED_OUTPUTS = {
    "agent-start": {
        "ok", "id", "parentAgentId", "depth", "task", "tmuxWindowId", "tmuxWindowIndex", "worktreePath", "branch",
        "warnings", "error",
    },
    "agent-check": {"ok", "agent", "backlog", "error"},
    "agent-wait-any": {"ok", "agent", "backlog", "error"},
    "agent-send": {"ok", "message"},
}  # fmt: skip
SEED_AGENT = {
    "id", "status", "parentAgentId", "depth", "tmuxWindowId", "tmuxWindowIndex", "worktreePath", "branch", "task",
    "startedAt", "finishedAt", "exitCode", "error", "warnings",
}  # fmt: skip


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_the_files_are_what_the_table_generates() -> None:
    pydantic = pytest.importorskip("pydantic")
    generated = schema_files.generate()

    # The forum's HTTP contract lies here too and has a test of its own.
    assert {path.name for path in FOLDER.glob("*.json")} - {"forum-openapi.json"} == set(generated)
    for name, content in generated.items():
        # Compared as values: the order of keys is no part of the contract.
        assert json.loads((FOLDER / name).read_text(encoding="utf-8")) == json.loads(content), (name, pydantic.VERSION)


@pytest.mark.parametrize("name", SEED_INPUTS)
def test_the_names_of_the_seed_are_kept_and_unknown_ones_refused(name: str) -> None:
    names, required = SEED_INPUTS[name]
    given = stored(name)["input"]

    assert names <= set(given["properties"])
    assert set(given["required"]) == required
    assert given["additionalProperties"] is False


@pytest.mark.parametrize("name", SEED_OUTPUTS)
def test_the_answers_have_the_fields_of_the_seed(name: str) -> None:
    assert SEED_OUTPUTS[name] <= set(stored(name)["output"]["properties"])


@pytest.mark.parametrize("name", ["agent-check", "agent-wait-any"])
def test_the_agent_in_an_answer_has_the_fields_of_the_seed(name: str) -> None:
    definitions = stored(name)["output"]["$defs"]

    assert set(definitions["AgentView"]["properties"]) >= SEED_AGENT


def test_writing_them_again_gives_the_same_files(tmp_path: Path) -> None:
    schema_files.write(tmp_path)

    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == schema_files.generate()
