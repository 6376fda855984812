"""The root command: a table of names and help lines, so that ``--help`` and a typo import no command (DESIGN 9)."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from side_agents import __version__

# name: (where the command is, one help line), in the sections of the help page.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Agents": {
        "start": ("side_agents.cli.start:start", "Give a task to a new agent in its own worktree, branch and window."),
        "list": ("side_agents.cli.listing:list_command", "Show all agents as a tree."),
        "check": ("side_agents.cli.check:check", "Show what one agent is doing and the last lines it showed."),
        "notices": ("side_agents.cli.notices:notices", "Show what has become of the agents that you started."),
        "wait": ("side_agents.cli.wait:wait", "Wait until one of the agents needs you or has ended."),
        "send": ("side_agents.cli.send:send", "Send a message to an agent."),
        "queue": ("side_agents.cli.queue:queue", "Show and run starts that wait for a free place."),
        "attach": ("side_agents.cli.attach:attach", "Go to an agent's window."),
        "stop": ("side_agents.cli.stop:stop", "End an agent; its work is kept."),
        "clean": ("side_agents.cli.clean:clean", "Clear what agents left behind, after proof and question."),
        "resume": ("side_agents.cli.resume:resume", "Reopen the conversation of an agent that quit."),
    },
    "Work": {
        "diff": ("side_agents.cli.diff:diff", "Show what an agent has changed."),
        "log": ("side_agents.cli.log:log", "Show what an agent's window has printed."),
        "finish": ("side_agents.cli.finish:finish", "Land an agent's branch: rebase, check, fast-forward."),
    },
    "Around": {
        "status": ("side_agents.cli.status:status", "Print one line for a status bar or a prompt."),
        "setup": ("side_agents.cli.setup:setup", "Set a project up: slot preparation, finish policy, files to copy."),
        "doctor": ("side_agents.cli.doctor:doctor", "Look for what is wrong, and mend it."),
        "config": ("side_agents.cli.config:config", "Show, check or create the settings."),
        "demo": ("side_agents.cli.demo:demo", "Watch three agents work in a throw-away repository."),
        "tool": ("side_agents.cli.tool:tool", "Call a tool as an agent does: JSON in, JSON out."),
        "completion": ("side_agents.cli.completion:completion", "Print the completion script of a shell."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry[1]) for name, entry in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=entry[1]) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


EPILOG = """\
\b
Try it without risk:     side-agents demo
First real agent:        side-agents start "fix the flaky login test"
All commands take --json and --help; errors have stable codes and exit statuses.
"""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="side-agents %(version)s")
@click.pass_context
def root(ctx: click.Context) -> int | None:
    """Hand each idea to a coding agent in the background: own git worktree, own branch, own tmux window."""
    if ctx.invoked_subcommand is not None:
        return None
    if not sys.stdout.isatty():
        click.echo(ctx.get_help())
        return 0
    from side_agents.cli.listing import overview

    return overview(ctx)
