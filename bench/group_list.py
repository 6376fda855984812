"""A look at a thousand agents against a look at ten; all of them have a real pane."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Row, World, interleave, timed, world
from side_agents.core.observe import list_agents
from side_agents.infra import clock, processes
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, AgentStatus

ROUNDS = 11
FEW, MANY = 10, 1000
_BATCH = 50


def measure(rounds: int | None) -> list[Row]:
    """In a warm process and as commands; ``status`` asks neither tmux nor git."""
    count = rounds or ROUNDS
    with _crowded(FEW) as few, _crowded(MANY) as many:
        pairs: dict[str, Callable[[World], object]] = {
            "list in a warm process": _look,
            "`list`": lambda made: made.cli("list"),
            "`status`": lambda made: made.cli("status"),
        }
        rows = []
        for name, look in pairs.items():
            cases = {
                size: (lambda made=made, look=look: timed(lambda: look(made)))
                for size, made in (("few", few), ("many", many))
            }
            times = interleave(count, cases)
            rows.append(Row(f"{name}: {MANY} agents over {FEW}", count, times["few"], times["many"], goal="4 x"))
        raw = interleave(
            count, {"raw": lambda: timed(lambda: _by_hand(many)), "ours": lambda: timed(lambda: _look(many))}
        )
        what = f"list of {MANY} agents in a warm process, over tmux's and json's share"
        rows.append(Row(what, count, raw["raw"], raw["ours"]))
        for name in ("list", "status"):
            calls = _count_calls(many, name)
            goal = "1" if name == "list" else "0"
            rows.append(Row(f"tmux calls of `{name}` with {MANY} agents", 1, figure=str(calls), goal=goal))
    return rows


def _look(made: World) -> None:
    found = len(list_agents(made.context()).records)
    if found not in (FEW, MANY):
        raise RuntimeError(f"{found} agents are left")


def _by_hand(made: World) -> None:
    """What no look can do without: every pane from tmux, and the registry parsed."""
    made.tmux("list-panes", "-a", "-F", "#{pane_id} #{window_id} #{pane_pid} #{@side_agent_id} #{window_name}")
    json.loads(made.context().paths.registry.read_bytes())


@contextmanager
def _crowded(size: int) -> Iterator[World]:
    with world() as made:
        _open_panes(made, size)
        _record_agents(made)
        yield made


def _open_panes(made: World, size: int) -> None:
    for begin in range(0, size, _BATCH):
        commands: list[str] = []
        for _ in range(min(_BATCH, size - begin)):
            commands += ["new-window", "-d", "-t", "bench:", "--", "sleep", "86400", ";"]
        made.tmux(*commands[:-1])
    panes = [pane for pane in made.tmux("list-panes", "-a", "-F", "#{pane_id}").split() if pane != "%0"]
    for begin in range(0, size, _BATCH):
        commands = []
        for pane in panes[begin : begin + _BATCH]:
            commands += ["set-option", "-p", "-t", pane, "@side_agent_id", f"agent-{pane[1:]}", ";"]
        made.tmux(*commands[:-1])


def _record_agents(made: World) -> None:
    context = made.context()
    sweep = Tmux(made.socket).sweep()
    with context.registry.transaction("bench") as state:
        for pane in sweep.panes.values():
            if not pane.agent_tag:
                continue
            runtime = context.paths.runtime(pane.agent_tag)
            runtime.directory.mkdir(parents=True)
            journal = b'{"type":"turn_start","at":"2026-01-01T00:00:00.000Z"}\n' * 20
            runtime.journal.write_bytes(journal)
            state.put(
                AgentRecord(
                    id=pane.agent_tag,
                    status=AgentStatus.RUNNING,
                    task="a task of some length, as people write them, so that rows are as long as they are",
                    branch=f"side-agent/{pane.agent_tag}",
                    worktree_path=str(Path("/nowhere") / pane.agent_tag),
                    client="script",
                    started_at=clock.iso(),
                    updated_at=clock.iso(),
                    runtime_dir=str(runtime.directory),
                    launcher=processes.identify(pane.pane_pid),
                    tmux_socket=str(made.socket),
                    tmux_server=sweep.server,
                    tmux_session=pane.session_name,
                    tmux_window_id=pane.window_id,
                    tmux_window_index=pane.window_index,
                    tmux_pane_id=pane.pane_id,
                    turn_open=True,
                    journal_offset=len(journal),
                )
            )


def _count_calls(made: World, command: str) -> int:
    folder, log = made.base / f"count-{command}", made.base / f"calls-{command}"
    folder.mkdir()
    log.write_text("")
    wrapper = folder / "tmux"
    real = made.run("sh", "-c", "command -v tmux")
    wrapper.write_text(f'#!/bin/sh\necho call >> "{log}"\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    made.cli(command, PATH=f"{folder}:{made.environment['PATH']}")
    return len(log.read_text().splitlines())
