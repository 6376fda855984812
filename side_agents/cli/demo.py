"""``side-agents demo``: three agents in a throw-away repository, watched live, without any coding agent installed."""

from __future__ import annotations

import sys
from typing import Any

import click

from side_agents.cli import demo_story
from side_agents.cli.demo_cleaning import Cleaned, clean_up
from side_agents.cli.demo_story import Story
from side_agents.cli.here import environment
from side_agents.cli.interruption import shielded
from side_agents.cli.live import LiveArea
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, write_json
from side_agents.clients.script_session import read_entries
from side_agents.clients.session_files import message_text
from side_agents.core import demo_stage, views
from side_agents.core.demo_parts import parts
from side_agents.core.demo_stage import Stage
from side_agents.infra import clock


@click.command()
@click.option("--keep", is_flag=True, help="Keep the repository and the tmux server, and say where they are.")
@json_option
def demo(keep: bool, as_json: bool) -> int:
    """Watch three agents work, land and be cleaned up in a throw-away repository with a tmux server of its own.

    Nothing outside a new folder below /tmp is touched, and no coding agent is needed: the agents follow a script. It
    takes about fifteen seconds.
    """
    variables = environment()
    live = sys.stdout.isatty() and variables.get("TERM", "dumb") != "dumb"
    area = LiveArea(enabled=live, silent=as_json)
    with (
        shielded() as shield,
        demo_stage.stage(variables, keep=keep, closing=shield.close) as stage,
        area,
    ):
        story = Story(stage, area, {part.name: part for part in parts()}, clock.monotonic())
        demo_story.start_all(story)
        demo_story.watch(story)
        demo_story.resume_one(story)
        demo_story.watch(story)
        cleaned = clean_up(story)
        area.draw(())
        if as_json:
            write_json(_as_json(story, cleaned, keep=keep))
        else:
            _sum_up(story)
            _say_goodbye(stage, story.seconds, keep=keep)
    return 0


def _sum_up(story: Story) -> None:
    say = story.area.say
    say()
    say(click.style("$ git log --oneline --graph --branches", dim=True))
    for line in demo_stage.git_graph(story.stage):
        say(safe(line))
    say()
    if len(story.landed) == 2:
        say("Two agents have landed in one straight line, the third's half is on its branch; nothing was lost.")
    say(click.style("side-agents clean --undo would bring worktrees and branches back.", dim=True))


def _say_goodbye(stage: Stage, seconds: float, *, keep: bool) -> None:
    click.echo()
    click.echo(click.style("Now with an agent of yours: inside tmux, in a repository of your own", bold=True))
    click.echo('  side-agents start "fix the flaky login test"')
    click.echo()
    if not keep:
        click.echo(f"Took {seconds:.1f} s. Repository, worktrees and tmux server are thrown away; --keep keeps them.")
        return
    click.echo(f"Took {seconds:.1f} s. Kept:")
    click.echo(f"  repository  {stage.repository}")
    click.echo(f"  tmux        tmux -S {stage.tmux.socket} attach")
    click.echo(f"  throw away  tmux -S {stage.tmux.socket} kill-server; rm -rf {stage.folder}")


def _as_json(story: Story, cleaned: Cleaned, *, keep: bool) -> dict[str, Any]:
    """Agents as they ended, who landed them, what was resumed, what ``clean`` did and what it refused, and main."""
    agents = [
        {
            "agent": views.agent_view(agent),
            "commits": list(story.harvests[name].commits),
            "uncommittedFiles": story.harvests[name].uncommitted,
            "landedBy": story.landed.get(name),
        }
        for name, agent in sorted(story.ended.items())
    ]
    gone = [{"kind": str(target.kind), "name": target.name, "keeps": keeps} for target, keeps in cleaned.gone]
    refused = [
        {
            "kind": str(verdict.target.kind),
            "name": verdict.target.name,
            "reasons": [{"code": each.code, "text": each.text, "wayOut": each.way_out} for each in verdict.reasons],
        }
        for verdict in cleaned.refused
    ]
    stage = story.stage
    return {
        "ok": True,
        "seconds": round(story.seconds, 1),
        "agents": agents,
        "resumed": _resumed(story),
        "cleaned": gone,
        "refused": refused,
        "main": list(demo_stage.commits(stage.context)),
        "graph": demo_stage.git_graph(stage),
    } | ({"kept": {"repository": str(stage.repository), "tmuxSocket": str(stage.tmux.socket)}} if keep else {})


def _resumed(story: Story) -> dict[str, Any] | None:
    """The start that went on, and the first line of everything that was said to the agent in that conversation."""
    if story.resumed is None:
        return None
    file = story.resumed.record.child_session_file or ""
    messages = [entry.get("message") for entry in read_entries(file)]
    said = [
        message_text({"message": each}) for each in messages if isinstance(each, dict) and each.get("role") == "user"
    ]
    return views.started_view(story.resumed) | {"session": file, "said": [text.partition("\n")[0] for text in said]}
