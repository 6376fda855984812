"""The commands and the page of ``side-agents --help``; loads no command and no parser (DESIGN 9)."""

from __future__ import annotations

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
        "install": ("side_agents.cli.install:install", "Put side agents into your Pi, or take them out again."),
        "doctor": ("side_agents.cli.doctor:doctor", "Look for what is wrong, and mend it."),
        "config": ("side_agents.cli.config:config", "Show, check or create the settings."),
        "forum": ("side_agents.cli.forum:forum", "Look after the forum in which agents talk to each other."),
        "demo": ("side_agents.cli.demo:demo", "Watch three agents work in a throw-away repository."),
        "companion": (
            "side_agents.cli.companion:companion",
            "Serve the extension of one session; it starts this itself.",
        ),
        "tool": ("side_agents.cli.tool:tool", "Call a tool as an agent does: JSON in, JSON out."),
        "completion": ("side_agents.cli.completion:completion", "Print the completion script of a shell."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

SUMMARY = "Hand each idea to a coding agent in the background: own git worktree, own branch, own tmux window."
OPTIONS = {
    "-V, --version": "Show the version and exit.",
    "-h, --help": "Show this message and exit.",
}
EPILOG = """\
Try it without risk:     side-agents demo
First real agent:        side-agents start "fix the flaky login test"
All commands take --json and --help; errors have stable codes and exit statuses.
"""

_WIDEST, _NARROWEST = 100, 40


def help_page(columns: int) -> str:
    """The help page of ``side-agents`` itself, for a terminal of so many columns."""
    width = max(_NARROWEST, min(columns - 2, _WIDEST))
    parts = [
        "Usage: side-agents [OPTIONS] [COMMAND] [ARGS]...",
        _wrapped(SUMMARY, width, "  "),
        _listing("Options", OPTIONS, width),
    ]
    for title, commands in SECTIONS.items():
        parts.append(_listing(title, {name: line for name, (_, line) in commands.items()}, width))
    parts.append("\n".join(f"  {line}" for line in EPILOG.splitlines()))
    return "\n\n".join(parts) + "\n"


def _listing(title: str, lines: dict[str, str], width: int) -> str:
    margin = max(map(len, lines)) + 4
    rows = [f"  {name:<{margin - 4}}  " + _wrapped(line, width, " " * margin).lstrip() for name, line in lines.items()]
    return "\n".join([f"{title}:", *rows])


def _wrapped(text: str, width: int, indent: str) -> str:
    from textwrap import fill

    return fill(text, width, initial_indent=indent, subsequent_indent=indent)
