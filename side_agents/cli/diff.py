"""``side-agents diff``: everything an agent has changed, committed or not. Only reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import agent_argument, json_option
from side_agents.cli.output import safe, write_json
from side_agents.errors import NotFoundError

if TYPE_CHECKING:
    from side_agents.core.context import Context
    from side_agents.models import AgentRecord, Tombstone

_STYLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("+++", {"bold": True}),
    ("---", {"bold": True}),
    ("diff ", {"bold": True}),
    ("@@", {"fg": "cyan"}),
    ("+", {"fg": "green"}),
    ("-", {"fg": "red"}),
)


@click.command()
@agent_argument
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
@json_option
def diff(agent_id: str, stat: bool, as_json: bool) -> int:
    """Show what agent ID has changed since it started, uncommitted and untracked files included.

    For an agent that has ended, what its branch holds. Nothing in worktree or index is touched.
    """
    context = open_here()
    agent = context.registry.read().agents.get(agent_id) or context.registry.tombstone(agent_id)
    if agent is None:
        raise context.registry.unknown(agent_id)
    base, text = changes(context, agent, stat=stat)
    if as_json:
        write_json({"ok": True, "id": agent_id, "base": base, "branch": agent.branch, "diff": text})
    elif not text:
        click.echo("No changes against its base.", err=True)
    elif sys.stdout.isatty():
        for line in text.splitlines():
            click.echo(_coloured(safe(line)))
    else:
        click.echo(text, nl=False)
    return 0


def changes(context: Context, agent: AgentRecord | Tombstone, *, stat: bool = False) -> tuple[str, str]:
    """The commit that the agent started from, and git's diff from there. Raises NotFoundError when either is gone."""
    from side_agents.infra import git_changes
    from side_agents.infra.git import Git
    from side_agents.models import AgentRecord

    base = agent.base_commit
    if base is None:
        raise NotFoundError(f"{agent.id} has no worktree yet, or where it started was not recorded.")
    if isinstance(agent, AgentRecord) and agent.worktree_path and Path(agent.worktree_path).is_dir():
        return base, git_changes.diff(Git(Path(agent.worktree_path)), base, stat=stat)
    git = Git(context.layout.main_top)
    head = git.resolve(agent.branch) if agent.branch and git.branch_exists(agent.branch) else None
    if head is None and not isinstance(agent, AgentRecord) and agent.branch_head:
        # The branch was landed and deleted; its commits are still there.
        head = git.resolve(agent.branch_head)
    if head is None:
        raise NotFoundError(f"The branch of {agent.id} ({agent.branch}) does not exist any more.")
    form = ("--stat",) if stat else ("--patch",)
    plain = ("--no-ext-diff", "--no-textconv", "--no-color")
    done = git.run("diff", *plain, *form, "--end-of-options", base, head, "--")
    return base, done.stdout.decode("utf-8", "replace")


def _coloured(line: str) -> str:
    style = next((style for start, style in _STYLES if line.startswith(start)), None)
    return click.style(line, **style) if style else line
