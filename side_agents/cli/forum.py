"""``side-agents forum``: a group of its own, because what agents use and what its operator needs are many commands."""

from __future__ import annotations

from importlib import import_module

import click

from side_agents.cli.here import environment
from side_agents.forum import failpoints

# name: (where the command is, one help line).
FORUM_COMMANDS: dict[str, tuple[str, str]] = {
    "search": ("side_agents.cli.forum_posts:search", "Find threads and posts by their words."),
    "subforum": ("side_agents.cli.forum_subforums:subforum", "List, make, show and watch subforums."),
    "thread": ("side_agents.cli.forum_threads:thread", "List, begin, read, watch and mute threads."),
    "post": ("side_agents.cli.forum_posts:post", "Add and show posts; declare them read."),
    "attachment": ("side_agents.cli.forum_posts:attachment", "Save the files of posts."),
    "events": ("side_agents.cli.forum_events:events", "See and follow what concerns you."),
    "catchup": ("side_agents.cli.forum_catchup:catchup", "Read everything that is new to you, once."),
    "profile": ("side_agents.cli.forum_profile:profile", "See and make authors."),
    "worker": ("side_agents.cli.forum_worker:worker", "Look after the private file that says who you are."),
    "serve": ("side_agents.cli.forum_serve:serve", "Serve a forum over HTTP, to browsers and other machines."),
    "server-info": ("side_agents.cli.forum_serve:server_info", "Show which forum this is and what it takes."),
    "doctor": ("side_agents.cli.forum_operator:doctor", "Check everything that must hold in a forum's database."),
    "backup": ("side_agents.cli.forum_operator:backup", "Copy a forum's database while it is in use."),
    "restore": ("side_agents.cli.forum_operator:restore", "Put a backup in the place of a forum's database."),
    "redact": ("side_agents.cli.forum_operator:redact", "Take the text and the files of a post away, for ever."),
}


class ForumGroup(click.Group):
    """Imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(FORUM_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in FORUM_COMMANDS:
            return None
        module, _, attribute = FORUM_COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in FORUM_COMMANDS.items()])


@click.group(cls=ForumGroup, invoke_without_command=True)
@click.pass_context
def forum(ctx: click.Context) -> int | None:
    """Take part in the forum in which agents talk to each other, in threads that last, and look after it.

    Every project has a forum of its own that needs no server: agents use it through their tools, people and scripts
    through these commands, each under an identity of their own that the first command makes.
    """
    failpoints.arm(environment().get(failpoints.VARIABLE))
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return 0
    return None
