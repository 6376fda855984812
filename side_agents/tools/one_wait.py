"""One blocking wait for each caller: agents and forum must not both hold up the same turn (reference/forum 5.11).

Waits for agents may run beside each other; a wait for the forum is alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from side_agents.errors import RefusedError

if TYPE_CHECKING:
    from side_agents.core.context import Context

_OTHER = {"agents": "forum_watch", "forum": "agent-wait-any or another forum_watch"}


@contextmanager
def only_wait(context: Context, what: Literal["agents", "forum"]) -> Iterator[None]:
    """Hold the caller's right to wait while the body runs. Raises RefusedError when the same caller waits already.

    A caller that cannot be told from others is not held to it, nor is one in a project without any side agents.
    """
    caller = context.caller
    name = caller.agent_id or caller.session
    if name is None or not context.paths.meta.is_dir():
        yield
        return
    from side_agents.infra import fs, fs_private

    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    path = context.paths.wait_lock(digest)
    fs.make_private_dir(path.parent)
    handle = fs_private.try_lock(path, shared=what == "agents")
    if handle is None:
        raise RefusedError(
            f"This agent waits in {_OTHER[what]} already; one turn can be held up by one wait only. Nothing was done.",
            hint="Wait for one after the other, with short times.",
        )
    try:
        yield
    finally:
        fs_private.unlock(handle)
