"""The pure parts of the Pi extension's parent side, run by node itself; files of node's own tests lie in ``pi_parent_js/``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from side_agents import resources
from side_agents.tools import pi_file

TESTS = Path(__file__).with_name("pi_parent_js")
PARENT = resources.template_path("pi/side-agents.js").parent / "parent"


@pytest.fixture(scope="module")
def node() -> str:
    """The program; without it these tests are skipped, but not in CI."""
    found = shutil.which("node")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("node is not installed", pytrace=False)
    return found or pytest.skip("node is not installed")


@pytest.mark.parametrize("file", sorted(TESTS.glob("*.test.mjs")), ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_the_modules_of_the_parent_side(node: str, file: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PARENT": str(PARENT), "SCRATCH": str(tmp_path), "NO_COLOR": "1"}
    loader = ["--no-warnings", "--import", str(TESTS / "without-pi.mjs")]
    done = subprocess.run(
        [node, *loader, "--test", str(file)], env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_tools_json_is_what_the_table_of_tools_generates() -> None:
    shipped = resources.template_path("pi/tools.json").read_text(encoding="utf-8")
    assert shipped == pi_file.generate(), "python -m side_agents.tools.pi_file templates/pi/tools.json writes it anew"
