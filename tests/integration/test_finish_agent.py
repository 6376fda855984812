"""A real agent in its window lands its own work through the project's finish script, alone and nested."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestra import Orchestra, orchestra

from side_agents.core import leases
from side_agents.resources import template_path
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer

CHECKOUT = Path(__file__).parents[2]
WORK = "write: {name}.txt hello\ncommit: {name}\nrun: .pi/side-agent-finish.sh > {log} 2>&1; echo $? >> {log}"


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer, tmp_path: Path) -> Iterator[Orchestra]:
    command = tmp_path / "bin" / "side-agents"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH={CHECKOUT} exec {sys.executable} -m side_agents "$@"\n')
    command.chmod(0o755)
    script = repo.path / ".pi" / "side-agent-finish.sh"
    script.parent.mkdir(exist_ok=True)
    shutil.copy(template_path("side-agent-finish.sh"), script)
    with orchestra(repo, tmux_server) as made:
        made.environment["PATH"] = f"{command.parent}:{made.environment['PATH']}"
        yield made


def test_an_agent_lands_its_work_and_its_parents_agent_does_after_it(stage: Orchestra, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outer = stage.start("say: outer is here", branch_hint="outer")
    stage.eventually_idle(outer.id)
    inside = stage.inside(outer, stage.worktree(outer).path)
    inner = inside.start(WORK.format(name="inner", log=log), branch_hint="inner")
    idle = stage.eventually_idle(inner.id)
    assert log.read_text().splitlines()[-1] == "0", log.read_text()
    assert (idle.landed_commit, idle.landed_target) == (stage.worktree(outer).head(), outer.branch)
    assert (stage.worktree(outer).path / "inner.txt").read_text().strip() == "hello"
    assert stage.repo.git("log", "--format=%s", "main").splitlines() == ["first"]

    stage.send(outer.id, WORK.format(name="outer", log=log))
    stage.event(outer, "turn_end", 2)
    assert log.read_text().splitlines()[-1] == "0", log.read_text()
    assert stage.repo.git("log", "--reverse", "--format=%s", "main").splitlines() == ["first", "inner", "outer"]
    assert leases.read(stage.worktree(outer).path) is not None
    for record in (inner, outer):
        stage.quit(record.id)
    stone = stage.context.registry.tombstone(outer.id)
    assert stone is not None
    assert stone.landed_target == "main"
