"""What the script agent keeps on disk: claim, journal, session file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from side_agents.clients.script_journal import open_journal
from side_agents.clients.script_session import Session, SessionError, read_entries, session_path


def environment(runtime: Path, token: str = "t") -> dict[str, str]:
    return {"PI_SIDE_RUNTIME_DIR": str(runtime), "SIDE_AGENTS_LAUNCH_TOKEN": token}


def test_the_first_process_claims_the_token_and_may_open_again(tmp_path: Path) -> None:
    assert open_journal(environment(tmp_path)).is_agent
    claim = json.loads((tmp_path / "claim.json").read_text())
    assert (claim["pid"], claim["token"]) == (os.getpid(), "t")
    assert open_journal(environment(tmp_path)).is_agent
    assert [path.name for path in tmp_path.iterdir()] == ["claim.json"]


@pytest.mark.parametrize("claim", ['{"pid": 1, "token": "t"}', "not json", "[]", ""])
def test_x23_a_claim_held_by_another_silences_this_process(tmp_path: Path, claim: str) -> None:
    (tmp_path / "claim.json").write_text(claim)
    journal = open_journal(environment(tmp_path))
    journal.write("ready")
    assert not journal.is_agent
    assert [path.name for path in tmp_path.iterdir()] == ["claim.json"]
    assert (tmp_path / "claim.json").read_text() == claim


def test_without_a_token_or_a_folder_nothing_is_claimed(tmp_path: Path) -> None:
    assert not open_journal(environment(tmp_path, token="")).is_agent
    assert not open_journal({"SIDE_AGENTS_LAUNCH_TOKEN": "t"}).is_agent
    assert not open_journal(environment(tmp_path / "gone")).is_agent
    assert list(tmp_path.iterdir()) == []


def test_an_event_stays_below_one_atomic_write_whatever_the_text(tmp_path: Path) -> None:
    journal = open_journal(environment(tmp_path))
    for text in ("\x01" * 500, "👩" * 500, '"\\' * 250):
        journal.write("turn_end", outcome="completed", text=text)
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    assert all(len(line) < 4096 for line in lines)


def test_a_folder_that_vanished_does_not_stop_the_agent(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    journal = open_journal(environment(runtime))
    (runtime / "claim.json").unlink()
    runtime.rmdir()
    journal.write_input("text", "started")
    assert not runtime.exists()


def test_session_files_lie_under_the_encoded_directory() -> None:
    found = session_path({"SIDE_AGENTS_SCRIPT_HOME": "/h"}, "/home/me/w/ps x.y_z", "id-1")
    assert found == "/h/sessions/--home-me-w-ps x.y_z--/id-1.jsonl"
    assert session_path({"HOME": "/me"}, "/a", "i") == "/me/.side-agents-script/sessions/--a--/i.jsonl"


def test_a_session_without_a_message_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "s.jsonl"
    session = Session(str(path), "s")
    assert not path.parent.exists()
    session.add("user", "hello")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry["type"] for entry in read_entries(str(path))] == ["session", "message"]


def test_a_line_cut_by_a_kill_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = Session(str(path), "s")
    session.add("user", "one")
    session.add("assistant", "two")
    whole = path.read_bytes()
    for end in range(len(whole) - 1, len(whole) - 40, -1):
        path.write_bytes(whole[:end])
        again = Session.resumed(str(path))
        again.add("user", "three")
        messages = [entry["message"] for entry in read_entries(str(path)) if entry["type"] == "message"]
        contents = [message["content"] for message in messages if isinstance(message, dict)]
        assert contents in (["one", "three"], ["one", "two", "three"])


def test_something_that_is_no_session_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("my notes\n")
    with pytest.raises(SessionError, match="not a session file"):
        Session.resumed(str(path))
    assert path.read_text() == "my notes\n"
