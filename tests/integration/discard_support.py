"""A repository with slots but without tmux, and what must not change in it."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_agents.core import discard, slot_proof
from side_agents.core.context import Context, open_context
from side_agents.core.verdicts import Discarded, Kind, Target, Verdict
from side_agents.infra.git import Git
from side_agents.models import AgentRecord, AgentStatus
from side_agents.paths import EXCLUDED
from tests.support.repositories import Repository

STAMP = "20260303T025800.000001Z"
BRANCH = "side-agent/a"


@dataclass
class Pool:
    """The repository and its first slot, on the branch ``side-agent/a`` with a commit of its own."""

    repo: Repository
    slot: Repository

    @property
    def context(self) -> Context:
        return open_context(self.repo.path, os.environ)

    @property
    def path(self) -> Path:
        return self.slot.path

    @property
    def admin(self) -> Path:
        return self.repo.path / ".git" / "worktrees" / self.path.name

    @property
    def trash(self) -> Path:
        return self.repo.path.parent / f".{self.repo.path.name}-agent-trash"

    def place(self, number: int) -> Path:
        return self.repo.path.parent / f"{self.repo.path.name}-agent-worktree-{number:04d}"

    def add(self, number: int, branch: str) -> Repository:
        slot = Repository(self.place(number))
        self.repo.git("worktree", "add", "--quiet", "-b", branch, str(slot.path))
        return slot

    def ignore(self, lines: str) -> None:
        with (self.repo.path / ".git/info/exclude").open("a", encoding="utf-8") as file:
            file.write(lines)

    def prove(self, path: Path | None = None) -> Verdict:
        return discard.prove(self.context, slot_proof.slot_target(path or self.path))

    def discard(self, path: Path | None = None, stamp: str = STAMP) -> Discarded:
        return discard.discard(self.context, slot_proof.slot_target(path or self.path), stamp=stamp)

    def branch_target(self, name: str = BRANCH) -> Target:
        return Target(Kind.BRANCH, name)

    def put(self, agent_id: str = "a", status: AgentStatus = AgentStatus.CRASHED, **more: Any) -> AgentRecord:
        more = {"started_at": "2026-03-03T02:58:00.000Z", **more}
        record = AgentRecord(id=agent_id, status=status, **more)
        with self.context.registry.transaction("test") as state:
            state.put(record)
        return record

    def fingerprint(self) -> dict[str, str]:
        """Every file around the repository and every ref; what a refused discard has to leave as it is."""
        return {**fingerprint(self.repo.path.parent), "refs": self.refs()}

    def refs(self) -> str:
        return self.repo.git("for-each-ref", "--format=%(refname) %(objectname)")


def fingerprint(top: Path) -> dict[str, str]:
    return dict(_contents(top))


def _contents(top: Path) -> Iterator[tuple[str, str]]:
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = Path(folder, name)
            shown = path.relative_to(top).as_posix()
            # Locks hold who had them last, objects are only ever added.
            if "/objects" in shown or shown.endswith(("-discard.lock", "-worktrees.lock", "registry.lock")):
                continue
            if "/logs/refs/side-agents" in shown or "refs/side-agents" in shown or shown.endswith(".pi"):
                continue
            if path.is_symlink():
                yield shown, str(path.readlink())
            elif path.is_file():
                yield shown, _digest(path)
            else:
                yield shown, "folder"


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except PermissionError:
        return "closed"


def make_pool(repo: Repository) -> Pool:
    Git(repo.path).ensure_excludes(EXCLUDED)
    (repo.path / ".pi" / "side-agents").mkdir(parents=True)
    pool = Pool(repo, Repository(repo.path.parent / f"{repo.path.name}-agent-worktree-0001"))
    pool.add(1, BRANCH)
    pool.slot.commit("work.txt", "work\n", "work of a")
    return pool


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """A folder that may not be looked into."""
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(0o700)


# What follows runs in a process of its own, which dies after its n-th step.


def _die_at(step: int) -> None:
    from side_agents.infra import fs, fs_tree, git

    count = 0

    def wrap(module: Any, name: str, counts: Any = lambda *_: True) -> None:
        inner = getattr(module, name)

        def outer(*args: Any, **more: Any) -> Any:
            nonlocal count
            result = inner(*args, **more)
            if counts(*args):
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(module, name, outer)

    for name in ("replace", "create_exclusive", "move", "remove_file"):
        wrap(fs, name)
    for name in ("remove_empty_dir", "remove_tree"):
        wrap(fs_tree, name)
    wrap(git, "call", lambda _directory, args, *_: args[0] == "update-ref")


def _run(action: str, name: str) -> None:
    from side_agents.core import trash
    from side_agents.core.undo import undo

    context = open_context(Path.cwd(), os.environ)
    if action == "undo":
        for _, _, error in undo(context, None):
            if error is not None:
                raise error
    elif action == "slot":
        discard.discard(context, slot_proof.slot_target(Path(name)), stamp=STAMP)
    elif action in (Kind.BRANCH, Kind.RECORD):
        discard.discard(context, Target(Kind(action), name), stamp=STAMP)
    else:
        for entry in trash.entries(context):
            discard.discard(context, Target(Kind.TRASH, entry.name), stamp=STAMP)


def in_a_process(pool: Pool, action: str, name: str = "", *, die_at: int = 0) -> int:
    """Run one action elsewhere, killed after step ``die_at``; 0 when it came to its end, -9 when it was killed."""
    here = Path(__file__)
    command = [sys.executable, str(here), action, name, str(die_at)]
    environment = {**os.environ, "PYTHONPATH": str(here.parents[2])}
    done = subprocess.run(command, cwd=pool.repo.path, env=environment, check=False, capture_output=True, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


if __name__ == "__main__":
    _die_at(int(sys.argv[3]))
    _run(*sys.argv[1:3])
