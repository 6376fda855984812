"""Which conversation and which branch, what a row says, what is picked: the pure parts of ``resume`` (N7-N17)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from side_agents.cli.picker import Picker, Press, presses
from side_agents.clients import script_notice, session_files
from side_agents.clients.interface import SessionSummary
from side_agents.clients.script_session import LINK, NOTICE, Session, read_entries
from side_agents.clients.script_sessions import ScriptSessions
from side_agents.clients.session_files import SLICE, last_link
from side_agents.core.placement import Placement, choose_slot, conversation, mark, notice, slot_of
from side_agents.core.results import Resume
from side_agents.core.resume import Claim, assign_branches
from side_agents.core.resume_row import Row, sanitise_title
from side_agents.core.slots import Slot, SlotKind
from side_agents.errors import ConflictError, RefusedError
from side_agents.models import AgentRecord, AgentStatus, Lease
from tests.unit.cli_support import record

ENV = {"SIDE_AGENTS_SCRIPT_HOME": "/nowhere"}


def link(agent_id: object, **more: object) -> str:
    return json.dumps({"type": "custom", "customType": LINK, "data": {"agentId": agent_id, **more}})


def lines(*each: str) -> bytes:
    return "".join(f"{line}\n" for line in each).encode()


def test_the_script_agent_and_its_reader_mean_the_same_entry() -> None:
    assert session_files.LINK == LINK


def test_n7_a_link_behind_another_custom_entry() -> None:
    assert last_link(lines('{"type":"custom","customType":"other","data":{"agentId":"no"}}', link("yes"))) == "yes"


def test_n8_of_two_links_the_last() -> None:
    assert last_link(lines(link("one"), link("two"))) == "two"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", None),
        (lines('{"type":"message","message":{"role":"user","content":"hello"}}'), None),
        (lines("garbage with side-agent-link", link("good")), "good"),
        (lines(link("good"), '{"side-agent-link": tr'), "good"),
        (lines(link("good"), '{"type":"message","text":"about side-agent-link and side-agent-link"}'), "good"),
        (link("unfinished line").encode(), "unfinished line"),
        (b"\xff\xfe side-agent-link\n" + lines(link("good")), "good"),
        (lines(link("good"), "[" * 100_000 + "side-agent-link"), "good"),
    ],
)
def test_n9_nothing_unrelated_and_garbage(data: bytes, found: str | None) -> None:
    assert last_link(data) == found


@pytest.mark.parametrize(
    "bad",
    [
        link(7),
        link(None),
        link(""),
        link(["x"]),
        '{"customType":"side-agent-link","data":{}}',
        '{"customType":"side-agent-link","data":null}',
        '{"customType":"side-agent-link"}',
        '["side-agent-link"]',
    ],
)
def test_n10_a_link_without_a_good_id_is_ignored(bad: str) -> None:
    assert last_link(lines(link("good"), bad)) == "good"
    assert last_link(lines(bad)) is None


def summary(agent_id: str | None, name: str = "s", **more: Any) -> SessionSummary:
    values: dict[str, Any] = {
        "client": "script", "session_id": name, "file": Path(f"/{name}.jsonl"), "cwd": "/r/p-agent-worktree-0001",
        "title": "t", "is_named": False, "modified": 1.0, "messages": 1,
    }  # fmt: skip
    return SessionSummary(agent_id=agent_id, **{**values, **more})


def test_n11_the_newest_of_an_id_gets_the_branch_and_one_without_link_is_left_out() -> None:
    newest_first = [summary("a", "1"), summary(None, "2"), summary("b", "3"), summary("a", "4"), summary("A", "5")]
    assert [(session.session_id, claim) for session, claim in assign_branches(newest_first, ())] == [
        ("1", Claim.OWN),
        ("3", Claim.OWN),
        ("4", Claim.NEWER),
        ("5", Claim.NEWER),
    ]


def test_n12_an_active_id_keeps_its_branch() -> None:
    pairs = assign_branches([summary("a", "1"), summary("a", "2"), summary("b", "3")], {"a", "c"})
    assert [claim for _, claim in pairs] == [Claim.ACTIVE, Claim.ACTIVE, Claim.OWN]


NAMED = Row("fix-login", "", "Login works")
NOTED = Row("fix-login", "branch pruned", "please fix the login test")


@pytest.mark.parametrize("row", [NAMED, NOTED])
def test_n13_an_untouched_prefill_changes_nothing(row: Row) -> None:
    assert sanitise_title(row.text, row) is None
    assert sanitise_title(f"  {row.text} ", row) is None


@pytest.mark.parametrize("row", [NAMED, NOTED])
def test_n14_a_character_typed_in_front_takes_the_decorations_away(row: Row) -> None:
    assert sanitise_title("x" + row.text, row) == "x" + row.title


@pytest.mark.parametrize("row", [NAMED, NOTED])
def test_n15_an_edited_body_is_the_title(row: Row) -> None:
    assert sanitise_title(row.text.replace(row.title, "New title"), row) == "New title"


def test_n16_a_fresh_title_is_itself() -> None:
    for title in ("Fresh", "fix-login once more", "all about branch pruned things"):
        assert sanitise_title(title, NOTED) == title


def test_n17_what_says_nothing_new_changes_nothing() -> None:
    for typed in ("", "   ", "fix-login", "fix-login ·", NOTED.title, f"branch pruned · {NOTED.title}"):
        assert sanitise_title(typed, NOTED) is None
    assert sanitise_title(NAMED.title, NAMED) is None


def test_the_note_stands_before_the_title() -> None:
    assert NOTED.text == "fix-login · branch pruned · please fix the login test"
    assert NAMED.text == "fix-login · Login works"


def test_the_slot_of_a_directory() -> None:
    pool = Path("/r/p")
    assert slot_of(pool, "/r/p-agent-worktree-0003") == Path("/r/p-agent-worktree-0003")
    assert slot_of(pool, "/r/p-agent-worktree-0003/src/a") == Path("/r/p-agent-worktree-0003")
    for other in ("/r/p", "/r/p/src", "/r/q-agent-worktree-0001", "/x/p-agent-worktree-0001", "relative", ""):
        assert slot_of(pool, other) is None


SLOT = Path("/r/p-agent-worktree-0001")


def placement(*, branch_exists: bool = True, in_place: Path | None = SLOT, **more: Any) -> Placement:
    values: dict[str, Any] = {"agent_id": "a", "takes_branch": True, "session_file": "/s.jsonl", "directory": str(SLOT)}
    return Placement(Resume(**{**values, **more}), branch_exists, in_place, SLOT, "b" * 40, frozenset())


def slot(number: int, lease: Lease | None = None) -> Slot:
    return Slot(SLOT.with_name(f"p-agent-worktree-{number:04d}"), number, SlotKind.WORKTREE, lease)


def test_in_place_is_that_slot_or_nothing() -> None:
    pool = Path("/r/p")
    assert choose_slot(placement(), "a", pool, [slot(2), slot(1)], []).path == SLOT
    held = record("b", worktree_path=str(SLOT))
    for found, others in (([slot(2), slot(1, Lease(agent_id="x"))], []), ([slot(1), slot(2)], [held]), ([slot(2)], [])):
        with pytest.raises(RefusedError, match="0001, which cannot be used"):
            choose_slot(placement(), "a", pool, found, others)
    assert choose_slot(placement(), "a-2", pool, [slot(1, Lease(agent_id="x")), slot(2)], []).number == 2


def test_elsewhere_the_old_directory_comes_first() -> None:
    free = placement(in_place=None)
    assert choose_slot(free, "a", Path("/r/p"), [slot(0), slot(1)], []).path == SLOT
    assert choose_slot(free, "a", Path("/r/p"), [slot(0), slot(1, Lease())], []).number == 0


@pytest.mark.parametrize(
    "rival",
    [
        record("b", AgentStatus.ALLOCATING_WORKTREE, resumed_from="/s.jsonl"),
        record("b", AgentStatus.RUNNING, child_session_file="/s.jsonl"),
    ],
)
def test_a_conversation_is_resumed_once_at_a_time(rival: AgentRecord) -> None:
    with pytest.raises(ConflictError, match="in use by agent b"):
        choose_slot(placement(in_place=None), "a", Path("/r/p"), [slot(2)], [rival])


def test_the_reservation_says_what_it_took_over() -> None:
    mine = mark(placement(model="big", base_commit="c"), record("a", base_commit="h" * 40), None)
    assert (mine.branch_existed, mine.base_commit, mine.model) == (True, "b" * 40, "big")
    assert (mine.resumed_from, mine.warnings) == ("/s.jsonl", ())
    anew = mark(placement(branch_exists=False, in_place=None), record("a", base_commit="h" * 40), "other")
    assert (anew.branch_existed, anew.base_commit, anew.model) == (None, "h" * 40, "other")
    assert "made anew from hhhhhhhhhh" in anew.warnings[0]
    fresh = mark(placement(), record("a-2", base_commit="h" * 40), None)
    assert fresh.branch_existed is None
    assert "fresh branch side-agent/a-2" in fresh.warnings[0]


def test_a_conversation_is_copied_unless_its_directory_is_the_same() -> None:
    assert conversation(None, SLOT) == (None, False)
    assert conversation(placement(), SLOT) == ("/s.jsonl", False)
    assert conversation(placement(fork=True), SLOT) == ("/s.jsonl", True)
    assert conversation(placement(directory=f"{SLOT}/sub"), SLOT) == ("/s.jsonl", True)
    assert conversation(placement(), SLOT.with_name("p-agent-worktree-0002")) == ("/s.jsonl", True)


def test_b54_a_notice_names_what_changed_and_nothing_else() -> None:
    here = record("a", worktree_path=str(SLOT), branch_existed=True)
    assert notice(placement(depth=1), here, None) == ""
    assert notice(placement(), here, None) == ""
    moved = notice(placement(), record("a", worktree_path="/r/p-agent-worktree-0002", branch_existed=True), None)
    assert f"held in {SLOT}" in moved
    assert "reset" not in moved
    assert "were reset" in notice(placement(), record("a", worktree_path=str(SLOT), base_commit="b" * 40), None)
    nested = record("a", worktree_path=str(SLOT), branch_existed=True, parent_agent_id="top", depth=2)
    assert "side agent top (depth 2)" in notice(placement(), nested, "side-agent/top")
    assert notice(placement(parent_agent_id="top", depth=2), nested, "side-agent/top") == ""
    assert "main session" in notice(placement(parent_agent_id="top", depth=2), here, None)


def conversation_file(folder: Path, cwd: str = "/w", name: str = "s") -> Session:
    session = Session(str(folder / f"{name}.jsonl"), name)
    session.link("a", "/parent.jsonl")
    session.add("user", [{"type": "text", "text": "first\nline"}])
    return session


def linked(session: Session) -> list[object]:
    return [entry["data"] for entry in read_entries(session.path, LINK)]


def test_b55_a_conversation_is_linked_with_its_first_message_and_again_only_for_another_agent(tmp_path: Path) -> None:
    empty = Session(str(tmp_path / "e.jsonl"), "e")
    empty.link("a", "")
    assert not (tmp_path / "e.jsonl").exists()
    session = conversation_file(tmp_path)
    [first] = linked(session)
    assert isinstance(first, dict)
    assert (first["agentId"], first["parentSession"], set(first)) == (
        "a",
        "/parent.jsonl",
        {"agentId", "parentSession", "linkedAt"},
    )
    for agent_id, count in (("a", 1), ("b", 2), ("b", 2), ("a", 3)):
        again = Session.resumed(session.path)
        again.link(agent_id, "")
        assert len(linked(again)) == count
    fork = Session.forked(session.path, str(tmp_path / "f.jsonl"), "f", "/w2")
    fork.link("c", "")
    assert session_files.linked_agent(Path(fork.path)) == "c"
    assert session_files.linked_agent(Path(session.path)) == "a"


def test_links_do_not_break_the_chain_of_messages(tmp_path: Path) -> None:
    session = conversation_file(tmp_path)
    again = Session.resumed(session.path)
    again.link("b", "")
    again.add("user", "second")
    messages = [entry for entry in read_entries(session.path) if entry["type"] == "message"]
    assert messages[1]["parentId"] == messages[0]["id"]


def give_notice(runtime: Path, session: str, cwd: str = "/w", **more: object) -> dict[str, str]:
    data = {"noticeId": "n1", "targetCwd": cwd, "sourceSessionPath": session, "content": "moved", **more}
    (runtime / "resume-notice.json").write_text(json.dumps(data))
    return {"PI_SIDE_RUNTIME_DIR": str(runtime)}


def test_b54_a_notice_is_taken_once_only_there_and_only_in_that_session_or_a_fork_of_it(tmp_path: Path) -> None:
    session = conversation_file(tmp_path)
    env = give_notice(tmp_path, session.path)
    assert script_notice.take(env, session, "/elsewhere") == ""
    assert script_notice.take(env, conversation_file(tmp_path, name="other"), "/w") == ""
    assert script_notice.take(env, session, "/w") == "moved"
    assert script_notice.take(env, Session.resumed(session.path), "/w") == ""
    [kept] = [entry["data"] for entry in read_entries(session.path, NOTICE)]
    assert kept == {"noticeId": "n1", "content": "moved"}
    env = give_notice(tmp_path, session.path, noticeId="n2", content="again")
    fork = Session.forked(session.path, str(tmp_path / "f.jsonl"), "f", "/w")
    assert script_notice.take(env, fork, "/w") == "again"


@pytest.mark.parametrize("content", ["not json", "[]", "", '{"content": 1}'])
def test_a_malformed_notice_is_a_warning_or_nothing(tmp_path: Path, content: str) -> None:
    session = conversation_file(tmp_path)
    (tmp_path / "resume-notice.json").write_text(content)
    told = script_notice.take({"PI_SIDE_RUNTIME_DIR": str(tmp_path)}, session, "/w")
    assert told.startswith("warning:") or (told == "" and content.startswith("{"))
    (tmp_path / "resume-notice.json").unlink()
    assert script_notice.take({"PI_SIDE_RUNTIME_DIR": str(tmp_path)}, session, "/w") == ""


def test_a_summary_is_made_of_the_two_ends(tmp_path: Path) -> None:
    session = conversation_file(tmp_path)
    short = ScriptSessions().summarise(Path(session.path))
    assert short is not None
    assert (short.agent_id, short.title, short.messages, short.session_id) == ("a", "first\nline", 1, "s")
    with Path(session.path).open("a") as file:
        file.write(
            json.dumps({"pad": "x" * SLICE}) + "\n" + link("middle") + "\n" + json.dumps({"pad": "x" * SLICE}) + "\n"
        )
    Session.resumed(session.path).add("assistant", "end")
    long = ScriptSessions().summarise(Path(session.path))
    assert long is not None
    assert (long.agent_id, long.title, long.messages) == ("a", "first\nline", 2)
    assert session_files.linked_agent(Path(session.path)) == "middle"


@pytest.mark.parametrize("content", ["", "x", "{}\n", '{"type":"session"}\n', '{"type":"session","id":"i","cwd":7}\n'])
def test_what_is_no_conversation_has_no_summary(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.jsonl").write_text(content)
    assert ScriptSessions().summarise(tmp_path / "s.jsonl") is None
    assert ScriptSessions().summarise(tmp_path / "gone.jsonl") is None
    assert ScriptSessions().summarise(tmp_path) is None


def test_files_are_those_of_the_slots_and_of_folders_in_them(tmp_path: Path) -> None:
    names = {
        "--r-p-agent-worktree-0001--": True, "--r-p-agent-worktree-0001-src-a--": True, "--r-p-agent-worktree-10000--": True,
        "--r-p--": False, "--r-p-agent-worktree-1--": False, "--r-p-agent-worktree-0001x--": False,
        "--x-r-p-agent-worktree-0001--": False,
    }  # fmt: skip
    for name in names:
        (tmp_path / "sessions" / name).mkdir(parents=True)
        (tmp_path / "sessions" / name / "s.jsonl").touch()
        (tmp_path / "sessions" / name / "notes.txt").touch()
    store = ScriptSessions()
    found = store.files({"SIDE_AGENTS_SCRIPT_HOME": str(tmp_path)}, "/r/p-agent-worktree-")
    assert {file.parent.name for file in found} == {name for name, wanted in names.items() if wanted}
    assert {file.name for file in found} == {"s.jsonl"}
    assert store.files(ENV, "/r/p-agent-worktree-") == []


ROWS = ("2h   fix-login · branch pruned · the login", "3h   docs · Write docs", "1d   login-ui · Colours")


def typed(*keys: str) -> Picker:
    picker = Picker(ROWS)
    for press in presses("".join(keys)):
        picker = picker.after(press)
    return picker


def test_the_picker_begins_at_the_newest_and_moves_within_the_list() -> None:
    down, up = "\x1b[B", "\x1bOA"
    assert typed().chosen == 0
    assert typed(down).chosen == 1
    assert typed(down, down, down, down).chosen == 2
    assert typed(down, down, up).chosen == 1
    assert typed(up).chosen == 0
    assert typed("\x1b[F").chosen == 2
    assert typed("\x1b[F", "\x1b[5~").chosen == 0


def test_the_picker_searches_all_words_in_any_case_and_order() -> None:
    assert typed("LOGIN").matches == [0, 2]
    assert typed("colours lo").chosen == 2
    assert typed("LOGIN", "\x1b[B").chosen == 2
    assert typed("zzz").chosen is None
    assert typed("zzz", "\x7f\x7f\x7f").matches == [0, 1, 2]
    assert typed("zzz", "\x15", "docs").chosen == 1
    assert typed("nothing", "\x1b[B", "\x1b[F").chosen is None


def test_the_picker_shows_a_window_around_the_cursor() -> None:
    many = Picker(tuple(f"row {number}" for number in range(100)))
    assert many.visible(5) == [0, 1, 2, 3, 4]
    for _ in range(50):
        many = many.after(Press.DOWN)
    assert many.visible(5) == [48, 49, 50, 51, 52]
    assert many.after(Press.END).visible(5) == [95, 96, 97, 98, 99]
    assert Picker(()).visible(5) == []


def test_keys_without_a_meaning_are_dropped() -> None:
    assert list(presses("a\x1b[3~b\x1b[1;5Cc\x00\t")) == ["a", "b", "c"]
    assert list(presses("é中\r")) == ["é中", Press.ENTER]
    assert list(presses("\x1b")) == [Press.LEAVE]
