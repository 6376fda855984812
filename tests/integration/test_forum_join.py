"""Agents in the forum: who they are there from their start on, whatever is killed, and after a resume (forum.md 5.11)."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from many_support import run
from orchestra import Orchestra, orchestra

from side_agents.core.resume import list_resumable
from side_agents.forum import failpoints
from side_agents.forum.store import invariants
from side_agents.forum.store.database import Database
from side_agents.models import AgentRecord, AgentStatus, ForumIdentity
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer

SECRET = re.compile(rb"af_[A-Za-z0-9_-]{43}")
STAGES = ("P1", "P2", "P3", "P4", "P5", "P6", "P7")


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        made.configure(forum=True)
        yield made
        with Database.open(made.context.paths.forum_db, create=False) as database:
            assert database.read(invariants.violations) == []


def identity(record: AgentRecord) -> ForumIdentity:
    assert record.forum is not None, record.warnings
    return record.forum


def authors(stage: Orchestra) -> dict[str, tuple[str | None, str, str]]:
    """By name: parent, cause and session of everybody that the forum knows."""
    with Database.open(stage.context.paths.forum_db, create=False) as database:
        rows = database.read(lambda c: list(c.execute("SELECT name, parent_id, cause_kind, session_id FROM agent")))
    return {str(name): (parent, str(cause), str(session)) for name, parent, cause, session in rows}


def state(path: str | Path) -> dict[str, Any]:
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


def workers(stage: Orchestra) -> dict[str, dict[str, Any]]:
    """All worker files, by their path."""
    folder = Path(stage.environment["XDG_STATE_HOME"], "agentforum", "workers")
    return {str(path): state(path) for path in folder.glob("*/worker.json")}


def mains(stage: Orchestra) -> list[dict[str, Any]]:
    return [found for found in workers(stage).values() if found["identity"]["cause"]["kind"] == "root"]


def tmux(stage: Orchestra, *arguments: str) -> bytes:
    command = ["tmux", "-S", str(stage.server.tmux.socket), *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=20).stdout


def test_a_start_makes_its_agent_a_child_of_the_callers_author(stage: Orchestra) -> None:
    one, two = stage.start("say: one"), stage.start("say: two")
    known = authors(stage)
    [main] = mains(stage)
    for record in (one, two):
        who = identity(record)
        assert known[who.name][:2] == (main["identity"]["agentId"], "spawn")
        assert state(who.state)["identity"]["agentId"] == who.agent_id
        assert stat.S_IMODE(Path(who.state).stat().st_mode) == 0o600
        assert stage.inside(record).environment["AGENTFORUM_STATE"] == who.state
    assert len({session for _, _, session in known.values()}) == 3
    assert [spawn["stage"] for spawn in main["pendingSpawns"]] == ["launched", "launched"]
    assert {spawn["credential"] for spawn in main["pendingSpawns"]} == {None}


def test_check_list_and_start_tell_the_name(stage: Orchestra) -> None:
    started = run(stage, "start", "--client", "script", "--json", "say: hi").json
    name = started["forumName"]
    assert run(stage, "check", started["id"], "--json").json["agent"]["forumName"] == name
    assert run(stage, "list", "--json").json["agents"][0]["forumName"] == name
    assert f"forum      {name}" in run(stage, "check", started["id"]).out
    stage.stop(started["id"])
    assert run(stage, "check", started["id"], "--json").json["agent"]["forumName"] == name


def test_t195_no_secret_is_in_panes_arguments_environments_prompts_or_logs(stage: Orchestra) -> None:
    record = stage.start("run: env; ps axww -o args")
    stage.eventually_idle(record.id)
    secrets = {found["identity"]["credential"].encode() for found in workers(stage).values()}
    assert len(secrets) == 2
    places = [path for path in stage.meta.rglob("*") if path.is_file() and path.suffix != ".db"]
    texts = {str(path): path.read_bytes() for path in places}
    texts["pane"] = "\n".join(stage.screen(record.id)).encode()
    texts["history"] = tmux(stage, "capture-pane", "-p", "-S", "-", "-t", record.tmux_pane_id or "")
    texts["server"] = tmux(stage, "show-environment", "-g")
    for pid in stage.processes():
        for name in ("environ", "cmdline"):
            texts[f"{pid}/{name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
    assert {where for where, text in texts.items() if SECRET.search(text)} == set()
    # The database has their hashes only.
    assert not SECRET.search(stage.context.paths.forum_db.read_bytes())


def test_where_the_forum_is_switched_off_nothing_of_it_exists(repo: Repository, tmux_server: PrivateServer) -> None:
    with orchestra(repo, tmux_server) as stage:
        record = stage.start("run: env")
        assert record.forum is None
        assert record.warnings == ()
        assert "AGENTFORUM_STATE" not in stage.inside(record).environment
        assert not stage.context.paths.forum_db.parent.exists()
        assert not workers(stage)


@pytest.mark.parametrize("fault", ["a file in the way", "another program's database", "no place for the state"])
def test_a_start_never_fails_because_of_the_forum(repo: Repository, tmux_server: PrivateServer, fault: str) -> None:
    with orchestra(repo, tmux_server) as stage:
        stage.configure(forum=True)
        database = stage.context.paths.forum_db
        if fault == "no place for the state":
            Path(stage.environment["XDG_STATE_HOME"]).parent.mkdir(parents=True, exist_ok=True)
            Path(stage.environment["XDG_STATE_HOME"]).write_text("a file, not a folder")
        else:
            place = database.parent if fault == "a file in the way" else database
            place.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            place.write_bytes(b"something else\n" * 100)
        record = stage.start("say: hello")
        assert record.forum is None
        [warning] = record.warnings
        assert warning.startswith(f"{record.id} takes no part in the forum: ")
        stage.eventually_idle(record.id)


def test_t202_a_nested_agents_parent_in_the_forum_is_the_agent_that_started_it(stage: Orchestra) -> None:
    outer = stage.start("say: outer")
    inner = stage.inside(outer).start("say: inner")
    assert authors(stage)[identity(inner).name][:2] == (identity(outer).agent_id, "spawn")
    assert stage.inside(inner).environment["AGENTFORUM_STATE"] == identity(inner).state


def test_what_a_caller_inherited_from_elsewhere_does_not_reach_its_agents(stage: Orchestra) -> None:
    tmux(stage, "set-environment", "-g", "AGENTFORUM_STATE", "/somebody/elses/worker.json")
    stage.configure(forum=False)
    assert "AGENTFORUM_STATE" not in stage.inside(stage.start("say: hi")).environment
    stage.configure(forum=True)
    stage.start("say: there")


def test_t203_a_resume_in_place_stays_who_it_was_and_a_fork_is_a_fork_of_it(stage: Orchestra) -> None:
    first = stage.start("say: hello")
    stage.eventually_idle(first.id)
    stage.quit(first.id)
    again = run(stage, "resume", first.id, "--json").json
    assert stage.row(again["id"]).forum == first.forum
    stage.eventually_idle(again["id"])
    stage.quit(again["id"])
    # Another agent takes the slot, so that the conversation goes on elsewhere, as a copy.
    other = stage.start("say: other", branch_hint="other")
    assert other.worktree_path == first.worktree_path
    assert [row.session.agent_id for row in list_resumable(stage.context)] == [first.id]
    copy = run(stage, "resume", first.id, "--json").json
    forked = identity(stage.row(copy["id"]))
    assert copy["forked"] is True
    assert authors(stage)[forked.name][:2] == (identity(first).agent_id, "fork")
    assert forked.session_id != identity(first).session_id


def test_a_resumed_agent_whose_forum_state_is_gone_is_somebody_new(stage: Orchestra) -> None:
    first = stage.start("say: hello")
    stage.eventually_idle(first.id)
    stage.quit(first.id)
    Path(identity(first).state).unlink()
    again = run(stage, "resume", first.id, "--json").json
    assert identity(stage.row(again["id"])).agent_id != identity(first).agent_id
    assert [warning for warning in again["warnings"] if "somebody new in the forum" in warning]


@pytest.mark.parametrize("point", STAGES)
def test_t193_t194_killed_at_any_stage_there_is_one_identity_one_file_one_window(stage: Orchestra, point: str) -> None:
    killed = stage.child("start", "say: hello", "script", **{failpoints.VARIABLE: point})
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    stage.eventually_status("say-hello", AgentStatus.CRASHED, AgentStatus.RUNNING, AgentStatus.WAITING_USER)
    # What it left is settled by the next start of the same caller.
    after = stage.start("say: after")
    row = stage.row("say-hello")
    known = [who for who, (_, cause, _) in authors(stage).items() if cause == "spawn" and "say-hello" in who]
    files = {path for path, found in workers(stage).items() if "say-hello" in found["identity"]["name"]}
    windows = [pane for pane in stage.panes() if pane.agent_tag == "say-hello"]
    if point in ("P6", "P7"):
        assert row.status in (AgentStatus.RUNNING, AgentStatus.WAITING_USER)
        assert (len(known), files, len(windows)) == (1, {identity(row).state}, 1)
        assert stage.inside(row).environment["AGENTFORUM_STATE"] == identity(row).state
    else:
        assert row.status is AgentStatus.CRASHED
        assert (files, windows) == (set(), [])
        assert len(known) == (0 if point == "P1" else 1)
    [main] = mains(stage)
    assert [spawn["stage"] for spawn in main["pendingSpawns"] if spawn["stage"] != "launched"] == []
    assert identity(after).state in workers(stage)


def test_t200_many_starts_at_once_are_many_children(stage: Orchestra) -> None:
    children = [stage.child("start", f"say: {number}", "fake") for number in range(12)]
    answers = [json.loads(child.communicate(timeout=100)[0]) for child in children]
    rows = [stage.row(answer["id"]) for answer in answers]
    assert [row.warnings for row in rows if row.forum is None] == []
    assert len({identity(row).agent_id for row in rows}) == 12
    [main] = mains(stage)
    assert {spawn["stage"] for spawn in main["pendingSpawns"]} == {"launched"}


def test_a_start_that_is_taken_back_leaves_no_identity_behind(stage: Orchestra) -> None:
    hook = stage.repo.path / ".pi" / "side-agents" / "runtime"
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.write_text("in the way of every runtime folder")
    answer = run(stage, "start", "--client", "script", "--json", "say: hi").json
    assert answer["code"] == "start-failed"
    assert [path for path, found in workers(stage).items() if found["identity"]["cause"]["kind"] == "spawn"] == []
    [main] = mains(stage)
    assert main["pendingSpawns"] == []
    assert hook.is_file()
