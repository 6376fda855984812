"""Starting an agent: reserve, make, launch; or take back what was made and say what is left (DESIGN 5 "Start").

Durable steps, in order: the row with id, slot and branch (one transaction); the worktree; its lease; the runtime folder;
the row in ``spawning_tmux``; the window; the row with its ids. A death between two of them leaves a row whose owner is dead,
which the next look turns into ``crashed`` or, when the window is there, into a running agent.
"""

from __future__ import annotations

from dataclasses import replace

from side_agents.core import first_prompt
from side_agents.core.context import Context
from side_agents.core.forum_join import Joining
from side_agents.core.results import Started, StartRequest
from side_agents.core.start_plan import prepare
from side_agents.core.start_row import StartRow
from side_agents.core.start_slot import occupy, reserve_within_budget
from side_agents.core.start_undo import leave_undecided, roll_back
from side_agents.core.start_window import open_window, record_window, write_runtime
from side_agents.errors import (
    TmuxUnreachableError,
)


def start(context: Context, request: StartRequest) -> Started:
    """Start one agent in the background and return as soon as its launcher runs.

    Raises before anything changed: UsageError, NotInTmuxError, NoCommitsError, DepthError, ToolMissingError, RefusedError
    (nested caller on no branch), BudgetError, ConflictError (a branch called ``side-agent``). Raises StartFailedError after a
    reservation: what was made is taken back, and the message says what is left.
    """
    plan = prepare(context, request)
    row = StartRow(reserve_within_budget(context, plan))
    joining = Joining(context, plan, row.record)
    try:
        occupy(context, plan, row)
        joined = joining.identity(row.record)
        row.record = replace(row.record, forum=joined.identity, warnings=(*row.record.warnings, *joined.warnings))
        prompt = write_runtime(context, plan, row)
        launched = open_window(context, plan, row.record)
    except TmuxUnreachableError as error:
        raise leave_undecided(context, row.record, error) from error
    except BaseException as error:
        failed = roll_back(context, plan, row.record, error)
        joining.abandon()
        if isinstance(error, Exception):
            raise failed from error
        raise
    record = record_window(context, row.record, launched)
    joining.launched()
    return Started(first_prompt.deliver(context, plan.client, record, launched.plan, prompt), prompt)
