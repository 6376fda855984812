"""Several agents by one ``side-agents start``: what they are to do, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.options import read_text, require_ordinary
from side_agents.cli.output import safe, safe_line, write_json, write_warnings
from side_agents.errors import SideAgentsError, UsageError

if TYPE_CHECKING:
    from side_agents.core.batch import Item
    from side_agents.core.context import Context
    from side_agents.core.results import Started, StartRequest


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says about tasks and names."""

    words: tuple[str, ...]
    file: str | None
    name: str
    each: str | None
    matrix: tuple[str, ...]
    template: str | None
    settings: tuple[str, ...]

    @property
    def is_batch(self) -> bool:
        """Whether it asks for several agents, even if it comes to one."""
        return self.each is not None or bool(self.matrix)


def tasks_of(wanted: Wanted) -> list[str]:
    """The tasks as given: of each line, or one; none where the template is all there is. Raises UsageError."""
    from side_agents.core.start_plan import TASK_LIMIT_BYTES

    if wanted.each is not None:
        from side_agents.core import batch

        if wanted.words or wanted.file is not None:
            raise UsageError("The task was given twice: by --each and otherwise. Nothing was started.")
        return batch.lines_of(read_text((), wanted.each, what="list of tasks", limit=TASK_LIMIT_BYTES))
    if wanted.template is not None and not wanted.words and wanted.file is None:
        return []
    return [read_text(wanted.words, wanted.file, what="task", limit=TASK_LIMIT_BYTES)]


def items_of(context: Context, wanted: Wanted, tasks: list[str]) -> list[Item]:
    """Every agent to start. Raises UsageError and NotFoundError, before anything is started."""
    from side_agents.core import batch

    if not wanted.is_batch and wanted.template is None and not wanted.settings:
        return [batch.Item(tasks[0], wanted.name)]
    template = _template(context, wanted.template) if wanted.template is not None else None
    return batch.expand(
        tasks,
        batch.parse_matrix(wanted.matrix),
        template=template,
        settings=batch.parse_settings(wanted.settings),
        name=wanted.name or ("" if tasks else wanted.template or ""),
    )


def _template(context: Context, name: str) -> str:
    from side_agents.core import batch
    from side_agents.core.start_plan import TASK_LIMIT_BYTES

    require_ordinary(context.paths.prompts / f"{name}.md", what="template", limit=TASK_LIMIT_BYTES)
    return batch.read_template(context.paths.prompts, name)


def start_all(context: Context, requests: Sequence[StartRequest], *, jobs: int, as_json: bool) -> int:
    """Start all of them, a few at a time; what cannot be started hinders no other. Returns the highest exit status."""
    from side_agents.core import parallel
    from side_agents.core.aftermath import follow_up
    from side_agents.core.start import start

    outcomes = parallel.for_each(requests, lambda request: start(context, request), jobs=jobs)
    follow_up(context)
    status = parallel.worst_status(outcomes)
    if as_json:
        answers = [_view(request, outcome) for request, outcome in zip(requests, outcomes, strict=True)]
        write_json({"ok": status == 0, "agents": answers})
        return status
    started = 0
    for request, outcome in zip(requests, outcomes, strict=True):
        started += _write(request, outcome)
    click.echo(f"{started} of {len(requests)} started.")
    return status


def queue_all(context: Context, requests: Sequence[StartRequest], *, as_json: bool) -> int:
    """Put all of them into the queue, in order, and start what there is a place for. Returns the highest exit status."""
    from side_agents.cli.queue import entry_view, ran_view, write_ran
    from side_agents.core import parallel, queue, queue_runner
    from side_agents.core.aftermath import follow_up

    entries = [queue.add(context, request) for request in requests]
    done = {ran.entry.number: ran for ran in queue_runner.drain(context)}
    follow_up(context)
    status = parallel.worst_status([done[entry.number].outcome for entry in entries if entry.number in done])
    waiting = {entry.number for entry in queue.entries(context.paths.queue)}
    if as_json:
        answers = [
            ran_view(done[entry.number]) if entry.number in done
            else entry_view(entry) | {"ok": True, "queued": entry.number in waiting}
            for entry in entries
        ]  # fmt: skip
        write_json({"ok": status == 0, "agents": answers})
        return status
    for entry in entries:
        if entry.number in done:
            write_ran(done[entry.number])
        else:
            what = "queued" if entry.number in waiting else "started by another command"
            click.echo(f"{click.style(what, fg='yellow')} {entry.id}  {safe_line(entry.request.task, 100)}")
    return status


def _view(request: StartRequest, outcome: Started | SideAgentsError) -> dict[str, Any]:
    from side_agents.core import views
    from side_agents.infra import text

    if isinstance(outcome, SideAgentsError):
        return views.failure_view(outcome) | {"task": text.preview(request.task, 200)}
    return views.started_view(outcome)


def _write(request: StartRequest, outcome: Started | SideAgentsError) -> bool:
    if isinstance(outcome, SideAgentsError):
        title = safe_line(request.task, 60)
        click.echo(f"{click.style('error:', fg='red')} {title}: {safe(outcome.message)}", err=True)
        if outcome.hint:
            click.echo(f"{click.style('hint:', fg='yellow')} {safe(outcome.hint)}", err=True)
        return False
    record = outcome.record
    write_warnings(record.warnings)
    click.echo(
        f"{click.style('started', fg='green')} {click.style(record.id, bold=True)}  {safe_line(record.task, 100)}"
    )
    return True
