"""Real git repositories: one template is made per session, each test gets a copy (2 ms instead of 17)."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Repository:
    """A checkout and raw git in it, apart from the code under test."""

    path: Path

    def git(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *args], cwd=self.path, check=False, capture_output=True, timeout=60, stdin=subprocess.DEVNULL
        )
        if check and done.returncode != 0:
            raise AssertionError(f"git {args}: {os.fsdecode(done.stdout + done.stderr)}")
        return os.fsdecode(done.stdout).removesuffix("\n")

    def write(self, name: str, text: str = "text\n") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def commit(self, name: str = "file.txt", text: str = "text\n", message: str = "change") -> str:
        self.write(name, text)
        self.git("add", "--", name)
        self.git("commit", "--quiet", "-m", message)
        return self.head()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def status(self) -> str:
        return self.git("status", "--porcelain")


def make_repository(path: Path) -> Repository:
    """A repository on ``main`` with one commit: README.md, src/app.txt, .gitignore (ignores ``ignored/``)."""
    path.mkdir(parents=True)
    repository = Repository(path)
    repository.git("init", "--quiet", "--template=", "--initial-branch=main")
    repository.write("README.md", "# A project\n")
    repository.write("src/app.txt", "one\ntwo\nthree\n")
    repository.write(".gitignore", "ignored/\n")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "-m", "first")
    return repository


def copy_repository(template: Path, target: Path) -> Repository:
    """A copy of a repository that has no linked worktrees."""
    shutil.copytree(template, target, symlinks=True)
    return Repository(target)
