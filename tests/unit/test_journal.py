"""The journal: what its lines add up to, however they are written and however they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from side_agents.core import journal
from side_agents.infra import fs
from side_agents.models import AgentRecord, AgentStatus, TurnOutcome, WaitingFor

RUNNING = AgentRecord(id="fix", status=AgentStatus.RUNNING)
WAITING = AgentStatus.WAITING_USER


def event(kind: str, **values: Any) -> dict[str, Any]:
    return {"type": kind, "at": "2026-03-03T02:58:00.000Z", **values}


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def fold(*events: dict[str, Any], record: AgentRecord = RUNNING) -> AgentRecord:
    return journal.fold(record, events)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "events.jsonl"
    path.write_bytes(content)
    return path


def read_all(path: Path, offset: int = 0) -> journal.JournalTail:
    """What repeated looks find, each at most one read."""
    found: list[journal.Event] = []
    while True:
        tail = journal.read(path, offset)
        found += tail.events
        if tail.offset == offset:
            return journal.JournalTail(tuple(found), offset)
        offset = tail.offset


# Reading


def test_a_missing_journal_has_no_events_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "events.jsonl"
    assert journal.read(path, 0) == journal.JournalTail((), 0)
    assert journal.size(path) == 0
    assert not path.parent.exists()


def test_reading_goes_on_behind_the_last_complete_line(tmp_path: Path) -> None:
    first, second = line(event("turn_start")), line(event("turn_end"))
    path = written(tmp_path, first)
    tail = journal.read(path, 0)
    assert ([e["type"] for e in tail.events], tail.offset) == (["turn_start"], len(first))
    assert journal.read(path, tail.offset) == journal.JournalTail((), len(first))

    path.write_bytes(first + second[:-1])
    assert journal.read(path, tail.offset) == journal.JournalTail((), len(first))
    path.write_bytes(first + second)
    assert [e["type"] for e in journal.read(path, tail.offset).events] == ["turn_end"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"5",
        b"null",
        b'"turn_end"',
        b"{}",
        b'{"type": 5}',
        b'{"type": null}',
        b'{"type": ["turn_end"]}',
        b'{"type": "turn_end"} {"type": "turn_end"}',
        b"[" * 100_000,
        b'{"type": "turn_end", "x": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda garbage: repr(garbage[:24]),
)
def test_a_line_that_is_no_event_is_passed_over(tmp_path: Path, garbage: bytes) -> None:
    good = line(event("turn_start"))
    content = good + garbage + b"\n" + good
    tail = journal.read(written(tmp_path, content), 0)
    assert [e["type"] for e in tail.events] == ["turn_start", "turn_start"]
    assert tail.offset == len(content)


def test_a_line_above_the_limit_is_stepped_over_and_nothing_in_it_is_an_event(tmp_path: Path) -> None:
    good = line(event("turn_start"))
    inner = line(event("turn_end"))
    with mock.patch.object(journal, "READ_LIMIT", 200):
        for padding in range(180, 420, 7):
            # Wherever a read ends inside the long line, its rest must not be taken for a line of its own.
            content = good + b"x" * padding + inner[:-1] + b" " * 250 + inner + good
            tail = read_all(written(tmp_path, content))
            assert [e["type"] for e in tail.events] == ["turn_start", "turn_start"], padding
            assert tail.offset == len(content)


def test_a_line_above_the_limit_is_not_read_again_while_it_grows(tmp_path: Path) -> None:
    good = line(event("turn_start"))
    path = written(tmp_path, good + b"x" * 1000)
    with mock.patch.object(journal, "READ_LIMIT", 200):
        tail = read_all(path)
        assert tail.offset > len(good) + 700
        path.write_bytes(good + b"x" * 1000 + line(event("turn_end")) + good)
        assert [e["type"] for e in read_all(path, tail.offset).events] == ["turn_start"]


def test_a_long_journal_is_read_in_bounded_parts(tmp_path: Path) -> None:
    one = line(event("input"))
    path = written(tmp_path, one * 100)
    with mock.patch.object(journal, "READ_LIMIT", 3 * len(one)):
        assert len(journal.read(path, 0).events) == 3
        assert len(read_all(path).events) == 100


def test_an_event_with_a_text_of_ten_megabytes_is_passed_over_and_costs_nothing_after(tmp_path: Path) -> None:
    good = line(event("turn_end", text="fine"))
    path = written(tmp_path, line(event("turn_end", text="x" * 10_000_000)) + good)
    tail = read_all(path)
    assert [e["text"] for e in tail.events] == ["fine"]
    assert tail.offset == path.stat().st_size


def test_an_offset_behind_the_end_finds_nothing(tmp_path: Path) -> None:
    assert journal.read(written(tmp_path, line(event("ready"))), 10_000) == journal.JournalTail((), 10_000)


# Folding


def test_a_turn_makes_an_agent_run_and_then_wait_for_a_prompt() -> None:
    started = fold(event("turn_start"), record=AgentRecord(id="fix", status=WAITING, waiting_for=WaitingFor.PROMPT))
    assert (started.status, started.turn_open, started.waiting_for) == (AgentStatus.RUNNING, True, None)

    ended = fold(event("turn_end", outcome="aborted", text="so far"), record=started)
    assert (ended.status, ended.waiting_for, ended.turn, ended.turn_open, ended.stops) == (
        WAITING, WaitingFor.PROMPT, 1, None, 1
    )  # fmt: skip
    assert (ended.last_turn_outcome, ended.last_turn_text) == (TurnOutcome.ABORTED, "so far")
    assert ended.last_turn_ended_at == "2026-03-03T02:58:00.000Z"


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ({}, TurnOutcome.COMPLETED),
        ({"outcome": "error"}, TurnOutcome.ERROR),
        ({"outcome": "max_tokens"}, None),
        ({"outcome": None}, None),
        ({"outcome": ["completed"]}, None),
        ({"outcome": {"a": 1}}, None),
    ],
)
def test_an_unknown_outcome_ends_the_turn_and_claims_no_success(
    values: dict[str, Any], outcome: TurnOutcome | None
) -> None:
    ended = fold(event("turn_start"), event("turn_end", **values))
    assert (ended.status, ended.turn, ended.last_turn_outcome) == (WAITING, 1, outcome)


@pytest.mark.parametrize(("reason", "read"), [*((r, r) for r in WaitingFor), ("lunch", "question"), ([], "question")])
def test_a_block_inside_a_turn_is_a_stop_and_its_end_goes_on(reason: Any, read: str) -> None:
    asked = fold(event("turn_start"), event("waiting", **{"for": reason, "text": "may I?"}))
    assert (asked.status, asked.waiting_for, asked.waiting_text, asked.stops) == (WAITING, read, "may I?", 1)
    resumed = fold(event("resumed"), record=asked)
    assert (resumed.status, resumed.waiting_for, resumed.waiting_text) == (AgentStatus.RUNNING, None, None)


def test_a_trust_question_before_the_first_turn_leaves_no_dialog_behind() -> None:
    asked = fold(event("waiting", **{"for": "trust"}))
    free = fold(event("resumed"), event("ready"), record=asked)
    assert (free.status, free.waiting_for, free.stops) == (WAITING, WaitingFor.PROMPT, 2)


def test_a_trust_question_before_the_first_prompt_goes_on_to_the_first_turn() -> None:
    asked = fold(event("waiting", **{"for": "trust"}), record=AgentRecord(
        id="fix", status=AgentStatus.RUNNING, kickoff_pending=True
    ))  # fmt: skip
    free = fold(event("resumed"), event("ready"), record=asked)
    assert (free.status, free.stops) == (AgentStatus.RUNNING, 1)


def test_an_end_of_a_block_that_was_none_changes_nothing() -> None:
    idle = fold(event("turn_start"), event("turn_end"))
    assert fold(event("resumed"), record=idle) == idle


def test_ready_is_a_stop_only_when_nothing_else_is_under_way() -> None:
    assert fold(event("ready")).stops == 1
    assert fold(event("ready"), event("ready")).stops == 1
    assert fold(event("turn_start"), event("ready")).status is AgentStatus.RUNNING
    pending = AgentRecord(id="fix", status=AgentStatus.RUNNING, kickoff_pending=True)
    assert fold(event("ready"), record=pending) == pending
    assert fold(event("turn_start"), record=pending).kickoff_pending is None


def test_a_session_links_the_conversation_and_later_ones_win() -> None:
    linked = fold(
        event("session", sessionId="one", sessionFile="/one.jsonl"),
        event("session", sessionId="two", sessionFile=None),
        event("session", sessionId=5, sessionFile=[]),
    )
    assert (linked.child_session_id, linked.child_session_file) == ("two", "/one.jsonl")


def test_a_long_session_path_is_kept_whole_or_not_at_all() -> None:
    path = "/" + "d" * 1500 + "/s.jsonl"
    assert fold(event("session", sessionFile=path)).child_session_file == path
    assert fold(event("session", sessionFile="/" + "d" * 5000)).child_session_file is None


@pytest.mark.parametrize("pid", [True, "12", 1.5, None, 0, -1, 2**31, 10**30])
def test_a_pid_that_is_none_is_not_taken(pid: Any) -> None:
    assert fold(event("client", pid=77), event("client", pid=pid)).client_pid == 77


def test_a_suspension_lasts_until_it_goes_on() -> None:
    assert fold(event("suspended")).suspended is True
    assert fold(event("suspended"), event("continued")).suspended is None


@pytest.mark.parametrize("kind", ["turn_end", "waiting"])
def test_the_text_of_an_event_is_bounded(kind: str) -> None:
    folded = fold(event(kind, text="x" * 10_000_000))
    assert [len(text) for text in (folded.last_turn_text, folded.waiting_text) if text] == [500]


@pytest.mark.parametrize("status", [AgentStatus.DONE, AgentStatus.FAILED, AgentStatus.CRASHED])
def test_an_ended_agent_takes_facts_and_keeps_its_status(status: AgentStatus) -> None:
    ended = AgentRecord(id="fix", status=status, stops=3, waiting_for=None)
    after = fold(
        event("client", pid=5),
        event("session", sessionId="s"),
        event("turn_start"),
        event("waiting"),
        event("resumed"),
        event("turn_end", text="last words"),
        event("ready"),
        record=ended,
    )
    assert (after.status, after.stops, after.waiting_for) == (status, 3, None)
    assert (after.client_pid, after.child_session_id, after.last_turn_text) == (5, "s", "last words")


@pytest.mark.parametrize("kind", ["launcher", "input", "quit", "brand-new", ""])
def test_events_without_a_meaning_for_the_record_change_nothing(kind: str) -> None:
    assert fold(event(kind, pid=9, state="started")) is RUNNING


values = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
events = st.fixed_dictionaries(
    {"type": st.sampled_from([*journal._STEPS, "launcher", "input", "other"])},
    optional={
        "at": values,
        "text": values,
        "pid": values,
        "sessionId": values,
        "sessionFile": values,
        "for": st.sampled_from(WaitingFor) | values,
        "outcome": st.sampled_from(TurnOutcome) | values,
    },
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(AgentStatus), st.lists(events, max_size=8))
def test_whatever_is_journalled_the_record_can_be_stored_and_read_again(
    status: AgentStatus, found: list[dict[str, Any]]
) -> None:
    record = fold(*found, record=AgentRecord(id="fix", status=status))
    assert AgentRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert record.status is status or not status.is_terminal


pieces = st.one_of(
    events.map(lambda value: json.dumps(value).encode() + b"\n"),
    st.sampled_from([b"\n", b"garbage\n", b'{"type": "turn_end"', b"\xff\n", b"z" * 90, b"z" * 300 + b"\n", b"  "]),
)


class ArbitraryChunks(RuleBasedStateMachine):
    """Appends of any cut, looks at any time: the same as one look at the whole file."""

    LIMIT = 128
    path: Path

    def __init__(self) -> None:
        super().__init__()
        self.path.unlink(missing_ok=True)
        self.written = b""
        self.seen: list[journal.Event] = []
        self.record = RUNNING

    @rule(data=pieces, cut=st.integers(0, 200))
    def append(self, data: bytes, cut: int) -> None:
        for part in (data[:cut], data[cut:]):
            self.written += part
            self.path.write_bytes(self.written)
            self.look()

    @rule(data=pieces)
    def append_unseen(self, data: bytes) -> None:
        self.written += data
        self.path.write_bytes(self.written)

    @rule()
    def look(self) -> None:
        with mock.patch.object(journal, "READ_LIMIT", self.LIMIT):
            tail = journal.read(self.path, self.record.journal_offset)
        assert tail.offset >= self.record.journal_offset
        self.seen += tail.events
        folded = journal.fold(self.record, tail.events)
        self.record = AgentRecord.from_json(folded.to_json() | {"journalOffset": tail.offset})

    @invariant()
    def looks_add_up_to_one_look(self) -> None:
        self.path.write_bytes(self.written)
        while True:
            before = self.record.journal_offset
            self.look()
            if self.record.journal_offset == before:
                break
        lines = self.written.split(b"\n")[:-1]
        # At the start of the file one byte more fits into a read.
        short = [text for n, text in enumerate(lines) if len(text) < self.LIMIT + (n == 0)]
        once = tuple(found for text in short if (found := journal._event(text)) is not None)
        assert tuple(self.seen) == once
        assert AgentRecord.from_json(self.record.to_json() | {"journalOffset": 0}) == journal.fold(RUNNING, once)


def test_torn_lines_and_looks_at_any_time_give_what_one_look_gives(tmp_path: Path) -> None:
    ArbitraryChunks.path = tmp_path / "events.jsonl"
    run_state_machine_as_test(
        ArbitraryChunks, settings=settings(max_examples=15, stateful_step_count=12, deadline=None)
    )


def test_lines_appended_after_a_torn_one_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"type": "turn_st')
    fs.append_line(path, json.dumps(event("turn_end")))
    assert [e["type"] for e in journal.read(path, 0).events] == ["turn_end"]
