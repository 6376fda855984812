"""Fixtures of all tests, and a guard that keeps every test away from the user's own files, git identity and tmux."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repositories import Repository, copy_repository, make_repository
from tests.support.tmux_server import PrivateServer

_UNSET_PREFIXES = ("TMUX", "PI_SIDE_", "SIDE_AGENTS_", "GIT_", "XDG_", "FORUM_", "AGENTFORUM_")
_IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Test Author",
    "GIT_AUTHOR_EMAIL": "author@example.invalid",
    "GIT_COMMITTER_NAME": "Test Committer",
    "GIT_COMMITTER_EMAIL": "committer@example.invalid",
}


def guarded_environment(home: Path) -> dict[str, str]:
    """The environment of this process without the user in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_UNSET_PREFIXES)}
    folders = {
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local" / "share",
        "XDG_STATE_HOME": home / ".local" / "state",
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_RUNTIME_DIR": home / ".run",
    }
    folders["XDG_RUNTIME_DIR"].mkdir(mode=0o700, exist_ok=True)
    return {
        **kept,
        **_IDENTITY,
        **{name: str(folder) for name, folder in folders.items()},
        "HOME": str(home),
        "SHELL": "/bin/sh",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
    }


def replace_environment(environment: dict[str, str], patch: pytest.MonkeyPatch) -> None:
    """Make ``environment`` the whole environment of this process until ``patch`` is undone."""
    for name in set(os.environ) - set(environment):
        patch.delenv(name)
    for name, value in environment.items():
        patch.setenv(name, value)


@pytest.fixture(autouse=True)
def interrupts_arrive() -> None:
    """An interrupt reaches the programs of a test, though the run may have been started with interrupts ignored, and a
    command that was run in this process before may have ended with them ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def guard_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For what is made once per session, such as the template repository."""
    with pytest.MonkeyPatch.context() as patch:
        replace_environment(guarded_environment(tmp_path_factory.mktemp("session-home")), patch)
        yield


@pytest.fixture(autouse=True)
def home(guard_session: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder for each test; HOME and all XDG variables point to it."""
    folder = tmp_path_factory.mktemp("home")
    replace_environment(guarded_environment(folder), monkeypatch)
    return folder


@pytest.fixture(scope="session")
def template_repository(guard_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("template") / "repo").path


@pytest.fixture
def repo(template_repository: Path, tmp_path: Path) -> Repository:
    """A git repository of its own on ``main`` with one commit, in a folder that may take slots beside it."""
    return copy_repository(template_repository, tmp_path / "project")


@pytest.fixture
def tmux_server() -> Iterator[PrivateServer]:
    """A tmux server of its own, not started yet."""
    server = PrivateServer()
    yield server
    server.stop()
