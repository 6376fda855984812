"""What a companion tells by itself: status line, notices, toasts; to the right session, at the right time, once."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from companion_support import Companion, companion
from many_support import following, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.core import routing
from side_agents.core.routing import Listener
from side_agents.infra import processes
from side_agents.models import AgentStatus
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

ONE, TWO = "/conversations/one.jsonl", "/conversations/two.jsonl"
HELD_BACK = 3600.0


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


@pytest.fixture
def link(stage: Orchestra) -> Iterator[Companion]:
    with companion(stage, ONE) as made:
        yield made


def cursor(stage: Orchestra, session: str | None, agent_id: str | None = None) -> dict[str, Any]:
    path = stage.meta / "sessions" / routing.key(Listener(agent_id, session)) / "cursor.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def is_told(stage: Orchestra, session: str | None, agent_id: str, number: int) -> bool:
    """Whether the session's cursor says that this change of the agent was told."""
    found = cursor(stage, session)
    return bool(found) and (found["seq"] >= number or found["told"].get(agent_id, 0) >= number)


def test_the_status_line_follows_the_agents_and_is_sent_only_when_it_changes(stage: Orchestra, link: Companion) -> None:
    agent = link.start("ask: which?", "one")
    index = stage.row(agent).tmux_window_index
    shown = link.line(f"one:wait@{index}")
    assert shown["groups"] == [
        {
            "kind": "children",
            "entries": [
                {"id": "one", "short": "wait", "window": index, "status": "waiting_user", "waitingFor": "question"}
            ],
        }
    ]
    link.good("agent-send", id=agent, prompt="this one")
    link.event("status", lambda each: "waitingFor" in json.dumps(each) and "prompt" in json.dumps(each))
    stage.stop(agent)
    link.line("")
    sent = [(each["text"], each["groups"]) for each in link.events("status")]
    assert all(before != after for before, after in pairwise(sent))


def test_a_companion_that_comes_later_shows_at_once_what_is_there(stage: Orchestra) -> None:
    agent = stage.start("say: hi", branch_hint="early").id
    stage.eventually_idle(agent)
    with companion(stage, ONE, idle=False) as link:
        link.line(f"early:wait@{stage.row(agent).tmux_window_index}")


def test_n21_each_session_has_its_own_groups(stage: Orchestra, link: Companion) -> None:
    outer = link.start("say: outer", "outer")
    beside = link.start("say: beside", "beside")
    for agent in (outer, beside):
        stage.eventually_idle(agent)
    with companion(stage.inside(stage.row(outer))) as nested:
        inner = nested.start("say: inner", "inner")
        stage.eventually_idle(inner)
        windows = {agent: stage.row(agent).tmux_window_index for agent in (outer, beside, inner)}
        nested.line(f"inner:wait@{windows[inner]} | beside:wait@{windows[beside]}")
        link.line(f"beside:wait@{windows[beside]} outer:wait@{windows[outer]}")
        with companion(stage.inside(stage.row(inner))) as deepest:
            deepest.line(f"parent:outer:wait@{windows[outer]}")
            stage.stop(outer)
            gone = deepest.line("parent:outer:gone")
            assert gone["groups"][0]["entries"] == [{"id": "outer", "short": "gone", "gone": True}]
        orphan = link.line(f"beside:wait@{windows[beside]} inner:wait@{windows[inner]}[orphan]")
        assert orphan["groups"][0]["entries"][1]["orphan"] is True


def test_x20_two_sessions_of_one_repository_each_hear_only_of_their_own(stage: Orchestra, link: Companion) -> None:
    with companion(stage, TWO) as other:
        first = link.start("fail: 3", "first")
        second = other.start("fail: 4", "second")
        link.notice(first, "failed")
        other.notice(second, "failed")
        link.event("status", lambda each: [group["kind"] for group in each["groups"]] == ["children", "others"])
        for session in (link, other):
            session.good("agents")
        assert {agent for agent, _ in link.told()} == {first}
        assert {agent for agent, _ in other.told()} == {second}
        assert [each["agentId"] for each in link.events("toast")] == [first]
        assert [each["agentId"] for each in other.events("toast")] == [second]


