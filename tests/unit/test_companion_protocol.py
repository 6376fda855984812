"""Lines between a companion and its extension: what they mean, and what they must not be."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from side_agents.companion import protocol
from side_agents.companion.protocol import Call, Cancel, Hello, Idle, LineError, SessionChange, ToldNotice
from side_agents.infra.events import Wakeup, Watcher
from side_agents.infra.line_pipe import LineWriter, read_lines


def line(**data: Any) -> bytes:
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            line(hello={"protocol": 1, "session": "/a.jsonl", "host": "pi", "hostVersion": "1.6.0"}),
            Hello("/a.jsonl", "pi", "1.6.0"),
        ),
        (
            line(hello={"protocol": 1, "session": None, "linked": False, "acknowledges": True, "new": 1}),
            Hello(None, "", "", linked=False, acknowledges=True),
        ),
        (line(session="/b.jsonl"), SessionChange("/b.jsonl")),
        (line(session=None), SessionChange(None)),
        (line(session=""), SessionChange(None)),
        (line(idle=True), Idle(True)),
        (line(idle=False), Idle(False)),
        (line(id=7, call="status", input={"a": 1}), Call(7, "status", {"a": 1})),
        (line(id="x", call="status"), Call("x", "status", {})),
        (line(cancel=7), Cancel(7)),
        (line(told=12), ToldNotice(12)),
        (line(later="version"), None),
        (line(), None),
    ],
)
def test_each_kind_of_line_is_understood(raw: bytes, message: object) -> None:
    assert protocol.parse(raw) == message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense",
        b"\xff",
        b"7",
        b"null",
        b'"hello"',
        b"[" * 5000,
        line(hello=1),
        line(hello={}),
        line(hello={"protocol": True}),
        line(hello={"protocol": 2}),
        line(hello={"protocol": 1, "host": 7}),
        line(hello={"protocol": 1, "session": "a\0b"}),
        line(hello={"protocol": 1, "linked": "no"}),
        line(id=None, call="x"),
        line(id=1.5, call="x"),
        line(id=True, call="x"),
        line(cancel=None),
        line(told=True),
        line(idle=None),
        line(session=[]),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(LineError, match="Nothing was done"):
        protocol.parse(raw)


@pytest.mark.parametrize("raw", [line(id="k", call=7), line(id="k", call="x", input=[1])])
def test_a_call_that_makes_no_sense_keeps_its_id(raw: bytes) -> None:
    with pytest.raises(LineError) as caught:
        protocol.parse(raw)
    assert caught.value.call_id == "k"


def test_a_message_is_one_line_of_ascii_whatever_is_in_it() -> None:
    odd = "a\nb\u2028c\udcff\U0001f600"
    encoded = protocol.encode({"text": odd})
    assert encoded.isascii()
    assert encoded.count(b"\n") == 1
    assert json.loads(encoded) == {"text": odd}


@contextmanager
def pipes() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe."""
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        for end in (reader, writer):
            try:
                os.close(end)
            except OSError:
                continue


def lines_of(data: bytes, limit: int = 100) -> list[bytes | None]:
    ending = Wakeup()
    with pipes() as (reader, writer), pipes() as (_, answers):
        os.write(writer, data)
        os.close(writer)
        found = list(read_lines(reader, limit, ending=ending.fileno(), answers=answers))
    ending.close()
    return found


def test_lines_come_whole_and_a_torn_last_one_is_none() -> None:
    assert lines_of(b"one\n\ntwo\nthr") == [b"one", b"", b"two"]
    assert lines_of(b"") == []


def test_a_line_that_is_too_long_is_told_apart_and_the_next_one_is_whole() -> None:
    assert lines_of(b"x" * 101 + b"\nok\n" + b"y" * 100 + b"\n") == [None, b"ok", b"y" * 100]
    assert lines_of(b"z" * 50_000 + b"\nok\n", limit=10) == [None, b"ok"]


def test_reading_ends_at_once_when_it_is_told_to_or_nobody_reads_the_answers() -> None:
    ending = Wakeup()
    with pipes() as (reader, _), pipes() as (_, answers):
        ending.fire()
        assert list(read_lines(reader, 10, ending=ending.fileno(), answers=answers)) == []
    ending.reset()
    with pipes() as (reader, _), pipes() as (other, answers):
        os.close(other)
        assert list(read_lines(reader, 10, ending=ending.fileno(), answers=answers)) == []
    ending.close()


def test_a_writer_writes_more_than_a_pipe_holds_and_says_when_nobody_reads() -> None:
    with pipes() as (reader, writer):
        os.set_blocking(writer, True)
        LineWriter(writer).write(b"x" * 1000 + b"\n")
        assert os.read(reader, 5000) == b"x" * 1000 + b"\n"
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            LineWriter(writer).write(b"late\n")


def test_a_wakeup_ends_waits_until_it_is_reset() -> None:
    wakeup = Wakeup()
    with Watcher(wakeup=wakeup) as watcher:
        assert watcher.wait(0) is False
        wakeup.fire()
        wakeup.fire()
        assert wakeup.fired
        assert watcher.wait(None) is True
        assert watcher.wait(None) is True
        wakeup.reset()
        assert not wakeup.fired
        assert watcher.wait(0.01) is False
    wakeup.close()
    wakeup.fire()
    wakeup.close()
