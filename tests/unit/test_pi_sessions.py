"""Pi's conversations as ``resume`` sees them: of each file two slices, and never more (seed 001 5.3b, N7-N12, B55, B56)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from side_agents.clients import session_stores
from side_agents.clients.interface import SessionSummary
from side_agents.clients.pi_sessions import PiSessions
from side_agents.clients.session_files import SLICE, last_link
from side_agents.core.resume import Claim, Resumable, assign_branches
from side_agents.core.resume_row import row_of
from side_agents.errors import StateError

STORE = PiSessions()
SLOT = "/home/me/w/project-agent-worktree-0001"
PREFIX = "/home/me/w/project-agent-worktree-"
HEADER = {"type": "session", "version": 3, "id": "0199-a", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": SLOT}


def entry(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": "0a1b2c3d", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z", **fields}


def link(agent_id: object) -> dict[str, Any]:
    data = {"agentId": agent_id, "parentSession": "/p.jsonl", "linkedAt": "2026-01-01T00:00:00.000Z"}
    return {"type": "custom", "customType": "side-agent-link", "data": data, "id": "1", "parentId": None}


def said(text: str, role: str = "user") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return entry("message", message={"role": role, "content": content, "timestamp": 1767225600000})


def lines(*entries: object) -> bytes:
    """As JSON.stringify puts them."""
    return b"".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for each in entries)


def written(folder: Path, *parts: bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(b"".join(parts))
    return path


def look(folder: Path, *entries: object) -> SessionSummary:
    summary = STORE.summarise(written(folder, lines(HEADER, *entries)))
    assert summary is not None
    return summary


def filler(length: int) -> bytes:
    line = lines(said("nothing that matters " * 20, "assistant"))
    return line * (length // len(line) + 1)


def test_pi_is_a_client_with_conversations() -> None:
    assert isinstance(session_stores()["pi"], PiSessions)


def test_a_conversation_is_told_from_its_header_link_and_first_message(tmp_path: Path) -> None:
    thinking = entry("model_change", provider="fake", modelId="m")
    found = look(
        tmp_path,
        thinking,
        link("fix-it"),
        said("prompt of Pi", "system"),
        said("Fix it, 你好 🙂\nplease"),
        said("ok", "assistant"),
    )
    os.utime(found.file, (5, 1000))
    again = STORE.summarise(found.file)
    assert again == SessionSummary(
        client="pi",
        session_id="0199-a",
        file=tmp_path / "s.jsonl",
        cwd=SLOT,
        agent_id="fix-it",
        title="Fix it, 你好 🙂\nplease",
        is_named=False,
        modified=1000.0,
        messages=3,
    )


def test_n7_a_link_is_found_behind_other_entries_of_extensions() -> None:
    assert last_link(lines(entry("custom", customType="other", data={"agentId": "no"}), link("yes"))) == "yes"


def test_n8_of_two_links_the_last_counts(tmp_path: Path) -> None:
    assert look(tmp_path, link("first"), said("x"), link("last")).agent_id == "last"


def test_n9_garbage_with_the_mark_in_it_is_no_link(tmp_path: Path) -> None:
    garbage = b'{"type":"custom","customType":"side-agent-link","data":{"agentId":\n' + b"side-agent-link\n\xff\xfe\n"
    quoted = lines(said('{"customType":"side-agent-link","data":{"agentId":"evil"}}'))
    called = lines(
        entry("message", message={"role": "assistant", "content": [{"type": "toolCall", "arguments": link("evil")}]})
    )
    assert last_link(b"") is None
    assert last_link(lines(said("unrelated"))) is None
    assert last_link(garbage + quoted + called) is None
    assert last_link(garbage + lines(link("good")) + quoted + called + garbage) == "good"


@pytest.mark.parametrize("agent_id", [7, None, "", ["a"], {"a": 1}, True])
def test_n10_a_link_whose_id_is_no_text_is_passed_over(tmp_path: Path, agent_id: object) -> None:
    assert look(tmp_path, link("good"), link(agent_id), said("x")).agent_id == "good"


@pytest.mark.parametrize("data", [None, "text", [], {}])
def test_n10_a_link_without_data_is_passed_over(tmp_path: Path, data: object) -> None:
    assert look(tmp_path, link("good"), {**link("x"), "data": data}, said("x")).agent_id == "good"


def test_n11_the_newest_of_an_id_has_its_branch_and_what_has_no_link_is_left_out(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    newest, older = (look(folder, link("fix"), said("x")) for folder in folders[:2])
    unlinked = look(folders[2], said("x"))
    assert assign_branches([newest, unlinked, older], ()) == [(newest, Claim.OWN), (older, Claim.NEWER)]


def test_n12_an_active_agent_keeps_its_branch(tmp_path: Path) -> None:
    session = look(tmp_path, link("Fix"), said("x"))
    assert assign_branches([session], ["fix"]) == [(session, Claim.ACTIVE)]


def test_b54_the_name_given_last_is_the_title_and_an_empty_one_takes_it_away(tmp_path: Path) -> None:
    first, second, none = (entry("session_info", name=name) for name in ("one", " two ", "  "))
    assert (
        look(tmp_path, first, said("task"), second).title,
        look(tmp_path, first, said("task"), second).is_named,
    ) == ("two", True)
    cleared = look(tmp_path, first, said("task"), none)
    assert (cleared.title, cleared.is_named) == ("task", False)
    odd = look(tmp_path, first, said("task"), said('"type":"session_info"'), entry("session_info", name=3))
    assert (odd.title, odd.is_named) == ("task", False)


def test_a_first_message_may_be_a_bare_text_or_come_after_an_image(tmp_path: Path) -> None:
    bare = entry("message", message={"role": "user", "content": "bare"})
    assert look(tmp_path, bare).title == "bare"
    image = [{"type": "image", "data": "AAAA", "mimeType": "image/png"}, {"type": "text", "text": "see"}]
    assert look(tmp_path, entry("message", message={"role": "user", "content": image})).title == "see"
    assert look(tmp_path, entry("custom", data={"role": "user"}), said("real")).title == "real"


def test_a_conversation_in_which_nobody_spoke_has_no_messages(tmp_path: Path) -> None:
    assert look(tmp_path, link("a")).messages == 0
    assert look(tmp_path, link("a"), said("prompt of Pi", "system")).messages == 0
    assert look(tmp_path, link("a"), said("hello")).messages == 1


def test_b56_what_is_needed_is_found_at_both_ends_of_a_long_file(tmp_path: Path) -> None:
    begin = lines(HEADER, link("alpha"), said("the task"))
    end = lines(link("beta"), entry("session_info", name="late"), said("bye"))
    found = STORE.summarise(written(tmp_path, begin, filler(3_000_000), end))
    assert found is not None
    assert (found.agent_id, found.title, found.is_named) == ("beta", "late", True)
    plain = STORE.summarise(written(tmp_path, begin, filler(3_000_000)))
    assert plain is not None
    assert (plain.agent_id, plain.title, plain.is_named) == ("alpha", "the task", False)
    assert 400 < plain.messages < 1000


def test_b55_a_link_in_the_middle_is_only_seen_by_the_look_at_the_whole_file(tmp_path: Path) -> None:
    parts = (lines(HEADER, link("alpha"), said("x")), filler(400_000), lines(link("beta")), filler(400_000))
    found = STORE.summarise(written(tmp_path, *parts))
    assert found is not None
    assert found.agent_id == "alpha"
    assert STORE.linked_agent(found.file) == "beta"


def test_a_first_message_longer_than_what_is_read_still_gives_the_title(tmp_path: Path) -> None:
    text = 'say "hi"\n你好 🙂 \\ ' + "x" * 400_000
    for tail in ((), (said("answer", "assistant"),)):
        found = STORE.summarise(written(tmp_path, lines(HEADER, link("a"), said(text), *tail)))
        assert found is not None
        assert found.title.startswith('say "hi"\n你好 🙂 \\ xxx')
        assert len(found.title) <= 2000
        assert found.messages == 1 + len(tail)


@pytest.mark.parametrize("length", range(1980, 2003))
@pytest.mark.parametrize("escaped", [True, False])
def test_a_title_is_never_cut_inside_of_a_character_or_an_escape(tmp_path: Path, length: int, escaped: bool) -> None:
    text = "x" * length + '你好🙂\t\x01"' + "y" * 300_000
    line = json.dumps(said(text), separators=(",", ":"), ensure_ascii=escaped)
    found = STORE.summarise(written(tmp_path, lines(HEADER), line.encode() + b"\n"))
    assert found is not None
    assert len(found.title) >= min(length, 1990)
    assert text.startswith(found.title.removesuffix("\ud83d"))


def test_every_way_to_cut_a_file_short_is_survived(tmp_path: Path) -> None:
    whole = lines(HEADER, link("alpha"), said("the task"), entry("session_info", name="name"), said("ok", "assistant"))
    for length in range(len(whole)):
        found = STORE.summarise(written(tmp_path, whole[:length]))
        if found is not None:
            assert found.cwd == SLOT
            assert found.agent_id in (None, "alpha")


def hostile() -> Iterable[tuple[str, bytes]]:
    head = lines(HEADER)
    yield "empty", b""
    yield "binary", os.urandom(300_000)
    yield "no-header", lines(link("a"), said("x"))
    yield "header-without-cwd", lines({**HEADER, "cwd": None}, link("a"), said("x"))
    yield "header-without-id", lines({**HEADER, "id": 5}, link("a"), said("x"))
    yield "header-is-a-list", b"[1]\n" + lines(link("a"))
    yield "deep", b"[" * 200_000 + b"\n"
    yield "deep-link", head + b'{"customType":"side-agent-link","data":' + b"[" * 100_000 + b"\n"
    yield "long-number", head + b'{"role":"user","type":"message","x":' + b"9" * 100_000 + b"}\n"
    yield "one-line", b"x" * 2_000_000
    yield "many-marks", head + b'"role":"user" side-agent-link "type":"session_info"\n' * 20_000
    yield "marks-in-one-line", head + b'"role":"user" side-agent-link "type":"session_info"' * 20_000
    yield "nul", head + b"\0" * 500_000
    yield "lone-surrogate", head + b'{"type":"message","message":{"role":"user","content":"\\ud800"}}\n'


@pytest.mark.parametrize(("name", "data"), [pytest.param(*each, id=each[0]) for each in hostile()])
def test_hostile_files_are_no_conversation_or_one_without_a_link(tmp_path: Path, name: str, data: bytes) -> None:
    found = STORE.summarise(written(tmp_path, data))
    if found is not None:
        assert found.agent_id is None
        row_of(Resumable(found, Claim.OWN, "")).text.encode("utf-8", "replace")


def test_a_pipe_a_folder_and_a_file_that_is_gone_are_no_conversations(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    for name in ("pipe", "folder", "loop", "gone"):
        assert STORE.summarise(tmp_path / f"{name}.jsonl") is None
    with pytest.raises(StateError):
        STORE.linked_agent(tmp_path / "gone.jsonl")


def test_b56_no_more_than_two_slices_are_read_whatever_the_length(tmp_path: Path) -> None:
    sizes = (1_000, 2 * SLICE, 2 * SLICE + 1, 50_000_000)
    for size in sizes:
        path = written(tmp_path, lines(HEADER, link("a"), said("x")))
        with path.open("r+b") as file:
            file.truncate(size)
        before = bytes_read()
        found = STORE.summarise(path)
        read = bytes_read() - before
        assert found is not None
        assert found.agent_id == "a"
        assert read <= 2 * SLICE + 4096, size


def bytes_read() -> int:
    """Bytes that this process has asked the kernel for so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def store(tmp_path: Path, *folders: str) -> dict[str, str]:
    for folder in folders:
        path = tmp_path / "pi/sessions" / folder
        path.mkdir(parents=True)
        (path / "2026_a.jsonl").touch()
        (path / "notes.txt").touch()
    return {"HOME": str(tmp_path), "PI_CODING_AGENT_DIR": "~/pi"}


