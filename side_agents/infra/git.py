"""Facts and single steps of one git checkout. Worktrees are in ``git_worktrees``, uncommitted work in ``git_changes``.

Everything runs through ``git_call``. GitPython's ``Repo`` is not asked for facts: it obeys GIT_WORK_TREE and
GIT_COMMON_DIR of our environment (we may run inside a hook) and cannot read the reftable format; what needs no process
is read by ``git_layout`` instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from side_agents.errors import GitError, NoCommitsError
from side_agents.infra import fs, git_refs
from side_agents.infra.git_call import DEADLINE, call
from side_agents.infra.git_layout import RepositoryLayout, find_layout
from side_agents.infra.proc import Completed

__all__ = ["Git", "Operation", "RefEntry", "RepositoryLayout", "StatusEntry", "WorktreeEntry", "find_layout"]

Operation = Literal["merge", "rebase", "cherry-pick", "revert", "am", "bisect"]
AGENT_REFS = "refs/heads/side-agent/"
_BLOCK_BEGIN = "# >>> side-agents >>>"
_BLOCK_END = "# <<< side-agents <<<"
_UNFINISHED: tuple[tuple[str, Operation], ...] = (
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)


@dataclass(frozen=True, slots=True)
class WorktreeEntry:
    """One line of git's own list of worktrees; the main checkout, or the bare repository, comes first."""

    path: Path
    head: str | None = None
    branch: str | None = None
    detached: bool = False
    locked: bool = False
    prunable: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """One path that differs from HEAD; ``code`` is git's two letters (" M", "A ", "??", ...)."""

    code: str
    path: str
    original: str | None = None


