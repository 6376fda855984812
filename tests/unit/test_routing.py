"""Who is told of whom: N20-N24, X20, and the changes that a registry transaction notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from side_agents.core import identity, notices, routing, transitions
from side_agents.core.registry import Registry
from side_agents.core.routing import Listener
from side_agents.core.transitions import Change
from side_agents.infra import clock
from side_agents.models import AgentRecord, AgentStatus, EndedBy, Tombstone
from side_agents.paths import StatePaths

RUNNING, WAITING, FAILED, DONE = AgentStatus.RUNNING, AgentStatus.WAITING_USER, AgentStatus.FAILED, AgentStatus.DONE
MAIN = Listener()


def agent(
    agent_id: str, parent: str | None = None, status: AgentStatus = RUNNING, session: str | None = None
) -> AgentRecord:
    depth = 1 if parent is None else 2
    return AgentRecord(
        id=agent_id, status=status, parent_agent_id=parent, parent_session_id=session, depth=depth, started_at="t"
    )


def stone(agent_id: str, parent: str | None = None, session: str | None = None) -> Tombstone:
    return Tombstone(id=agent_id, status=DONE, ended_by=EndedBy.EXIT, parent_agent_id=parent, parent_session_id=session)


TREE = [agent("a"), agent("a1", "a"), agent("a2", "a"), agent("b"), agent("z1", "gone")]
WITHOUT_A = [record for record in TREE if record.id != "a"]


def ids(records: Iterable[AgentRecord]) -> list[str]:
    return [record.id for record in records]


def between(
    before: list[AgentRecord], after: list[AgentRecord], *stones: Tombstone, known: tuple[Tombstone, ...] = ()
) -> list[Change]:
    older = {stone.id: stone for stone in known}
    return transitions.between(
        {record.id: record for record in before}, {record.id: record for record in after}, stones, older.get
    )


def told(who: Listener, changes: list[Change]) -> list[tuple[str, AgentStatus, AgentStatus, bool]]:
    return [
        (change.agent_id, change.from_status, change.to_status, change.adopted)
        for change in changes
        if routing.hears(who, change)
    ]


def test_n20_each_hears_of_its_own_and_main_of_orphans_too() -> None:
    assert ids(routing.heard(MAIN, TREE)) == ["a", "b", "z1"]
    assert ids(routing.heard(Listener("a"), TREE)) == ["a1", "a2"]
    assert ids(routing.heard(Listener("a1"), TREE)) == []


def test_n20_when_a_parent_is_gone_main_adopts_and_children_adopt_nothing() -> None:
    assert ids(routing.heard(MAIN, WITHOUT_A)) == ["a1", "a2", "b", "z1"]
    for name in ("a1", "a2", "b", "z1", "gone"):
        assert ids(routing.heard(Listener(name), WITHOUT_A)) == []


def scope(own: str | None, records: list[AgentRecord] = TREE) -> tuple[str | None, list[str], list[str]]:
    seen = routing.scope(records, Listener(own))
    parent = seen.parent.id if seen.parent else seen.parent_gone and f"{seen.parent_gone}:gone"
    return parent, ids(seen.children), ids(seen.siblings)


def test_n21_the_status_line_shows_parent_children_and_siblings() -> None:
    assert scope(None) == (None, ["a", "b", "z1"], [])
    assert scope("a") == (None, ["a1", "a2"], ["b"])
    assert scope("a1") == ("a", [], ["a2"])
    assert scope("z1") == ("gone:gone", [], [])


def test_n21_an_only_child_still_shows_its_parent() -> None:
    assert scope("a1", [agent("a"), agent("a1", "a")]) == ("a", [], [])


def test_n22_main_and_its_agents_may_start_agents_and_theirs_may_not() -> None:
    depths = {"main": 0, "a": 1, "a1": 2}
    callers = {name: identity.Caller(agent_id=name, depth=depth) for name, depth in depths.items()}
    assert {name: identity.may_start(caller, 2) for name, caller in callers.items()} == {
        "main": True, "a": True, "a1": False
    }  # fmt: skip


def test_n23_n24_a_failed_agent_is_adopted_once_and_without_a_change_of_its_own() -> None:
    a, a1, failed = agent("a"), agent("a1", "a"), agent("a1", "a", FAILED)

    fails = between([a, a1], [a, failed])
    assert told(MAIN, fails) == []
    assert told(Listener("a"), fails) == [("a1", RUNNING, FAILED, False)]

    goes = between([a, failed], [failed], stone("a"))
    assert told(MAIN, goes) == [("a", RUNNING, DONE, False), ("a1", FAILED, FAILED, True)]
    assert told(Listener("a"), goes) == []

    assert between([failed], [failed]) == []


def test_n23_an_adoption_is_told_at_once_whatever_the_agent_is_doing() -> None:
    [adoption] = [
        change for change in between([agent("a"), agent("a1", "a")], [agent("a1", "a")], stone("a")) if change.adopted
    ]
    now = clock.now()
    [notice], left = notices.drain(notices.merge({}, [adoption.transition], now), now, idle=True)
    assert (notice.from_status, notice.to_status, notice.adopted, notice.count) == (RUNNING, RUNNING, True, 1)
    assert left == {}


def test_an_adoption_adds_no_step_to_what_is_told_of_the_agent() -> None:
    now = clock.now()
    fails = [Change(agent_id="a1", from_status=RUNNING, to_status=FAILED).transition]
    adopted = [Change(agent_id="a1", from_status=FAILED, to_status=FAILED, adopted=True).transition]
    [notice], _ = notices.drain(notices.merge(notices.merge({}, fails, now), adopted, now), now, idle=True)
    assert (notice.path, notice.count, notice.adopted) == ((FAILED,), 1, True)


def test_x20_two_main_sessions_in_one_repository_each_hear_only_of_their_own() -> None:
    one, two, mine = Listener(session="one"), Listener(session="two"), agent("a", session="one")
    changes = between([mine], [replace(mine, status=WAITING)])
    assert told(one, changes) == [("a", RUNNING, WAITING, False)]
    assert told(two, changes) == []
    assert told(Listener(), changes) == [("a", RUNNING, WAITING, False)], (
        "a person in a shell is not known to be another"
    )
    assert ids(routing.heard(two, [mine, agent("b")])) == ["b"], "whoever started b is not known"


def test_x20_an_orphan_is_adopted_by_the_session_that_it_descends_from() -> None:
    a1 = agent("a1", "a", session="conversation of a")
    goes = between([agent("a", session="one"), a1], [a1], stone("a", session="one"))
    assert told(Listener(session="one"), goes)[-1] == ("a1", RUNNING, RUNNING, True)
    assert told(Listener(session="two"), goes) == []

    later = between([a1], [replace(a1, status=FAILED)], known=(stone("a", session="one"),))
    assert told(Listener(session="one"), later) == [("a1", RUNNING, FAILED, False)]
    assert told(Listener(session="two"), later) == []

    unknown = between([a1], [replace(a1, status=FAILED)])
    assert told(Listener(session="two"), unknown) == [("a1", RUNNING, FAILED, False)]


def test_an_agent_is_told_of_its_children_whatever_conversation_it_is_in() -> None:
    a1 = agent("a1", "a", session="first conversation")
    changes = between([agent("a"), a1], [agent("a"), replace(a1, status=FAILED)])
    assert len(told(Listener("a", "second conversation"), changes)) == 1
    assert told(Listener(session="first conversation"), changes) == []


def test_an_agent_that_leaves_is_done_unless_it_had_ended_before() -> None:
    assert told(MAIN, between([agent("a")], [], stone("a"))) == [("a", RUNNING, DONE, False)]
    assert between([agent("a", status=FAILED)], [], stone("a")) == []


def test_an_agent_that_is_new_is_no_news_unless_it_has_ended_already() -> None:
    assert between([], [agent("a")]) == []
    assert told(MAIN, between([], [agent("a", status=FAILED)])) == [
        ("a", AgentStatus.ALLOCATING_WORKTREE, FAILED, False)
    ]


def test_an_agent_that_is_born_without_its_parent_is_adopted() -> None:
    assert told(MAIN, between([], [agent("z", "gone")])) == [("z", RUNNING, RUNNING, True)]


def test_a_round_between_two_looks_is_two_changes() -> None:
    before = replace(agent("a", status=WAITING), stops=1)
    assert told(MAIN, between([before], [replace(before, stops=2)])) == [
        ("a", WAITING, RUNNING, False),
        ("a", RUNNING, WAITING, False),
    ]
    assert between([before], [replace(before, turn=7)]) == []


def test_a_parent_whose_row_only_another_version_can_read_is_not_gone() -> None:
    found = transitions.between({}, {"a1": agent("a1", "a")}, (), lambda _: None, unreadable=("a",))
    assert found == []


def test_keys_of_sessions_are_readable_folder_names_and_differ() -> None:
    assert routing.key(MAIN) == "main"
    names = [
        routing.key(who)
        for who in (Listener("fix"), Listener(session="/x/fix.jsonl"), Listener(session="/y/fix.jsonl"))
    ]
    assert len(set(names)) == 3
    assert all("/" not in name and "fix-" in name for name in names)
    assert routing.key(Listener(session="../../\udcff")).startswith("session-")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(StatePaths(tmp_path))


def put(registry: Registry, *records: AgentRecord) -> None:
    with registry.transaction("test") as state:
        for record in records:
            state.put(record)


def lines(registry: Registry, after: int = 0) -> list[tuple[int, str, AgentStatus]]:
    last = registry.read().extra.get(transitions.COUNTER, 0)
    return [
        (each.seq, each.agent_id, each.to_status) for each in transitions.read(registry.paths.transitions, after, last)
    ]


def test_every_change_of_the_registry_is_noted_once_and_numbered(registry: Registry) -> None:
    put(registry, agent("a"), agent("b"))
    assert not registry.paths.transitions.exists()
    put(registry, agent("a", status=WAITING), agent("b", status=FAILED))
    put(registry, agent("a", status=WAITING))
    with registry.transaction("test") as state:
        state.bury(stone("a"))
    assert lines(registry) == [(1, "a", WAITING), (2, "b", FAILED), (3, "a", DONE)]
    assert lines(registry, after=2) == [(3, "a", DONE)]
    assert registry.paths.transitions.stat().st_mode & 0o777 == 0o600


def test_a_writer_that_died_before_its_registry_was_replaced_has_told_nothing(registry: Registry) -> None:
    put(registry, agent("a"), agent("b"))
    transitions.append(registry.paths.transitions, between([agent("b")], [agent("b", status=FAILED)]), 0)
    assert lines(registry) == []
    put(registry, agent("a", status=WAITING))
    assert lines(registry) == [(1, "a", WAITING)]


def test_a_disk_that_takes_no_line_does_not_keep_the_registry_from_being_written(registry: Registry) -> None:
    put(registry, agent("a"))
    registry.paths.transitions.mkdir()
    put(registry, agent("a", status=WAITING))
    assert registry.read().agents["a"].status is WAITING


def test_old_lines_go_and_the_latest_stay(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "LIMIT_BYTES", 2000)
    put(registry, agent("a"))
    for number in range(40):
        put(registry, agent("a", status=WAITING if number % 2 == 0 else RUNNING))
    assert registry.paths.transitions.stat().st_size <= 2000
    assert [seq for seq, _, _ in lines(registry)][-3:] == [38, 39, 40]


def test_what_an_agent_says_is_bounded_and_lines_that_are_none_are_passed_over(registry: Registry) -> None:
    put(registry, agent("a"))
    put(registry, replace(agent("a", status=WAITING), waiting_text="x" * 5000))
    with registry.paths.transitions.open("ab") as file:
        file.write(b'not json\n{"seq": "x"}\n[1]\n\xff\n')
    [change] = transitions.read(registry.paths.transitions, 0, 99)
    assert change.text == "x" * 200
