"""``side-agents demo``: three agents in a throw-away repository, watched live, without any coding agent installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from side_agents.cli.agent_table import render, rows_of, rows_of_finished
from side_agents.cli.here import environment
from side_agents.cli.live import LiveArea
from side_agents.cli.options import json_option
from side_agents.cli.output import STYLES, safe, safe_line, status_words, write_json
from side_agents.core import demo_stage, views
from side_agents.core.demo_stage import Harvest, Part, Stage
from side_agents.core.observe import list_agents
from side_agents.core.results import Checked, StartRequest
from side_agents.core.send import send
from side_agents.core.start import start
from side_agents.core.wait import wait_any
from side_agents.errors import DeadlineError, WaitTimeoutError
from side_agents.infra import clock
from side_agents.models import AgentRecord, AgentStatus, Tombstone, WaitingFor

_FRAME = 0.2
_DEADLINE = 60.0


@dataclass(slots=True)
class _Story:
    """What is known while the demo runs."""

    stage: Stage
    area: LiveArea
    parts: Mapping[str, Part]
    began: float
    open_ids: set[str] = field(default_factory=set)
    ended: dict[str, AgentRecord | Tombstone] = field(default_factory=dict)

    def tell(self, who: str, what: str, **style: Any) -> None:
        """One line of the story, with the time since the start."""
        moment = click.style(f"{clock.monotonic() - self.began:5.1f}s", dim=True)
        self.area.say(f"{moment}  {click.style(who.ljust(12), bold=True)}  {click.style(what, **style)}")


@click.command()
@click.option("--keep", is_flag=True, help="Keep the repository and the tmux server, and say where they are.")
@json_option
def demo(keep: bool, as_json: bool) -> int:
    """Watch three agents work in a throw-away repository with a tmux server of its own.

    Nothing outside a new folder below /tmp is touched, and no coding agent is needed: the agents follow a script. It
    takes about ten seconds.
    """
    variables = environment()
    live = sys.stdout.isatty() and variables.get("TERM", "dumb") != "dumb"
    area = LiveArea(enabled=live, silent=as_json)
    with demo_stage.stage(variables, keep=keep) as stage, area:
        story = _Story(stage, area, {part.name: part for part in demo_stage.parts()}, clock.monotonic())
        _start_all(story)
        _watch(story)
        area.draw(())
        harvests = {name: demo_stage.harvest(stage.context, agent) for name, agent in sorted(story.ended.items())}
        seconds = clock.monotonic() - story.began
        if as_json:
            write_json(_as_json(story, harvests, seconds, keep=keep))
        else:
            _sum_up(story, harvests)
            _say_goodbye(stage, seconds, keep=keep)
    return 0


def _start_all(story: _Story) -> None:
    say = story.area.say
    say(click.style("Three agents, one throw-away repository, a tmux server of its own.", bold=True))
    say("They have no model: each follows a small script and does real work on its own branch.")
    say()
    requests = [StartRequest(task=part.task, branch_hint=part.name, client="script") for part in story.parts.values()]
    with ThreadPoolExecutor(len(requests)) as pool:
        waiting = {pool.submit(start, story.stage.context, request) for request in requests}
        while waiting:
            done, waiting = wait(waiting, timeout=_FRAME, return_when=FIRST_COMPLETED)
            _draw(story)
            for future in done:
                record = future.result().record
                story.open_ids.add(record.id)
                slot = Path(record.worktree_path or "").name
                story.tell(record.id, f"started on {record.branch} in {slot}", fg="green")


def _watch(story: _Story) -> None:
    """Redraw, and react to each stop once, until every agent has ended."""
    context = story.stage.context
    cursor = 0
    while story.open_ids:
        if clock.monotonic() - story.began > _DEADLINE:
            names = ", ".join(sorted(story.open_ids))
            raise DeadlineError(f"The demo has taken too long: {names} did not end. Everything was thrown away.")
        _draw(story)
        with suppress(WaitTimeoutError):
            waited = wait_any(context, sorted(story.open_ids), after=cursor, timeout=_FRAME)
            cursor = waited.cursor
            _draw(story)
            _react(story, waited.checked)
    _draw(story)


def _draw(story: _Story) -> None:
    listed = list_agents(story.stage.context, everything=True, probe=False)
    rows = [*rows_of(listed.records), *rows_of_finished(listed.tombstones)]
    story.area.draw(["", *render(rows, story.area.width)])


def _react(story: _Story, checked: Checked) -> None:
    record = checked.record
    if record is None or record.status.is_terminal:
        _react_to_end(story, checked)
    elif record.waiting_for is WaitingFor.QUESTION:
        answer = story.parts[record.id].answer or "yes"
        story.tell(record.id, f"asks: {safe_line(record.waiting_text or '')}", fg="cyan", bold=True)
        send(story.stage.context, record.id, answer)
        story.tell("", f"you answer: {answer}   (side-agents send {record.id} {answer})")
    elif record.turn:
        said = (record.last_turn_text or "its turn ended").splitlines()[-1]
        story.tell(record.id, f"yields: {safe_line(said)}", fg="cyan")
        send(story.stage.context, record.id, "/quit")
        story.tell("", f"you let it go   (side-agents send {record.id} /quit)")


def _react_to_end(story: _Story, checked: Checked) -> None:
    agent = checked.record or checked.tombstone
    if agent is None:
        return
    story.open_ids.discard(agent.id)
    story.ended[agent.id] = agent
    words = status_words(agent.status, exit_code=agent.exit_code)
    why = f": {safe_line(agent.error)}; its work is kept" if agent.error else ""
    story.tell(agent.id, f"{words}{why}", **STYLES[agent.status])


def _sum_up(story: _Story, harvests: Mapping[str, Harvest]) -> None:
    say = story.area.say
    say()
    say(click.style("What is there now", bold=True))
    for name, harvest in harvests.items():
        agent = story.ended[name]
        words = click.style(status_words(agent.status, exit_code=agent.exit_code), **STYLES[agent.status])
        say(f"  {click.style(name, bold=True)}  {words}")
        for commit in harvest.commits or ("no commit yet",):
            say(f"    {harvest.branch}  {safe(commit)}")
        if harvest.uncommitted:
            say(f"    {harvest.uncommitted} changed file(s) kept in its worktree")
        if agent.status in (AgentStatus.CRASHED, AgentStatus.FAILED):
            say(f"    you could: side-agents diff {name}    see how far it got")
            say(f"               side-agents stop {name}    clear it; branch and files stay")
    say("  main is as it was: nothing has been landed.")
    say()
    say(click.style("$ git log --oneline --graph --all", dim=True))
    for line in demo_stage.git_graph(story.stage):
        say(safe(line))


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


def _as_json(story: _Story, harvests: Mapping[str, Harvest], seconds: float, *, keep: bool) -> dict[str, Any]:
    agents = [
        {
            "agent": views.agent_view(story.ended[name]),
            "commits": list(harvest.commits),
            "uncommittedFiles": harvest.uncommitted,
        }
        for name, harvest in harvests.items()
    ]
    stage = story.stage
    kept = {"kept": {"repository": str(stage.repository), "tmuxSocket": str(stage.tmux.socket)}} if keep else {}
    return {"ok": True, "seconds": round(seconds, 1), "agents": agents, **kept}
