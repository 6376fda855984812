"""The first prompt of an agent (reference/side-agents 2.5)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from side_agents.core.results import Handover
from side_agents.infra import text
from side_agents.models import Handoff

SUMMARY_LINES = 10
SUMMARY_CHARS = 700
SUMMARY_FAILED = "The conversation could not be summarised; only the task itself was sent."
_FENCE = re.compile(r"```(?:md|markdown)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)
_NOTHING = frozenset(("", "none", "n/a", "unrelated", "no relevant context", "no relevant context from parent session"))
_BOUNDARY = """\
## Context boundary
- Use only this message, what people tell you here, your own notes, this worktree and its repository.
- Do not look into the conversation that started you, nor into other agents' files.
- If something that you need is missing, stop and report what it is."""


@dataclass(frozen=True, slots=True)
class NestedParent:
    """The agent that starts another one."""

    agent_id: str
    depth: int
    branch: str
    checkout: str


@dataclass(frozen=True, slots=True)
class PassedOn:
    """What of the parent's conversation goes into a first prompt."""

    names_session: bool = True
    summary: str = ""
    warnings: tuple[str, ...] = ()


# A model that calls the tool writes all that matters into the task.
TOOL_START = PassedOn()


def passed_on(handover: Handover, handoff: Handoff) -> PassedOn:
    """The rows of ``/agent`` in reference/side-agents 2.5."""
    if not handover.has_messages or handoff is Handoff.NONE:
        return PassedOn(names_session=False)
    if handoff is Handoff.SESSION:
        return PassedOn()
    if handover.summary_failed:
        return PassedOn(warnings=(SUMMARY_FAILED,))
    return PassedOn(summary=relevant_summary(handover.summary))


def relevant_summary(raw: str) -> str:
    """A model's summary as it may go into a prompt: clean, at most 10 lines and 700 characters; empty for "nothing"."""
    cleaned = text.strip_controls(raw.replace("\r\n", "\n")).strip()
    if fenced := _FENCE.fullmatch(cleaned):
        cleaned = fenced[1].strip()
    if cleaned.strip(" \t\n.!*_`\"'").casefold() in _NOTHING:
        return ""
    lines = [line.rstrip() for line in cleaned.split("\n")]
    squeezed = [line for number, line in enumerate(lines) if line or (number and lines[number - 1])]
    summary = "\n".join(squeezed[:SUMMARY_LINES])
    return summary if len(summary) <= SUMMARY_CHARS else summary[: SUMMARY_CHARS - 1].rstrip() + text.ELLIPSIS


def kickoff_prompt(
    task: str,
    session: str | None = None,
    nested: NestedParent | None = None,
    *,
    summary: str = "",
    names_session: bool = True,
    boundary: bool = False,
) -> str:
    """The task verbatim; then, where they exist, what the parent passes on and the section for a nested agent.

    A ``boundary`` takes the place of the parent's conversation: a child was seen to search it for what it had not been told.
    """
    parts = [task]
    names_session = names_session and not boundary
    if summary:
        parts += [f"## Parent session\n- {session or '(unknown)'}"] if names_session else []
        parts.append(f"## Relevant parent context\n{summary}")
    elif session and names_session:
        parts.append(f"Parent Pi session: {session}" if session.endswith(".jsonl") else f"Parent session: {session}")
    if nested is not None:
        parts.append(_nested_section(nested))
    return "\n\n".join([*parts, _BOUNDARY] if boundary else parts)


def _nested_section(parent: NestedParent) -> str:
    return "\n".join(
        (
            "## You are a nested side agent",
            f"- You were started by the side agent `{parent.agent_id}`; your depth is {parent.depth + 1}.",
            f"- Your branch starts at its branch `{parent.branch}`, which is checked out in {parent.checkout}.",
            f"- `{parent.branch}`, not the main branch, is where your work is to be merged.",
            f"- Report to `{parent.agent_id}`; it reviews and tells you to finish.",
        )
    )


def as_log_entry(prompt: str, agent_id: str, started_at: str) -> str:
    """The prompt as the first lines of an agent's log, so that whoever reads it sees what the agent was told (B64)."""
    head = f"[side-agent][prompt] {started_at} {agent_id} begin"
    body = [f"[side-agent][prompt] {line}" for line in prompt.splitlines()]
    return "\n".join([head, *body, f"[side-agent][prompt] {started_at} {agent_id} end", ""])