def names(files: list[Path]) -> set[str]:
    assert all(file.name == "2026_a.jsonl" for file in files)
    return {file.parent.name for file in files}


def test_b56_folders_are_found_by_their_encoded_names_whether_their_slots_are_there_or_not(tmp_path: Path) -> None:
    ours = "--home-me-w-project-agent-worktree-"
    wanted = (f"{ours}0001--", f"{ours}0017--", f"{ours}12345--", f"{ours}0001-sub-folder--")
    others = (
        f"{ours}001--", f"{ours}0001x--", "--home-me-w-project--", "--home-me-w-other-agent-worktree-0001--",
        "--x-home-me-w-project-agent-worktree-0001--", "home-me-w-project-agent-worktree-0001",
    )  # fmt: skip
    assert names(STORE.files(store(tmp_path, *wanted, *others), PREFIX)) == set(wanted)


def test_names_that_mean_two_directories_are_both_offered_and_the_header_decides(tmp_path: Path) -> None:
    environment = store(tmp_path, "--a-b-c-agent-worktree-0001--")
    for prefix in ("/a/b/c-agent-worktree-", "/a-b/c-agent-worktree-", "/a:b\\c-agent-worktree-"):
        assert names(STORE.files(environment, prefix)) == {"--a-b-c-agent-worktree-0001--"}


