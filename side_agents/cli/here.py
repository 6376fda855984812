"""Where the user is: the only place that looks at the environment and the current folder of this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from side_agents.errors import NotFoundError

if TYPE_CHECKING:
    from side_agents.core.context import Context


def environment() -> Mapping[str, str]:
    """The environment of this process, to be passed down."""
    return os.environ


def working_directory() -> Path:
    """Where the user is. Raises NotFoundError when that folder was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NotFoundError("The current folder no longer exists.", hint="Go to another one: cd ~") from error


def open_here() -> Context:
    """The context of the repository that the user is in."""
    from side_agents.core.context import open_context

    return open_context(working_directory(), environment())
