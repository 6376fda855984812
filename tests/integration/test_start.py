"""Starting an agent, end to end: real git, real tmux, the script client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.core import leases, observe, views
from side_agents.core.results import TASK_PREVIEW
from side_agents.errors import (
    ConflictError,
    DepthError,
    NoCommitsError,
    NotFoundError,
    NotInTmuxError,
    RefusedError,
    SideAgentsError,
    ToolMissingError,
    UsageError,
)
from side_agents.models import AgentStatus, DeliveryState, EndedBy
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def test_i1_an_agent_from_its_start_to_its_end(stage: Orchestra) -> None:
    started = stage.launch("say: hello from it", model="m-1", session="/parent.jsonl")
    record, runtime = started.record, stage.context.paths.runtime(started.record.id)
    assert (record.id, record.branch) == ("say-hello-from", "side-agent/say-hello-from")
    assert started.prompt == "say: hello from it\n\nParent Pi session: /parent.jsonl"
    assert runtime.kickoff.read_text() == started.prompt
    assert runtime.launcher.stat().st_mode & 0o777 == 0o700
    assert f"[side-agent][prompt] {record.started_at} {record.id} begin" in stage.log(record.id)
    idle = stage.eventually_idle(record.id)
    assert (idle.child_session_id, idle.turn, idle.model) == (record.child_session_id, 1, "m-1")
    assert stage.messages(record) == [started.prompt]
    lease = leases.read(stage.slot(1))
    assert lease is not None
    assert (lease.agent_id, lease.branch, lease.tmux_window_id) == (record.id, record.branch, record.tmux_window_id)
    assert record.launcher is not None
    assert lease.pid == record.launcher.pid
    eventually(lambda: "hello from it" in stage.check(record.id).backlog, SLOW)
    assert stage.worktree(record).git("branch", "--show-current") == record.branch
    assert stage.send(record.id, "say: token-4711").state is DeliveryState.SUBMITTED
    eventually(lambda: "token-4711" in stage.log(record.id), SLOW)
    stage.quit(record.id)
    marker = observe.read_marker(runtime.exit_marker)
    assert marker is not None
    assert marker.exit_code == 0
    assert record.id not in stage.context.registry.read().ids
    assert stage.check(record.id).tombstone is not None
    stage.assert_quiet()


def test_i2_what_an_earlier_agent_of_the_name_left_is_archived_and_not_believed(stage: Orchestra) -> None:
    old = stage.context.paths.runtime("fix").directory
    old.mkdir(parents=True)
    (old / "exit.json").write_text('{"exitCode":0,"finishedAt":"2026-01-01T00:00:00Z"}')
    (old / "backlog.log").write_text("old log")
    record = stage.start("say: new", branch_hint="fix")
    assert record.id == "fix"
    assert stage.eventually_idle("fix").turn == 1
    [archived] = stage.context.paths.archive("fix").iterdir()
    assert (archived / "backlog.log").read_text() == "old log"
    assert (archived / "exit.json").exists()
    assert any(str(archived) in warning for warning in record.warnings)


def test_i5_two_agents_share_nothing(stage: Orchestra) -> None:
    one, two = stage.start(), stage.start()
    for name in ("id", "worktree_path", "branch", "tmux_window_id", "tmux_pane_id", "tmux_window_index", "launcher"):
        assert getattr(one, name) != getattr(two, name), name
    assert {pane.window_id for pane in stage.panes()} == {one.tmux_window_id, two.tmux_window_id}
    assert [record.id for record in stage.assert_sound().records] == [one.id, two.id]
    for record in (one, two):
        stage.eventually_idle(record.id)
        stage.quit(record.id)
    stage.assert_quiet()


@pytest.mark.parametrize(("length", "shown"), [(5, 5), (TASK_PREVIEW, TASK_PREVIEW), (300, TASK_PREVIEW + 1)])
def test_u19_to_u22_the_answer_of_a_start(stage: Orchestra, length: int, shown: int) -> None:
    view: dict[str, Any] = views.started_view(stage.launch("x" * length, client="fake"))
    assert view["ok"] is True
    assert {key: type(view[key]) for key in ("id", "task", "tmuxWindowId", "worktreePath", "branch")} == dict.fromkeys(
        ("id", "task", "tmuxWindowId", "worktreePath", "branch"), str
    )
    assert isinstance(view["tmuxWindowIndex"], int)
    assert list(view["warnings"]) == []
    assert len(view["task"]) == shown
    assert view["task"].endswith("…") is (length > TASK_PREVIEW)
    assert json.dumps(view)


def refusals() -> list[Any]:
    return [
        pytest.param({"task": " \n"}, UsageError, id="u23-empty"),
        pytest.param({"task": "a\0b"}, UsageError, id="u23-nul"),
        pytest.param({"task": "half \ud83d"}, UsageError, id="u23-surrogate"),
        pytest.param({"task": "x", "client": "nobody"}, NotFoundError, id="u23-unknown-client"),
        pytest.param({"task": "x", "client": "gone"}, ToolMissingError, id="u23-client-not-installed"),
        pytest.param({"task": "x", "base": "no-such-branch"}, UsageError, id="u23-unknown-base"),
        pytest.param({"task": "x", "base": "--help"}, UsageError, id="u23-option-as-base"),
        pytest.param({"task": "x" * (10 * 1024 * 1024 + 1)}, UsageError, id="u23-too-long"),
    ]


def assert_untouched(stage: Orchestra) -> None:
    assert not (stage.repo.path / ".pi").exists()
    assert not stage.slots()
    assert not stage.panes()
    assert not (stage.repo.path / ".git/info/exclude").exists()


@pytest.mark.parametrize(("request_", "error"), refusals())
def test_a_request_that_cannot_be_met_changes_nothing(
    stage: Orchestra, request_: dict[str, Any], error: type[SideAgentsError]
) -> None:
    stage.configure('[clients.gone]\nargv = ["no-such-program-here"]\n')
    with pytest.raises(error, match=r"Nothing was started|no-such-program-here") as caught:
        stage.start(**request_)
    assert views.failure_view(caught.value)["ok"] is False
    assert isinstance(views.failure_view(caught.value)["error"], str)
    assert_untouched(stage)


@pytest.mark.parametrize("change", [{"TMUX": ""}, {"TMUX_PANE": ""}, {"TMUX_PANE": "%99"}, {"TMUX": "/none,1,0"}])
def test_x16_outside_of_tmux_nothing_is_made_although_a_server_runs(stage: Orchestra, change: dict[str, str]) -> None:
    stage.environment.update(change)
    with pytest.raises(NotInTmuxError):
        stage.start()
    assert_untouched(stage)


def test_a_repository_without_commits_is_refused(tmp_path: Path, tmux_server: PrivateServer) -> None:
    repository = Repository(tmp_path / "empty")
    repository.path.mkdir()
    repository.git("init", "--quiet", "--template=")
    with orchestra(repository, tmux_server) as stage:
        with pytest.raises(NoCommitsError):
            stage.start()
        assert_untouched(stage)


def test_a_branch_called_side_agent_is_refused_by_name(stage: Orchestra) -> None:
    stage.repo.git("branch", "side-agent")
    with pytest.raises(ConflictError, match="side-agent"):
        stage.start()
    assert_untouched(stage)


@pytest.mark.parametrize(("text", "code"), [("exit 7\n", 7), ("set -e\nfalse\n", 1), ("return 3\n", 3)])
def test_x2_a_failing_start_script_fails_the_agent_and_leaves_no_shell(stage: Orchestra, text: str, code: int) -> None:
    stage.repo.write(".pi/side-agent-start.sh", text).chmod(0o755)
    record = stage.start()
    failed = stage.eventually_status(record.id, AgentStatus.FAILED).record
    assert failed is not None
    assert failed.exit_code == code
    assert "start script" in (failed.error or "")
    eventually(lambda: f"exit code {code}" in stage.screen(record.id), SLOW)
    with pytest.raises(RefusedError):
        stage.send(record.id, "touch should-not-exist")
    assert stage.leases()
    assert stage.stop(record.id).tombstone.ended_by is EndedBy.CLEARED
    stage.assert_quiet()


def test_a_start_script_prepares_the_worktree_before_the_client_runs(stage: Orchestra) -> None:
    stage.repo.write(".pi/side-agent-start.sh", 'export FROM_SCRIPT="$3"\ntouch ignored-by-nobody\n').chmod(0o755)
    record = stage.start("run: echo it is $FROM_SCRIPT")
    stage.eventually_idle(record.id)
    assert f"it is {record.id}" in "\n".join(stage.check(record.id).backlog)
    assert (stage.slot(1) / "ignored-by-nobody").exists()


def test_i11_a_nested_start_comes_from_the_agents_own_head_and_the_depth_is_capped(stage: Orchestra) -> None:
    outer = stage.start("write: outer.txt data\ncommit: outer work", branch_hint="outer")
    stage.eventually_idle("outer")
    inner = stage.inside(outer).start("say: inner", branch_hint="inner")
    head = stage.worktree(outer).head()
    assert (inner.depth, inner.parent_agent_id, inner.base_commit) == (2, "outer", head)
    assert (inner.parent_worktree_path, inner.tmux_session) == (outer.worktree_path, outer.tmux_session)
    assert (Path(inner.worktree_path or "") / "outer.txt").exists()
    stage.eventually_idle("inner")
    seen = stage.inside(inner)
    assert {name: seen.environment[name] for name in seen.environment if name.startswith("PI_SIDE_")} == {
        "PI_SIDE_AGENT_ID": "inner",
        "PI_SIDE_PARENT_SESSION": "",
        "PI_SIDE_PARENT_REPO": outer.worktree_path,
        "PI_SIDE_PARENT_BRANCH": "side-agent/outer",
        "PI_SIDE_PARENT_AGENT_ID": "outer",
        "PI_SIDE_AGENT_DEPTH": "2",
        "PI_SIDE_AGENTS_ROOT": str(stage.repo.path),
        "PI_SIDE_RUNTIME_DIR": str(stage.context.paths.runtime("inner").directory),
    }
    assert "side-agent/outer" in stage.messages(inner)[0]
    before = stage.context.paths.registry.read_bytes()
    with pytest.raises(DepthError, match="Nothing was started"):
        seen.start()
    assert stage.context.paths.registry.read_bytes() == before
    # The outer agent leaves, but the inner one is to be merged into its worktree.
    stage.quit("outer")
    other = stage.start()
    assert other.worktree_path == str(stage.slot(3))
    assert any("inner merges into it" in warning for warning in other.warnings)


def test_an_agent_on_no_branch_may_not_start_another(stage: Orchestra) -> None:
    outer = stage.start(branch_hint="outer")
    stage.eventually_idle("outer")
    stage.worktree(outer).git("checkout", "--quiet", "--detach")
    with pytest.raises(RefusedError, match="on no branch"):
        stage.inside(outer).start()
    assert stage.context.registry.read().ids == {"outer"}


DELIVERIES = {
    "argv": """argv = ["sh", "-c", 'printf %s "$1" > got; exec cat', "c"]\nprompt_args = ["{prompt}"]""",
    "file": """argv = ["sh", "-c", 'cat < "$1" > got; exec cat', "c"]\nprompt_args = ["{prompt_file}"]""",
    "paste": """ready_pattern = "^>"\nargv = ["sh", "-c", 'printf "> "; IFS= read -r l; printf %s "$l" > got; exec cat']""",
    "stdin": """argv = ["sh", "-c", "cat > got; exec sleep 60"]""",
}


@pytest.mark.parametrize("how", DELIVERIES)
def test_a_custom_client_gets_its_first_prompt(stage: Orchestra, how: str) -> None:
    stage.configure(f'send_timeout = 1\n[clients.mine]\nprompt = "{how}"\nquiet_seconds = 0.2\n{DELIVERIES[how]}\n')
    task = '-n what\'s "this" $HOME `id` \\ é 中'
    record = stage.start(task, client="mine")
    got = stage.slot(1) / "got"
    eventually(lambda: got.exists() and got.read_text() == task, SLOW)
    stage.eventually_status(record.id, AgentStatus.WAITING_USER)
    stage.stop(record.id)
    assert stage.worktree(record).status() == "?? got"


def uncommitted(repo: Repository) -> None:
    """Every kind of change: modified, staged, deleted, untracked, mode, binary, renamed, an odd name."""
    for name in ("gone.txt", "mode.sh", "staged.txt", "from.txt"):
        repo.commit(name)
    repo.write("src/app.txt", "one\nchanged\n")
    (repo.path / "gone.txt").unlink()
    repo.write("new/untracked ü.txt", "new\n")
    (repo.path / "mode.sh").chmod(0o755)
    (repo.path / "binary.bin").write_bytes(bytes(range(256)) * 100)
    repo.write("staged.txt", "staged\n")
    repo.git("add", "staged.txt")
    repo.git("mv", "from.txt", "to.txt")
    repo.write("ignored/cache", "not taken along")
    repo.write(".pi/side-agent-notes.md", "ours")


def changes(repo: Repository) -> list[str]:
    """What git calls changed, apart from our own folder, which is ignored from the first start on."""
    return [line for line in repo.status().splitlines() if not line.endswith(" .pi/")]


def test_x26_uncommitted_changes_are_warned_about_and_stay_behind(stage: Orchestra) -> None:
    uncommitted(stage.repo)
    before = changes(stage.repo)
    record = stage.start(client="fake")
    [warning] = record.warnings
    assert "7 files" in warning
    assert "--with-changes" in warning
    assert stage.worktree(record).status() == ""
    assert changes(stage.repo) == before


def test_with_changes_carries_everything_over_and_leaves_the_source_alone(stage: Orchestra) -> None:
    uncommitted(stage.repo)
    stage.repo.git("update-index", "--refresh", check=False)
    before, index = changes(stage.repo), (stage.repo.path / ".git/index").read_bytes()
    record = stage.start(client="fake", with_changes=True)
    slot = stage.worktree(record)
    assert record.warnings == ()
    assert (changes(stage.repo), (stage.repo.path / ".git/index").read_bytes()) == (before, index)
    for repo in (stage.repo, slot):
        repo.git("add", "--all")
    assert slot.git("write-tree") == stage.repo.git("write-tree")
    assert slot.head() == record.base_commit == stage.repo.head()
    assert (slot.path / "binary.bin").read_bytes() == bytes(range(256)) * 100
    assert not (slot.path / "ignored").exists()
    assert (slot.path / ".pi/side-agent-notes.md").is_symlink()


def test_with_changes_onto_another_base_or_out_of_a_merge_is_refused(stage: Orchestra) -> None:
    first = stage.repo.head()
    stage.repo.commit()
    stage.repo.write("src/app.txt", "changed\n")
    with pytest.raises(UsageError, match="another base"):
        stage.start(client="fake", with_changes=True, base=first)
    (stage.repo.path / ".git/MERGE_HEAD").write_text(first + "\n")
    with pytest.raises(RefusedError, match="merge"):
        stage.start(client="fake", with_changes=True)
    assert not stage.context.registry.read().ids
    assert not stage.slots()


@pytest.mark.parametrize("base", [None, "HEAD~1", "release", "v1", "origin/main"])
def test_b5_74_the_base_is_the_callers_head_or_what_was_asked_for(stage: Orchestra, base: str | None) -> None:
    first = stage.repo.head()
    stage.repo.git("branch", "release")
    stage.repo.git("tag", "-a", "-m", "tag", "v1")
    stage.repo.git("update-ref", "refs/remotes/origin/main", first)
    head = stage.repo.commit()
    record = stage.start(client="fake", base=base)
    assert record.base_commit == stage.worktree(record).head() == (head if base is None else first)
    assert stage.worktree(record).git("config", "--get-regexp", "^branch", check=False) == ""
