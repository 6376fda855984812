"""Agents that quit and come back, for tests of ``resume``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestra import SLOW, Orchestra, messages_in

from side_agents.clients import script_session
from side_agents.core.placement import NOTICE_FILE
from side_agents.core.resume import resume
from side_agents.models import AgentRecord
from tests.support.waiting import eventually


def quit_agent(stage: Orchestra, name: str = "alpha", task: str | None = None) -> AgentRecord:
    """An agent with a commit of its own, which has quit."""
    stage.start(task or f"write: {name}.txt {name}\ncommit: work of {name}", branch_hint=name)
    record = stage.eventually_idle(name)
    stage.quit(name)
    return record


def back(stage: Orchestra, target: str | Path | None, **more: Any) -> AgentRecord:
    """Resume and wait until it takes messages."""
    record = resume(stage.context, target, **more).record
    stage.records[record.id] = record
    return stage.eventually_idle(record.id)


def file_of(record: AgentRecord) -> Path:
    assert record.child_session_file
    return Path(record.child_session_file)


def links(file: Path) -> list[object]:
    entries = script_session.read_entries(str(file), script_session.LINK)
    return [entry["data"]["agentId"] for entry in entries if isinstance(entry["data"], dict)]


def say(stage: Orchestra, record: AgentRecord, text: str) -> None:
    """One more turn, proved by the conversation's own file."""
    stage.send(record.id, f"say: {text}")
    eventually(lambda: messages_in(file_of(record))[-1] == f"say: {text}", SLOW)
    stage.eventually_idle(record.id)


def recycle(stage: Orchestra, count: int = 1) -> list[AgentRecord]:
    """Others take the first free slots, and stay."""
    return [stage.start("other work", client="fake", branch_hint="other") for _ in range(count)]


def notice_of(stage: Orchestra, record: AgentRecord) -> dict[str, Any] | None:
    path = stage.context.paths.runtime(record.id).directory / NOTICE_FILE
    return json.loads(path.read_text()) if path.exists() else None
