"""Agents that start agents: I11, adoption, the pinned slot of a parent, and ending a whole tree."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from many_support import CHECKOUT, following, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.core import transitions
from side_agents.core.results import StartRequest
from side_agents.core.start import start
from side_agents.errors import DepthError
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, AgentStatus, EndedBy
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

DONE, FAILED = AgentStatus.DONE, AgentStatus.FAILED


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


@pytest.fixture
def outer(stage: Orchestra) -> AgentRecord:
    """An agent of main that waits, with a commit that main lacks."""
    record = stage.start("write: of-outer.txt data\ncommit: by outer", branch_hint="outer")
    return stage.eventually_idle(record.id)


def nested(stage: Orchestra, outer: AgentRecord, task: str = "say: hello", name: str = "inner") -> AgentRecord:
    return stage.inside(outer).start(task, branch_hint=name)


def told(stage: Orchestra) -> list[tuple[str, str, bool]]:
    """What the session at this stage is told now: agent, status, whether it was adopted."""
    answer = run(stage, "notices", "--json").json
    return [(notice["agentId"], notice["toStatus"], notice["adopted"]) for notice in answer["notices"]]


def test_i11a_an_agent_of_main_has_depth_1_and_no_parent(outer: AgentRecord) -> None:
    assert (outer.depth, outer.parent_agent_id, outer.parent_worktree_path) == (1, None, None)


def test_i11b_an_agent_of_an_agent_has_a_parent_depth_2_and_a_window_beside_it(
    stage: Orchestra, outer: AgentRecord
) -> None:
    inner = nested(stage, outer)
    assert (inner.depth, inner.parent_agent_id) == (2, "outer")
    assert inner.parent_worktree_path == outer.worktree_path
    assert (inner.tmux_session, inner.tmux_socket) == (outer.tmux_session, outer.tmux_socket)
    assert inner.parent_pane_id == outer.tmux_pane_id
    [pane] = [pane for pane in stage.panes() if pane.agent_tag == "inner"]
    assert pane.window_id == inner.tmux_window_id


def test_i11c_its_branch_begins_at_its_parents_head_and_it_is_told_where_to_merge(
    stage: Orchestra, outer: AgentRecord
) -> None:
    inner = nested(stage, outer)
    head = Git(Path(outer.worktree_path or "")).head_commit()
    assert inner.base_commit == head
    assert head != stage.repo.head()
    assert stage.repo.git("merge-base", "side-agent/outer", "side-agent/inner") == head
    own = stage.inside(inner).environment
    assert own["PI_SIDE_PARENT_REPO"] == outer.worktree_path
    assert own["PI_SIDE_PARENT_BRANCH"] == "side-agent/outer"
    assert (own["PI_SIDE_PARENT_AGENT_ID"], own["PI_SIDE_AGENT_DEPTH"]) == ("outer", "2")
    prompt = (stage.context.paths.runtime("inner").kickoff).read_text()
    assert prompt.startswith("say: hello\n\n## You are a nested side agent\n")
    assert "`side-agent/outer`" in prompt
    assert outer.worktree_path is not None
    assert outer.worktree_path in prompt
    assert stage.inside(outer).environment["PI_SIDE_PARENT_BRANCH"] == ""


def test_i11d_only_the_session_that_started_an_agent_is_told_that_it_yields(
    stage: Orchestra, outer: AgentRecord
) -> None:
    inside = stage.inside(outer)
    with following(inside, "--settle", "0") as stream:
        inner = nested(stage, outer)
        notice = stream.about(inner.id, "waiting_user")
    assert (notice["parentAgentId"], notice["orphaned"]) == ("outer", False)
    assert {agent for agent, _, _ in told(stage)} == {"outer"}


def test_i11e_an_agent_at_the_last_level_starts_nobody(stage: Orchestra, outer: AgentRecord) -> None:
    inner = nested(stage, outer)
    deepest = stage.inside(inner)
    with pytest.raises(DepthError, match="depth 2"):
        start(deepest.context, StartRequest(task="say: no", client="script"))
    refused = run(deepest, "start", "--client", "script", "--json", "say: no")
    assert (refused.status, refused.json["code"]) == (8, "depth")
    assert {record.id for record in stage.listed().records} == {"outer", "inner"}


def test_i11e_the_error_is_on_the_screen_of_an_agent_that_tries(stage: Orchestra, outer: AgentRecord) -> None:
    program = f"PYTHONPATH={shlex.quote(str(CHECKOUT))} {shlex.quote(sys.executable)} -m side_agents"
    nested(stage, outer, f"run: {program} start --client script say: no")
    stage.eventually_idle("inner")
    assert "may not start agents" in stage.screen("inner")
    assert {record.id for record in stage.listed().records} == {"outer", "inner"}


def test_i11f_the_parent_is_told_that_its_agent_is_done_and_main_only_of_the_parent(
    stage: Orchestra, outer: AgentRecord
) -> None:
    inside = stage.inside(outer)
    inner = nested(stage, outer)
    stage.eventually_idle(inner.id)
    assert told(inside) == [("inner", "waiting_user", False)]
    stage.quit("inner")
    assert told(inside) == [("inner", "done", False)]
    assert {agent for agent, _, _ in told(stage)} == {"outer"}


def test_main_adopts_once_whom_a_parent_leaves_behind_and_is_told_of_them_from_then_on(
    stage: Orchestra, outer: AgentRecord
) -> None:
    inside = stage.inside(outer)
    nested(stage, outer, "fail: 3")
    stage.eventually_status("inner", FAILED)
    assert told(inside) == [("inner", "failed", False)]
    assert {agent for agent, _, _ in told(stage)} == {"outer"}
    nested(stage, outer, "say: hello", "later")
    stage.eventually_idle("later")
    stage.quit("outer")
    assert told(stage) == [
        ("inner", "failed", True),
        ("later", "waiting_user", True),
        ("outer", "done", False),
    ]
    assert told(stage) == []
    assert run(stage, "status").out.split() == ["inner:fail@2[orphan]", "later:wait@3[orphan]"]
    stage.quit("later")
    assert told(stage) == [("later", "done", False)]


def test_an_orphans_notices_go_to_the_journal_of_main(stage: Orchestra, outer: AgentRecord) -> None:
    nested(stage, outer)
    stage.eventually_idle("inner")
    run(stage, "stop", "--yes", "outer")
    main = stage.meta / "sessions" / "main" / "notices.jsonl"
    assert main.exists()
    assert '"adopted": true' in main.read_text()
    counter = stage.context.registry.read().extra[transitions.COUNTER]
    [adoption] = [each for each in transitions.read(stage.context.paths.transitions, 0, counter) if each.adopted]
    assert (adoption.agent_id, adoption.orphaned) == ("inner", True)


def test_a_nested_agents_notices_go_to_the_journal_of_its_parent(stage: Orchestra, outer: AgentRecord) -> None:
    nested(stage, outer, "fail: 3")
    stage.eventually_status("inner", FAILED)
    run(stage, "stop", "--yes", "inner")
    journal = stage.context.paths.runtime("outer").directory / "notices.jsonl"
    assert '"agentId": "inner"' in journal.read_text()


def test_the_slot_of_a_parent_stays_its_own_while_a_nested_agent_may_merge_into_it(
    stage: Orchestra, outer: AgentRecord
) -> None:
    inner = nested(stage, outer)
    stage.eventually_idle(inner.id)
    stage.quit("outer")
    other = stage.start("say: hello", branch_hint="other")
    assert other.worktree_path == str(stage.slot(3))
    assert any("inner merges into it" in warning for warning in other.warnings)
    stage.quit("inner")
    again = stage.start("say: hello", branch_hint="again")
    assert again.worktree_path == outer.worktree_path


def test_list_shows_the_tree_and_marks_orphans(stage: Orchestra, outer: AgentRecord) -> None:
    nested(stage, outer)
    stage.eventually_idle("inner")
    shown = run(stage, "list").out.splitlines()
    assert [line.split("  ")[0].strip() for line in shown[1:]] == ["outer", "└ inner"]
    assert [agent.get("orphaned") for agent in run(stage, "list", "--json").json["agents"]] == [None, None]
    stage.quit("outer")
    assert run(stage, "list").out.splitlines()[1].startswith("inner [orphan]")
    assert [agent.get("orphaned") for agent in run(stage, "list", "--json").json["agents"]] == [True]


def test_stop_tree_ends_children_before_their_parents(stage: Orchestra, outer: AgentRecord) -> None:
    nested(stage, outer, "sleep: 60", "one")
    nested(stage, outer, "sleep: 60", "two")
    bystander = stage.start("sleep: 60", branch_hint="bystander")
    done = run(stage, "stop", "--tree", "--yes", "--json", "outer")
    assert done.status == 0
    assert [answer["agent"]["id"] for answer in done.json["agents"]] == ["two", "one", "outer"]
    assert {stone.ended_by for stone in stage.context.registry.history()} == {EndedBy.STOPPED}
    assert [record.id for record in stage.listed().records] == [bystander.id]
    assert not [agent for agent, _, adopted in told(stage) if adopted], "nobody was an orphan in between"


def test_stop_without_tree_says_who_goes_on(stage: Orchestra, outer: AgentRecord) -> None:
    nested(stage, outer)
    stage.eventually_idle("inner")
    assert run(stage, "stop", "--yes", "outer").status == 0
    assert [record.id for record in stage.listed().records] == ["inner"]
    eventually(lambda: not [pane for pane in stage.panes() if pane.agent_tag == "outer"], SLOW)
    assert run(stage, "stop", "--yes", "inner").status == 0
    stage.assert_quiet()
