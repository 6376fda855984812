"""From facts to a status, and from two looks to what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from side_agents.core.status import (
    OUTLIVED,
    OWNER_DIED,
    START_STUCK,
    VANISHED,
    Facts,
    SnapshotEntry,
    Transition,
    collect_transitions,
    is_new_stop,
    judge,
)
from side_agents.core.wait import DEFAULT_STATES
from side_agents.infra.tmux_sweep import Presence
from side_agents.models import AgentRecord, AgentStatus, ExitMarker, ProcessRef, TurnOutcome, WaitingFor

NOW = "2026-03-03T03:00:00.000Z"
LAUNCHER = ProcessRef(100, "boot:1")
LIVE = AgentRecord(id="fix", status=AgentStatus.RUNNING, launcher=LAUNCHER, tmux_window_index=7)
STARTING = AgentRecord(id="fix", status=AgentStatus.SPAWNING_TMUX, owner=ProcessRef(99, "boot:1"))
PRESENT, ABSENT, UNKNOWN = Presence.PRESENT, Presence.ABSENT, Presence.UNKNOWN
ALIVE: dict[str, Any] = {"launcher": PRESENT, "pane": PRESENT, "now": NOW}
TERMINAL = [AgentStatus.DONE, AgentStatus.FAILED, AgentStatus.CRASHED]


def agent(status: AgentStatus, index: int | None = None, agent_id: str = "fix") -> AgentRecord:
    return AgentRecord(id=agent_id, status=status, tmux_window_index=index)


def entry(status: AgentStatus, index: int | None = None) -> SnapshotEntry:
    return SnapshotEntry(status, index)


def marker(code: int, **values: Any) -> ExitMarker:
    return ExitMarker(exit_code=code, finished_at="2026-03-03T02:59:00.000Z", **values)


# What changed between two looks


def test_u13_the_first_look_has_no_transitions() -> None:
    snapshot, changes = collect_transitions(None, [agent(AgentStatus.RUNNING, 17)])
    assert snapshot == {"fix": entry(AgentStatus.RUNNING, 17)}
    assert changes == []


def test_u14_a_transition_keeps_the_window_that_was_known() -> None:
    previous = {"fix": entry(AgentStatus.RUNNING, 17)}
    snapshot, changes = collect_transitions(previous, [agent(AgentStatus.WAITING_USER)])
    assert changes == [Transition("fix", AgentStatus.RUNNING, AgentStatus.WAITING_USER, 17)]
    assert collect_transitions(snapshot, [])[1] == [Transition("fix", AgentStatus.WAITING_USER, AgentStatus.DONE, 17)]


def test_u14_a_new_window_number_is_the_one_reported() -> None:
    previous = {"fix": entry(AgentStatus.RUNNING, 17)}
    assert collect_transitions(previous, [agent(AgentStatus.FAILED, 0)])[1][0].window_index == 0


def test_u15_an_agent_that_is_gone_was_done() -> None:
    assert collect_transitions({"fix": entry(AgentStatus.WAITING_USER, 4)}, []) == (
        {},
        [Transition("fix", AgentStatus.WAITING_USER, AgentStatus.DONE, 4)],
    )


def test_u16_an_ended_agent_that_is_gone_is_no_news() -> None:
    previous = {"a": entry(AgentStatus.FAILED), "b": entry(AgentStatus.CRASHED), "c": entry(AgentStatus.DONE)}
    assert collect_transitions(previous, []) == ({}, [])


def test_an_unchanged_agent_is_no_news() -> None:
    previous = {"fix": entry(AgentStatus.RUNNING, 1)}
    assert collect_transitions(previous, [agent(AgentStatus.RUNNING, 2)])[1] == []


@pytest.mark.parametrize("status", [AgentStatus.FAILED, AgentStatus.CRASHED])
def test_an_agent_first_seen_when_it_had_failed_is_reported(status: AgentStatus) -> None:
    assert collect_transitions({}, [agent(status, 3)])[1] == [
        Transition("fix", AgentStatus.ALLOCATING_WORKTREE, status, 3)
    ]


def test_an_agent_first_seen_alive_is_no_transition() -> None:
    assert collect_transitions({}, [agent(AgentStatus.RUNNING)])[1] == []


def test_transitions_are_sorted_by_id_whatever_their_kind() -> None:
    previous = {"z": entry(AgentStatus.RUNNING), "a": entry(AgentStatus.RUNNING), "m": entry(AgentStatus.RUNNING)}
    records = [agent(AgentStatus.FAILED, agent_id="z"), agent(AgentStatus.WAITING_USER, agent_id="a")]
    assert [change.agent_id for change in collect_transitions(previous, records)[1]] == ["a", "m", "z"]


# Stops that a waiter is told of


def test_u32_an_ending_that_was_told_is_no_new_stop() -> None:
    told = replace(agent(AgentStatus.DONE), stop_seq=4)
    assert not is_new_stop(told, told)
    assert not is_new_stop(told, replace(told, error="more"))


def test_u33_a_running_agent_is_not_waited_for() -> None:
    assert AgentStatus.RUNNING not in DEFAULT_STATES
    assert not is_new_stop(replace(LIVE, stops=1), LIVE)


@pytest.mark.parametrize("status", TERMINAL)
def test_an_ending_is_a_new_stop_also_when_it_was_never_numbered(status: AgentStatus) -> None:
    assert is_new_stop(LIVE, replace(LIVE, status=status, stop_seq=9))
    assert is_new_stop(replace(LIVE, status=status), replace(LIVE, status=status))


def test_each_question_and_each_turn_is_a_new_stop() -> None:
    waiting = replace(LIVE, status=AgentStatus.WAITING_USER, stops=2, stop_seq=5)
    assert is_new_stop(waiting, replace(waiting, stops=3))
    assert not is_new_stop(waiting, replace(waiting, updated_at=NOW))
    assert not is_new_stop(LIVE, replace(LIVE, stops=1))


# Judging


def test_nothing_new_gives_the_same_object() -> None:
    assert judge(LIVE, Facts(**ALIVE)) is LIVE
    assert judge(LIVE, Facts(now=NOW)) is LIVE


def test_a_change_is_dated() -> None:
    assert judge(LIVE, Facts(events=({"type": "turn_start"},), journal_offset=30, **ALIVE)).updated_at == NOW


def test_u2_no_answer_changes_nothing_in_any_status() -> None:
    for status in AgentStatus:
        record = replace(LIVE, status=status)
        assert judge(record, Facts(launcher=UNKNOWN, pane=UNKNOWN, owner=UNKNOWN, now=NOW)) is record


def test_an_exit_of_the_client_with_zero_is_done() -> None:
    done = judge(replace(LIVE, error="old"), Facts(marker=marker(0), launcher=ABSENT, pane=ABSENT, now=NOW))
    assert (done.status, done.exit_code, done.error) == (AgentStatus.DONE, 0, None)
    assert done.finished_at == "2026-03-03T02:59:00.000Z"


@pytest.mark.parametrize(
    ("ending", "status", "error"),
    [
        (marker(7), AgentStatus.FAILED, "the client exited with code 7"),
        (marker(7, phase="start-script"), AgentStatus.FAILED, "the start script exited with code 7"),
        (marker(1, phase="launcher", error="no such worktree"), AgentStatus.FAILED, "no such worktree"),
        (marker(129, signal="HUP"), AgentStatus.CRASHED, "ended by signal HUP"),
        (marker(0, signal="HUP"), AgentStatus.CRASHED, "ended by signal HUP"),
        (marker(0, phase="start-script"), AgentStatus.FAILED, "the start script exited with code 0"),
        (marker(0, phase="launcher"), AgentStatus.FAILED, "the launcher exited with code 0"),
    ],
)
def test_x1_only_the_clients_own_exit_with_zero_is_a_success(
    ending: ExitMarker, status: AgentStatus, error: str
) -> None:
    ended = judge(LIVE, Facts(marker=ending, launcher=ABSENT, now=NOW))
    assert (ended.status, ended.exit_code, ended.error) == (status, ending.exit_code, error)


def test_a_marker_wins_over_a_death_that_was_seen_with_it() -> None:
    events = ({"type": "turn_end", "text": "bye"},)
    ended = judge(LIVE, Facts(marker=marker(0), launcher=ABSENT, pane=ABSENT, events=events, now=NOW))
    assert (ended.status, ended.last_turn_text, ended.waiting_for) == (AgentStatus.DONE, "bye", None)


def test_a_marker_that_appears_late_rejudges_a_crash() -> None:
    crashed = judge(LIVE, Facts(launcher=ABSENT, now=NOW))
    assert judge(crashed, Facts(marker=marker(3), launcher=ABSENT, now=NOW)).status is AgentStatus.FAILED
    assert judge(crashed, Facts(marker=marker(0), launcher=ABSENT, now=NOW)).status is AgentStatus.DONE


def test_a_marker_that_was_taken_in_is_not_taken_in_again() -> None:
    failed = judge(LIVE, Facts(marker=marker(3), launcher=ABSENT, now=NOW))
    assert judge(failed, Facts(marker=marker(3), launcher=ABSENT, now="later")) is failed


def test_x1_a_launcher_that_died_without_a_marker_crashed() -> None:
    waiting = replace(
        LIVE, status=AgentStatus.WAITING_USER, waiting_for=WaitingFor.QUESTION, waiting_text="?", suspended=True
    )
    crashed = judge(waiting, Facts(launcher=ABSENT, pane=ABSENT, now=NOW))
    assert (crashed.status, crashed.error, crashed.finished_at) == (AgentStatus.CRASHED, VANISHED, NOW)
    assert (crashed.waiting_for, crashed.waiting_text, crashed.suspended) == (None, None, None)


@pytest.mark.parametrize(("launcher", "why"), [(PRESENT, OUTLIVED), (UNKNOWN, VANISHED)])
def test_x4_an_agent_without_its_pane_crashed_and_the_reason_is_true(launcher: Presence, why: str) -> None:
    crashed = judge(LIVE, Facts(launcher=launcher, pane=ABSENT, now=NOW))
    assert (crashed.status, crashed.error) == (AgentStatus.CRASHED, why)


def test_a_crash_keeps_an_error_that_is_known_already() -> None:
    assert judge(replace(LIVE, error="disk full"), Facts(launcher=ABSENT, now=NOW)).error == "disk full"


def test_last_words_are_taken_in_before_a_death() -> None:
    events = ({"type": "turn_end", "outcome": "error", "text": "panic"},)
    crashed = judge(LIVE, Facts(launcher=ABSENT, events=events, journal_offset=50, now=NOW))
    assert (crashed.status, crashed.last_turn_outcome, crashed.last_turn_text, crashed.journal_offset) == (
        AgentStatus.CRASHED, TurnOutcome.ERROR, "panic", 50
    )  # fmt: skip


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("presence", [PRESENT, ABSENT])
def test_what_ended_stays_ended_whatever_the_pane_shows(status: AgentStatus, presence: Presence) -> None:
    record = replace(LIVE, status=status)
    assert judge(record, Facts(launcher=presence, pane=presence, quiet=True, now=NOW)) is record


@pytest.mark.parametrize("status", [AgentStatus.ALLOCATING_WORKTREE, AgentStatus.SPAWNING_TMUX])
def test_x17_a_start_whose_owner_died_crashed(status: AgentStatus) -> None:
    record = replace(STARTING, status=status)
    assert judge(record, Facts(owner=PRESENT, now=NOW)) is record
    crashed = judge(record, Facts(owner=ABSENT, now=NOW))
    assert (crashed.status, crashed.error) == (AgentStatus.CRASHED, OWNER_DIED)


def test_x17_a_start_that_takes_too_long_crashed_also_with_an_owner_nobody_knows() -> None:
    stuck = judge(STARTING, Facts(owner=UNKNOWN, owner_expired=True, now=NOW))
    assert (stuck.status, stuck.error) == (AgentStatus.CRASHED, START_STUCK)


def test_b1_an_agent_whose_window_is_not_known_yet_is_left_alone() -> None:
    assert judge(STARTING, Facts(pane=UNKNOWN, owner=PRESENT, now=NOW)) is STARTING
    bare = AgentRecord(id="old", status=AgentStatus.RUNNING)
    assert judge(bare, Facts(now=NOW)) is bare


EARLY = ({"type": "session", "sessionId": "s"}, {"type": "turn_start"}, {"type": "turn_end"})


@pytest.mark.parametrize("record", [STARTING, replace(STARTING, status=AgentStatus.CRASHED, error=OWNER_DIED)])
def test_events_before_the_launcher_is_recorded_are_kept_for_later(record: AgentRecord) -> None:
    # Taken in, they would make a running agent without a process, which no look could adopt or end any more.
    facts = Facts(events=EARLY, journal_offset=99, owner=PRESENT, pane=UNKNOWN, now=NOW)
    assert judge(record, facts) is record
    adopted = judge(replace(record, status=AgentStatus.RUNNING, launcher=LAUNCHER), replace(facts, launcher=PRESENT))
    assert (adopted.status, adopted.turn, adopted.journal_offset) == (AgentStatus.WAITING_USER, 1, 99)


def test_early_events_do_not_hide_the_death_of_the_owner() -> None:
    crashed = judge(STARTING, Facts(events=EARLY, journal_offset=99, owner=ABSENT, now=NOW))
    assert (crashed.status, crashed.journal_offset) == (AgentStatus.CRASHED, 0)


def test_an_agent_that_ended_before_its_start_was_recorded_has_ended() -> None:
    ended = judge(STARTING, Facts(events=EARLY, marker=marker(0), owner=PRESENT, now=NOW))
    assert (ended.status, ended.turn, ended.child_session_id) == (AgentStatus.DONE, 1, "s")


def test_a_still_screen_is_a_stop_once_and_a_moving_one_is_work() -> None:
    quiet = judge(replace(LIVE, kickoff_pending=True), Facts(quiet=True, **ALIVE))
    assert (quiet.status, quiet.waiting_for, quiet.turn, quiet.stops, quiet.kickoff_pending) == (
        AgentStatus.WAITING_USER, WaitingFor.PROMPT, 1, 1, None
    )  # fmt: skip
    assert judge(quiet, Facts(quiet=True, **ALIVE)) is quiet
    moving = judge(quiet, Facts(quiet=False, **ALIVE))
    assert (moving.status, moving.waiting_for) == (AgentStatus.RUNNING, None)
    assert judge(moving, Facts(quiet=None, **ALIVE)) is moving


kinds = st.sampled_from(["session", "client", "ready", "turn_start", "turn_end", "waiting", "resumed", "suspended"])


@settings(max_examples=100, deadline=None)
@given(
    status=st.sampled_from(AgentStatus),
    launcher=st.sampled_from([None, LAUNCHER]),
    facts=st.builds(
        Facts,
        marker=st.none() | st.builds(marker, st.integers(0, 2), signal=st.sampled_from([None, "TERM"])),
        launcher=st.sampled_from(Presence),
        owner=st.sampled_from(Presence),
        pane=st.sampled_from(Presence),
        events=st.lists(kinds.map(lambda kind: {"type": kind}), max_size=4).map(tuple),
        quiet=st.sampled_from([None, True, False]),
        now=st.just(NOW),
    ),
)
def test_judging_the_same_facts_again_changes_nothing(
    status: AgentStatus, launcher: ProcessRef | None, facts: Facts
) -> None:
    record = AgentRecord(id="fix", status=status, launcher=launcher)
    once = judge(record, facts)
    assert judge(once, replace(facts, events=())) is once
    assert once.status.is_terminal or not status.is_terminal
    assert once.status is AgentStatus.WAITING_USER or once.waiting_for is None
