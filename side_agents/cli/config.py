"""``side-agents config``: the settings and where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.here import environment, working_directory
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, write_json
from side_agents.errors import ConflictError, NotARepositoryError

if TYPE_CHECKING:
    from side_agents.config import Config


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> int | None:
    """Show, check or create the settings. Without a word more, it shows them."""
    if ctx.invoked_subcommand is None:
        return show_settings(as_json=False)
    return None


@config.command()
@json_option
def show(as_json: bool) -> int:
    """Print every setting with its present value, as TOML."""
    return show_settings(as_json=as_json)


@config.command()
@json_option
def path(as_json: bool) -> int:
    """Print where settings are read from; the later file wins."""
    found = _files()
    if as_json:
        write_json({"ok": True, "files": [{"path": str(file), "exists": file.exists()} for file in found]})
        return 0
    for file, whose in zip(found, ("yours", "this project's"), strict=False):
        click.echo(f"{safe(str(file))}  {click.style(whose if file.exists() else f'{whose}, none yet', dim=True)}")
    return 0


@config.command()
@json_option
def check(as_json: bool) -> int:
    """Read the settings and say whether they are valid."""
    from side_agents.config import load

    found = [file for file in _files() if file.exists()]
    load(tuple(found))
    if as_json:
        write_json({"ok": True, "files": [str(file) for file in found]})
    else:
        click.echo(f"Valid: {', '.join(safe(str(file)) for file in found) or 'no settings files, all defaults'}")
    return 0


@config.command()
@click.option("--user", is_flag=True, help="Your own file instead of the project's.")
@json_option
def init(user: bool, as_json: bool) -> int:
    """Create a settings file in which every setting is explained and commented out."""
    from side_agents.infra import fs
    from side_agents.infra.git import Git
    from side_agents.paths import EXCLUDED

    found = _files()
    if not user and len(found) == 1:
        raise NotARepositoryError(
            "There is no git repository here, so no project.", hint="Add --user for your own file."
        )
    file = found[0 if user else 1]
    if not user:
        Git(working_directory()).ensure_excludes(EXCLUDED)
    fs.make_private_dir(file.parent)
    if not fs.create_exclusive(file, template(), mode=0o600):
        advice = "`side-agents config show` prints every setting."
        raise ConflictError(f"{file} exists already and was kept.", hint=advice)
    if as_json:
        write_json({"ok": True, "path": str(file)})
    else:
        click.echo(f"Created {safe(str(file))}")
    return 0


def show_settings(*, as_json: bool) -> int:
    """Print the effective settings."""
    from side_agents.config import effective, load

    settings = load(_files())
    if as_json:
        write_json({"ok": True, "config": effective(settings)})
    else:
        click.echo(safe(as_toml(settings)), nl=False)
    return 0


def _files() -> tuple[Path, ...]:
    """The user's file, then the project's where there is a project; found without reading them."""
    from side_agents.core.context import ROOT_VARIABLE
    from side_agents.infra.git_layout import find_layout
    from side_agents.paths import StatePaths, user_config

    variables = dict(environment())
    own = user_config(variables, Path.home())
    try:
        layout = find_layout(Path(variables.get(ROOT_VARIABLE) or working_directory()))
    except NotARepositoryError:
        return (own,)
    return own, StatePaths(layout.main_top).project_config


def as_toml(settings: Config) -> str:
    """All settings as a TOML document; those without a value are commented out."""
    from side_agents.config import DESCRIPTIONS, effective

    values = effective(settings)
    tables = values.pop("clients")
    lines: list[str] = []
    for name, value in values.items():
        lines += [f"# {DESCRIPTIONS[name]}", f"{name} = {_literal(value)}" if value is not None else f"# {name} ="]
    for name, table in tables.items():
        lines += ["", f"[clients.{_key(name)}]"]
        lines += [f"{_key(k)} = {_literal(v)}" for k, v in table.items() if v is not None and k != "name"]
    return "\n".join(lines) + "\n"


def template() -> str:
    """A settings file that changes nothing until a line is uncommented."""
    from side_agents.config import Config

    head = "# Settings of side-agents. Lines that are commented out show the defaults.\n"
    lines = as_toml(Config()).splitlines()
    return head + "\n".join(line if line.startswith("#") else f"# {line}" for line in lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_literal(v)}" for k, v in value.items()) + "}"
    # TOML's basic strings take JSON's escapes, except for pairs of surrogates, which ensure_ascii would make.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
