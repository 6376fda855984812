"""Notices end to end: to the session that started the agent, once, and to the sinks that are switched on."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import stat
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from many_support import Ran, following, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.core import notice_feed, notice_sinks, transitions
from side_agents.core.notice_feed import Feed
from side_agents.infra import clock
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

ESCAPES = "\x1b]0;owned\x07\x1b[31m"


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def notices(stage: Orchestra, **more: str) -> list[tuple[str, str]]:
    answer = run(stage, "notices", "--json", **more).json
    assert answer["ok"] is True
    return [(notice["agentId"], notice["toStatus"]) for notice in answer["notices"]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def settle(stage: Orchestra) -> None:
    """Tell the sinks of what happened so far, as if the time to settle were over."""
    stage.listed()
    notice_sinks.pump(stage.context, settle=timedelta(0))


def test_a_stream_tells_what_an_agent_asks_and_that_it_ended(stage: Orchestra) -> None:
    with following(stage, "--settle", "0") as stream:
        agent = stage.start("ask: which one?").id
        asks = stream.about(agent, "waiting_user")
        stage.send(agent, "this one")
        stage.send(agent, "/quit")
        ends = stream.about(agent, "done")
    assert (asks["waitingFor"], asks["text"], asks["orphaned"]) == ("question", "which one?", False)
    assert asks["message"].startswith(f"side-agent {agent}: ")
    assert "asks a question: which one?" in asks["message"]
    assert ends["endedBy"] == "exit"
    assert ends["seq"] > asks["seq"]


def test_what_has_not_settled_is_held_back_and_an_end_is_told_at_once(stage: Orchestra) -> None:
    with following(stage, "--settle", "3600") as stream:
        agent = stage.start("say: one\nquit").id
        stream.about(agent, "done")
        assert len(stream.rest()) == 1
    assert stream.seen[0]["fromStatus"] == "allocating_worktree"
    assert stream.seen[0]["coalescedCount"] >= 2


def test_a_stream_wakes_by_itself_when_a_change_has_settled(stage: Orchestra) -> None:
    with following(stage, "--settle", "0.3") as stream:
        agent = stage.start("say: hello").id
        notice = stream.about(agent, "waiting_user")
    told, seen = (datetime.fromisoformat(notice[key]) for key in ("emittedAt", "observedAt"))
    assert told - seen >= timedelta(seconds=0.3)


def test_x20_two_main_sessions_in_one_repository_each_hear_only_of_their_own(stage: Orchestra) -> None:
    one, two = "/conversations/one.jsonl", "/conversations/two.jsonl"
    first = run(stage, "start", "--client", "script", "--json", "fail: 3", SIDE_AGENTS_SESSION=one).json["id"]
    second = run(stage, "start", "--client", "script", "--json", "say: hi", SIDE_AGENTS_SESSION=two).json["id"]
    stage.eventually_status(first, *_ended())
    stage.eventually_idle(second)
    assert notices(stage, SIDE_AGENTS_SESSION=one) == [(first, "failed")]
    assert notices(stage, SIDE_AGENTS_SESSION=two) == [(second, "waiting_user")]
    assert notices(stage) == [(first, "failed"), (second, "waiting_user")]


def _ended() -> tuple[Any, ...]:
    from side_agents.models import AgentStatus

    return (AgentStatus.FAILED, AgentStatus.CRASHED, AgentStatus.DONE)


def test_each_notice_is_told_once_to_each_session(stage: Orchestra) -> None:
    agent = stage.start("fail: 3").id
    stage.eventually_status(agent, *_ended())
    assert notices(stage) == [(agent, "failed")]
    assert notices(stage) == []
    assert run(stage, "notices").out == "Nothing new.\n"
    with following(stage, "--settle", "0") as stream:
        other = stage.start("fail: 4").id
        stream.about(other, "failed")
        assert {line["agentId"] for line in stream.rest()} == {other}
    assert notices(stage) == []


def test_a_reader_that_was_killed_before_a_change_had_settled_lost_nothing(stage: Orchestra) -> None:
    with following(stage, "--settle", "3600") as stream:
        slow = stage.start("say: slow", branch_hint="slow").id
        stage.eventually_idle(slow)
        quick = stage.start("fail: 3", branch_hint="quick").id
        stream.about(quick, "failed")
        eventually((stage.meta / "sessions" / "main" / "cursor.json").exists, SLOW)
        os.kill(stream.process.pid, signal.SIGKILL)
        stream.process.wait()
    assert notices(stage) == [(slow, "waiting_user")]


def test_a_second_reader_of_the_same_session_is_refused_and_told_by_whom(stage: Orchestra) -> None:
    stage.start()
    with following(stage) as stream:
        eventually((stage.meta / "sessions" / "main" / "reader.lock").exists, SLOW)
        other = eventually(lambda: _busy(run(stage, "notices", "--follow", "--json")), SLOW)
        assert other is not None
        assert other.json["code"] == "busy"
        assert str(stream.process.pid) in other.json["error"]


def _busy(ran: Ran) -> Ran | None:
    return ran if ran.status == 5 else None


def test_asking_in_a_repository_that_never_had_agents_creates_nothing(stage: Orchestra) -> None:
    assert run(stage, "notices").out == "Nothing new.\n"
    assert not (stage.repo.path / ".pi").exists()


def test_what_an_agent_says_reaches_nobody_with_its_escapes(stage: Orchestra) -> None:
    agent = stage.start(f"ask: {ESCAPES}please\u202e look").id
    stage.eventually_idle(agent)
    shown = run(stage, "notices", "--json")
    settle(stage)
    told = (stage.meta / "sessions" / "main" / "notices.jsonl").read_text(encoding="utf-8")
    for text in (shown.out, told, run(stage, "notices").out):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
        assert "\\u001b" not in text
    assert shown.json["notices"][0]["text"] == "please look"


def test_the_journal_of_a_main_session_gets_its_notices_and_nobody_else_may_read_it(stage: Orchestra) -> None:
    agent = stage.start("fail: 3").id
    stage.eventually_status(agent, *_ended())
    settle(stage)
    settle(stage)
    journal = stage.meta / "sessions" / "main" / "notices.jsonl"
    assert [(line["agentId"], line["toStatus"]) for line in lines(journal)] == [(agent, "failed")]
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def test_a_pump_that_was_cut_off_before_its_cursor_was_written_tells_a_journal_nothing_twice(stage: Orchestra) -> None:
    agent = stage.start("fail: 3").id
    stage.eventually_status(agent, *_ended())
    cursor = stage.meta / "notices.cursor"
    settle(stage)
    cursor.unlink()
    (stage.meta / "notices.json").unlink()
    settle(stage)
    assert len(lines(stage.meta / "sessions" / "main" / "notices.jsonl")) == 1


def test_a_command_is_given_each_notice_once_as_json(stage: Orchestra, tmp_path: Path) -> None:
    told = tmp_path / "told.jsonl"
    stage.configure(f"notify_command = \"cat >> '{told}'; pwd >> '{told}.pwd'\"\nnotify_journal = false\n")
    agent = stage.start("fail: 3").id
    stage.eventually_status(agent, *_ended())
    settle(stage)
    settle(stage)
    assert [(line["agentId"], line["toStatus"]) for line in lines(told)] == [(agent, "failed")]
    assert Path(f"{told}.pwd").read_text().strip() == str(stage.repo.path)
    assert not (stage.meta / "sessions" / "main" / "notices.jsonl").exists()


def test_a_command_that_fails_hinders_nobody_and_is_reported(stage: Orchestra) -> None:
    stage.configure('notify_command = "echo no such host >&2; exit 7"\n')
    agent = stage.start("fail: 3").id
    stage.eventually_status(agent, *_ended())
    settle(stage)
    assert len(lines(stage.meta / "sessions" / "main" / "notices.jsonl")) == 1
    shown = run(stage, "notices")
    assert shown.status == 0
    assert "notify_command" in shown.err
    assert "7" in shown.err


def test_a_desktop_notification_is_plain_text_for_the_program_that_shows_it(stage: Orchestra, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{tmp_path}/shown'\n")
    program.chmod(0o755)
    stage.environment["PATH"] = f"{program.parent}:{stage.environment['PATH']}"
    stage.configure("notify_desktop = true\n")
    agent = stage.start("ask: <b>-x & y</b>").id
    stage.eventually_idle(agent)
    settle(stage)
    shown = (tmp_path / "shown").read_text().splitlines()
    assert shown[:3] == ["--app-name=side-agents", "--", "side-agents: project"]
    assert shown[3].endswith("&lt;b&gt;-x &amp; y&lt;/b&gt;")


def test_tmux_shows_a_line_where_the_parent_is_and_expands_nothing(stage: Orchestra) -> None:
    stage.configure("notify_tmux = true\n")
    agent = stage.start("ask: #{pid} #(touch owned)").id
    stage.eventually_idle(agent)
    with looking(stage) as screen:
        settle(stage)
        eventually(lambda: b"#{pid} #(touch owned)" in screen(), SLOW)
        assert f"side-agent {agent}: ".encode() in screen()
    assert not (stage.repo.path / "owned").exists()


@contextmanager
def looking(stage: Orchestra) -> Iterator[Callable[[], bytes]]:
    """A terminal that shows the first session; gives all that was drawn so far."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, 200))
    command = ["tmux", "-u", "-S", str(stage.server.tmux.socket), "attach-session", "-t", stage.pane.session_id]
    environment = {**stage.environment, "TERM": "screen-256color"}
    environment.pop("TMUX")
    client = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
    drawn = bytearray()

    def look() -> bytes:
        while select.select([master], [], [], 0.05)[0]:
            drawn.extend(os.read(master, 65536))
        return bytes(drawn)

    try:
        eventually(lambda: b"agent-" in look(), SLOW)
        yield look
    finally:
        client.kill()
        client.wait()
        os.close(slave)
        os.close(master)


