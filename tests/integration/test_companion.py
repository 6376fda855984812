"""The companion of a session: every call, every kind of line, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from companion_support import Companion, children_of, companion, hello
from many_support import PROGRAM, environment, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.core import leases
from side_agents.infra import processes
from side_agents.models import AgentStatus, Lease
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

SESSION = "/conversations/here.jsonl"


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


@pytest.fixture
def link(stage: Orchestra) -> Iterator[Companion]:
    with companion(stage, SESSION) as made:
        yield made


def test_it_says_where_it_is_and_how_it_is_set(stage: Orchestra, link: Companion) -> None:
    ready = link.seen[0]["ready"]
    assert ready["protocol"] == 1
    assert (ready["agent"], ready["depth"], ready["mayStart"]) == (None, 0, True)
    assert ready["root"] == str(stage.repo.path)
    assert ready["config"] == {
        "wakeOnNotice": False,
        "handoff": "summary",
        "contextBoundary": False,
        "parentSession": True,
        "model": None,
    }
    assert not stage.meta.exists(), "being there creates nothing"


def test_the_four_tools_answer_as_the_tool_command_does(stage: Orchestra, link: Companion) -> None:
    begun = link.begin("agent-start", description="ask: which?", branchHint="Ask me", client="script")
    started = link.answer(begun)
    agent = started["id"]
    assert (agent, started["ok"], started["branch"], started["depth"]) == ("ask-me", True, "side-agent/ask-me", 1)
    line = link.until(lambda message: message.get("id") == begun)
    assert line["prompt"] == f"ask: which?\n\nParent Pi session: {SESSION}"
    assert stage.row(agent).parent_session_id == SESSION

    waited = link.good("agent-wait-any", ids=[agent])
    assert (waited["agent"]["status"], waited["agent"]["waitingFor"]) == ("waiting_user", "question")
    assert link.good("agent-send", id=agent, prompt="this one")["delivery"] == "submitted"
    assert link.good("agent-wait-any", ids=[agent], after=waited["cursor"])["cursor"] > waited["cursor"]

    by_companion = link.good("agent-check", id=agent)
    by_command = json.loads(run(stage, "tool", "agent-check", feed=json.dumps({"id": agent})).out)
    assert by_companion == by_command


def test_x19_a_bare_interrupt_of_an_idle_agent_does_not_make_a_wait_hang(stage: Orchestra, link: Companion) -> None:
    agent = link.start("say: hello")
    link.good("agent-wait-any", ids=[agent])
    assert link.good("agent-send", id=agent, prompt="!")["delivery"] == "interrupted"
    assert link.good("agent-wait-any", ids=[agent], timeoutSeconds=20)["agent"]["status"] == "waiting_user"


def test_u34_u35_prefixes_go_through_to_the_agent(stage: Orchestra, link: Companion) -> None:
    agent = link.start("sleep: 60")
    eventually(lambda: stage.row(agent).turn_open, SLOW)
    assert link.good("agent-send", id=agent, prompt="!say: stopped")["delivery"] in ("submitted", "queued")
    eventually(lambda: "say: stopped" in stage.messages(stage.row(agent)), SLOW)
    stage.eventually_idle(agent)
    link.good("agent-send", id=agent, prompt="/quit")
    assert link.good("agent-wait-any", ids=[agent], states=["done"])["agent"]["status"] == "done"


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        pytest.param(b"hello?\n", "usage", "not valid JSON", id="not_json"),
        pytest.param(b"\xff\xfe\n", "usage", "not valid JSON", id="not_utf8"),
        pytest.param(b"[" * 100_000 + b"\n", "usage", "not valid JSON", id="nested_without_end"),
        pytest.param(b"[1]\n", "usage", "not a JSON object", id="no_object"),
        pytest.param(b'{"id": {}, "call": "status"}\n', "usage", "neither a number nor a text", id="odd_id"),
        pytest.param(b'{"id": true, "call": "status"}\n', "usage", "neither a number nor a text", id="bool_id"),
        pytest.param(b'{"call": "status"}\n', "usage", "neither a number nor a text", id="no_id"),
        pytest.param(b'{"idle": "yes"}\n', "usage", "neither true nor false", id="odd_idle"),
        pytest.param(b'{"session": 7}\n', "usage", "neither a text nor null", id="odd_session"),
        pytest.param(b'{"told": "7"}\n', "usage", "not the number", id="odd_told"),
        pytest.param(b'{"hello": {"protocol": 1}}\n', "usage", "hello before", id="second_hello"),
        pytest.param(b"x" * (64 * 1024 * 1024 + 1) + b"\n", "usage", "longer than", id="huge"),
    ],
)
def test_a_line_that_makes_no_sense_is_answered_and_harms_nothing(
    link: Companion, line: bytes, code: str, words: str
) -> None:
    link.write(line)
    answer = link.answer(None)
    assert (answer["ok"], answer["code"]) == (False, code)
    assert words in answer["error"]
    assert link.good("status")["text"] == ""


@pytest.mark.parametrize(
    ("call", "given", "code"),
    [
        ("no-such", {}, "not-found"),
        ("agent-start", {"description": 7, "branchHint": ""}, "usage"),
        ("agent-start", {"description": "x", "branchHint": "", "more": 1}, "usage"),
        ("agent-start", {"description": " ", "branchHint": ""}, "usage"),
        ("agent-check", {}, "usage"),
        ("agent-check", {"id": "nobody"}, "unknown-agent"),
        ("agent-wait-any", {"ids": []}, "usage"),
        ("agent-wait-any", {"ids": ["nobody"]}, "unknown-agent"),
        ("agent-send", {"id": "nobody", "prompt": "x"}, "unknown-agent"),
        ("start", {"task": ""}, "usage"),
        ("start", {"task": "x", "hasMessages": "yes"}, "usage"),
        ("clear", {"ids": []}, "usage"),
        ("log", {"id": "x", "lines": 0}, "usage"),
        ("log", {"id": ""}, "usage"),
        ("jump", {"id": "nobody"}, "unknown-agent"),
        ("stop", {"id": "nobody"}, "unknown-agent"),
        ("resume", {"file": "relative.jsonl"}, "usage"),
        ("resume", {"file": "/no/such.jsonl"}, "not-found"),
        ("retitle", {"file": "/no/such.jsonl", "typed": "x"}, "not-found"),
        ("status", {"verbose": True}, "usage"),
    ],
)
def test_a_call_that_cannot_be_is_an_answer_and_creates_nothing(
    stage: Orchestra, link: Companion, call: str, given: dict[str, Any], code: str
) -> None:
    answer = link.call(call, **given)
    assert (answer["ok"], answer["code"]) == (False, code)
    assert answer["error"]
    assert not stage.slots()
    assert stage.context.registry.read().agents == {}


def test_an_input_that_is_no_object_is_answered_under_its_id(link: Companion) -> None:
    link.write(b'{"id": "a", "call": "status", "input": [1]}\n')
    assert link.answer("a")["code"] == "usage"
    link.write(b'{"id": "b", "call": 7}\n')
    assert link.answer("b")["code"] == "usage"


def test_lines_and_keys_of_a_newer_extension_are_passed_over(link: Companion) -> None:
    link.write({"telemetry": 1})
    link.write(b"\n")
    link.write({"id": 900, "call": "status", "trace": "x"})
    assert link.answer(900)["ok"] is True
    assert not [message for message in link.seen if message.get("id", 0) is None]


def test_an_id_that_is_still_running_is_not_taken_twice(stage: Orchestra, link: Companion) -> None:
    agent = link.start("sleep: 600")
    number = link.begin("agent-wait-any", ids=[agent])
    link.write({"id": number, "call": "status"})
    assert "still running" in link.answer(None)["error"]
    link.write({"cancel": number})
    assert link.answer(number)["code"] == "cancelled"
    link.write({"id": number, "call": "status"})
    assert link.answer(number, 2)["ok"] is True


def test_a_cancelled_wait_answers_at_once_and_the_others_go_on(stage: Orchestra, link: Companion) -> None:
    agent = link.start("sleep: 600")
    waits = [link.begin("agent-wait-any", ids=[agent]) for _ in range(3)]
    link.write({"cancel": waits[1]})
    answer = link.answer(waits[1])
    assert (answer["ok"], answer["code"]) == (False, "cancelled")
    link.write({"cancel": 12345})
    stage.stop(agent)
    for number in (waits[0], waits[2]):
        assert link.answer(number)["agent"]["id"] == agent


def test_eight_parallel_starts_in_one_message_are_all_clean(stage: Orchestra, link: Companion) -> None:
    task = {"description": "say: hello", "branchHint": "same name", "client": "script"}
    lines = [json.dumps({"id": f"s{n}", "call": "agent-start", "input": task}) for n in range(8)]
    link.write(("\n".join(lines) + "\n").encode())
    answers = [link.answer(f"s{n}") for n in range(8)]
    assert [answer for answer in answers if not answer["ok"]] == []
    for key in ("id", "branch", "worktreePath", "tmuxWindowId"):
        assert len({answer[key] for answer in answers}) == 8, key
    assert sorted(answer["id"] for answer in answers) == ["same-name", *(f"same-name-{n}" for n in range(2, 9))]
    for answer in answers:
        stage.eventually_idle(answer["id"])
    stage.assert_sound()


def test_other_calls_are_answered_while_many_wait(stage: Orchestra, link: Companion) -> None:
    agent = link.start("sleep: 600")
    waits = [link.begin("agent-wait-any", ids=[agent]) for _ in range(64)]
    refused = link.call("status")
    assert refused["code"] == "busy"
    link.write({"cancel": waits[0]})
    link.answer(waits[0])
    assert link.good("agent-check", id=agent)["agent"]["id"] == agent


def test_the_tree_shows_who_is_whose_and_what_can_be_cleared(stage: Orchestra, link: Companion) -> None:
    mine = link.start("fail: 3", "mine")
    other = run(stage, "start", "--client", "script", "--json", "say: hi", SIDE_AGENTS_SESSION="/other.jsonl").json[
        "id"
    ]
    stage.eventually_status(mine, AgentStatus.FAILED)
    stage.eventually_idle(other)
    answer = link.good("agents")
    rows = {row["id"]: row for row in answer["agents"]}
    assert (rows[mine]["status"], rows[mine]["mine"], rows[mine]["level"], rows[mine]["orphan"]) == (
        "failed",
        True,
        0,
        False,
    )
    assert rows[mine]["worktreeName"] == stage.slot(1).name
    assert "exited with code 3" in rows[mine]["error"]
    assert rows[other]["mine"] is False
    assert rows[other]["text"].startswith("hi")
    assert answer["clearable"] == [mine]
    assert answer["orphans"] == []

    assert link.good("clear", ids=[mine])["results"] == [{"id": mine, "ok": True, "kept": stage_kept(stage, mine)}]
    assert list(stage.context.registry.read().agents) == [other]
    assert mine in stage.branches()
    again = link.call("clear", ids=[mine, other])
    assert [result["code"] for result in again["results"]] == ["refused", "refused"]
    assert list(stage.context.registry.read().agents) == [other]


def stage_kept(stage: Orchestra, agent_id: str) -> str:
    stone = stage.context.registry.tombstone(agent_id)
    assert stone is not None
    from side_agents.core.stop import kept_by

    return kept_by(stone)


def test_nothing_is_cleared_or_reclaimed_that_was_not_shown_first(stage: Orchestra, link: Companion) -> None:
    agent = link.start("fail: 3")
    stage.eventually_status(agent, AgentStatus.FAILED)
    result = link.call("clear", ids=[agent])["results"][0]
    assert (result["ok"], result["code"]) == (False, "refused")
    assert "/agents" in result["hint"]
    assert link.call("reclaim", slots=[stage.slot(1).name])["ok"] is False
    assert stage.row(agent).status is AgentStatus.FAILED


def test_an_agent_that_was_started_anew_since_it_was_shown_is_not_cleared(stage: Orchestra, link: Companion) -> None:
    agent = link.start("fail: 3", "twice")
    stage.eventually_status(agent, AgentStatus.FAILED)
    assert link.good("agents")["clearable"] == [agent]
    stage.stop(agent)
    stage.repo.git("worktree", "remove", "--force", str(stage.slot(1)))
    stage.repo.git("branch", "-D", "side-agent/twice")
    assert stage.start("fail: 4", branch_hint="twice").id == agent
    stage.eventually_status(agent, AgentStatus.FAILED)
    assert link.call("clear", ids=[agent])["results"][0]["code"] == "refused"
    assert stage.row(agent).exit_code == 4


def test_orphan_leases_are_reclaimed_only_as_they_were_shown(stage: Orchestra, link: Companion) -> None:
    for _ in range(2):
        stage.stop(stage.start("say: hi").id)
    one, two = stage.slot(1), stage.slot(2)
    stage.stop(stage.start("say: hi").id)
    if not two.exists():
        stage.repo.git("worktree", "add", "-q", "--detach", str(two))
    dead = subprocess.Popen(["true"])
    dead.wait()
    for slot in (one, two):
        assert leases.take(slot, Lease(agent_id="gone", pid=dead.pid, started_at="2026-03-03T02:58:00.000Z"))
    alive = Lease(agent_id="gone", pid=os.getpid(), started_at="2026-03-03T02:58:00.000Z")
    shown = {each["slot"]: each for each in link.good("agents")["orphans"]}
    assert shown[one.name] | {"waysOut": []} == {
        "slot": one.name, "agentId": "gone", "pid": dead.pid, "reclaimable": True, "blockers": [], "waysOut": [],
    }  # fmt: skip

    leases.update(two, alive)
    answer = link.call("reclaim", slots=[one.name, two.name])
    good, bad = answer["results"]
    assert (good["slot"], good["ok"], leases.read(one)) == (one.name, True, None)
    assert (bad["slot"], bad["ok"], bad["code"]) == (two.name, False, "refused")
    assert leases.read(two) == alive
    blocked = next(each for each in link.good("agents")["orphans"] if each["slot"] == two.name)
    assert blocked["reclaimable"] is False
    assert any(str(os.getpid()) in reason for reason in blocked["blockers"])


def test_an_agent_is_shown_jumped_to_and_stopped_with_its_tree(stage: Orchestra, link: Companion) -> None:
    agent = link.start("say: a line to see")
    stage.eventually_idle(agent)
    log = link.good("log", id=agent)
    assert any("a line to see" in line for line in log["lines"])
    assert Path(log["path"]).is_file()
    # Nobody looks at this tmux server, so there is no terminal to take anywhere; the window is the current one all the same.
    link.call("jump", id=agent)
    eventually(lambda: _current_window(stage) == stage.row(agent).tmux_window_id, SLOW)

    inner = stage.inside(stage.row(agent)).start("say: inner").id
    results = link.good("stop", id=agent, tree=True)["results"]
    assert [(each["id"], each["ok"]) for each in results] == [(inner, True), (agent, True)]
    assert stage.context.registry.read().agents == {}


def _current_window(stage: Orchestra) -> str:
    done = subprocess.run(
        ["tmux", "-S", str(stage.server.tmux.socket), "display-message", "-p", "-t", "main:", "#{window_id}"],
        capture_output=True, text=True, check=True, timeout=20,
    )  # fmt: skip
    return done.stdout.strip()


def test_a_conversation_that_quit_is_listed_and_goes_on(stage: Orchestra, link: Companion) -> None:
    agent = link.start("say: first words", "comeback")
    stage.eventually_idle(agent)
    record = stage.row(agent)
    link.good("agent-send", id=agent, prompt="/quit")
    link.good("agent-wait-any", ids=[agent], states=["done"])
    [row] = link.good("resumable")["sessions"]
    assert (row["agentId"], row["file"], row["note"]) == (agent, record.child_session_file, "")
    assert row["text"].startswith(f"{agent} · ")
    assert link.good("retitle", file=row["file"], typed=row["text"])["title"] is None
    assert link.good("retitle", file=row["file"], typed="A new name")["title"] == "A new name"

    resumed = link.good("resume", file=row["file"])
    assert (resumed["id"], resumed["prompt"], resumed["session"], resumed["forked"]) == (agent, "", row["file"], False)
    assert resumed["worktreePath"] == record.worktree_path
    assert link.good("resumable")["sessions"] == []


def test_modes_are_looked_up_where_the_session_is(stage: Orchestra, link: Companion) -> None:
    path = stage.repo.path / ".pi" / "modes.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"modes": {"fast": {"provider": "p", "modelId": "m", "thinkingLevel": "low"}}}))
    assert link.good("mode", name="fast") == {"ok": True, "spec": "p/m:low", "mode": "fast", "warnings": []}
    missing = link.good("mode", name="slow")
    assert (missing["spec"], missing["mode"]) == (None, None)
    assert "'slow'" in missing["warnings"][0]
    assert link.good("mode", provider="p", model="m", thinking="low")["mode"] == "fast"
    assert link.good("mode", provider="p", model="m", thinking="high")["spec"] == "p/m:high"


def test_a_nested_agent_s_companion_knows_its_depth_and_its_limit(stage: Orchestra, link: Companion) -> None:
    outer = link.start("say: outer", "outer")
    stage.eventually_idle(outer)
    with companion(stage.inside(stage.row(outer))) as nested:
        ready = nested.seen[0]["ready"]
        assert (ready["agent"], ready["depth"], ready["mayStart"]) == (outer, 1, True)
        inner = nested.start("say: inner", "inner")
        assert (stage.row(inner).depth, stage.row(inner).parent_agent_id) == (2, outer)
        stage.eventually_idle(inner)
        with companion(stage.inside(stage.row(inner))) as deepest:
            assert deepest.seen[0]["ready"]["mayStart"] is False
            refused = deepest.call("agent-start", description="x", branchHint="x", client="script")
            assert refused["code"] == "depth"


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b'{"id": 1, "call": "status"}\n', "usage"),
        (b"nonsense\n", "usage"),
        (json.dumps(hello()).replace('"protocol": 1', '"protocol": 2').encode() + b"\n", "usage"),
    ],
)
def test_without_a_greeting_it_ends_and_says_why(stage: Orchestra, first: bytes, code: str) -> None:
    with companion(stage, greet=False) as link:
        link.write(first)
        assert link.until(lambda message: "fatal" in message)["fatal"]["code"] == code
        assert link.process.wait(SLOW) == 2


def test_outside_of_a_repository_it_ends_and_says_so(stage: Orchestra, tmp_path: Path) -> None:
    from dataclasses import replace

    folder = tmp_path / "plain"
    folder.mkdir()
    with companion(replace(stage, cwd=folder), greet=False) as link:
        link.write(hello())
        fatal = link.until(lambda message: "fatal" in message)["fatal"]
        assert fatal["code"] == "not-a-repository"
        assert link.process.wait(SLOW) == 8


def test_its_input_s_end_ends_it_also_while_calls_wait(stage: Orchestra, link: Companion) -> None:
    agent = link.start("sleep: 600")
    for _ in range(5):
        link.begin("agent-wait-any", ids=[agent])
    assert link.close() == 0
    assert stage.row(agent).status is AgentStatus.RUNNING, "the agent goes on"


def test_a_closed_output_ends_it_at_once(stage: Orchestra) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*PROGRAM, "companion"], cwd=stage.cwd, env=environment(stage), stdin=subprocess.PIPE, stdout=writer
    )
    os.close(writer)
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(hello()).encode() + b"\n")
        process.stdin.flush()
        assert b"ready" in os.read(reader, 65536)
        os.close(reader)
        assert process.wait(SLOW) == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def test_the_death_of_its_parent_ends_it_even_when_somebody_else_holds_its_input(
    stage: Orchestra, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen({[*PROGRAM, 'companion']!r}, stdin=sys.stdin, stdout=subprocess.DEVNULL)\n"
        f"open({str(told)!r}, 'w').write(str(p.pid))\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=stage.cwd, env=environment(stage), stdin=subprocess.PIPE
    )
    assert parent.stdin is not None
    try:
        parent.stdin.write(json.dumps(hello()).encode() + b"\n")
        parent.stdin.flush()
        pid = int(eventually(lambda: told.exists() and told.read_text(), SLOW))
        ref = processes.identify(pid)
        assert ref is not None
        eventually(lambda: (Path("/proc") / str(pid) / "task").exists() and _threads(pid) >= 4, SLOW)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        eventually(lambda: not processes.is_alive(ref), SLOW)
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_an_end_in_the_middle_of_a_start_leaves_everything_sound(stage: Orchestra) -> None:
    with companion(stage) as link:
        link.good("status")
        for number in range(4):
            link.begin("agent-start", description="say: hello", branchHint=f"cut-{number}", client="script")
        link.close()
    for row in eventually(lambda: _settled(stage), SLOW).values():
        assert row in (AgentStatus.RUNNING, AgentStatus.WAITING_USER, AgentStatus.CRASHED)
    stage.assert_sound()


def _settled(stage: Orchestra) -> dict[str, AgentStatus] | None:
    rows = {record.id: record.status for record in stage.listed().records}
    return rows if rows and not any(status.is_starting for status in rows.values()) else None


def test_signals_of_the_terminal_are_for_the_session(stage: Orchestra, link: Companion) -> None:
    assert os.getsid(link.process.pid) == link.process.pid
    os.kill(link.process.pid, signal.SIGINT)
    assert link.good("status")["text"] == ""


def test_what_is_printed_by_mistake_never_reaches_the_extension(stage: Orchestra) -> None:
    code = (
        "import os, sys\n"
        "from side_agents.companion import warming\n"
        "warming.warm = lambda context: (print('from Python', flush=True), os.system('echo from a program; cat'))\n"
        "from side_agents.__main__ import main\n"
        "sys.argv = ['side-agents', 'companion']\n"
        "sys.exit(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=stage.cwd,
        env=environment(stage),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(hello()).encode() + b'\n{"id": 1, "call": "status"}\n')
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        rest, errors = process.communicate(timeout=SLOW)
    assert [next(iter(line)) for line in lines] == ["ready", "id"]
    assert rest == b""
    assert errors == b"from Python\nfrom a program\n"


def test_an_idle_companion_with_ten_agents_starts_nothing_and_sleeps(stage: Orchestra, link: Companion) -> None:
    agents = [link.start("say: here", f"idle-{number}") for number in range(10)]
    for agent in agents:
        link.good("agent-wait-any", ids=[agent])
    pid = link.process.pid
    eventually(lambda: not children_of(pid), SLOW)
    eventually(lambda: _is_asleep(pid), SLOW)
    before = _cost(pid)
    # A span of time is what is measured here.
    link.process.poll()
    with pytest.raises(subprocess.TimeoutExpired):
        link.process.wait(3)
    spent, switches, reaped = (after - begin for after, begin in zip(_cost(pid), before, strict=True))
    assert reaped == 0, "it has started and waited for processes"
    assert children_of(pid) == []
    assert spent / 3e9 < 0.01
    assert switches < 10
    assert _megabytes(pid) < 60


def _is_asleep(pid: int) -> bool:
    """Whether a moment passes in which it does nothing."""
    before = _cost(pid)
    with pytest.raises(AssertionError):
        eventually(lambda: False, 0.5)
    return _cost(pid)[1] == before[1]


def _cost(pid: int) -> tuple[int, int, int]:
    """Nanoseconds of processor time, voluntary switches, and page faults of children that it has waited for."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    spent = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    switches = sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return spent, switches, int(stat[8])


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