def test_odd_names_of_projects_are_encoded_as_pi_does(tmp_path: Path) -> None:
    environment = store(tmp_path, "--home-me-w ps x.y_z[1]+(2)-agent-worktree-0001--")
    assert names(STORE.files(environment, "/home/me/w ps x.y_z[1]+(2)-agent-worktree-"))


def test_files_are_looked_for_in_pis_own_folder(tmp_path: Path) -> None:
    store(tmp_path, "--home-me-w-project-agent-worktree-0001--")
    (tmp_path / ".pi").mkdir()
    for value in ("~/pi", str(tmp_path / "pi")):
        assert len(STORE.files({"HOME": str(tmp_path), "PI_CODING_AGENT_DIR": value}, PREFIX)) == 1
    for value in ("", "~/nowhere", "~other/pi"):
        assert STORE.files({"HOME": str(tmp_path), "PI_CODING_AGENT_DIR": value}, PREFIX) == []
    (tmp_path / "pi").rename(tmp_path / ".pi/agent")
    assert len(STORE.files({"HOME": str(tmp_path)}, PREFIX)) == 1
    assert len(STORE.files({"HOME": str(tmp_path / ".pi/agent"), "PI_CODING_AGENT_DIR": "~"}, PREFIX)) == 1


def test_folders_that_cannot_be_listed_are_passed_over(tmp_path: Path) -> None:
    environment = store(tmp_path, "--home-me-w-project-agent-worktree-0001--")
    (tmp_path / "pi/sessions/--home-me-w-project-agent-worktree-0002--").touch()
    assert len(STORE.files(environment, PREFIX)) == 1
