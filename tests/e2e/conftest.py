"""Fixtures for tests with real coding agents from npm, each pinned by a lock file in ``clients/NAME``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.pi_parent_support import ParentPi, open_parent
from tests.e2e.pi_support import PiAgent, PiRig
from tests.fakes.model_server import ModelServer
from tests.support.repositories import make_repository

CLIENTS = Path(__file__).parent / "clients"
# One worker has all tests of a version (with --dist loadgroup), so that its agents are started once.
PI_VERSIONS = [
    pytest.param(version, marks=[pytest.mark.real_client(name), pytest.mark.xdist_group(name)], id=name)
    for version in ("0.73.1", "1.6.0")
    for name in [f"pi-{version}"]
]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose client is not installed fails in CI; elsewhere it is skipped with the command that installs it."""
    for marker in item.iter_markers("real_client"):
        folder = CLIENTS / marker.args[0]
        if (folder / "node_modules" / ".package-lock.json").exists():
            continue
        reason = f"{marker.args[0]} is not installed: (cd tests/e2e/clients/{folder.name} && npm ci --ignore-scripts)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session", params=PI_VERSIONS)
def pi_rig(
    request: pytest.FixtureRequest, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PiRig]:
    """A tmux server, a home and an agent folder for one version of Pi."""
    version = request.param
    rig = PiRig(CLIENTS / f"pi-{version}", version, model, tmp_path_factory.mktemp(f"pi-{version}-"))
    yield rig
    rig.stop()


@pytest.fixture(autouse=True)
def no_window_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends the agents of a test with it: each idle one costs the tests after it memory and time."""
    if "pi_rig" not in request.fixturenames:
        yield
        return
    rig: PiRig = request.getfixturevalue("pi_rig")
    before = rig.panes()
    yield
    for pane in rig.panes() - before:
        # It may end by itself meanwhile.
        with suppress(AssertionError):
            rig.tmux("kill-pane", "-t", pane)


@pytest.fixture(scope="session")
def shared_pi(pi_rig: PiRig) -> PiAgent:
    """One agent of this version that many tests use in turn; its first turn is over."""
    agent = pi_rig.launch("SAY: hello from the first turn")
    agent.wait_event("turn_end")
    return agent


@pytest.fixture
def pi(shared_pi: PiAgent) -> PiAgent:
    """The shared agent, idle and with an empty box; its ``new_events`` begin here."""
    shared_pi.settle()
    return shared_pi


@pytest.fixture
def parent(pi_rig: PiRig, tmp_path: Path) -> Iterator[ParentPi]:
    """A person's Pi in a fresh repository; its agents end with it."""
    parent = open_parent(pi_rig, make_repository(tmp_path / "shop"), tmp_path / "home")
    yield parent
    parent.end()
