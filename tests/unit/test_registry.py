"""The registry: what it keeps, what it refuses, and what it never writes. Faults of disk and process are in integration."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from side_agents.core.registry import Registry, RegistryState
from side_agents.errors import ConflictError, StateError, StateFromFutureError, UnknownAgentError
from side_agents.models import AgentRecord, AgentStatus, EndedBy, ProcessRef, Tombstone
from side_agents.paths import StatePaths

SEED_ROW = {
    "id": "fix",
    "status": "running",
    "task": "größer \U0001f600 \u2028",
    "depth": 1,
    "error": None,
    "warnings": [],
    "owner": {"pid": 5, "started": "s", "host": "newer"},
    "pullRequest": {"url": "https://example.invalid/1", "checks": [1, None, 2.5]},
}
RETIRED_ROW = {"id": "old", "status": "starting", "task": "t"}
FOREIGN: dict[str, Any] = {
    "old": RETIRED_ROW,
    "odd": {"id": "odd", "status": "running", "turn": "many"},
    "mis": {"id": "other", "status": "running"},
    "list": [1, 2],
    "null": None,
    "word": "text",
    "../up": {"id": "../up", "status": "running"},
    "inf": {"id": "inf", "status": "running", "owner": {"pid": 1e400, "started": "s"}},
}
WHOLE: dict[str, Any] = {
    "version": 1,
    "sequence": 12,
    "agents": {"fix": SEED_ROW, **FOREIGN, "b": {"id": "b", "status": "waiting_user"}},
    "generator": {"name": "other", "flags": [True, None]},
}


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path)


@pytest.fixture
def registry(paths: StatePaths) -> Registry:
    return Registry(paths, lock_timeout=0)


def write(paths: StatePaths, content: bytes | str | dict[str, Any]) -> bytes:
    """Put a registry there as another program would have; returns its bytes."""
    paths.meta.mkdir(parents=True, exist_ok=True)
    data = json.dumps(content) if isinstance(content, dict) else content
    raw = data.encode() if isinstance(data, str) else data
    paths.registry.write_bytes(raw)
    return raw


def content(paths: StatePaths) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(paths.registry.read_bytes())
    return data


def record(agent_id: str = "new", **values: Any) -> AgentRecord:
    return AgentRecord(id=agent_id, status=AgentStatus.RUNNING, **values)


def stone(agent_id: str, **values: Any) -> Tombstone:
    return Tombstone(id=agent_id, status=AgentStatus.DONE, ended_by=EndedBy.EXIT, **values)


def change(registry: Registry, edit: Callable[[RegistryState], object]) -> None:
    with registry.transaction("a test") as state:
        edit(state)


def put(registry: Registry, *records: AgentRecord) -> None:
    with registry.transaction("a test") as state:
        for one in records:
            state.put(one)


def bury(registry: Registry, *stones: Tombstone) -> None:
    with registry.transaction("a test") as state:
        for one in stones:
            state.bury(one)


# Reading


def test_f_r1_reading_where_side_agents_were_never_used_finds_nothing_and_makes_nothing(
    registry: Registry, tmp_path: Path
) -> None:
    state = registry.read()
    assert (state.agents, state.foreign, state.sequence) == ({}, {}, 0)
    assert registry.history() == []
    assert registry.tombstone("fix") is None
    assert str(registry.unknown("fix")) == "No agent is called fix in this repository."
    assert list(tmp_path.iterdir()) == []


def test_f_r1_a_file_in_the_way_of_the_folder_means_no_agents(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / ".pi").write_text("not a folder")
    assert registry.read().ids == set()
    assert registry.history() == []


def test_rows_are_read_and_unreadable_ones_count_as_taken(registry: Registry, paths: StatePaths) -> None:
    write(paths, WHOLE)
    state = registry.read()
    assert set(state.agents) == {"fix", "b"}
    assert state.foreign == FOREIGN
    assert state.ids == {"fix", "b", *FOREIGN}
    assert state.sequence == 12


# What survives a change


def test_everything_unknown_survives_a_change_with_the_same_content(registry: Registry, paths: StatePaths) -> None:
    write(paths, WHOLE)
    put(registry, record("new"))
    after = content(paths)
    new = after["agents"].pop("new")
    assert new["status"] == "running"
    assert after == WHOLE
    assert json.dumps(after["agents"]["fix"]) == json.dumps(SEED_ROW)


def test_unknown_keys_of_a_changed_row_survive(registry: Registry, paths: StatePaths) -> None:
    write(paths, WHOLE)
    with registry.transaction("a test") as state:
        state.put(replace(state.agents["fix"], branch="side-agent/fix"))
    row = content(paths)["agents"]["fix"]
    assert row["pullRequest"] == SEED_ROW["pullRequest"]
    assert row["branch"] == "side-agent/fix"


def test_a_registry_of_the_seed_without_a_sequence_is_taken_over(registry: Registry, paths: StatePaths) -> None:
    write(paths, {"version": 1, "agents": {"fix": SEED_ROW}})
    with registry.transaction("a test") as state:
        assert state.next_sequence() == 1
    assert content(paths) == {"version": 1, "sequence": 1, "agents": {"fix": SEED_ROW}}


def test_the_file_is_legible_private_and_ends_in_a_newline(registry: Registry, paths: StatePaths) -> None:
    put(registry, record("a", task="größer"))
    text = paths.registry.read_text(encoding="utf-8")
    assert '\n  "agents": {\n    "a": {\n' in text
    assert "größer" in text
    assert text.endswith("}\n")
    assert stat.S_IMODE(paths.registry.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.meta.stat().st_mode) == 0o700


@pytest.mark.parametrize("task", ["caf\udce9", "half \ud83d", "\udc80", "\x00\x1b[2J"])
def test_a_task_that_is_no_unicode_never_makes_the_registry_unreadable(
    registry: Registry, paths: StatePaths, task: str
) -> None:
    put(registry, record("a", task=task))
    paths.registry.read_bytes().decode("utf-8")
    assert registry.read().agents["a"].task == task
    bury(registry, stone("a", task=task))
    found = registry.tombstone("a")
    assert found is not None
    assert found.task == task


# When nothing is written


def test_f_c1_a_transaction_without_a_change_does_not_write(registry: Registry, paths: StatePaths) -> None:
    raw = write(paths, WHOLE)
    before = paths.registry.stat()
    with registry.transaction("a test") as state:
        state.put(replace(state.agents["fix"]))
    after = paths.registry.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert paths.registry.read_bytes() == raw
    assert not paths.registry_backup.exists()


def test_f_c1_a_transaction_without_a_change_makes_no_registry(registry: Registry, paths: StatePaths) -> None:
    with registry.transaction("a test"):
        pass
    assert not paths.registry.exists()


def test_an_exception_leaves_registry_and_history_as_they_were(registry: Registry, paths: StatePaths) -> None:
    raw = write(paths, WHOLE)

    def edit(state: RegistryState) -> None:
        state.put(record("new"))
        state.bury(stone("fix"))
        state.next_sequence()
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        change(registry, edit)
    assert paths.registry.read_bytes() == raw
    assert not paths.history.exists()
    put(registry, record("after"))


def test_x24_an_already_exists_error_inside_surfaces_after_one_run(registry: Registry, paths: StatePaths) -> None:
    raw = write(paths, WHOLE)
    runs = []

    def edit(state: RegistryState) -> None:
        runs.append(1)
        state.put(record("new"))
        paths.meta.mkdir()

    with pytest.raises(FileExistsError):
        change(registry, edit)
    assert runs == [1]
    assert paths.registry.read_bytes() == raw


@pytest.mark.parametrize("drop", [["fix"], ["old"], ["fix", "b", *FOREIGN]])
def test_a_row_that_was_not_removed_by_name_cannot_be_lost(
    registry: Registry, paths: StatePaths, drop: list[str]
) -> None:
    raw = write(paths, WHOLE)

    def edit(state: RegistryState) -> None:
        for name in drop:
            state.agents.pop(name, None)
            state.foreign.pop(name, None)
        state.put(record("new"))

    with pytest.raises(StateError, match=drop[0]):
        change(registry, edit)
    assert paths.registry.read_bytes() == raw


def test_a_row_that_cannot_be_read_is_not_overwritten(registry: Registry, paths: StatePaths) -> None:
    raw = write(paths, WHOLE)
    with pytest.raises(ConflictError, match="old"), registry.transaction("a test") as state:
        state.put(record("old"))
    assert paths.registry.read_bytes() == raw


def test_a_row_that_cannot_be_read_can_be_removed_by_name(registry: Registry, paths: StatePaths) -> None:
    write(paths, WHOLE)
    bury(registry, stone("old"))
    assert set(content(paths)["agents"]) == set(WHOLE["agents"]) - {"old"}


def test_the_backup_is_the_version_before_the_last_change(registry: Registry, paths: StatePaths) -> None:
    put(registry, record("a"))
    assert not paths.registry_backup.exists()
    for name in ("b", "c"):
        before = paths.registry.read_bytes()
        put(registry, record(name))
        assert paths.registry_backup.read_bytes() == before
    assert {entry.name for entry in paths.meta.iterdir()} == {"registry.json", "registry.json.bak", "registry.lock"}


# Files that are no registry (X21)

NOT_A_REGISTRY: list[bytes] = [
    b"",
    b"\n",
    b"null",
    b"[]",
    b'"agents"',
    b"5",
    b"{}",
    b'{"version": 1}',
    b'{"version": 1, "agents": []}',
    b'{"version": 1, "agents": null}',
    b'{"agents": {}}',
    b'{"version": "1", "agents": {}}',
    b'{"version": true, "agents": {}}',
    b'{"version": 0, "agents": {}}',
    b'{"version": -1, "agents": {}}',
    b'{"version": 1.0, "agents": {}}',
    b'{"version": 1, "sequence": "3", "agents": {}}',
    b'{"version": 1, "sequence": true, "agents": {}}',
    b'{"version": 1, "sequence": -1, "agents": {}}',
    b'{"version": 1, "agents": {"fix": {"id": "fi',
    b'{"version": 1, "agents": {}}}',
    b"\x00" * 512,
    b'{"version": 1, "agents": {"a\xff": {}}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("raw", NOT_A_REGISTRY, ids=lambda raw: repr(raw[:44]))
def test_x21_what_is_no_registry_is_refused_and_kept(registry: Registry, paths: StatePaths, raw: bytes) -> None:
    write(paths, raw)
    with pytest.raises(StateError) as caught:
        registry.read()
    assert str(paths.registry) in caught.value.message
    assert str(paths.registry_backup) in (caught.value.hint or "")

    entered: list[RegistryState] = []
    with pytest.raises(StateError):
        change(registry, entered.append)
    assert not entered
    with pytest.raises(StateError):
        registry.unknown("fix")
    assert paths.registry.read_bytes() == raw
    assert not paths.registry_backup.exists()
    assert not paths.history.exists()


def test_x21_a_newer_format_is_refused_with_its_own_error(registry: Registry, paths: StatePaths) -> None:
    raw = write(paths, {**WHOLE, "version": 2})
    with pytest.raises(StateFromFutureError, match="format 2"), registry.transaction("a test"):
        pass
    assert paths.registry.read_bytes() == raw


def test_x21_a_folder_in_place_of_the_registry_is_refused(registry: Registry, paths: StatePaths) -> None:
    paths.registry.mkdir(parents=True)
    with pytest.raises(StateError), registry.transaction("a test") as state:
        state.put(record("new"))
    assert paths.registry.is_dir()


# History


def test_a_buried_agent_leaves_the_registry_and_stays_in_the_history(registry: Registry, paths: StatePaths) -> None:
    put(registry, record("a"), record("b"))
    bury(registry, stone("a", exit_code=0, branch_head="abc", stop_seq=3))
    assert set(registry.read().agents) == {"b"}
    assert registry.tombstone("a") == stone("a", exit_code=0, branch_head="abc", stop_seq=3)
    assert registry.tombstone("b") is None
    assert stat.S_IMODE(paths.history.stat().st_mode) == 0o600


def test_of_several_lives_with_one_id_the_newest_answers(registry: Registry) -> None:
    for code in (1, 2, 3):
        bury(registry, stone("a", exit_code=code), stone("ab", exit_code=9))
    found = registry.tombstone("a")
    assert found is not None
    assert found.exit_code == 3
    assert [one.id for one in registry.history()] == ["a", "ab"] * 3


def test_an_id_that_is_buried_and_taken_again_is_live_and_remembered(registry: Registry) -> None:
    put(registry, record("a"))
    with registry.transaction("a test") as state:
        state.bury(stone("a"))
        state.put(record("a", task="again"))
    assert registry.read().agents["a"].task == "again"
    assert registry.tombstone("a") is not None


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\r\n", "\n"])
def test_line_separators_in_a_text_do_not_cut_a_tombstone(registry: Registry, separator: str) -> None:
    bury(registry, stone("a", task=f"one{separator}two"))
    found = registry.tombstone("a")
    assert found is not None
    assert found.task == f"one{separator}two"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b'"a"',
        b'{"id": "a"}',
        b'{"id": "a", "status": "x"}',
        b"\xff\xfe",
        b"[" * 99_999,
    ],
    ids=lambda garbage: repr(garbage[:20]),
)
def test_lines_of_the_history_that_cannot_be_read_are_passed_over(
    registry: Registry, paths: StatePaths, garbage: bytes
) -> None:
    bury(registry, stone("a"))
    with paths.history.open("ab") as file:
        file.write(garbage + b"\n" + b'{"torn": "a"')
    bury(registry, stone("b"))
    assert [one.id for one in registry.history()] == ["a", "b"]
    assert registry.tombstone("a") == stone("a")
    assert isinstance(registry.unknown("x"), UnknownAgentError)


# Unknown ids


def test_an_unknown_id_is_answered_with_the_nearest_names_live_and_gone(registry: Registry) -> None:
    put(registry, record("fix-login"))
    for _ in range(5):
        bury(registry, stone("fix-logins"))
    error = registry.unknown("fix-logn")
    assert "fix-logn" in error.message
    assert error.hint == "Did you mean fix-login or fix-logins?"


def test_all_unknown_ids_are_named(registry: Registry) -> None:
    assert "one, two" in registry.unknown("one", "two").message


def test_a_row_that_cannot_be_read_is_not_called_unknown(registry: Registry, paths: StatePaths) -> None:
    write(paths, WHOLE)
    error = registry.unknown("old")
    assert "cannot be read by this version" in error.message


# The sequence of stops


def test_the_sequence_grows_over_transactions(registry: Registry) -> None:
    numbers = []
    for _ in range(3):
        with registry.transaction("a test") as state:
            numbers += [state.next_sequence(), state.next_sequence()]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_a_process_of_a_row_is_stored_whole(registry: Registry) -> None:
    put(registry, record("a", owner=ProcessRef(5, "boot:9")))
    assert registry.read().agents["a"].owner == ProcessRef(5, "boot:9")
