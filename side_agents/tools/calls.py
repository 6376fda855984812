"""Carrying out one tool call: text in, answer and exit status out, for every face alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from side_agents.core.views import NOT_DELIVERED, failure_view
from side_agents.errors import NotDeliveredError, NotFoundError, SideAgentsError, UsageError
from side_agents.names import nearest
from side_agents.tools.table import TOOLS, Answer, Tool

if TYPE_CHECKING:
    from side_agents.core.context import Context


def find_tool(name: str) -> Tool:
    """The tool with this name. Raises NotFoundError with the nearest ones."""
    tool = TOOLS.get(name)
    if tool is None:
        close = nearest(name, TOOLS)
        hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(TOOLS)}."
        raise NotFoundError(f"There is no tool called {name}.", hint=hint)
    return tool


def call(name: str, request: bytes | str, open_context: Callable[[], Context]) -> tuple[Answer, int]:
    """The answer of a tool to one JSON object, and the exit status that goes with it (0 only when ``ok``).

    Expected errors are answers; only a fault of ours is raised.
    """
    from side_agents.core.aftermath import follow_up

    try:
        tool = find_tool(name)
    except SideAgentsError as error:
        return failure_view(error), error.exit_status
    try:
        given = parse(tool, request)
        context = open_context()
        answer = tool.call(context, given)
        follow_up(context)
    except SideAgentsError as error:
        return tool.failure(error), error.exit_status
    if answer["ok"]:
        return answer, 0
    return answer, NotDeliveredError.exit_status if answer.get("code") == NOT_DELIVERED else SideAgentsError.exit_status


def parse(tool: Tool, request: bytes | str) -> Any:
    """The validated input. Raises UsageError for anything but one JSON object with the right keys."""
    try:
        data = json.loads(request, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input of {tool.name} is not valid JSON: {error}. Nothing was done.") from error
    if not isinstance(data, dict):
        raise UsageError(f"The input of {tool.name} must be one JSON object. Nothing was done.")
    # After the cheap checks: it loads the validation library (DESIGN 9, rule of weight).
    from side_agents.schemas import validate

    return validate(tool.input, data, what=f"The input of {tool.name}")


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")
