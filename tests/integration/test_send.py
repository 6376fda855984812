"""Sending: every message arrives once and whole, or the answer says truthfully what is known of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conversation import answer_of, child, fickle, idle, status_of, tmux, took, type_text, wait_any, waiter
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.clients import script_text
from side_agents.core import delivery, observe, views
from side_agents.errors import BusyError, RefusedError, TmuxError, TmuxUnreachableError, UnknownAgentError, UsageError
from side_agents.infra import fs
from side_agents.infra.tmux import Tmux
from side_agents.models import AgentRecord, AgentStatus, DeliveryState
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

QUICK = "send_timeout = 2.5\n"


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def fickle_agent(stage: Orchestra, mode: str, **more: Any) -> AgentRecord:
    stage.configure(QUICK + fickle(mode, **more))
    return idle(stage, client="fickle")


def test_i10_a_plain_token_an_interrupting_token_and_a_quit(stage: Orchestra) -> None:
    record = idle(stage)
    sent = stage.send(record.id, "say: token-plain")
    assert sent.state is DeliveryState.SUBMITTED
    view = views.sent_view(sent)
    assert view["ok"] is True
    assert isinstance(view["message"], str), "U25"
    eventually(lambda: "token-plain" in stage.log(record.id), SLOW)
    stage.send(record.id, "sleep: 60")
    stage.event(record, "turn_start", 3)
    assert stage.send(record.id, "! say: token-bang").state is DeliveryState.SUBMITTED
    eventually(lambda: "token-bang" in stage.log(record.id), SLOW)
    row = stage.eventually_idle(record.id)
    assert [event["outcome"] for event in stage.journal(record.id) if event["type"] == "turn_end"][2] == "aborted"
    assert row.turn == 4
    assert stage.send(record.id, "!/quit").state is DeliveryState.SUBMITTED
    stage.eventually_status(record.id, AgentStatus.DONE)
    eventually(lambda: not stage.panes(), SLOW)


def test_a_bang_quit_ends_a_busy_agent(stage: Orchestra) -> None:
    record = stage.start("sleep: 60")
    stage.event(record, "turn_start")
    assert stage.send(record.id, "!/quit").state is DeliveryState.SUBMITTED
    stage.eventually_status(record.id, AgentStatus.DONE)


def test_u26_who_cannot_be_sent_to_is_refused_in_the_same_shape(stage: Orchestra) -> None:
    with pytest.raises(UnknownAgentError, match="nobody") as caught:
        stage.send("nobody", "hello")
    view = views.send_failure_view(caught.value)
    assert view["ok"] is False
    assert isinstance(view["message"], str)
    assert not (stage.repo.path / ".pi").exists()
    with pytest.raises(UsageError, match="No agent id"):
        stage.send(" ", "hello")
    record = idle(stage)
    stage.quit(record.id)
    with pytest.raises(RefusedError, match="has ended"):
        stage.send(record.id, "hello")


@pytest.mark.parametrize("message", ["", " \n\t ", "\x1b[31m\x07", "x" * 2_000_000, "字" * 700_000])
def test_empty_and_huge_messages_are_refused_before_anything_is_touched(stage: Orchestra, message: str) -> None:
    with pytest.raises(UsageError, match="Nothing was sent"):
        stage.send("whoever", message)
    assert not (stage.repo.path / ".pi").exists()


MESSAGES = {
    "two lines": "first\nsecond line",
    "many lines": "\n".join(f"line {number}" for number in range(60)),
    "100 kB": "0123456789" * 10_000,
    "100 kB of Chinese": "修复登录页面\n" * 5_000 + "完",
    "emoji": "👩‍👩‍👧‍👦 é ñ 🇨🇳",
    "dash": "-rf --help",
    "at": "@README.md what is this",
    "slash inside": "look at /etc/hosts",
    "tabs": "a\tb\t\tc",
    "quotes": "`id` $HOME \"two\" 'one' \\ ; #{pane_id} %Y",
    "ends in semicolon": "run this;",
    "indented": "    four blanks before, two after  ",
}


def test_messages_of_every_kind_arrive_as_they_are(stage: Orchestra) -> None:
    record = idle(stage)
    for number, (name, message) in enumerate(MESSAGES.items()):
        sent = stage.send(record.id, message)
        assert sent.state is DeliveryState.SUBMITTED, (name, sent)
        eventually(lambda expected=number + 2: len(stage.messages(record)) == expected, SLOW)  # type: ignore[misc]
        assert stage.messages(record)[-1] == message, name
        stage.eventually_idle(record.id)
    assert "side-agents-" not in tmux(stage, "list-buffers"), "no buffer is left"


CLEANED = {
    "end of paste": ("before\x1b[201~\rtouch pwned\r after", "before\ntouch pwned\n after"),
    "start of paste": ("a\x1b[200~b", "ab"),
    "crlf": ("one\r\ntwo\r\n", "one\ntwo"),
    "old mac": ("one\rtwo", "one\ntwo"),
    "keys": ("a\x03b\x04c\x1ad\x7fe", "abcde"),
    "c1": ("a\x9b201~b", "ab"),
    "blank lines around": ("\n\n  text\n\n", "  text"),
    "no text": ("half \udce9", "half \ufffd"),
}


def test_controls_never_become_keys(stage: Orchestra) -> None:
    record = idle(stage)
    for number, (name, (message, arrives)) in enumerate(CLEANED.items()):
        assert stage.send(record.id, message).state is DeliveryState.SUBMITTED, name
        eventually(lambda expected=number + 2: len(stage.messages(record)) == expected, SLOW)  # type: ignore[misc]
        assert stage.messages(record)[-1] == arrives, name
        assert stage.eventually_idle(record.id).turn == number + 2
    assert not (Path(record.worktree_path or "") / "pwned").exists()


def assert_refused(stage: Orchestra, record: AgentRecord, match: str, message: str = "run: touch pwned") -> None:
    """Refused, with nothing typed: the screen stays as it is, and nothing was carried out."""
    before = stage.screen(record.id)
    events = stage.journal(record.id)
    with pytest.raises(RefusedError, match=match) as caught:
        stage.send(record.id, message)
    assert "othing was sent" in caught.value.message
    assert stage.screen(record.id) == before
    assert stage.journal(record.id) == events
    assert not (Path(record.worktree_path or "") / "pwned").exists()


def test_x3_a_suspended_agent_is_refused_and_takes_messages_again_after_fg(stage: Orchestra) -> None:
    record = idle(stage)
    stage.server.tmux.send_keys(record.tmux_pane_id or "", "C-z")
    stage.event(record, "suspended")
    eventually(lambda: stage.screen(record.id).endswith(("$", "#")), SLOW)
    assert_refused(stage, record, "suspended")
    assert_refused(stage, record, "suspended", "!touch pwned")
    assert stage.check(record.id).record is not None
    assert stage.row(record.id).suspended is True
    stage.server.tmux.send_keys(record.tmux_pane_id or "", "f", "g", "Enter")
    stage.event(record, "continued")
    eventually(lambda: "script · idle" in stage.screen(record.id).splitlines()[-1], SLOW)
    assert stage.send(record.id, "say: back").state is DeliveryState.SUBMITTED


def test_x3_a_shell_in_the_foreground_that_no_event_told_of_is_refused(stage: Orchestra) -> None:
    record = idle(stage)
    pid = int(stage.event(record, "client")["pid"])
    os.kill(pid, signal.SIGSTOP)
    stage.event(record, "suspended")
    eventually(lambda: stage.screen(record.id).endswith(("$", "#")), SLOW)
    # As if the launcher had not said so.
    journal = stage.context.paths.runtime(record.id).journal
    journal.write_text("".join(line for line in journal.read_text().splitlines(True) if "suspended" not in line))
    assert_refused(stage, record, "another program|suspended")


def test_x3_a_window_of_an_ended_agent_that_waits_for_a_key_is_refused(stage: Orchestra) -> None:
    record = stage.start("fail: 3")
    stage.eventually_status(record.id, AgentStatus.FAILED)
    eventually(lambda: "Press any key" in stage.screen(record.id), SLOW)
    assert_refused(stage, record, "has failed")
    assert_refused(stage, record, "has failed", "!")
    assert stage.panes(), "not even a key was pressed"


def test_x3_the_window_of_a_start_script_that_failed_is_refused(stage: Orchestra) -> None:
    stage.repo.write(".pi/side-agent-start.sh", "exit 7\n").chmod(0o755)
    record = stage.start()
    stage.eventually_status(record.id, AgentStatus.FAILED)
    eventually(lambda: "Press any key" in stage.screen(record.id), SLOW)
    assert_refused(stage, record, "start script")


def test_x16_send_needs_no_tmux_around_it_and_reaches_no_other_server(stage: Orchestra) -> None:
    record = idle(stage)
    other = PrivateServer()
    try:
        # Another server whose first agent-like pane has the very same ids.
        other.start()
        other.start(session="more")
        twin = next(pane for pane in other.sweep().panes if pane == record.tmux_pane_id)
        for values in ({"TMUX": "", "TMUX_PANE": ""}, {"TMUX": f"{other.tmux.socket},{other.pid()},0"}):
            stage.environment.update(values)
            assert stage.send(record.id, "say: here").state is DeliveryState.SUBMITTED
        assert not "".join(other.tmux.capture(twin)).strip()
    finally:
        other.stop()


def test_x19_a_bare_bang_at_idle_changes_nothing_and_a_wait_does_not_hang(stage: Orchestra) -> None:
    record = idle(stage)
    sent = stage.send(record.id, "!")
    assert sent.state is DeliveryState.INTERRUPTED
    assert views.sent_view(sent)["ok"] is True
    assert status_of(wait_any(stage, record.id, timeout=5.0)) is AgentStatus.WAITING_USER
    # Twice in quick succession must not quit it, as two Ctrl+C would.
    stage.send(record.id, "!")
    stage.send(record.id, "!")
    assert stage.send(record.id, "say: still here").state is DeliveryState.SUBMITTED
    assert stage.eventually_idle(record.id).turn == 2


def test_a_bare_bang_ends_a_running_turn_and_says_so_to_who_waits(stage: Orchestra) -> None:
    record = stage.start("sleep: 60")
    stage.event(record, "turn_start")
    with waiter(stage, record.id) as told:
        stage.send(record.id, "!")
        found = told.result(SLOW)
    assert found.reason == "turn 1 aborted"
    assert status_of(found) is AgentStatus.WAITING_USER


def test_report_29_a_half_typed_draft_is_refused_and_left_intact(stage: Orchestra) -> None:
    record = idle(stage)
    type_text(stage, record, "rm -rf half typed")
    assert_refused(stage, record, "rm -rf half typed")
    assert_refused(stage, record, "half typed", "!say: x")
    assert "› rm -rf half typed" in stage.screen(record.id)
    stage.server.tmux.send_keys(record.tmux_pane_id or "", "C-u")
    eventually(lambda: "half typed" not in stage.screen(record.id), SLOW)
    assert stage.send(record.id, "say: now").state is DeliveryState.SUBMITTED
    assert stage.messages(record)[-1] == "say: now"


def test_report_29_a_draft_is_noticed_before_the_interrupt_key_which_may_clear_it(stage: Orchestra) -> None:
    record = stage.start("sleep: 60")
    stage.event(record, "turn_start")
    type_text(stage, record, "half typed")
    with pytest.raises(RefusedError, match="half typed"):
        stage.send(record.id, "!say: x")
    assert stage.row(record.id).turn_open is True
    assert not [event for event in stage.journal(record.id) if event["type"] == "turn_end"]
    # Without a text there is nothing that could be mixed up with the draft.
    assert stage.send(record.id, "!").state is DeliveryState.INTERRUPTED
    stage.event(record, "turn_end")
    assert "› half typed" in stage.screen(record.id)


def test_copy_mode_is_refused(stage: Orchestra) -> None:
    record = idle(stage)
    tmux(stage, "copy-mode", "-t", record.tmux_pane_id or "")
    assert_refused(stage, record, "copy mode")
    assert_refused(stage, record, "copy mode", "!")
    tmux(stage, "send-keys", "-X", "-t", record.tmux_pane_id or "", "cancel")
    assert stage.send(record.id, "say: now").state is DeliveryState.SUBMITTED


def test_report_62_a_permission_dialog_is_refused_and_not_answered(stage: Orchestra) -> None:
    record = stage.start("permit: delete it all?\nsay: done")
    stage.eventually_status(record.id, AgentStatus.WAITING_USER)
    for message in ("y", "!y", "!", "run: touch pwned"):
        assert_refused(stage, record, "delete it all", message)
    assert stage.row(record.id).waiting_for == "permission"
    eventually(lambda: "Allow: delete it all?" in stage.screen(record.id), SLOW)
    stage.server.tmux.send_keys(record.tmux_pane_id or "", "y")
    stage.eventually_idle(record.id)
    eventually(lambda: stage.row(record.id).turn == 1 or stage.check(record.id) is None, SLOW)


def test_report_62_a_dialog_that_comes_with_readiness_is_seen(stage: Orchestra) -> None:
    go = stage.repo.path.parent / "go"
    stage.repo.write(".pi/side-agent-start.sh", f"until [ -e '{go}' ]; do sleep 0.02; done\n").chmod(0o755)
    stage.configure(fickle("dialog"))
    record = stage.start(client="fickle")
    lock = stage.context.paths.send_lock(record.id)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(stage.send, record.id, "y")
        eventually(lambda: lock.exists() and lock.stat().st_size, SLOW)
        go.touch()
        with pytest.raises(RefusedError, match=r"Delete everything.*"):
            sent.result(SLOW)
    assert not took(stage, record.id)
    assert "> y" not in stage.screen(record.id)


def test_report_62_a_dialog_that_opens_before_enter_is_not_answered(stage: Orchestra) -> None:
    record = fickle_agent(stage, "ambush")
    sent = stage.send(record.id, "use the fake clock")
    assert sent.state is DeliveryState.TYPED_NOT_SUBMITTED
    assert "permission dialog (Delete everything?)" in sent.evidence
    assert not took(stage, record.id)


def test_report_62_a_dialog_that_opened_since_the_look_is_refused(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = fickle_agent(stage, "plain")
    deliver = delivery.deliver

    def ask_and_deliver(target: delivery.Target, *args: Any, **more: Any) -> Any:
        fs.append_line(target.runtime.journal, '{"type":"waiting","for":"trust","text":"Trust it?"}')
        return deliver(target, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(delivery, "deliver", ask_and_deliver)
        with pytest.raises(RefusedError, match=r"trust dialog \(Trust it\?\)\. Nothing was sent"):
            stage.send(record.id, "hello")
    assert not took(stage, record.id)


def test_a_question_is_answered(stage: Orchestra) -> None:
    record = stage.start("ask: which colour?\nsay: so it is {answer}")
    stage.eventually_status(record.id, AgentStatus.WAITING_USER)
    assert stage.row(record.id).waiting_for == "question"
    assert stage.send(record.id, "blue").state is DeliveryState.SUBMITTED
    assert wait_any(stage, record.id).reason == "turn 1 completed"
    assert stage.row(record.id).last_turn_text == "so it is blue"


def test_report_37_a_busy_agent_queues_the_message_and_takes_it_once_later(stage: Orchestra) -> None:
    record = stage.start("run: until [ -e go ]; do sleep 0.02; done")
    stage.event(record, "turn_start")
    sent = stage.send(record.id, "say: later")
    assert sent.state is DeliveryState.QUEUED
    assert views.sent_view(sent)["ok"] is True
    assert stage.row(record.id).turn_open is True
    assert len(stage.messages(record)) == 1
    (Path(record.worktree_path or "") / "go").touch()
    eventually(lambda: stage.check(record.id).record is not None and stage.row(record.id).turn == 2, SLOW)
    assert stage.messages(record)[1:] == ["say: later"]


def test_report_27_a_lost_enter_is_pressed_once_more(stage: Orchestra) -> None:
    record = fickle_agent(stage, "deaf-once")
    assert stage.send(record.id, "hello you").state is DeliveryState.SUBMITTED
    assert took(stage, record.id) == ["hello you"]


def test_report_30_a_message_that_is_never_submitted_is_reported_so(stage: Orchestra) -> None:
    record = fickle_agent(stage, "deaf")
    sent = stage.send(record.id, "hello you")
    assert sent.state is DeliveryState.TYPED_NOT_SUBMITTED
    view = views.sent_view(sent)
    assert (view["ok"], view["code"], view["delivery"]) == (False, "not-delivered", "typed_not_submitted")
    assert stage.screen(record.id).count("hello you") == 1, "report 31: it was not typed again"
    assert_refused(stage, record, "hello you", "next")


def test_a_client_that_takes_the_text_and_journals_nothing_is_unknown(stage: Orchestra) -> None:
    stage.configure(QUICK + fickle("forgetful"))
    record = idle(stage, client="fickle")
    sent = stage.send(record.id, "hello you")
    assert sent.state is DeliveryState.UNKNOWN
    assert views.sent_view(sent)["ok"] is False
    assert took(stage, record.id) == ["hello you"], "report 31: it was not sent again"


def test_report_29_a_person_who_types_after_the_message_was_taken_is_not_submitted(stage: Orchestra) -> None:
    stage.configure("send_timeout = 3.0\n" + fickle("forgetful"))
    record = idle(stage, client="fickle")
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(stage.send, record.id, "hello you")
        eventually(lambda: took(stage, record.id), SLOW)
        type_text(stage, record, "half a thought")
        assert sent.result(SLOW).state is DeliveryState.UNKNOWN
    assert took(stage, record.id) == ["hello you"]
    assert "> half a thought" in stage.screen(record.id)


def test_a_send_returns_when_the_turn_has_begun_so_that_a_wait_is_not_told_of_the_stop_before(stage: Orchestra) -> None:
    record = fickle_agent(stage, "late")
    assert stage.send(record.id, "one").state is DeliveryState.SUBMITTED
    told = wait_any(stage, record.id)
    assert told.checked.record is not None
    assert told.checked.record.turn == 2


def test_an_agent_that_dies_while_it_is_sent_to_is_unknown_and_soon(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = idle(stage)
    paste = Tmux.paste

    def paste_and_die(self: Tmux, pane_id: str, data: bytes) -> None:
        paste(self, pane_id, data)
        tmux(stage, "kill-window", "-t", record.tmux_window_id or "")

    with monkeypatch.context() as patch:
        patch.setattr(Tmux, "paste", paste_and_die)
        sent = stage.send(record.id, "hello")
    assert sent.state is DeliveryState.UNKNOWN
    stage.eventually_status(record.id, AgentStatus.CRASHED)


@pytest.mark.parametrize(
    ("mode", "message", "how"),
    [("mortal", "/compact now", "by signal"), ("forgetful", "/fail", "exit code 3"), ("mortal", "/quit", "by signal")],
)
def test_a_command_to_an_agent_that_dies_is_not_proved_by_its_death(
    stage: Orchestra, mode: str, message: str, how: str
) -> None:
    record = fickle_agent(stage, mode)
    sent = stage.send(record.id, message)
    assert sent.state is DeliveryState.UNKNOWN
    assert how in sent.evidence


def test_a_quit_that_no_event_told_of_is_proved_by_an_end_in_order(stage: Orchestra) -> None:
    record = fickle_agent(stage, "forgetful")
    assert stage.send(record.id, "/quit").state is DeliveryState.SUBMITTED


def test_an_agent_that_was_stopped_is_said_to_have_been(stage: Orchestra) -> None:
    record = idle(stage)
    stage.stop(record.id)
    with pytest.raises(RefusedError, match=f"{record.id} was stopped. Nothing was sent"):
        stage.send(record.id, "hello")


@pytest.mark.parametrize("step", ["paste", "send_keys"])
def test_a_tmux_that_hangs_after_something_was_typed_is_unknown_not_failed(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    record = idle(stage)

    def hang(self: Tmux, *args: object) -> None:
        raise TmuxUnreachableError("tmux did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Tmux, step, hang)
        sent = stage.send(record.id, "hello")
    assert sent.state is DeliveryState.UNKNOWN
    assert "tmux stopped answering" in sent.evidence


def test_a_paste_that_tmux_refuses_is_an_error_and_nothing_was_typed(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = idle(stage)

    def refuse(self: Tmux, pane_id: str, data: bytes) -> None:
        raise TmuxError("tmux: not enough memory")

    with monkeypatch.context() as patch:
        patch.setattr(Tmux, "paste", refuse)
        with pytest.raises(TmuxError, match="memory"):
            stage.send(record.id, "hello")
    assert stage.send(record.id, "say: fine").state is DeliveryState.SUBMITTED


def test_a_message_that_was_taken_is_not_reported_as_failed_when_the_registry_is_busy(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = idle(stage)
    refresh = observe.refresh

    def busy_after(*args: Any, **more: Any) -> Any:
        if more.get("probe") is False:
            raise BusyError("somebody holds the registry")
        return refresh(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(observe, "refresh", busy_after)
        assert stage.send(record.id, "say: taken").state is DeliveryState.SUBMITTED


def test_a_send_in_the_first_moments_arrives_once_or_is_refused(stage: Orchestra) -> None:
    for number in range(3):
        record = stage.start(f"say: first {number}")
        message = f"say: early {number}"
        assert stage.send(record.id, message).state in (DeliveryState.SUBMITTED, DeliveryState.QUEUED)
        row = stage.row(record.id)
        eventually(lambda one=row, text=message: stage.messages(one)[1:] == [text], SLOW)  # type: ignore[misc]
        stage.stop(record.id)


def test_a_send_to_an_agent_without_a_runtime_folder_is_refused_and_makes_none(stage: Orchestra) -> None:
    idle(stage, branch_hint="other")
    owner = stage.row("other").owner
    with stage.context.registry.transaction("a start that is under way") as state:
        state.put(AgentRecord(id="begun", status=AgentStatus.ALLOCATING_WORKTREE, owner=owner, started_at="now"))
    with pytest.raises(RefusedError, match=r"being started|START_STUCK|crashed"):
        stage.send("begun", "hello")
    assert not stage.context.paths.runtime("begun").directory.exists()


def test_x25_two_senders_to_two_agents_do_not_mix(stage: Orchestra) -> None:
    agents = [idle(stage, branch_hint=name) for name in ("one", "two")]
    texts = {record.id: [f"{record.id} gets number {number}" for number in range(20)] for record in agents}
    senders = [child(stage, "send", record.id, *texts[record.id]) for record in agents]
    for sender in senders:
        assert set(answer_of(sender)) <= {DeliveryState.SUBMITTED, DeliveryState.QUEUED}
    for record in agents:
        expected = [f"say: {text}" for text in texts[record.id]]
        eventually(lambda one=record, all_=expected: stage.messages(one)[1:] == all_, SLOW)  # type: ignore[misc]


def test_x25_two_senders_to_one_agent_take_turns_and_every_message_arrives_once(stage: Orchestra) -> None:
    record = idle(stage)
    texts = [[f"from {name} number {number}" for number in range(20)] for name in ("one", "two")]
    senders = [child(stage, "send", record.id, *each) for each in texts]
    for sender in senders:
        assert set(answer_of(sender)) <= {DeliveryState.SUBMITTED, DeliveryState.QUEUED}
    eventually(lambda: len(stage.messages(record)) == 41, SLOW)
    got = [message.removeprefix("say: ") for message in stage.messages(record)[1:]]
    for each in texts:
        assert [message for message in got if message in each] == each, "in its sender's order, once, whole"


def test_what_the_script_client_takes_is_what_send_hashes() -> None:
    for message in (*MESSAGES.values(), *(arrives for _, arrives in CLEANED.values())):
        assert script_text.take_message(script_text.take_message(message)) == script_text.take_message(message)
