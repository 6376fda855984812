"""The demo while its agents work: starting them, watching them, answering them, landing and resuming them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from side_agents.cli.agent_table import render, rows_of, rows_of_finished
from side_agents.cli.live import LiveArea
from side_agents.cli.output import STYLES, safe_line, status_words
from side_agents.core import demo_stage
from side_agents.core.demo_parts import RESUMED, Part
from side_agents.core.demo_stage import Harvest, Stage
from side_agents.core.finish import finish
from side_agents.core.observe import list_agents
from side_agents.core.results import Checked, Started, StartRequest
from side_agents.core.resume import resume
from side_agents.core.send import send
from side_agents.core.start import start
from side_agents.core.wait import wait_any
from side_agents.errors import DeadlineError, WaitTimeoutError
from side_agents.infra import clock
from side_agents.models import AgentRecord, AgentStatus, Tombstone, WaitingFor

T = TypeVar("T")

_FRAME = 0.2
_DEADLINE = 60.0
_BEAT = 0.6


@dataclass(slots=True)
class Story:
    """What is known while the demo runs. ``landed`` says by agent who landed its work: ``agent`` or ``you``."""

    stage: Stage
    area: LiveArea
    parts: Mapping[str, Part]
    began: float
    cursor: int = 0
    open_ids: set[str] = field(default_factory=set)
    ended: dict[str, AgentRecord | Tombstone] = field(default_factory=dict)
    harvests: dict[str, Harvest] = field(default_factory=dict)
    landed: dict[str, str] = field(default_factory=dict)
    resumed: Started | None = None

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return clock.monotonic() - self.began

    def tell(self, who: str, what: str, **style: Any) -> None:
        """One line of the story, with the time since the start."""
        moment = click.style(f"{self.seconds:5.1f}s", dim=True)
        self.area.say(f"{moment}  {click.style(who.ljust(12), bold=True)}  {click.style(what, **style)}")

    def add(self, text: str, **style: Any) -> None:
        """More on the line before."""
        self.area.say(f"{' ' * 22}{click.style(text, **style)}")

    def pause(self) -> None:
        """A moment to read in."""
        draw(self)
        clock.pause(_BEAT)


def start_all(story: Story) -> None:
    """Start every agent, all at once."""
    say = story.area.say
    say(click.style("Three agents, one throw-away repository, a tmux server of its own.", bold=True))
    say("They have no model: each follows a small script and does real work on its own branch.")
    say()

    def started(future: Future[Started]) -> None:
        record = future.result().record
        story.open_ids.add(record.id)
        story.tell(record.id, f"started on {record.branch} in {_place(record)}", fg="green")

    requests = [StartRequest(task=part.task, branch_hint=part.name, client="script") for part in story.parts.values()]
    context = story.stage.context
    _in_background(story, [partial(start, context, request) for request in requests], started)


def resume_one(story: Story) -> None:
    """Go on with the agent that quit before its work had landed."""
    story.pause()
    story.area.say()
    story.tell("", f"you want more of one that quit   (side-agents resume {RESUMED})")
    context = story.stage.context

    def resumed(future: Future[Started]) -> None:
        story.resumed = future.result()
        record = story.resumed.record
        story.open_ids.add(record.id)
        story.tell(record.id, f"resumed on {record.branch}, with its conversation", fg="green")

    _in_background(story, [partial(resume, context, RESUMED)], resumed)


def _place(record: AgentRecord) -> str:
    return Path(record.worktree_path or "").name


def _in_background(story: Story, jobs: list[Callable[[], T]], done: Callable[[Future[T]], None]) -> None:
    with ThreadPoolExecutor(len(jobs)) as pool:
        waiting = {pool.submit(job) for job in jobs}
        while waiting:
            ready, waiting = wait(waiting, timeout=_FRAME, return_when=FIRST_COMPLETED)
            draw(story)
            for future in ready:
                done(future)


def watch(story: Story) -> None:
    """Redraw, and react to each stop once, until every agent has ended."""
    context = story.stage.context
    while story.open_ids:
        if story.seconds > _DEADLINE:
            names = ", ".join(sorted(story.open_ids))
            raise DeadlineError(f"The demo has taken too long: {names} did not end. Everything was thrown away.")
        draw(story)
        with suppress(WaitTimeoutError):
            waited = wait_any(context, sorted(story.open_ids), after=story.cursor, timeout=_FRAME)
            story.cursor = waited.cursor
            draw(story)
            _react(story, waited.checked)
    draw(story)


def draw(story: Story) -> None:
    """Show all agents below the story."""
    if not story.area.is_live:
        return
    listed = list_agents(story.stage.context, everything=True, probe=False)
    rows = [*rows_of(listed.records, listed.lingering), *rows_of_finished(listed.tombstones, listed.paused)]
    story.area.draw(["", *render(rows, story.area.width)])


def _react(story: Story, checked: Checked) -> None:
    record, context = checked.record, story.stage.context
    if record is None or record.status.is_terminal:
        _react_to_end(story, checked)
    elif record.waiting_for is WaitingFor.QUESTION:
        answer = story.parts[record.id].answer or "yes"
        story.tell(record.id, f"asks: {safe_line(record.waiting_text or '')}", fg="cyan", bold=True)
        send(context, record.id, answer)
        story.tell("", f"you answer: {answer}   (side-agents send {record.id} {answer})")
    elif record.turn:
        said = (record.last_turn_text or "its turn ended").splitlines()[-1]
        story.tell(record.id, f"yields: {safe_line(said)}", fg="cyan")
        _see_landed(story, record)
        send(context, record.id, "/quit")
        story.tell("", f"you let it go   (side-agents send {record.id} /quit)")
    elif _is_resumed(story, record):
        message = story.parts[record.id].more or ""
        first = message.partition("\n")[0]
        send(context, record.id, message)
        story.tell("", f'you add: {first}   (side-agents send {record.id} "…")')


def _is_resumed(story: Story, record: AgentRecord) -> bool:
    return story.resumed is not None and story.resumed.record.started_at == record.started_at


def _see_landed(story: Story, record: AgentRecord) -> None:
    """What the agent landed itself; or land for it, once it has done all that was wanted."""
    if record.landed_commit is not None:
        story.landed[record.id] = "agent"
        story.tell(record.id, f"has landed on {record.landed_target} by itself   (side-agents finish)", fg="green")
        return
    if not _is_resumed(story, record):
        return
    context = story.stage.context
    before = story.stage.head()
    first = "; main has moved, so it is rebased first" if before != record.base_commit else ""
    story.tell("", f"you land it{first}   (side-agents finish {record.id})")

    def landed(future: Future[Any]) -> None:
        verdict = future.result().verdict
        is_landed = verdict.outcome.exit_status == 0
        if is_landed:
            story.landed[record.id] = "you"
            story.harvests[record.id] = Harvest(demo_stage.commits(context, f"{before}..{verdict.target}"), 0)
        story.tell(record.id, safe_line(verdict.message), fg="green" if is_landed else "red")

    _in_background(story, [partial(finish, context, record.id)], landed)


def _react_to_end(story: Story, checked: Checked) -> None:
    agent = checked.record or checked.tombstone
    if agent is None:
        return
    story.open_ids.discard(agent.id)
    story.ended[agent.id] = agent
    if agent.id not in story.landed or agent.id not in story.harvests:
        story.harvests[agent.id] = demo_stage.harvest(story.stage.context, agent)
    words = status_words(agent.status, exit_code=agent.exit_code)
    if agent.status is AgentStatus.DONE and agent.id not in story.landed:
        words = f"{words} for now: its work waits on {agent.branch}"
    why = f": {safe_line(agent.error)}; its work is kept" if agent.error else ""
    story.tell(agent.id, f"{words}{why}", **STYLES[agent.status])
