"""Refs read from files must never differ from what git says, and must say so where they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from side_agents.infra import git_refs
from side_agents.infra.git import Git, RefEntry
from tests.support.repositories import Repository


def as_git_says(repo: Repository) -> list[RefEntry]:
    lines = repo.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/side-agent").splitlines()
    return [RefEntry(*line.split(" ")) for line in lines]


def test_loose_packed_and_shadowed_refs_are_read_as_git_reads_them(repo: Repository) -> None:
    for name in ("a", "b", "deep/er"):
        repo.git("branch", f"side-agent/{name}")
    repo.git("pack-refs", "--all")
    repo.commit(message="newer")
    repo.git("branch", "--force", "side-agent/a")
    repo.git("branch", "side-agent/c")
    repo.git("branch", "-D", "side-agent/b")
    git = Git(repo.path)
    assert git.side_agent_refs() == as_git_says(repo)
    assert [entry.name for entry in git.side_agent_refs()] == [
        f"refs/heads/side-agent/{n}" for n in ("a", "c", "deep/er")
    ]
    assert git.branch_exists("side-agent/deep/er")
    assert not git.branch_exists("side-agent/b")
    assert git.head_commit() == repo.head()


def test_a_branch_called_side_agent_is_seen_loose_and_packed(repo: Repository) -> None:
    repo.git("branch", "side-agent")
    assert [entry.name for entry in Git(repo.path).side_agent_refs()] == ["refs/heads/side-agent"]
    repo.git("pack-refs", "--all")
    assert [entry.name for entry in Git(repo.path).side_agent_refs()] == ["refs/heads/side-agent"]


def test_a_detached_head_and_a_tag_of_the_same_name_are_told_apart(repo: Repository) -> None:
    first = repo.head()
    repo.commit(message="second")
    repo.git("tag", "side-agent/x", first)
    repo.git("checkout", "--quiet", "--detach", first)
    assert Git(repo.path).head_commit() == first
    assert Git(repo.path).side_agent_refs() == []


@pytest.mark.parametrize("content", ["ref: refs/heads/main\n", "garbage\n", ""])
def test_a_ref_that_is_no_commit_id_is_left_to_git(repo: Repository, content: str) -> None:
    folder = repo.path / ".git" / "refs" / "heads" / "side-agent"
    folder.mkdir(parents=True)
    (folder / "odd").write_text(content)
    with pytest.raises(git_refs.UnreadableError):
        git_refs.list_refs(repo.path / ".git", "refs/heads/side-agent")


def test_a_reftable_repository_is_left_to_git(tmp_path: Path) -> None:
    (tmp_path / "reftable").mkdir()
    with pytest.raises(git_refs.UnreadableError):
        git_refs.read_ref(tmp_path, "refs/heads/main")
    assert git_refs.read_branch_head(tmp_path, "main") is None
