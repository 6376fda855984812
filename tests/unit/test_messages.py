"""What a message to an agent means."""

from __future__ import annotations

import pytest

from side_agents.core.results import REPORTED_QUEUED, REPORTED_TAKEN, Sent
from side_agents.core.send import Message, parse_message
from side_agents.core.views import delivery_message
from side_agents.models import DeliveryState


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("! stop that", Message(True, "stop that")),
        ("!stop that", Message(True, "stop that")),
        ("!", Message(True, "")),
        ("!  \n ", Message(True, "")),
        ("/compact now", Message(False, "/compact now")),
    ],
)
def test_u34_a_leading_mark_interrupts_and_a_slash_goes_through(raw: str, message: Message) -> None:
    assert parse_message(raw) == message


def test_u35_a_quit_command_is_sent_verbatim() -> None:
    assert parse_message("/quit") == Message(False, "/quit")
    assert parse_message("!/quit") == Message(True, "/quit")


@pytest.mark.parametrize("raw", ["", "hello!", " ! not first", "  indented\n\ttext \n"])
def test_anything_else_is_taken_as_it_is(raw: str) -> None:
    assert parse_message(raw) == Message(False, raw)


def test_only_the_first_mark_is_an_interrupt() -> None:
    assert parse_message("!!ls") == Message(True, "!ls")


@pytest.mark.parametrize(
    ("state", "evidence", "words"),
    [
        (DeliveryState.SUBMITTED, REPORTED_TAKEN, "Sent: fix has taken the message."),
        (DeliveryState.QUEUED, REPORTED_QUEUED, "Queued: fix is busy and takes the message when its turn ends."),
        (DeliveryState.SUBMITTED, "it left the box", "Sent: fix has taken the message (it left the box)."),
    ],
)
def test_what_became_of_a_message_is_said_once(state: DeliveryState, evidence: str, words: str) -> None:
    assert delivery_message(Sent(agent_id="fix", state=state, evidence=evidence)) == words
