"""Quit agents come back with their conversation and their branch (seed 001 5.3b, reference/side-agents 8.4, B54-B57)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from orchestra import SLOW, Orchestra, messages_in, orchestra
from resume_support import back, file_of, links, notice_of, quit_agent, recycle, say

from side_agents.clients import script_session
from side_agents.core import launcher
from side_agents.core.observe import list_agents
from side_agents.core.resume import Claim, list_resumable, resume
from side_agents.errors import ConflictError, NotFoundError, RefusedError, StartFailedError, UnknownAgentError
from side_agents.models import AgentStatus, WaitingFor
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_a_quit_agent_comes_back_in_place_idle_and_its_conversation_goes_on(stage: Orchestra) -> None:
    before = quit_agent(stage)
    worktree = stage.worktree(before)
    worktree.write("half.txt", "not committed")
    worktree.write("alpha.txt", "changed")
    index = Path(worktree.git("rev-parse", "--absolute-git-dir"), "index").stat()
    after = back(stage, "alpha")

    assert (after.id, after.branch, after.worktree_path) == ("alpha", "side-agent/alpha", before.worktree_path)
    assert (after.status, after.waiting_for) == (AgentStatus.WAITING_USER, WaitingFor.PROMPT)
    assert (after.kickoff_pending, after.turn, after.model) == (None, 0, None)
    assert Path(worktree.git("rev-parse", "--absolute-git-dir"), "index").stat().st_ino == index.st_ino
    assert worktree.status().splitlines() == [" M alpha.txt", "?? half.txt"]
    assert after.warnings == ()
    assert stage.context.paths.runtime("alpha").kickoff.read_bytes() == b""
    say(stage, after, "again")
    assert after.child_session_file == before.child_session_file
    assert messages_in(file_of(after)) == ["write: alpha.txt alpha\ncommit: work of alpha", "say: again"]
    assert links(file_of(after)) == ["alpha"]
    assert notice_of(stage, after) is None
    assert list_resumable(stage.context) == []
    assert after.base_commit == before.base_commit
    stage.assert_sound()


def test_ten_agents_whose_slots_were_recycled_all_come_back_with_branch_and_conversation(stage: Orchestra) -> None:
    ids = [f"agent{number}" for number in range(10)]
    for name in ids:
        stage.start(f"write: {name}.txt {name}\ncommit: work of {name}", branch_hint=name)
    before = {name: stage.eventually_idle(name) for name in ids}
    for name in ids:
        stage.quit(name)
    heads = {name: stage.repo.git("rev-parse", f"side-agent/{name}") for name in ids}
    others = recycle(stage, 5)
    assert {other.worktree_path for other in others} == {before[name].worktree_path for name in ids[:5]}
    assert [each.session.agent_id for each in list_resumable(stage.context)] == list(reversed(ids))

    after = {name: back(stage, name) for name in ids}
    for name in ids:
        assert (after[name].id, after[name].branch) == (name, f"side-agent/{name}")
        assert stage.worktree(after[name]).git("branch", "--show-current") == f"side-agent/{name}"
        assert stage.worktree(after[name]).head() == heads[name]
        assert stage.worktree(after[name]).status() == ""
        say(stage, after[name], f"{name} is back")
        said = messages_in(file_of(after[name]))
        assert said == [f"write: {name}.txt {name}\ncommit: work of {name}", f"say: {name} is back"]
        moved = after[name].worktree_path != before[name].worktree_path
        assert (file_of(after[name]) != file_of(before[name])) == moved
        assert (notice_of(stage, after[name]) is not None) == moved
    assert sum(after[name].worktree_path != before[name].worktree_path for name in ids) >= 5
    stage.assert_sound()


def test_where_agents_were_never_used_there_is_nothing_to_resume_and_nothing_is_made(stage: Orchestra) -> None:
    assert list_resumable(stage.context) == []
    with pytest.raises(NotFoundError, match="no conversation to resume"):
        resume(stage.context, None)
    assert not (stage.repo.path / ".pi").exists()


def test_field_84_client_and_model_are_remembered_and_no_model_is_passed_unless_given(stage: Orchestra) -> None:
    stage.start("say: hello", model="tiny", branch_hint="alpha")
    stage.eventually_idle("alpha")
    for given, passed in ((None, False), ("large", True), (None, False)):
        stage.quit("alpha")
        stone = stage.context.registry.tombstone("alpha")
        assert stone is not None
        assert (stone.client, stone.model) in (("script", "tiny"), ("script", "large"))
        stage.environment["SIDE_AGENTS_CLIENT"] = "fake"
        after = back(stage, "alpha", model=given)
        del stage.environment["SIDE_AGENTS_CLIENT"]
        assert (after.client, after.model) == ("script", given or stone.model)
        assert ("--model" in stage.context.paths.runtime("alpha").launcher.read_text()) == passed


def test_the_conversation_of_an_agent_that_failed_is_not_offered_until_it_is_cleared(stage: Orchestra) -> None:
    stage.start("write: w w\ncommit: w\nfail: 3", branch_hint="alpha")
    stage.eventually_status("alpha", AgentStatus.FAILED)
    assert list_resumable(stage.context) == []
    with pytest.raises(RefusedError, match="exited with code 3") as caught:
        resume(stage.context, "alpha")
    assert "side-agents stop alpha" in (caught.value.hint or "")
    stage.stop("alpha")
    say(stage, back(stage, "alpha"), "second try")


def test_b54_a_moved_agent_is_told_once_in_its_first_lines(stage: Orchestra) -> None:
    before = quit_agent(stage)
    [other] = recycle(stage)
    after = back(stage, "alpha")
    assert other.worktree_path == before.worktree_path
    assert after.worktree_path == str(stage.slot(2))
    given = notice_of(stage, after)
    assert given is not None
    assert (given["targetCwd"], given["sourceSessionPath"]) == (after.worktree_path, before.child_session_file)
    assert str(before.worktree_path) in given["content"]
    eventually(lambda: "Your working directory has changed" in stage.screen("alpha"), SLOW)
    header = json.loads(file_of(after).read_text().splitlines()[0])
    assert (header["cwd"], header["parentSession"]) == (after.worktree_path, before.child_session_file)
    say(stage, after, "moved")
    stage.quit("alpha")
    again = back(stage, "alpha")
    assert (again.worktree_path, again.child_session_file) == (after.worktree_path, after.child_session_file)
    assert "Your working directory" not in stage.screen("alpha")
    assert notice_of(stage, again) is None
    assert file_of(again).read_text().count('"noticeId"') == 1


def test_a_slot_that_is_free_again_is_preferred_and_the_session_continued_there(stage: Orchestra) -> None:
    quit_agent(stage, "first")
    before = stage.start("write: b.txt b\ncommit: b", branch_hint="second")
    assert before.worktree_path == str(stage.slot(1))
    third = stage.start("say: hold", branch_hint="third")
    stage.eventually_idle("second")
    stage.quit("second")
    [other] = recycle(stage)
    assert other.worktree_path == before.worktree_path
    stage.eventually_idle("third")
    stage.quit("third")
    stage.stop(other.id)
    stage.worktree(third).git("checkout", "--quiet", "--detach")
    after = back(stage, "second")
    assert after.worktree_path == before.worktree_path
    assert after.child_session_file == stage.context.registry.history()[1].child_session_file
    assert notice_of(stage, after) is None


def test_a_session_of_a_deleted_slot_is_offered_and_comes_back(stage: Orchestra) -> None:
    before = quit_agent(stage)
    shutil.rmtree(before.worktree_path or "")
    [offered] = list_resumable(stage.context)
    assert (offered.session.agent_id, offered.claim, offered.note) == ("alpha", Claim.OWN, "")
    after = back(stage, "alpha")
    assert (stage.worktree(after).path / "alpha.txt").read_text() == "alpha"
    assert stage.worktree(after).status() == ""
    say(stage, after, "here")


def test_a_branch_that_was_renamed_is_made_anew_with_a_warning_and_the_renamed_one_stays(stage: Orchestra) -> None:
    before = quit_agent(stage)
    stage.repo.git("branch", "-m", "side-agent/alpha", "kept")
    head = stage.repo.git("rev-parse", "kept")
    [offered] = list_resumable(stage.context)
    assert offered.note == "branch pruned"
    after = back(stage, "alpha")
    assert after.branch == "side-agent/alpha"
    assert stage.worktree(after).head() == stage.repo.head()
    assert any("is gone" in warning for warning in after.warnings)
    assert stage.repo.git("rev-parse", "kept") == head
    assert "The files were reset" in notice_of(stage, after)["content"]  # type: ignore[index]  # it is there
    assert before.worktree_path == after.worktree_path


def test_a_branch_that_was_merged_and_removed_starts_at_head_now(stage: Orchestra) -> None:
    quit_agent(stage)
    stage.repo.git("merge", "--quiet", "side-agent/alpha")
    [other] = recycle(stage)
    assert stage.branches() == {other.id}
    after = back(stage, "alpha")
    assert (stage.worktree(after).path / "alpha.txt").exists()
    say(stage, after, "anew")
    stage.assert_sound()


def test_b57_of_two_sessions_of_one_id_the_newest_has_the_branch(stage: Orchestra) -> None:
    first = quit_agent(stage)
    copy = back(stage, "alpha", fork=True)
    assert copy.worktree_path == first.worktree_path
    assert file_of(copy) != file_of(first)
    say(stage, copy, "in the copy")
    stage.quit("alpha")
    offered = list_resumable(stage.context)
    assert [(each.session.file, each.claim) for each in offered] == [
        (file_of(copy), Claim.OWN),
        (file_of(first), Claim.NEWER),
    ]
    older = back(stage, file_of(first))
    assert older.id == "alpha-2"
    assert any("fresh branch side-agent/alpha-2" in warning for warning in older.warnings)
    assert stage.worktree(older).head() == stage.repo.head()
    assert "alpha-2" in links(Path(stage.row("alpha-2").child_session_file or ""))
    newest = back(stage, "alpha")
    assert newest.branch == "side-agent/alpha"
    assert (stage.worktree(newest).path / "alpha.txt").exists()
    say(stage, newest, "newest")
    assert messages_in(file_of(newest))[-2:] == ["say: in the copy", "say: newest"]
    stage.assert_sound()


def test_b57_an_older_session_never_takes_the_branch_even_if_that_is_gone(stage: Orchestra) -> None:
    first = quit_agent(stage)
    back(stage, "alpha", fork=True)
    stage.quit("alpha")
    stage.worktree(first).git("checkout", "--quiet", "--detach")
    stage.repo.git("branch", "-D", "side-agent/alpha")
    assert back(stage, file_of(first)).id == "alpha-2"


def test_b57_an_id_that_is_active_again_keeps_its_branch(stage: Orchestra) -> None:
    first = quit_agent(stage)
    stage.repo.git("merge", "--quiet", "side-agent/alpha")
    recycle(stage)
    second = stage.start("say: second life", branch_hint="alpha")
    stage.eventually_idle("alpha")
    assert second.id == "alpha"
    [offered] = list_resumable(stage.context)
    assert (offered.session.file, offered.note) == (file_of(first), "branch held by active agent")
    with pytest.raises(RefusedError, match="has not ended"):
        resume(stage.context, "alpha")
    with pytest.raises(RefusedError, match="has not ended"):
        resume(stage.context, file_of(stage.row("alpha")))
    after = back(stage, file_of(first))
    assert (after.id, stage.row("alpha").status) == ("alpha-2", AgentStatus.WAITING_USER)
    say(stage, after, "other life")
    stage.assert_sound()


def test_a_last_conversation_that_is_not_the_newest_of_its_id_is_no_guess(stage: Orchestra) -> None:
    first = quit_agent(stage)
    copy = file_of(first).with_name("other.jsonl")
    copy.write_text(file_of(first).read_text().replace(first.child_session_id or "", "other"))
    os.utime(copy, (2e9, 2e9))
    with pytest.raises(ConflictError, match="newer"):
        resume(stage.context, "alpha")
    assert stage.context.registry.read().ids == set()


def test_field_81_a_conversation_that_is_missing_is_refused_before_anything_happens(stage: Orchestra) -> None:
    first = quit_agent(stage)
    moved = file_of(first).rename(file_of(first).with_suffix(".away"))
    history = stage.context.registry.history()
    with pytest.raises(NotFoundError, match="does not exist") as caught:
        resume(stage.context, "alpha")
    assert str(file_of(first)) in caught.value.message
    with pytest.raises(NotFoundError):
        resume(stage.context, file_of(first))
    with pytest.raises(UnknownAgentError):
        resume(stage.context, "nobody")
    assert stage.context.registry.history() == history
    assert stage.context.registry.read().ids == set()
    moved.rename(file_of(first))
    assert back(stage, None).id == "alpha"


def test_a_conversation_kept_elsewhere_is_found_by_its_agents_tombstone(stage: Orchestra, tmp_path: Path) -> None:
    elsewhere = replace(stage, environment={**stage.environment, "SIDE_AGENTS_SCRIPT_HOME": str(tmp_path / "else")})
    first = quit_agent(elsewhere)
    assert str(first.child_session_file).startswith(str(tmp_path / "else"))
    after = back(stage, "alpha")
    assert after.child_session_file == first.child_session_file


def test_a_client_without_conversations_says_so(stage: Orchestra) -> None:
    stage.start("do it", client="fake", branch_hint="alpha")
    stage.stop("alpha")
    with pytest.raises(RefusedError, match="keeps no conversation") as caught:
        resume(stage.context, "alpha")
    assert "--base side-agent/alpha" in (caught.value.hint or "")


def test_b55_the_last_link_of_the_whole_file_decides(stage: Orchestra) -> None:
    first = quit_agent(stage)
    filler = json.dumps({"type": "custom", "data": "x" * 1000}) + "\n"
    entry = {"type": "custom", "customType": script_session.LINK, "data": {"agentId": "beta"}}
    with file_of(first).open("a") as file:
        file.write(filler * 200 + json.dumps(entry) + "\n" + filler * 200)
    with pytest.raises(ConflictError, match="taken over by beta"):
        resume(stage.context, "alpha")
    after = back(stage, file_of(first))
    assert after.id == "beta"
    assert links(file_of(after)) == ["alpha", "beta"]


@pytest.mark.parametrize("place", ["main", "other", "locked", "leased", "rebase"])
def test_a_branch_that_stands_where_no_agent_may_be_is_refused(stage: Orchestra, place: str, tmp_path: Path) -> None:
    first = quit_agent(stage)
    slot = stage.worktree(first)
    if place in ("main", "other"):
        slot.git("checkout", "--quiet", "--detach")
    if place == "main":
        stage.repo.git("checkout", "--quiet", "side-agent/alpha")
    elif place == "other":
        stage.repo.git("worktree", "add", "--quiet", str(tmp_path / "mine"), "side-agent/alpha")
    elif place == "locked":
        stage.repo.git("worktree", "lock", str(slot.path))
    elif place == "leased":
        slot.write(".pi/active.lock", '{"agentId": "ghost"}')
    else:
        stage.repo.commit("alpha.txt", "conflict")
        slot.git("rebase", "main", check=False)
    words = {"main": "main worktree", "other": "no slot", "locked": "locked", "leased": "ghost", "rebase": "rebase"}
    before = (slot.git("rev-parse", "HEAD"), slot.status(), stage.branches(), stage.slots())
    with pytest.raises(RefusedError, match=words[place]):
        resume(stage.context, "alpha")
    assert (slot.git("rev-parse", "HEAD"), slot.status(), stage.branches(), stage.slots()) == before
    assert stage.context.registry.read().ids == set()


def test_a_resume_from_inside_an_agent_belongs_to_that_agent(stage: Orchestra) -> None:
    quit_agent(stage, "inner")
    outer = stage.start("say: outer", branch_hint="outer")
    stage.eventually_idle("outer")
    within = stage.inside(stage.row(outer.id))
    after = resume(within.context, "inner").record
    stage.records["inner"] = after
    after = stage.eventually_idle("inner")
    assert (after.parent_agent_id, after.depth, after.branch) == ("outer", 2, "side-agent/inner")
    assert after.parent_worktree_path == outer.worktree_path
    told = notice_of(stage, after)
    assert told is not None
    assert "the side agent outer (depth 2)" in told["content"]
    assert "side-agent/outer" in told["content"]
    environment = stage.inside(after).environment
    assert (environment["PI_SIDE_PARENT_AGENT_ID"], environment["PI_SIDE_AGENT_DEPTH"]) == ("outer", "2")
    assert environment["PI_SIDE_PARENT_BRANCH"] == "side-agent/outer"
    stage.quit("inner")
    again = back(stage, "inner")
    assert (again.parent_agent_id, again.depth) == (None, 1)
    assert "the main session" in (notice_of(stage, again) or {})["content"]


def test_the_same_failure_is_not_repeated_a_third_time(stage: Orchestra) -> None:
    first = quit_agent(stage)
    stage.repo.write(".pi/side-agent-start.sh", "exit 7\n").chmod(0o755)
    for _ in range(2):
        resume(stage.context, "alpha")
        stage.eventually_status("alpha", AgentStatus.FAILED)
        with pytest.raises(RefusedError, match="exited with code 7"):
            resume(stage.context, "alpha")
        stage.stop("alpha")
    with pytest.raises(RefusedError, match="failed 2 times in the same way"):
        resume(stage.context, "alpha")
    (stage.repo.path / ".pi/side-agent-start.sh").unlink()
    after = back(stage, "alpha", again=True)
    assert file_of(after) == file_of(first)


def test_a_resume_that_fails_is_taken_back_and_keeps_branch_and_files(
    stage: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, task in (("alpha", "say: nothing to commit"), ("beta", "write: b b\ncommit: b")):
        quit_agent(stage, name, task)
        if name == "beta":
            recycle(stage)
        head = stage.repo.git("rev-parse", f"side-agent/{name}")
        with monkeypatch.context() as patch:
            patch.setattr(launcher, "write", lambda spec: 1 / 0)
            with pytest.raises(StartFailedError, match="left as it is"):
                resume(stage.context, name)
        assert stage.row(name).status is AgentStatus.FAILED
        assert stage.repo.git("rev-parse", f"side-agent/{name}") == head
        assert name not in {lease.agent_id for lease in stage.leases().values()}
        stage.stop(name)
        assert stage.repo.git("rev-parse", f"side-agent/{name}") == head
        say(stage, back(stage, name), "after all")
        assert messages_in(file_of(stage.row(name)))[0] == task
    stage.assert_sound()


def paused(stage: Orchestra) -> frozenset[str]:
    return list_agents(stage.context, everything=True).paused


def test_an_agent_that_quit_with_work_left_is_paused(stage: Orchestra) -> None:
    stage.start("write: g g\ncommit: g\nfail: 3", branch_hint="failed")
    stage.eventually_status("failed", AgentStatus.FAILED)
    stage.stop("failed")
    quit_agent(stage, "committed")
    idle = quit_agent(stage, "idle", "say: nothing")
    assert paused(stage) == {"committed"}
    stage.worktree(idle).write("scratch.txt", "unsaved")
    assert paused(stage) == {"committed", "idle"}
    stage.repo.git("merge", "--quiet", "side-agent/committed")
    assert paused(stage) == {"idle"}
    stones = {stone.id: stone for stone in stage.context.registry.history()}
    Path(stones["idle"].child_session_file or "").unlink()
    assert paused(stage) == frozenset()


def test_a_nested_agent_that_landed_in_its_parents_branch_is_not_paused(stage: Orchestra) -> None:
    outer = stage.start("write: o o\ncommit: o", branch_hint="outer")
    stage.eventually_idle("outer")
    within = stage.inside(stage.row("outer"))
    within.start("write: i i\ncommit: i", branch_hint="inner")
    stage.eventually_idle("inner")
    stage.quit("inner")
    assert paused(stage) == {"inner"}
    stage.worktree(outer).git("merge", "--quiet", "side-agent/inner")
    assert paused(stage) == frozenset()


def test_b56_discovery_reads_bounded_bytes_of_two_thousand_long_sessions(stage: Orchestra) -> None:
    header = {"type": "session", "timestamp": "2026-01-01T00:00:00.000Z"}
    sizes = (20_000, 300_000, 10_000_000)
    for number in range(2000):
        cwd = str(stage.slot(number % 40 + 1))
        name = f"agent-{number}"
        path = Path(script_session.session_path(stage.environment, cwd, name))
        path.parent.mkdir(parents=True, exist_ok=True)
        user = {"type": "message", "id": "1", "message": {"role": "user", "content": [{"type": "text", "text": name}]}}
        link = {"type": "custom", "customType": script_session.LINK, "data": {"agentId": name}}
        with path.open("wb") as file:
            for entry in ({**header, "id": name, "cwd": cwd}, link, user):
                file.write(json.dumps(entry).encode() + b"\n")
            # The middle is a hole: it takes no disk, but reading it would count.
            file.truncate(sizes[number % 3])
            file.seek(0, os.SEEK_END)
            file.write(b"\n" + json.dumps(user).encode() + b"\n")
    list_resumable(stage.context)
    before = bytes_read()
    found = list_resumable(stage.context)
    read = bytes_read() - before
    assert len(found) == 2000
    assert {each.session.agent_id for each in found} == {f"agent-{number}" for number in range(2000)}
    assert read < 2000 * 256 * 1024 + 4 * 1024 * 1024


def bytes_read() -> int:
    """Bytes that this process has asked the kernel for so far."""
    return int(Path("/proc/self/io").read_text().split()[1])
