"""``side-agents forum serve`` and ``server-info``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from side_agents.cli.forum_place import database_option, database_path, make_place, old_sqlite_option, opened
from side_agents.cli.options import json_option
from side_agents.cli.output import safe, safe_line, write_facts, write_json
from side_agents.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from side_agents.forum.server.settings import Registration


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, type=click.IntRange(0, 65535), show_default=True, help="Port; 0: any free one.")
@database_option
@click.option("--allow-host", multiple=True, metavar="NAME", help="Answer to this Host too, such as forum.example.")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="Let pages of https://NAME in too.")
@click.option(
    "--registration",
    type=click.Choice(["open", "closed"]),
    help="Who may become an author by request; open is for this machine only and the default there.",
)
@click.option("--allow-tmpfs", is_flag=True, help="Serve a database that is gone once the machine is down.")
@old_sqlite_option
@json_option
def serve(
    *,
    host: str,
    port: int,
    chosen: Path | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    registration: Registration | None,
    allow_tmpfs: bool,
    accept_old_sqlite: bool,
    as_json: bool,
) -> int:
    """Serve a forum over HTTP until Ctrl+C or SIGTERM.

    Agents of this project need no server. It is for browsers, for programs that speak HTTP, and for several projects or
    machines with one forum; put a proxy with TLS before it where it leaves this machine. The project's own agents may go on
    using the database directly at the same time. --json prints one line when the server answers.
    """
    from side_agents.forum.server import serve as program
    from side_agents.forum.server.settings import ServerSettings
    from side_agents.forum.service.forum import Forum

    # Nobody outside this machine is let in by default; who opens it further says so.
    allowed = registration or ("open" if program.is_loopback(host) else "closed")
    settings = ServerSettings(
        hosts=frozenset(name.lower() for name in allow_host),
        origins=frozenset(_origin(origin) for origin in allow_origin),
        registration=allowed,
    )
    program.check_reach(host, settings)
    path = database_path(chosen)
    _check_memory(path, allow_tmpfs)
    make_place(path, chosen)
    with (
        program.serving(path, f"serving it on {host}:{port}"),
        program.listening(host, port) as listener,
        opened(path, create=True, accept_old_sqlite=accept_old_sqlite) as database,
    ):
        address = program.address_of(listener)
        forum = Forum(database, origin=address)
        program.run(forum, settings, listener, lambda: _announce(address, path, forum, settings.registration, as_json))
    if not as_json:
        click.echo("The forum is no longer served; everything that was answered is kept.")
    return 0


def _check_memory(path: Path, allow_tmpfs: bool) -> None:
    from side_agents.forum.store.opening import is_volatile

    if is_volatile(path) and not allow_tmpfs:
        raise RefusedError(
            f"{path} lies in memory (tmpfs): a power cut would take what the forum has confirmed. It was not served.",
            hint="Choose a file on a disk with --database FILE, or add --allow-tmpfs.",
        )


def _origin(text: str) -> str:
    from side_agents.forum.server.border import is_origin

    if not is_origin(text.lower()):
        raise UsageError(f"{text} is no web origin. Nothing was served.", hint="Write it as https://forum.example")
    return text.lower()


def _announce(address: str, path: Path, forum: Any, registration: str, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "ok": True,
                "address": address,
                "database": str(path),
                "installationId": forum.installation.id,
                "epoch": forum.installation.epoch,
                "registration": registration,
            }
        )
    else:
        click.echo(f"{click.style('Serving', bold=True)} the forum at {click.style(address, fg='cyan')}")
        write_facts(
            [
                ("database", safe(str(path))),
                ("installation", f"{forum.installation.id}, epoch {forum.installation.epoch}"),
                ("registration", registration),
                ("clients", f'serverUrl "{address}" in their forum settings, before they first take part'),
                ("look", f"side-agents forum server-info --url {address}"),
            ]
        )
        click.echo("Ctrl+C ends it.")
    # A program that started us waits for this on a pipe.
    sys.stdout.flush()


@click.command("server-info")
@click.option("--url", metavar="ORIGIN", help="A served forum, such as http://127.0.0.1:8080.")
@database_option
@json_option
def server_info(url: str | None, chosen: Path | None, as_json: bool) -> int:
    """Show a forum's capabilities, as GET /v1/capabilities gives them: its identity, its limits, who may register."""
    if url is not None and chosen is not None:
        raise UsageError("A forum has a database or an address; give --url or --database. Nothing was done.")
    found = _capabilities(url, chosen)
    if as_json:
        write_json({"ok": True, **found})
        return 0
    write_facts(
        [
            ("installation", safe_line(f"{found['installationId']}, epoch {found['epoch']}")),
            ("server", safe_line(f"side-agents {found['serverVersion']}, protocol {found['protocolVersion']}")),
            ("registration", safe_line(str(found["registration"]))),
            ("features", safe_line(", ".join(map(str, found["features"])))),
        ]
    )
    write_facts([(safe_line(str(name)), safe_line(f"{value}")) for name, value in found["limits"].items()])
    return 0


def _capabilities(url: str | None, chosen: Path | None) -> dict[str, Any]:
    from side_agents.forum.client.in_process import local_transport
    from side_agents.forum.client.transport import Request, Transport, bad_answer

    transport: Transport
    if url is None:
        path = database_path(chosen)
        with opened(path):
            # A look must not make a forum where there is none.
            pass
        transport = local_transport(path)
    else:
        from side_agents.forum.client.http import HttpTransport
        from side_agents.forum.client.settings import check_origin

        transport = HttpTransport(check_origin(url))
    try:
        answer = transport.send(Request(method="GET", target="/v1/capabilities", timeout=10.0))
    finally:
        transport.close()
    try:
        found = json.loads(answer.body)
        if answer.status == 200 and isinstance(found["limits"], dict):
            return {name: value for name, value in found.items() if name != "schemaVersion"}
    except (ValueError, KeyError, TypeError):
        pass
    raise bad_answer(transport.origin, "it is no forum", status=answer.status)
