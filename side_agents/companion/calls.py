"""The table of calls: the four tools as they are, and what the extension's own commands need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents import names
from side_agents.companion import cleaning, inputs, session_view
from side_agents.companion.cleaning import ShownTargets
from side_agents.core import views
from side_agents.core.context import Context
from side_agents.core.results import Handover, Started, StartRequest
from side_agents.core.routing import listener_of
from side_agents.core.start_plan import TASK_LIMIT_BYTES
from side_agents.core.verdicts import Kind
from side_agents.errors import NotFoundError, SideAgentsError, UsageError
from side_agents.infra import fs, text
from side_agents.tools.table import TOOLS, Tool

Answer = dict[str, Any]

_WARNINGS = 20
_WARNING_CHARS = 500
_LOG_LINES = 1000


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. ``run`` raises SideAgentsError, which ``failure`` turns into an answer.

    ``changes``: ending it half-way would leave something for the next look to tidy up, so that it is worth a short wait.
    """

    input: type[Any]
    run: Callable[[Context, ShownTargets, Any], Answer]
    failure: Callable[[SideAgentsError], Answer] = views.failure_view
    changes: bool = False


def find(name: str) -> Operation:
    """The call with this name. Raises NotFoundError with the nearest ones."""
    operation = OPERATIONS.get(name)
    if operation is None:
        close = names.nearest(name, OPERATIONS)
        raise NotFoundError(
            f"There is no call {name[:80]!r}.", hint=f"Did you mean {close[0]}?" if close else ", ".join(OPERATIONS)
        )
    return operation


def read_input(name: str, operation: Operation, given: Mapping[str, Any]) -> Any:
    """The validated input. Raises UsageError naming every fault."""
    from side_agents.schemas import validate

    return validate(operation.input, given, what=f"The input of {name}")


def beside(context: Context, name: str, answer: Answer) -> Answer:
    """What goes with an answer and is no part of it: the whole first prompt of an agent that a model has started."""
    if name != "agent-start" or not answer["ok"]:
        return {}
    prompt = fs.read_slice(context.paths.runtime(answer["id"]).kickoff, 0, TASK_LIMIT_BYTES * 2)
    return {"prompt": prompt.decode("utf-8", "replace")}


def _start(context: Context, _: ShownTargets, given: inputs.StartByHand) -> Answer:
    from side_agents.core.start import start

    request = StartRequest(
        task=given.task,
        branch_hint=given.slug,
        client=given.client,
        model=given.model,
        with_changes=given.with_changes,
        session=context.caller.session,
        handover=Handover(has_messages=given.has_messages, summary=given.summary, summary_failed=given.summary_failed),
        warnings=tuple(text.one_line(warning, _WARNING_CHARS) for warning in given.warnings[:_WARNINGS]),
    )
    return _started(start(context, request))


def _resume(context: Context, _: ShownTargets, given: inputs.ResumeInput) -> Answer:
    from side_agents.core.resume import resume

    # Relative to nothing: the file comes from ``resumable``.
    file = Path(given.file)
    if not file.is_absolute():
        raise UsageError(f"{given.file!r} is not the path of a conversation. Nothing was started.")
    started = resume(context, file, fork=given.fork, model=given.model, again=given.again)
    record = started.record
    forked = record.child_session_file != record.resumed_from
    return _started(started) | {"session": record.resumed_from, "forked": forked}


def _started(started: Started) -> Answer:
    return views.started_view(started) | {"prompt": started.prompt}


def _agents(context: Context, shown: ShownTargets, _: inputs.NoInput) -> Answer:
    from side_agents.core.observe import list_agents

    # First, because it looks at everything anew.
    found = cleaning.survey(context, shown)
    listed = list_agents(context, probe=False)
    answer: Answer = {"ok": True, "agents": session_view.rows_of(context, listener_of(context.caller), listed)}
    return answer | found | ({"unreadable": list(listed.unreadable)} if listed.unreadable else {})


def _clear(context: Context, shown: ShownTargets, given: inputs.IdsInput) -> Answer:
    return cleaning.discard(context, shown, Kind.RECORD, names.normalise_ids(given.ids))


def _reclaim(context: Context, shown: ShownTargets, given: inputs.SlotsInput) -> Answer:
    return cleaning.discard(context, shown, Kind.LEASE, given.slots)


