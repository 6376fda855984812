"""Which forum a command is about, and opening it; shared by the commands that look after a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from side_agents.cli.here import open_here, working_directory

if TYPE_CHECKING:
    from side_agents.forum.service.forum import Forum
    from side_agents.forum.store.database import Database

database_option = click.option(
    "--database",
    "chosen",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Another forum than this project's own.",
)
old_sqlite_option = click.option(
    "--accept-old-sqlite", is_flag=True, help="Use an SQLite that may corrupt a database in use by several processes."
)


def database_path(chosen: Path | None) -> Path:
    """The file that was chosen, or that of the project here."""
    return working_directory() / chosen if chosen is not None else open_here().paths.forum_db


def make_place(path: Path, chosen: Path | None) -> None:
    """The private folder of a database that may be new; git passes that of a project over."""
    from side_agents.infra import fs
    from side_agents.infra.git import Git
    from side_agents.paths import EXCLUDED

    if chosen is None:
        Git(working_directory()).ensure_excludes(EXCLUDED)
    fs.make_private_dir(path.parent)


@contextmanager
def opened(path: Path, *, create: bool = False, accept_old_sqlite: bool = False) -> Iterator[Database]:
    """The open database. Raises NotFoundError when there is none, and what ``Database.open`` raises."""
    from side_agents.forum.store.database import Database

    with Database.open(path, create=create, accept_old_sqlite=accept_old_sqlite) as database:
        yield database


@contextmanager
def operating(chosen: Path | None) -> Iterator[Forum]:
    """The forum whose database was chosen, or this project's; it must exist."""
    from side_agents.forum.client.settings import DEFAULT_SERVER
    from side_agents.forum.service.forum import Forum

    with opened(database_path(chosen)) as database:
        yield Forum(database, origin=DEFAULT_SERVER)