def test_a_notice_says_what_the_agent_asks_and_carries_no_escapes(stage: Orchestra, link: Companion) -> None:
    agent = link.start("ask: \x1b]0;owned\x07\x1b[31mred\u202e?", "asks")
    notice = link.notice(agent, "waiting_user")
    assert (notice["waitingFor"], notice["wake"], notice["orphaned"]) == ("question", False, False)
    assert notice["message"].startswith("side-agent asks: ")
    assert "red?" in notice["message"]
    line = json.dumps(link.events("notice") + link.events("status") + link.events("toast"), ensure_ascii=False)
    assert not {character for character in line if ord(character) < 32 or character in "\x1b\x9b\u202e"}


def test_a_setting_lets_notices_wake(stage: Orchestra) -> None:
    stage.configure("wake_on_notice = true\n")
    with companion(stage, ONE) as link:
        assert link.seen[0]["ready"]["config"]["wakeOnNotice"] is True
        assert link.notice(link.start("fail: 3"), "failed")["wake"] is True


def test_n1_n5_what_has_not_settled_is_held_back_and_an_end_is_told_at_once(stage: Orchestra) -> None:
    with companion(stage, ONE, settle=HELD_BACK) as link:
        agent = link.start("say: one")
        stage.eventually_idle(agent)
        link.good("agent-send", id=agent, prompt="say: two")
        stage.eventually_idle(agent)
        assert link.told() == []
        link.good("agent-send", id=agent, prompt="/quit")
        notice = link.notice(agent, "done")
        assert len(link.events("notice")) == 1
        assert notice["fromStatus"] == "allocating_worktree"
        assert notice["coalescedCount"] >= 4
        assert notice["tmuxWindowIndex"] is not None


def test_n2_one_more_round_is_one_notice_with_equal_ends(stage: Orchestra) -> None:
    with companion(stage, ONE, settle=0.4) as link:
        agent = link.start("say: one")
        link.notice(agent, "waiting_user")
        link.good("agent-send", id=agent, prompt="say: two")
        again = link.notice(agent, "waiting_user", 2)
        assert (again["fromStatus"], again["path"]) == ("waiting_user", ["running", "waiting_user"])


def test_n4_the_ends_of_two_agents_are_told_together_in_the_order_of_their_names(stage: Orchestra) -> None:
    with companion(stage, ONE, idle=False) as link:
        for name in ("beta", "alpha"):
            stage.eventually_status(link.start("fail: 3", name), AgentStatus.FAILED)
        link.idle()
        link.notice("beta", "failed")
        assert link.told() == [("alpha", "failed"), ("beta", "failed")]


def test_n6_nothing_is_told_while_the_session_is_busy_and_then_all_in_one(stage: Orchestra) -> None:
    with companion(stage, ONE, idle=False) as link:
        agent = link.start("say: one")
        stage.eventually_idle(agent)
        link.good("agent-send", id=agent, prompt="fail: 3")
        toast = link.event("toast")
        assert (toast["level"], toast["agentId"]) == ("error", agent)
        assert toast["text"].startswith(f"side-agent {agent} failed: ")
        assert link.told() == [], "the toast comes also while it is busy, the notice does not"
        link.idle()
        notice = link.notice(agent, "failed")
        assert (len(link.events("notice")), len(link.events("toast"))) == (1, 1)
        assert notice["coalescedCount"] > 1


def test_a_session_that_gets_busy_again_is_left_alone(stage: Orchestra, link: Companion) -> None:
    link.idle(False)
    agent = link.start("fail: 3")
    link.event("toast")
    link.good("agents")
    assert link.told() == []
    link.idle(True)
    link.notice(agent, "failed")


