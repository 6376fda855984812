"""``side-agents completion``: shell completion through click's own mechanism."""

from __future__ import annotations

import click

from side_agents.cli.border import COMPLETE_VARIABLE
from side_agents.cli.options import json_option
from side_agents.cli.output import write_json

INSTALL = {
    "bash": 'mkdir -p ~/.local/share/bash-completion/completions && side-agents completion bash > "$_/side-agents"',
    "zsh": "side-agents completion zsh > ~/.zfunc/_side-agents   # with fpath+=(~/.zfunc) before compinit in ~/.zshrc",
    "fish": "side-agents completion fish > ~/.config/fish/completions/side-agents.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(INSTALL)))
@json_option
def completion(shell: str, as_json: bool) -> int:
    """Print the completion script of SHELL; its first lines say how to install it.

    It completes commands, options and the ids of live agents.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    from side_agents.cli.root import root

    kinds = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    script = kinds[shell](root, {}, "side-agents", COMPLETE_VARIABLE)
    # ShellComplete.source() of bash runs bash to ask for its version; the script itself needs no such question.
    body = script.source_template % script.source_vars()
    if as_json:
        write_json({"ok": True, "shell": shell, "install": INSTALL[shell], "script": body})
        return 0
    # zsh looks for #compdef in the very first line.
    lead, _, rest = body.partition("\n") if body.startswith("#compdef") else ("", "", body)
    click.echo("\n".join(filter(None, (lead, f"# To install: {INSTALL[shell]}", rest.strip("\n")))))
    return 0
