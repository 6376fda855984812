"""Doing one thing for many agents, a few at a time, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from side_agents.errors import SideAgentsError

JOBS = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(
    items: Sequence[Item], work: Callable[[Item], Result], *, jobs: int = JOBS
) -> list[Result | SideAgentsError]:
    """The results in the order of the items; an expected failure of one is its result and hinders no other.

    An interrupt lets what has begun come to its end and begins nothing more.
    """
    if len(items) == 1:
        return [_outcome(work, items[0])]
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, and mostly there is one item

    with ThreadPoolExecutor(max(1, min(jobs, len(items)))) as pool:
        try:
            return [future.result() for future in [pool.submit(_outcome, work, item) for item in items]]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _outcome(work: Callable[[Item], Result], item: Item) -> Result | SideAgentsError:
    try:
        return work(item)
    except SideAgentsError as error:
        return error


def worst_status(outcomes: Sequence[object]) -> int:
    """The highest exit status among the failures, 0 when there is none."""
    return max((each.exit_status for each in outcomes if isinstance(each, SideAgentsError)), default=0)
