"""The lease of a slot names the conversation of the agent that holds it (seed 001 5.4, reference/side-agents 6.3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from orchestra import Orchestra, orchestra
from resume_support import back, quit_agent

from side_agents.core import leases
from side_agents.models import AgentRecord, Lease
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def lease(stage: Orchestra, record: AgentRecord) -> Lease:
    found = leases.read(stage.worktree(record).path)
    assert found is not None
    return found


def test_i1_the_lease_names_the_session_once_the_client_is_linked(stage: Orchestra) -> None:
    started = stage.start(branch_hint="alpha", session="/parent.jsonl")
    row = stage.eventually_idle("alpha")
    held = lease(stage, started)
    assert (held.session_id, held.parent_session_id) == (row.child_session_file, "/parent.jsonl")
    assert (held.agent_id, held.branch, held.tmux_window_id) == ("alpha", row.branch, row.tmux_window_id)


@pytest.mark.parametrize("fork", [False, True])
def test_6_3_so_it_is_after_a_resume(stage: Orchestra, fork: bool) -> None:
    before = quit_agent(stage)
    after = back(stage, "alpha", fork=fork)
    assert (after.child_session_file != before.child_session_file) == fork
    assert lease(stage, after).session_id == after.child_session_file


def test_a_lease_of_another_agent_is_never_written(stage: Orchestra) -> None:
    record = stage.start(branch_hint="alpha")
    stage.eventually_idle("alpha")
    path = stage.worktree(record).write(".pi/active.lock", '{"agentId": "other"}')
    assert not leases.name_session(stage.worktree(record).path, "alpha", "/mine.jsonl")
    assert path.read_text() == '{"agentId": "other"}'
