"""The end of the demo: clearing up, and what a proof that something would be lost looks like."""

from __future__ import annotations

from dataclasses import dataclass, field

from side_agents.cli import demo_story
from side_agents.cli.demo_story import Story
from side_agents.cli.output import safe, safe_line
from side_agents.core import clean, demo_stage
from side_agents.core.clean import CleanRequest, Plan
from side_agents.core.verdicts import Kind, Target, Verdict
from side_agents.errors import DeadlineError

_MESSAGE = "Half of a faster total"
# An ended agent's last process may take a moment to leave its folder.
_LEAVING = 5.0


@dataclass(slots=True)
class Cleaned:
    """What went, in order, with what was kept of it; and what had to stay at first."""

    gone: list[tuple[Target, str]] = field(default_factory=list)
    refused: list[Verdict] = field(default_factory=list)


def clean_up(story: Story) -> Cleaned:
    """Clear the list, then the worktrees; what is unfinished stays until somebody has decided about it."""
    cleaned = Cleaned()
    story.pause()
    story.area.say()
    story.tell("", "you clear up   (side-agents clean)")
    _clean(story, cleaned, CleanRequest())
    story.pause()
    story.tell("", "and you need no idle worktrees   (side-agents clean --keep-slots 0)")
    _clean(story, cleaned, CleanRequest(slots_kept=0))
    for verdict in list(cleaned.refused):
        story.pause()
        _decide(story, verdict)
    if cleaned.refused:
        story.pause()
        story.tell("", "now it is safe   (side-agents clean --keep-slots 0)")
        _clean(story, cleaned, CleanRequest(slots_kept=0))
    return cleaned


def _clean(story: Story, cleaned: Cleaned, request: CleanRequest) -> None:
    context = story.stage.context
    plan = _survey(story, request)
    windows: list[str] = []
    for outcome in clean.carry_out(context, plan.safe):
        if outcome.error is not None or outcome.discarded is None:
            raise outcome.error or DeadlineError(f"{outcome.target.name} could not be cleaned.")
        cleaned.gone.append((outcome.target, outcome.discarded.keeps))
        if outcome.target.kind is Kind.WINDOW:
            windows.append(outcome.target.token or "")
        else:
            _tell_gone(story, outcome.target, outcome.discarded.keeps)
    if windows:
        story.tell("", f"windows closed: {', '.join(sorted(set(windows)))}", fg="green")
    demo_story.draw(story)
    for verdict in plan.refused:
        cleaned.refused.append(verdict)
        _tell_refused(story, verdict)


def _survey(story: Story, request: CleanRequest) -> Plan:
    until = story.seconds + _LEAVING
    while True:
        plan = clean.survey(story.stage.context, request)
        leaving = any(reason.code == "in-use" for verdict in plan.refused for reason in verdict.reasons)
        if not leaving or story.seconds > until:
            return plan
        story.pause()


def _tell_gone(story: Story, target: Target, keeps: str) -> None:
    kept = safe_line(_short(story, keeps))
    owner = _owner(story, target)
    if target.kind is Kind.RECORD:
        story.tell(owner, "off the list; what is kept:", fg="green")
        for part in kept.split(", "):
            story.add(part)
        return
    words = {Kind.SLOT: "worktree put away", Kind.BRANCH: "branch removed"}
    story.tell(owner, f"{words.get(target.kind, f'{target.kind} {target.name} removed')}: {kept}", fg="green")


def _tell_refused(story: Story, verdict: Verdict) -> None:
    story.tell(_owner(story, verdict.target), f"{verdict.target.name} stays:", fg="yellow")
    for reason in verdict.reasons:
        story.add(safe(reason.text), fg="yellow")
        story.add(safe(_short(story, reason.way_out)), dim=True)


def _decide(story: Story, verdict: Verdict) -> None:
    path = verdict.target.path
    if path is None or all(reason.code != "dirty" for reason in verdict.reasons):
        return
    story.tell("", "you look, and keep it: a commit on its own branch is enough")
    place = _short(story, str(path))
    story.add(f"git -C {place} add -A")
    story.add(f'git -C {place} commit -m "{_MESSAGE}"')
    story.add(f"(to throw it away instead: git -C {place} clean -fd)", dim=True)
    demo_stage.keep_work(path, _MESSAGE)


def _owner(story: Story, target: Target) -> str:
    for agent in story.ended.values():
        if target.name in (agent.id, agent.branch) or str(target.path) == agent.worktree_path:
            return agent.id
    return ""


def _short(story: Story, text: str) -> str:
    """Places as they look from the repository."""
    return text.replace(f"{story.stage.folder}/", "../")