def test_the_status_line_alone_passes_on_what_has_settled(stage: Orchestra) -> None:
    agent = run(stage, "start", "--client", "script", "--json", "say: hello").json["id"]
    stage.eventually_idle(agent)
    journal = stage.meta / "sessions" / "main" / "notices.jsonl"

    def look() -> list[dict[str, Any]]:
        assert agent in run(stage, "status").out
        return lines(journal)

    [told] = eventually(look, SLOW)
    assert told["toStatus"] == "waiting_user"


def test_a_change_is_not_told_before_the_registry_says_so(stage: Orchestra) -> None:
    stage.start("say: hello")
    path, cursor = stage.meta / "transitions.jsonl", stage.meta / "x.json"
    counter = stage.context.registry.read().extra[transitions.COUNTER]
    [change] = transitions.read(path, counter - 1, counter)
    transitions.append(path, [change], counter)
    feed = Feed(path, cursor, lambda _: True)
    feed.open()
    feed.collect(counter)
    [told] = feed.due(clock.now(), timedelta(0))
    assert told.number == counter


def test_a_notice_reads_as_a_person_would_say_it() -> None:
    from side_agents.core import notices as merging
    from side_agents.core.transitions import Change
    from side_agents.models import AgentStatus

    at = datetime(2026, 3, 3, 2, 58, tzinfo=UTC)
    change = Change(
        agent_id="a1",
        from_status=AgentStatus.RUNNING,
        to_status=AgentStatus.FAILED,
        window_index=3,
        error="exit\x1b[2J 3",
        parent_agent_id="a",
        orphaned=True,
    )
    [notice] = merging.merge({}, [change.transition], at).values()
    told = notice_feed.Told(notice, change)
    assert notice_feed.describe(told, UTC) == "side-agent a1: running -> failed (tmux #3, 02:58:00) [orphaned] exit 3"


def test_sinks_are_chosen_by_the_settings(stage: Orchestra) -> None:
    assert list(notice_sinks.chosen(stage.context)) == ["notify_journal"]
    stage.configure('notify_journal = false\nnotify_tmux = true\nnotify_desktop = true\nnotify_command = "true"\n')
    assert list(notice_sinks.chosen(stage.context)) == ["notify_tmux", "notify_desktop", "notify_command"]
