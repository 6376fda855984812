"""``side-agents tool``: the tools of agents, JSON in and JSON out. Always speaks JSON, errors included."""

from __future__ import annotations

import sys

import click

from side_agents.cli.here import open_here
from side_agents.cli.options import read_input
from side_agents.cli.output import write_json
from side_agents.errors import UsageError


@click.command(
    epilog="""\b
Example:
  echo '{"id": "fix-login"}' | side-agents tool agent-check
"""
)
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="Name and describe all tools.")
@click.option("--schema", is_flag=True, help="Print the JSON schemas of this tool's input and output.")
@click.option("--json", "_as_json", is_flag=True, hidden=True, help="Nothing changes: this command always speaks JSON.")
def tool(name: str | None, listing: bool, schema: bool, _as_json: bool) -> int:
    """Call tool NAME with one JSON object on standard input; print one JSON object.

    The exit status is 0 when the answer is ok, otherwise that of the error.
    """
    if listing:
        from side_agents.tools.table import TOOLS

        tools = [{"name": known.name, "description": known.description} for known in TOOLS.values()]
        write_json({"ok": True, "tools": tools})
        return 0
    if name is None:
        raise UsageError("There is no tool name.", hint="`side-agents tool --list` names them all.")
    from side_agents.tools.calls import call, find_tool

    if schema:
        from side_agents.tools.schema_files import schema_of

        write_json({"ok": True, **schema_of(find_tool(name))})
        return 0
    if sys.stdin.isatty():
        click.echo("Reading one JSON object from the terminal; end it with Ctrl+D.", err=True)
    from side_agents.core.start_plan import TASK_LIMIT_BYTES

    try:
        request = read_input(what=f"input of {name}", limit=TASK_LIMIT_BYTES)
    except UsageError as error:
        write_json(find_tool(name).failure(error))
        return error.exit_status
    answer, status = call(name, request, open_here)
    write_json(answer)
    return status
