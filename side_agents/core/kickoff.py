"""The first prompt of an agent (reference/side-agents 2.5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NestedParent:
    """The agent that starts another one."""

    agent_id: str
    depth: int
    branch: str
    checkout: str


def kickoff_prompt(task: str, session: str | None = None, nested: NestedParent | None = None) -> str:
    """The task verbatim; then, where they exist, the parent's conversation and the section for a nested agent."""
    parts = [task]
    if session:
        parts.append(f"Parent Pi session: {session}" if session.endswith(".jsonl") else f"Parent session: {session}")
    if nested is not None:
        parts.append(_nested_section(nested))
    return "\n\n".join(parts)


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
