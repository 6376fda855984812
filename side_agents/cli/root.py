"""The root command, which imports a command only to run it (DESIGN 9)."""

from __future__ import annotations

import sys
from importlib import import_module
from shutil import get_terminal_size
from typing import Any

import click

from side_agents import __version__
from side_agents.cli.command_table import COMMANDS, SUMMARY, help_page


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from side_agents.errors import UsageError
            from side_agents.names import nearest

            close = nearest(name, COMMANDS)
            advice = f"Did you mean `side-agents {close[0]}`?" if close else "`side-agents --help` lists the commands."
            raise UsageError(f"There is no command {name}.", hint=advice)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        return help_page(get_terminal_size().columns).rstrip("\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=entry[1]) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    help=SUMMARY,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="side-agents %(version)s")
@click.pass_context
def root(ctx: click.Context) -> int | None:
    if ctx.invoked_subcommand is not None:
        return None
    if not sys.stdout.isatty():
        click.echo(ctx.get_help())
        return 0
    from side_agents.cli.listing import overview

    return overview(ctx)