def _log(context: Context, _: ShownTargets, given: inputs.LogInput) -> Answer:
    from side_agents.core.observe import check

    if not 1 <= given.lines <= _LOG_LINES:
        raise UsageError(f"lines must be between 1 and {_LOG_LINES}, not {given.lines}.")
    agent_id = _required(given.id)
    lines = check(context, agent_id, lines=given.lines).backlog
    return {"ok": True, "id": agent_id, "lines": list(lines), "path": str(context.paths.runtime(agent_id).backlog)}


def _jump(context: Context, _: ShownTargets, given: inputs.IdInput) -> Answer:
    from side_agents.core import window_jump

    found = window_jump.find(context, _required(given.id))
    window_jump.show(found, context.environment)
    return {"ok": True, "id": found.record.id, "window": found.pane.window_index}


def _stop(context: Context, _: ShownTargets, given: inputs.StopInput) -> Answer:
    from side_agents.core import stop_many

    chosen, below = stop_many.chosen(context, [_required(given.id)], tree=given.tree)
    results = [
        {"id": name} | (views.failure_view(each) if isinstance(each, SideAgentsError) else views.stopped_view(each))
        for name, each in stop_many.stop_each(context, chosen, tree=given.tree)
    ]
    answer: Answer = {"ok": all(result["ok"] for result in results), "results": results}
    if len(results) == 1 and not results[0]["ok"]:
        answer |= {key: results[0][key] for key in ("error", "code", "hint") if key in results[0]}
    return answer | ({"left": below} if below and not given.tree else {})


def _resumable(context: Context, _shown: ShownTargets, _: inputs.NoInput) -> Answer:
    from side_agents.core.resume import list_resumable
    from side_agents.core.resume_row import view_of

    return {"ok": True, "sessions": [view_of(each) for each in list_resumable(context)]}


def _retitle(context: Context, _: ShownTargets, given: inputs.RetitleInput) -> Answer:
    from side_agents.core.resume import list_resumable
    from side_agents.core.resume_row import row_of, sanitise_title

    found = next((each for each in list_resumable(context) if str(each.session.file) == given.file), None)
    if found is None:
        raise NotFoundError(f"{text.one_line(given.file, 200)} is not a conversation that can be resumed.")
    return {"ok": True, "title": sanitise_title(given.typed, row_of(found))}


def _mode(context: Context, _: ShownTargets, given: inputs.ModeInput) -> Answer:
    from side_agents.clients import pi_modes

    modes = pi_modes.load(context.cwd, context.environment)
    if given.name:
        choice = pi_modes.choose(given.name, modes)
    else:
        choice = pi_modes.inherit(pi_modes.Mode(given.provider, given.model, given.thinking), modes)
    return {"ok": True, "spec": choice.spec, "mode": choice.name, "warnings": list(choice.warnings)}


def _status(context: Context, _shown: ShownTargets, _: inputs.NoInput) -> Answer:
    from side_agents.core.observe import list_agents

    listed = list_agents(context, probe=False)
    groups = session_view.groups_of(context, listener_of(context.caller), listed)
    return {"ok": True} | session_view.status_view(groups)


def _required(agent_id: str) -> str:
    name = names.normalise_id(agent_id)
    if not name:
        raise UsageError("No agent id was given.")
    return name


def _operation_of(tool: Tool) -> Operation:
    def run(context: Context, _: ShownTargets, given: Any) -> Answer:
        return tool.call(context, given)

    # A message that was typed stays typed, so nothing is gained by waiting for the proof of its delivery.
    return Operation(tool.input, run, tool.failure, changes=tool.name == "agent-start")


OPERATIONS: dict[str, Operation] = {
    **{name: _operation_of(tool) for name, tool in TOOLS.items()},
    "start": Operation(inputs.StartByHand, _start, changes=True),
    "agents": Operation(inputs.NoInput, _agents),
    "clear": Operation(inputs.IdsInput, _clear, changes=True),
    "reclaim": Operation(inputs.SlotsInput, _reclaim, changes=True),
    "log": Operation(inputs.LogInput, _log),
    "jump": Operation(inputs.IdInput, _jump),
    "stop": Operation(inputs.StopInput, _stop, changes=True),
    "resumable": Operation(inputs.NoInput, _resumable),
    "resume": Operation(inputs.ResumeInput, _resume, changes=True),
    "retitle": Operation(inputs.RetitleInput, _retitle),
    "mode": Operation(inputs.ModeInput, _mode),
    "status": Operation(inputs.NoInput, _status),
}
