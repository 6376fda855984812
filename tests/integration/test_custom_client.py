"""A client that only the configuration describes, and that is judged by a screen which stays still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conversation import fickle, status_of, took, wait_any
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.models import AgentStatus, DeliveryState
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

QUIET = "quiet_seconds = 0.5"


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_a_quiet_screen_is_waiting_and_output_is_running(stage: Orchestra) -> None:
    stage.configure("send_timeout = 3\n" + fickle("silent", status="quiet-screen", more=QUIET))
    record = stage.start("say hello", client="fickle")
    first = wait_any(stage, record.id)
    assert first.checked.record is not None
    assert (first.checked.record.turn, first.reason) == (1, "turn 1")
    sent = stage.send(record.id, "work on it")
    assert (sent.state, sent.evidence) == (DeliveryState.SUBMITTED, "the text left the input box")
    stage.eventually_status(record.id, AgentStatus.RUNNING)
    second = wait_any(stage, record.id, after=first.cursor)
    assert second.checked.record is not None
    assert (second.checked.record.turn, status_of(second)) == (2, AgentStatus.WAITING_USER)
    assert "working 11" in second.checked.backlog
    assert took(stage, record.id) == ["work on it"]
    # Still the same stop, however often one looks.
    assert stage.check(record.id).record == second.checked.record
    stage.send(record.id, "/quit")
    stage.eventually_status(record.id, AgentStatus.DONE)


@pytest.mark.parametrize("status", ["quiet-screen", "journal"])
def test_the_first_prompt_is_pasted_once_and_whole(stage: Orchestra, status: str) -> None:
    mode = "silent" if status == "quiet-screen" else "plain"
    stage.configure(fickle(mode, prompt="paste", status=status, more=QUIET))
    prompt = '- first line\n\nthird line with "quotes" and 中文\n'
    record = stage.start(prompt, client="fickle")
    assert took(stage, record.id) == [prompt.rstrip("\n")]
    assert record.warnings == ()
    told = wait_any(stage, record.id)
    assert told.checked.record is not None
    assert told.checked.record.turn == 1, "being quiet before the prompt was no turn"
    assert told.checked.record.kickoff_pending is None


def test_a_client_that_takes_no_first_prompt_says_so_and_waits(stage: Orchestra) -> None:
    stage.configure("send_timeout = 1\n" + fickle("deaf", prompt="paste", more=QUIET))
    record = stage.start("hello there", client="fickle")
    assert any("typed_not_submitted" in warning for warning in record.warnings)
    told = wait_any(stage, record.id, timeout=5.0)
    assert status_of(told) is AgentStatus.WAITING_USER
    assert "hello there" in stage.screen(record.id)


def test_a_client_that_ends_before_its_first_prompt_is_failed_and_nothing_is_typed(stage: Orchestra) -> None:
    stage.configure('[clients.fleeting]\nargv = ["sh", "-c", "exit 3"]\nprompt = "paste"\nready_pattern = "^never"\n')
    record = stage.start("run me", client="fleeting")
    failed = stage.eventually_status(record.id, AgentStatus.FAILED).record
    assert failed is not None
    assert failed.exit_code == 3
    assert "run me" not in stage.screen(record.id)


def test_a_client_without_a_journal_and_without_a_readable_box_is_unknown_and_soon(stage: Orchestra) -> None:
    stage.configure(
        '[clients.blind]\nargv = ["sh", "-c", "cat > got"]\nprompt = "file"\nprompt_args = ["{prompt_file}"]\n' + QUIET
    )
    record = stage.start("x", client="blind")
    wait_any(stage, record.id)
    sent = stage.send(record.id, "hello")
    assert sent.state is DeliveryState.UNKNOWN
    got = stage.slot(1) / "got"
    eventually(lambda: got.read_text() == "hello\n", SLOW)
    assert wait_any(stage, record.id).cursor


def fickle_agent(stage: Orchestra, mode: str, **more: str) -> str:
    """An agent that is judged by its screen, and whose first prompt is over."""
    stage.configure("send_timeout = 2.5\n" + fickle(mode, status="quiet-screen", more=QUIET, **more))
    record = stage.start("x", client="fickle")
    wait_any(stage, record.id)
    return record.id


@pytest.mark.parametrize("box", ["^>(.*)$", "^> (.*)$"])
def test_an_empty_box_is_seen_though_tmux_cuts_the_blank_behind_its_prompt(stage: Orchestra, box: str) -> None:
    name = fickle_agent(stage, "echo", box=box)
    for message in ("please fix the flaky test", "second message"):
        sent = stage.send(name, message)
        assert (sent.state, sent.evidence) == (DeliveryState.SUBMITTED, "the text left the input box")
    assert took(stage, name) == ["please fix the flaky test", "second message"]


@pytest.mark.parametrize("mode", ["confirm", "mute"])
def test_a_message_in_the_conversation_is_not_taken_for_the_box_and_gets_no_second_enter(
    stage: Orchestra, mode: str
) -> None:
    name = fickle_agent(stage, mode)
    sent = stage.send(name, "please tidy up the test data")
    assert sent.state is DeliveryState.UNKNOWN
    assert "below it" in sent.evidence
    assert took(stage, name) == ["please tidy up the test data"], "a second Enter would have been the answer"


def test_a_lost_enter_is_pressed_once_more_where_nothing_changed(stage: Orchestra) -> None:
    name = fickle_agent(stage, "deaf-once", box="^> (.*)$")
    assert stage.send(name, "please tidy up the test data").state is DeliveryState.SUBMITTED
    assert took(stage, name) == ["please tidy up the test data"]


def test_a_dialog_that_takes_the_place_of_the_box_before_enter_is_not_answered(stage: Orchestra) -> None:
    name = fickle_agent(stage, "stealth")
    sent = stage.send(name, "use the fake clock")
    assert sent.state is DeliveryState.TYPED_NOT_SUBMITTED
    assert "box is gone" in sent.evidence
    assert not took(stage, name)


def test_a_box_that_grows_with_the_text_is_no_dialog(stage: Orchestra) -> None:
    name = fickle_agent(stage, "tall")
    message = "\n".join(f"line {number}" for number in range(12))
    assert stage.send(name, message).state is DeliveryState.SUBMITTED
    assert took(stage, name) == [message]