def test_a_killed_window_and_a_killed_client_are_told_as_crashes(stage: Orchestra, link: Companion) -> None:
    agent = link.start("sleep: 600", "window")
    stage.server.tmux.kill_window(
        stage.row(agent).tmux_window_id or "", expect_pane=stage.row(agent).tmux_pane_id or "", expect_tag=agent
    )
    assert link.notice(agent, "crashed")["error"]
    other = link.start("crash", "client")
    link.notice(other, "crashed")
    assert {each["agentId"] for each in link.events("toast")} == {agent, other}


@pytest.mark.parametrize("how", ["input", "kill"])
def test_what_was_not_told_before_the_end_is_told_by_the_next_one_and_nothing_twice(stage: Orchestra, how: str) -> None:
    with companion(stage, ONE) as link:
        first = link.start("fail: 3", "first")
        number = link.notice(first, "failed")["seq"]
        eventually(lambda: is_told(stage, ONE, first, number), SLOW)
        link.idle(False)
        second = link.start("fail: 4", "second")
        link.event("toast", lambda each: each["agentId"] == second)
        if how == "kill":
            link.kill()
        else:
            link.close()
    with companion(stage, ONE) as again:
        again.notice(second, "failed")
        again.good("agents")
        assert again.told() == [(second, "failed")]
        assert again.events("toast") == [], "what happened before it came is no alarm any more"


def test_a_notice_that_was_not_acknowledged_is_told_again_by_the_next_one(stage: Orchestra) -> None:
    with companion(stage, ONE, settle=HELD_BACK, acknowledges=True) as link:
        kept, lost = link.start("fail: 3", "kept"), link.start("fail: 4", "lost")
        number = link.notice(kept, "failed")["seq"]
        other = link.notice(lost, "failed")["seq"]
        link.write({"told": number})
        link.write({"told": 999_999})
        eventually(lambda: is_told(stage, ONE, kept, number), SLOW)
        assert not is_told(stage, ONE, lost, other)
        link.good("agents")
        assert len(link.told()) == 2, "it is not repeated by the same one"
        link.kill()
    with companion(stage, ONE, settle=HELD_BACK, acknowledges=True) as again:
        notice = again.notice(lost, "failed")
        assert notice["seq"] == other
        again.write({"told": other})
        eventually(lambda: is_told(stage, ONE, lost, other), SLOW)
        assert again.told() == [(lost, "failed")]


def test_what_happens_between_a_notice_and_its_acknowledgement_is_told_too(stage: Orchestra) -> None:
    with companion(stage, ONE, acknowledges=True) as link:
        agent = link.start("say: one")
        number = link.notice(agent, "waiting_user")["seq"]
        link.good("agent-send", id=agent, prompt="fail: 3")
        stage.eventually_status(agent, AgentStatus.FAILED)
        link.write({"told": number})
        link.notice(agent, "failed")


def test_the_notices_command_and_a_companion_tell_each_notice_once_between_them(stage: Orchestra) -> None:
    with companion(stage, ONE, settle=HELD_BACK, idle=False) as link:
        agent = link.start("fail: 3")
        stage.eventually_status(agent, AgentStatus.FAILED)
        told = run(stage, "notices", "--json", SIDE_AGENTS_SESSION=ONE).json["notices"]
        assert [each["agentId"] for each in told] == [agent]
        link.idle()
        link.good("agents")
        other = link.start("fail: 4")
        link.notice(other, "failed")
        assert link.told() == [(other, "failed")]
        assert link.close() == 0, "what was written is noted as told before it ends"
    with following(stage, "--settle", "0", SIDE_AGENTS_SESSION=ONE) as stream:
        last = stage.start("fail: 5", session=ONE).id
        stream.about(last, "failed")
        assert [each["agentId"] for each in stream.rest()] == [last]


