"""Prompts, paths, locales and tmux settings that break naive tools; what the client got is compared byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestra import Orchestra, orchestra
from orchestra_child import SLOW

from side_agents.errors import StartFailedError
from side_agents.models import AgentStatus
from tests.support.repositories import Repository, copy_repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


PROMPTS = {
    "131072-bytes": "x" * 131_072,
    "131073-bytes": "é" + "x" * 131_071,
    "200-kB": "a line of text, 中文\n" * 10_000,
    "dash": "-p --help",
    "two-dashes": "--",
    "at": "@README.md",
    "slash": "/quit",
    "exclamation": "!ls",
    "quotes": """it's "quoted" 'twice' "'"'" ''""",
    "dollar": "$HOME ${HOME} $(touch x) $'\\n' $((1+1))",
    "backticks": "`touch x` \\` \\\\",
    "newlines": "one\n\n\ntwo\n",
    "crlf": "one\r\ntwo\r\n",
    "carriage-return": "one\rtwo",
    "trailing-newlines": "text\n\n\n",
    "leading-blank": "  \n text",
    "tab": "a\tb",
    "chinese": "修复登录页面的错误",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301",
    "formats": "%Y #{pane_id} #(touch x) #[fg=red] %%",
    "semicolon": "a; b \\; ;",
    "escape": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x03 \x04",
    "placeholders": "{prompt} {prompt_file} {model} {session_id}",
}


@pytest.mark.parametrize("name", PROMPTS)
def test_x13_the_client_receives_exactly_the_bytes_of_the_prompt(stage: Orchestra, name: str) -> None:
    prompt = PROMPTS[name]
    record = stage.start(prompt, branch_hint="p")
    assert stage.context.paths.runtime("p").kickoff.read_bytes() == prompt.encode()
    idle = stage.eventually_idle("p")
    assert stage.messages(idle) == [prompt]
    assert idle.task == prompt
    assert not (stage.slot(1) / "x").exists()
    assert stage.worktree(record).status() == ""


def test_x13_bytes_that_are_no_text_arrive_and_do_not_harm_the_registry(stage: Orchestra) -> None:
    prompt = os.fsdecode(b"caf\xe9 \xff\xfe")
    stage.start(prompt, client="fake", branch_hint="p")
    assert stage.context.paths.runtime("p").kickoff.read_bytes() == b"caf\xe9 \xff\xfe"
    stage.eventually_status("p", AgentStatus.WAITING_USER)
    assert [record.id for record in stage.assert_sound().records] == ["p"]


NAMES = {
    "space": "my project",
    "single-quote": "it's",
    "double-quote": 'a "b" c',
    "strftime": "%Y-%m %H%%",
    "format": "#{pane_id} #S ##",
    "style": "#[fg=red]",
    "job": "#(touch x)",
    "semicolon": "a;b;",
    "substitution": "$(touch x) `touch x` $HOME",
    "unicode": "Ünïcödé 项目 👩‍💻",
    "leading-dash": "-rf",
    "option": "--upload-pack=touch x",
    "backslash": "a\\b\\",
    "glob": "[a-z]*?{a,b}",
    "tilde": "~",
    "equals": "core.pager=x",
    "newline": "two\nlines",
}


def life(stage: Orchestra) -> None:
    """Start, work, log, message, end; then the slot again."""
    record = stage.start("write: made.txt data\ncommit: made", branch_hint="a")
    stage.eventually_idle("a")
    assert stage.worktree(record).git("ls-files", "made.txt") == "made.txt"
    assert stage.send("a", "say: token-4711").state == "submitted"
    eventually(lambda: "token-4711" in stage.log("a"), SLOW)
    stage.assert_sound()
    stage.quit("a")
    again = stage.start("say: again", branch_hint="b")
    assert again.worktree_path == record.worktree_path == str(stage.slot(1))
    assert again.warnings == ()
    stage.eventually_idle("b")
    stage.stop("b")
    stage.assert_quiet()


@pytest.mark.parametrize("name", NAMES)
def test_x14_a_repository_path_may_be_anything(
    template_repository: Path, tmp_path: Path, tmux_server: PrivateServer, name: str
) -> None:
    repository = copy_repository(template_repository, tmp_path / NAMES[name])
    with orchestra(repository, tmux_server) as stage:
        life(stage)
    assert not [path for path in tmp_path.rglob("x") if path.is_file()]


def test_x14_a_repository_path_that_is_no_text_is_used_or_refused_but_never_harmful(
    template_repository: Path, tmp_path: Path, tmux_server: PrivateServer
) -> None:
    repository = copy_repository(template_repository, tmp_path / os.fsdecode(b"caf\xe9"))
    with orchestra(repository, tmux_server) as stage:
        life(stage)


@pytest.mark.parametrize("name", ["x" * 230, "/".join("y" * 200 for _ in range(6))], ids=["long", "deep"])
def test_x14_a_repository_path_may_be_very_long(
    template_repository: Path, tmp_path: Path, tmux_server: PrivateServer, name: str
) -> None:
    repository = copy_repository(template_repository, tmp_path / name)
    with orchestra(repository, tmux_server) as stage:
        for agent_id in ("a", "b"):
            record = stage.start("what to do", client="fake", branch_hint=agent_id)
            assert (record.worktree_path, record.warnings) == (str(stage.slot(1)), ())
            stage.eventually_status(agent_id, AgentStatus.WAITING_USER)
            eventually(lambda: stage.log("a").count("what to do") == 2, SLOW)
            stage.stop(agent_id)
        stage.assert_quiet()


def test_x14_a_name_too_long_for_slots_is_told_and_taken_back(
    template_repository: Path, tmp_path: Path, tmux_server: PrivateServer
) -> None:
    repository = copy_repository(template_repository, tmp_path / ("z" * 250))
    with orchestra(repository, tmux_server) as stage:
        with pytest.raises(StartFailedError, match="too long"):
            stage.start(branch_hint="a")
        assert not stage.branches()
        stage.stop("a")
        stage.assert_quiet()


def test_x15_no_shell_is_involved_however_slow_and_oddly_prompted(
    repo: Repository, tmux_server: PrivateServer, home: Path
) -> None:
    (home / ".bashrc").write_text("touch ~/rc-ran\nPS1='❯ '\nsleep 3\n")
    (home / ".bash_profile").write_text(". ~/.bashrc\n")
    options = ["set -g default-shell /bin/bash", "set -g default-command 'bash -l -i'"]
    with orchestra(repo, tmux_server, options=options) as stage:
        record = stage.start()
        stage.eventually_idle(record.id)
        assert not (home / "rc-ran").exists()


CONFIGURATIONS = {
    "b3-41-base-index": ["set -g base-index 1", "set -g pane-base-index 1", "set -g renumber-windows on"],
    "remain-on-exit": ["set -g remain-on-exit on"],
    "b3-42-renaming": ["set -g automatic-rename on", "set -g allow-rename on"],
    "hook-splits": ["set-hook -g after-new-window 'split-window -d cat'"],
    "hook-renames": ["set-hook -g after-new-window 'rename-window taken'"],
    "hook-selects": ["set-hook -g after-new-window 'select-window -t :0'"],
    "default-command": ["set -g default-command false", "set -g default-shell /bin/false"],
    "titles": ["set -g set-titles on", "set -g monitor-activity on", "set -g monitor-silence 1"],
    "small-history": ["set -g history-limit 0"],
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_users_tmux_configuration_does_not_matter(repo: Repository, tmux_server: PrivateServer, name: str) -> None:
    with orchestra(repo, tmux_server, options=CONFIGURATIONS[name]) as stage:
        record = stage.start()
        stage.eventually_idle(record.id)
        assert stage.send(record.id, "say: token-4711").state == "submitted"
        eventually(lambda: "token-4711" in stage.log(record.id), SLOW)
        stage.quit(record.id)
        eventually(lambda: record.tmux_pane_id not in stage.server.sweep().panes, SLOW)
        other = stage.start()
        stage.eventually_idle(other.id)
        stage.stop(other.id)
        eventually(lambda: other.tmux_pane_id not in stage.server.sweep().panes, SLOW)
        assert stage.pane.pane_id in stage.server.sweep().panes


def test_b3_39_windows_with_swapped_names_are_not_confused(stage: Orchestra) -> None:
    one, two = stage.start(branch_hint="quest"), stage.start(branch_hint="quest-two")
    for record in (one, two):
        stage.eventually_idle(record.id)
    assert one.tmux_window_id is not None
    assert two.tmux_window_id is not None
    stage.server.tmux.rename_window(one.tmux_window_id, "agent-quest-two")
    stage.server.tmux.rename_window(two.tmux_window_id, "agent-quest")
    stage.send("quest", "say: for one")
    eventually(lambda: "say: for one" in stage.messages(one), SLOW)
    assert stage.messages(two) == ["say: hello"]
    stage.stop("quest")
    assert [pane.pane_id for pane in stage.panes()] == [two.tmux_pane_id]


def test_b3_55_everything_works_in_the_c_locale(
    template_repository: Path, tmp_path: Path, tmux_server: PrivateServer
) -> None:
    repository = copy_repository(template_repository, tmp_path / "项目 é")
    with orchestra(repository, tmux_server, LC_ALL="C", LANG="C", LC_CTYPE="C") as stage:
        child = stage.child("life", "say: 你好 é", "say: 再见 ü")
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err.decode()
        told = json.loads(out)
        assert told["messages"] == ["say: 你好 é", "say: 再见 ü"]
        assert told["sent"] == "submitted"
        assert told["slot"] == str(stage.slot(1))
        stage.stop(told["id"])


def test_a_linked_worktree_as_parent_gives_its_head_and_the_main_repositorys_pool(stage: Orchestra) -> None:
    feature = Repository(stage.repo.path.parent / "feature")
    stage.repo.git("worktree", "add", "--quiet", "-b", "feature", str(feature.path))
    head = feature.commit("feature.txt")
    stage.cwd = feature.path
    record = stage.start()
    assert record.base_commit == head
    assert record.worktree_path == str(stage.repo.path.parent / "project-agent-worktree-0001")
    assert (stage.repo.path / ".pi/side-agents/registry.json").exists()
    assert not (feature.path / ".pi").exists()
    stage.eventually_idle(record.id)
    assert stage.inside(record).environment["PI_SIDE_PARENT_REPO"] == str(feature.path)


@pytest.mark.parametrize("place", ["worktree", "top"])
@pytest.mark.parametrize("layout", ["repo.git", ".bare"])
def test_b5_68_bare_layouts(
    repo: Repository, tmp_path: Path, tmux_server: PrivateServer, layout: str, place: str
) -> None:
    top = tmp_path / "bare" / "repo.git" if layout == "repo.git" else tmp_path / "bare" / "top"
    bare = top if layout == "repo.git" else top / ".bare"
    top.parent.mkdir()
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(bare))
    if layout == ".bare":
        (top / ".git").write_text("gitdir: ./.bare\n")
    worktree = top.parent / "wt" if layout == "repo.git" else top / "wt"
    Repository(bare).git("worktree", "add", "--quiet", "-b", "work", str(worktree))
    head = Repository(worktree).commit("more.txt")
    with orchestra(Repository(bare), tmux_server, cwd=worktree if place == "worktree" else top) as stage:
        record = stage.start()
        assert record.worktree_path == f"{top}-agent-worktree-0001"
        assert record.base_commit == (head if place == "worktree" else repo.head())
        stage.eventually_idle(record.id)
        stage.assert_sound()
        stage.quit(record.id)
        assert stage.worktree(record).status() == ""


def test_submodules_are_filled_from_the_parent_or_named(stage: Orchestra, template_repository: Path) -> None:
    library = copy_repository(template_repository, stage.repo.path.parent / "library")
    allow = ("-c", "protocol.file.allow=always")
    for name in ("lib", "other"):
        stage.repo.git(*allow, "submodule", "--quiet", "add", str(library.path), name)
    stage.repo.git("commit", "--quiet", "-m", "submodules")
    stage.repo.git("submodule", "--quiet", "deinit", "other")
    for _ in range(2):
        record = stage.start(client="fake")
        assert record.worktree_path == str(stage.slot(1))
        assert (stage.slot(1) / "lib/README.md").exists()
        assert [warning for warning in record.warnings if "other" in warning]
        stage.stop(record.id)


def test_b5_69_sparse_patterns_are_inherited(stage: Orchestra) -> None:
    stage.repo.commit("docs/page.md")
    stage.repo.git("sparse-checkout", "set", "src")
    for _ in range(2):
        record = stage.start(client="fake")
        assert (record.worktree_path, record.warnings) == (str(stage.slot(1)), ())
        assert (stage.slot(1) / "src/app.txt").exists()
        assert not (stage.slot(1) / "docs").exists()
        assert stage.worktree(record).status() == ""
        stage.stop(record.id)


def test_a_detached_main_checkout_and_a_subdirectory_are_as_good_as_any(stage: Orchestra) -> None:
    stage.repo.git("checkout", "--quiet", "--detach")
    stage.cwd = stage.repo.path / "src"
    record = stage.start()
    assert record.worktree_path == str(stage.repo.path.parent / "project-agent-worktree-0001")
    stage.eventually_idle(record.id)
    assert stage.inside(record).environment["PI_SIDE_PARENT_BRANCH"] == ""
    assert not (stage.repo.path / "src/.pi").exists()
