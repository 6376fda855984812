# pathlib would cost the program a quarter of its start.
# ruff: noqa: PTH108, PTH118, PTH123
"""The script agent's side of the runtime folder: the claim on the launch token and the journal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping

TEXT_LIMIT = 500


def iso_now() -> str:
    """Return the time as ``2026-03-03T02:58:00.000Z``."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def open_journal(environment: Mapping[str, str]) -> Journal:
    """Return the journal of the agent that this process is, or a silent one when it is none.

    A process is the agent when it is the first to present the launch token (reference/side-agents, case X23);
    every other process that inherited the variables stays silent.
    """
    folder = environment.get("PI_SIDE_RUNTIME_DIR", "")
    token = environment.get("SIDE_AGENTS_LAUNCH_TOKEN", "")
    if folder and token and _claim(folder, token):
        return Journal(os.path.join(folder, "events.jsonl"))
    return Journal(None)


class Journal:
    """Appends events, each with one write; a folder that is gone or full never stops the agent."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    @property
    def is_agent(self) -> bool:
        """True when this process holds the claim."""
        return self._path is not None

    def write(self, kind: str, **fields: object) -> None:
        """Append one event of type ``kind``."""
        if self._path is None:
            return
        line = json.dumps({"type": kind, "at": iso_now(), **fields}, ensure_ascii=False) + "\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError:
            return
        try:
            os.write(descriptor, line.encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def write_input(self, message: str, state: str) -> None:
        """Append the evidence that a message was taken from the input box."""
        if self._path is None:
            return
        import hashlib

        digest = hashlib.sha256(message.encode("utf-8")).hexdigest()
        self.write("input", sha256=digest, length=len(message), state=state)


def _claim(folder: str, token: str) -> bool:
    """Claim the token for this process; the file is complete as soon as it can be seen."""
    path = os.path.join(folder, "claim.json")
    mine = {"pid": os.getpid(), "token": token, "claimedAt": iso_now()}
    draft = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, json.dumps(mine).encode())
        finally:
            os.close(descriptor)
        try:
            os.link(draft, path)
        finally:
            os.unlink(draft)
    except OSError:
        return _holds_claim(path, token)
    return True


def _holds_claim(path: str, token: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            claim = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(claim, dict) and claim.get("pid") == os.getpid() and claim.get("token") == token
