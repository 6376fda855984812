"""One value, built at the border and passed down: where things are, how they are set, who is asking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from side_agents import config as settings
from side_agents.clients.interface import Client
from side_agents.config import Config
from side_agents.core.identity import Caller, identify
from side_agents.core.registry import Registry
from side_agents.errors import NotARepositoryError, SideAgentsError
from side_agents.infra import git_layout
from side_agents.infra.git_layout import RepositoryLayout
from side_agents.paths import StatePaths, user_config

if TYPE_CHECKING:
    from side_agents.infra.events import Wakeup

ROOT_VARIABLE = "PI_SIDE_AGENTS_ROOT"


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a use case needs. ``checkout`` is the caller's own, ``layout`` that of the state root's repository.

    ``cancellation``, where there is one, ends what only waits.
    """

    paths: StatePaths
    config: Config
    registry: Registry
    environment: Mapping[str, str]
    cwd: Path
    layout: RepositoryLayout
    checkout: Path
    find_client: Callable[[str, Config], Client]
    choose_client: Callable[[str | None, Mapping[str, str], Config], Client]
    cancellation: Wakeup | None = None

    @property
    def caller(self) -> Caller:
        """Who is asking."""
        return identify(self.environment)


def open_context(cwd: Path, environment: Mapping[str, str], *, config: Config | None = None) -> Context:
    """Find the repository and read the configuration; nothing is created (reference/side-agents 4.2).

    The state root is the main repository's top level, also from a linked worktree, or ``PI_SIDE_AGENTS_ROOT``.
    With ``config`` no settings are read. Raises NotARepositoryError outside of git and UsageError for settings that are not
    valid.
    """
    from side_agents.clients import choose_client, find_client

    layout, checkout = _locate(cwd, environment)
    paths = StatePaths(layout.main_top)
    home = Path(environment.get("HOME") or "/")
    if config is None:
        config = settings.load((user_config(environment, home), paths.project_config))
    registry = Registry(paths, lock_timeout=config.lock_timeout)
    return Context(paths, config, registry, environment, cwd, layout, checkout, find_client, choose_client)


def _locate(cwd: Path, environment: Mapping[str, str]) -> tuple[RepositoryLayout, Path]:
    named = environment.get(ROOT_VARIABLE)
    if not named:
        layout = git_layout.find_layout(cwd)
        return layout, layout.worktree_top or layout.main_top
    try:
        layout = git_layout.find_layout(Path(named))
    except SideAgentsError as error:
        raise NotARepositoryError(
            f"{ROOT_VARIABLE} names {named}, which is no git repository. Nothing was changed.",
            hint=f"Unset {ROOT_VARIABLE} to use the repository of the current directory.",
        ) from error
    return layout, _checkout_of(cwd, layout)


def _checkout_of(cwd: Path, root: RepositoryLayout) -> Path:
    # An agent may have changed into some other repository; its own base is then the state root's checkout.
    try:
        here = git_layout.find_layout(cwd)
    except SideAgentsError:
        return root.main_top
    same = here.common_dir == root.common_dir and here.worktree_top is not None
    return here.worktree_top if same and here.worktree_top is not None else root.main_top