def test_n20_n23_n24_main_hears_of_a_grandchild_only_once_its_parent_is_gone_and_once(
    stage: Orchestra, link: Companion
) -> None:
    outer = link.start("say: outer", "outer")
    stage.eventually_idle(outer)
    inner = stage.inside(stage.row(outer)).start("fail: 3", branch_hint="inner").id
    stage.eventually_status(inner, AgentStatus.FAILED)
    link.good("agents")
    assert {agent for agent, _ in link.told()} <= {outer}
    assert link.events("toast") == []
    link.good("agent-send", id=outer, prompt="/quit")
    notice = link.notice(inner, "failed")
    assert (notice["adopted"], notice["orphaned"], notice["fromStatus"]) == (True, True, "failed")
    assert "[adopted: its parent outer is gone]" in notice["message"]
    assert link.event("toast")["agentId"] == inner
    link.start("say: more", "more")
    stage.eventually_idle("more")
    link.notice("more", "waiting_user")
    assert link.told().count((inner, "failed")) == 1
    assert len(link.events("toast")) == 1


def test_n20_a_child_s_companion_hears_of_its_own_children_and_main_does_not(stage: Orchestra, link: Companion) -> None:
    outer = link.start("say: outer", "outer")
    stage.eventually_idle(outer)
    with companion(stage.inside(stage.row(outer)), TWO) as nested:
        inner = nested.start("fail: 3", "inner")
        nested.notice(inner, "failed")
        nested.event("toast")
    link.good("agents")
    assert inner not in {agent for agent, _ in link.told()}
    assert link.events("toast") == []


def test_x23_who_merely_inherited_an_agent_s_variables_takes_none_of_its_notices(stage: Orchestra) -> None:
    outer = stage.start("say: outer", branch_hint="outer").id
    stage.eventually_idle(outer)
    inside = stage.inside(stage.row(outer))
    with companion(inside, TWO, linked=False) as second:
        inner = second.start("fail: 3", "inner")
        stage.eventually_status(inner, AgentStatus.FAILED)
        second.event("status", lambda each: "inner:fail" in each["text"])
        second.good("agents")
        assert second.told() == []
        assert second.events("toast") == []
    with companion(inside, ONE) as own:
        own.notice(inner, "failed")


def test_another_conversation_of_the_same_host_hears_of_its_own_and_the_first_one_s_wait(stage: Orchestra) -> None:
    with companion(stage, ONE, settle=HELD_BACK, idle=False) as link:
        first = link.start("fail: 3", "first")
        link.event("toast")
        link.write({"session": TWO})
        link.idle()
        second = link.start("fail: 4", "second")
        assert stage.row(second).parent_session_id == TWO
        link.notice(second, "failed")
        assert link.told() == [(second, "failed")]
        link.write({"session": ONE})
        link.notice(first, "failed")
        assert len(link.events("notice")) == 2


def test_a_new_conversation_is_not_told_of_old_times(stage: Orchestra) -> None:
    """Agents that were started in nobody's name are everybody's; but not those of last week."""
    old = stage.start("fail: 3", branch_hint="old").id
    stage.eventually_status(old, AgentStatus.FAILED)
    its_own = stage.start("fail: 4", branch_hint="its-own", session=ONE).id
    stage.eventually_status(its_own, AgentStatus.FAILED)
    with companion(stage, ONE, settle=HELD_BACK) as link:
        link.notice(its_own, "failed")
        new = stage.start("fail: 5", branch_hint="new").id
        link.notice(new, "failed")
        assert link.told() == [(its_own, "failed"), (new, "failed")]
        assert [each["agentId"] for each in link.events("toast")] == [new]