@dataclass(frozen=True, slots=True)
class RefEntry:
    """A full ref name and the commit it points to."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class Git:
    """One directory of a repository. Making this value starts and checks nothing; errors are GitError."""

    directory: Path

    def run(
        self,
        *args: str,
        hooks: bool = False,
        config: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        deadline: float = DEADLINE,
        check: bool = True,
    ) -> Completed:
        """Any git command, see ``git_call.call``; put ``--`` before user data."""
        return call(
            self.directory, args, hooks=hooks, config=config, env=env, input=input, deadline=deadline, check=check
        )

    def text(self, *args: str) -> str:
        """What a git command prints, without the final newline."""
        return self.run(*args).text

    def layout(self) -> RepositoryLayout:
        """Where this repository's directories are; read anew at each call, without a process."""
        return find_layout(self.directory)

    def top(self) -> Path:
        """The top of this checkout. Raises GitError for a bare repository."""
        top = self.layout().worktree_top
        if top is None:
            raise GitError(f"{self.directory} belongs to a bare repository and has no checkout.")
        return top

    def head_commit(self) -> str:
        """The commit of HEAD. Raises NoCommitsError before the first commit."""
        layout = self.layout()
        try:
            commit = git_refs.read_head(layout.git_dir, layout.common_dir)
        except git_refs.UnreadableError:
            commit = self.resolve("HEAD")
        if commit is None:
            raise NoCommitsError(
                f"The repository of {self.directory} has no commit yet, so there is nothing to start from.",
                hint="Make a first commit: git add -A && git commit -m 'First commit'",
            )
        return commit

    def current_branch(self) -> str | None:
        """The branch that is checked out ("main", "side-agent/x"), None on a detached HEAD; no process."""
        content = fs.read_slice(self.layout().git_dir / "HEAD", 0, 8192).decode("utf-8", "surrogateescape").strip()
        name = content.removeprefix("ref: ").strip()
        if name == content or not name.startswith("refs/heads/"):
            return None
        if name == "refs/heads/.invalid":
            # The reftable format keeps HEAD elsewhere and leaves this stub.
            done = self.run("symbolic-ref", "--quiet", "--short", "HEAD", check=False)
            return done.text if done.returncode == 0 else None
        return name.removeprefix("refs/heads/")

    def resolve(self, revision: str) -> str | None:
        """The full id of a commit, None when the revision names none."""
        done = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False)
        return done.text if done.returncode == 0 else None

    def branch_exists(self, name: str) -> bool:
        """Whether exactly this local branch ("side-agent/x") exists."""
        ref = f"refs/heads/{name}"
        try:
            return git_refs.read_ref(self.layout().common_dir, ref) is not None
        except git_refs.UnreadableError:
            return self.run("show-ref", "--verify", "--quiet", "--", ref, check=False).returncode == 0

    def side_agent_refs(self) -> list[RefEntry]:
        """All branches named side-agent/..., and a plain ``side-agent``, which makes such names impossible."""
        top = AGENT_REFS.rstrip("/")
        try:
            return [RefEntry(*pair) for pair in git_refs.list_refs(self.layout().common_dir, top).items()]
        except git_refs.UnreadableError:
            listed = self.text("for-each-ref", "--format=%(refname) %(objectname)", top)
        pairs = (line.rsplit(" ", 1) for line in listed.splitlines())
        return [RefEntry(name, commit) for name, commit in pairs]

    def worktrees(self) -> list[WorktreeEntry]:
        """Every worktree that git knows, hand-deleted ones too."""
        done = self.run("worktree", "list", "--porcelain", "-z", check=False)
        if done.returncode == 0:
            return list(_worktree_entries(done.stdout.split(b"\0")))
        # -z came with git 2.36.
        return list(_worktree_entries(self.run("worktree", "list", "--porcelain").stdout.split(b"\n")))

    def status_entries(self, *, every_file: bool = False) -> list[StatusEntry]:
        """What differs from HEAD, untracked files included (folders of them as one entry, unless ``every_file``)."""
        untracked = "all" if every_file else "normal"
        done = self.run("status", "--porcelain=v1", "-z", f"--untracked-files={untracked}", "--ignore-submodules=none")
        return parse_status(done.stdout)

    def is_clean(self) -> bool:
        """Whether nothing differs from HEAD and nothing is untracked; ignored files do not count."""
        return not self.status_entries()

    def unfinished_operation(self) -> Operation | None:
        """The merge, rebase, ... that this checkout is in the middle of; no process."""
        git_dir = self.layout().git_dir
        for name, operation in _UNFINISHED:
            if (git_dir / name).exists():
                return operation
        todo = fs.read_slice(git_dir / "sequencer" / "todo", 0, 64)
        if todo:
            return "revert" if todo.startswith(b"revert") else "cherry-pick"
        return None

    def ahead(self, base: str) -> int:
        """How many commits HEAD has that ``base`` has not."""
        return int(self.text("rev-list", "--count", "--end-of-options", f"{base}..HEAD"))

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether ``newer`` contains ``older``. Raises GitError when one of them is no commit."""
        done = self.run("merge-base", "--is-ancestor", "--end-of-options", older, newer, check=False)
        if done.returncode > 1:
            raise GitError(f"git merge-base: {done.error_text}", argv=done.argv, stderr=done.error_text)
        return done.returncode == 0

    def delete_ref_if(self, ref: str, expected: str) -> bool:
        """Delete a ref only if it still points to ``expected``; False when it does not."""
        return self.run("update-ref", "-d", "--", ref, expected, check=False).returncode == 0

    def delete_merged_branch(self, branch: str, *, into: str = "HEAD") -> bool:
        """Delete a side-agent/* branch whose commits ``into`` contains; any other stays, and False is returned.

        A branch that is checked out anywhere, or moves meanwhile, stays as well.
        """
        ref = f"refs/heads/{branch}"
        commit = self.resolve(ref)
        if not ref.startswith(AGENT_REFS) or commit is None or not self.is_ancestor(commit, into):
            return False
        if any(entry.branch == branch for entry in self.worktrees()):
            return False
        return self.delete_ref_if(ref, commit)

    def exclude_file(self) -> Path:
        """The ignore file that all worktrees of the repository share and that is never committed."""
        return self.layout().common_dir / "info" / "exclude"

    def has_excludes(self, patterns: Sequence[str]) -> bool:
        """Whether ``ensure_excludes`` would have nothing to do."""
        text = _read(Path(os.path.realpath(self.exclude_file())))
        return _with_block(text, patterns) == text

    def ensure_excludes(self, patterns: Sequence[str]) -> None:
        """Keep these patterns, in a marked block, in the shared exclude file; the user's lines stay as they are."""
        path = Path(os.path.realpath(self.exclude_file()))
        if _with_block(_read(path), patterns) == _read(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with fs.locked(self.layout().common_dir / "side-agents-exclude.lock", purpose="the shared exclude file"):
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            fs.replace(path, os.fsencode(_with_block(_read(path), patterns)), mode=mode)


def _worktree_entries(lines: Sequence[bytes]) -> Iterator[WorktreeEntry]:
    facts: dict[str, str] = {}
    for raw in (*lines, b""):
        key, _, value = os.fsdecode(raw).partition(" ")
        if key:
            facts[key] = value
        elif facts:
            branch = facts.get("branch")
            yield WorktreeEntry(
                path=Path(facts["worktree"]),
                head=facts.get("HEAD"),
                branch=branch.removeprefix("refs/heads/") if branch else None,
                **{name: name in facts for name in ("detached", "locked", "prunable", "bare")},
            )
            facts = {}


def parse_status(output: bytes) -> list[StatusEntry]:
    """The entries of ``git status --porcelain=v1 -z``."""
    entries: list[StatusEntry] = []
    parts = iter(os.fsdecode(output).split("\0"))
    for part in parts:
        if part:
            original = next(parts) if part[0] in "RC" or part[1] in "RC" else None
            entries.append(StatusEntry(part[:2], part[3:], original))
    return entries


def _read(path: Path) -> str:
    return os.fsdecode(path.read_bytes()) if path.exists() else ""


def _with_block(text: str, patterns: Sequence[str]) -> str:
    block = "\n".join((_BLOCK_BEGIN, *patterns, _BLOCK_END)) + "\n"
    found = re.search(rf"^{_BLOCK_BEGIN}\n.*?^{_BLOCK_END}(\n|\Z)", text, re.DOTALL | re.MULTILINE)
    if found:
        return text[: found.start()] + block + text[found.end() :]
    return text + ("\n" if text and not text.endswith("\n") else "") + block