def test_the_lines_of_agents_without_a_companion_are_published(stage: Orchestra, link: Companion) -> None:
    path = stage.meta / "status.json"
    one, two = link.start("say: hi", "one"), link.start("ask: hm?", "two")
    index = {agent: stage.row(agent).tmux_window_index for agent in (one, two)}

    def text(agent: str) -> str:
        data = json.loads(path.read_text()) if path.exists() else {"lines": {}}
        found: str = data["lines"].get(agent, {}).get("text", "")
        return found

    eventually(lambda: text(one) == f"two:wait@{index[two]}", SLOW)
    eventually(lambda: text(two) == f"one:wait@{index[one]}", SLOW)
    data = json.loads(path.read_text())
    assert (data["version"], data["pid"]) == (1, link.process.pid)
    assert data["lines"][one]["groups"][0]["kind"] == "siblings"
    assert path.stat().st_mode & 0o777 == 0o600
    stage.stop(two)
    eventually(lambda: text(one) == "", SLOW)
    assert two not in json.loads(path.read_text())["lines"]


def test_another_companion_keeps_the_published_lines_true_when_the_first_is_gone(stage: Orchestra) -> None:
    path = stage.meta / "status.json"
    with companion(stage, TWO) as second:
        with companion(stage, ONE) as first:
            first.start("say: hi", "one")
            eventually(lambda: path.exists() and "one" in path.read_text(), SLOW)
            first.kill()
        second.start("say: hi", "two")
        eventually(lambda: set(json.loads(path.read_text())["lines"]) == {"one", "two"}, SLOW)
        assert json.loads(path.read_text())["pid"] == second.process.pid


def test_a_registry_that_cannot_be_read_is_said_once_and_looked_at_again(stage: Orchestra, link: Companion) -> None:
    agent = link.start("say: hi")
    stage.eventually_idle(agent)
    registry = stage.context.paths.registry
    good = registry.read_bytes()
    registry.write_bytes(b"{")
    toast = link.event("toast", lambda each: each["level"] == "warning")
    assert "cannot be used" in toast["text"]
    assert link.call("agent-check", id=agent)["code"] == "state-corrupt"
    registry.write_bytes(b"{{")
    registry.write_bytes(good)
    stage.send(agent, "fail: 3")
    link.notice(agent, "failed")


def test_a_start_that_died_is_noticed_though_no_launcher_of_it_ever_ran(stage: Orchestra, link: Companion) -> None:
    # A row as it is left by a starter that was killed right after it had reserved.
    agent = link.start("say: hi", "first")
    stage.eventually_idle(agent)
    owner = subprocess.Popen(["sleep", "600"])
    ref = processes.identify(owner.pid)
    with stage.context.registry.transaction("test") as state:
        row = replace(
            state.agents[agent],
            id="cut-off",
            status=AgentStatus.ALLOCATING_WORKTREE,
            owner=ref,
            launcher=None,
            runtime_dir=None,
            tmux_pane_id=None,
            worktree_path=None,
            branch=None,
            journal_offset=0,
            stops=0,
            stop_seq=0,
        )
        state.put(row)
    link.event("status", lambda each: "cut-off:alloc" in each["text"])
    owner.kill()
    owner.wait()
    link.notice("cut-off", "crashed")


def test_a_notification_command_that_hangs_delays_neither_status_nor_notices(stage: Orchestra) -> None:
    is_over = stage.repo.path.parent / "over"
    command = f"while [ ! -e {shlex.quote(str(is_over))} ]; do sleep 0.05; done"
    stage.configure(f"notify_command = {json.dumps(command)}\n")
    with companion(stage, ONE) as link:
        one = link.start("fail: 3", "one")
        link.notice(one, "failed")
        two = link.start("fail: 4", "two")
        link.until(lambda message: message.get("event") == "notice" and message["agentId"] == two)
        is_over.touch()


def test_ended_by_a_signal_it_leaves_no_process_and_no_lock(stage: Orchestra, link: Companion) -> None:
    agent = link.start("say: hi")
    stage.eventually_idle(agent)
    link.process.send_signal(signal.SIGTERM)
    assert link.process.wait(SLOW) == 128 + signal.SIGTERM
    assert run(stage, "notices", "--json", SIDE_AGENTS_SESSION=ONE).status == 0
    assert not Path(f"/proc/{link.process.pid}").exists()
