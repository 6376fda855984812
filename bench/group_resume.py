"""The list of what can be resumed: two thousand conversations of ten megabytes, as Pi writes them."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

from bench.harness import Row, World, interleave, timed, world
from side_agents.core.resume import list_resumable

ROUNDS = 11
FILES, LENGTH, SLOTS = 2000, 10_000_000, 40
_SLICE = 128 * 1024


def measure(rounds: int | None) -> list[Row]:
    """In a warm process; the floor reads the two ends of each file and looks at nothing."""
    count = rounds or ROUNDS
    with world() as made:
        files = _write_conversations(made)
        times = interleave(
            count, {"floor": lambda: timed(lambda: _read(files)), "ours": lambda: timed(lambda: _look(made))}
        )
    what = f"`resume --list` in a warm process: {FILES} Pi conversations of {LENGTH // 1_000_000} MB"
    return [Row(what, count, times["floor"], times["ours"], goal="1000 ms")]


def _look(made: World) -> None:
    found = len(list_resumable(made.context()))
    if found != FILES:
        raise RuntimeError(f"{found} conversations were found")


def _read(files: list[Path]) -> None:
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.pread(descriptor, _SLICE, 0)
            os.pread(descriptor, _SLICE, LENGTH - _SLICE)
        finally:
            os.close(descriptor)


def _write_conversations(made: World) -> list[Path]:
    """Both ends are full of messages; the middle is a hole, which takes no disk and which nobody may read."""
    files = []
    talk = _talk(2 * _SLICE)
    for number in range(FILES):
        slot = made.slot(f"project-agent-worktree-{number % SLOTS + 1:04d}")
        folder = made.base / "home/.pi/agent/sessions" / f"--{str(slot).strip('/').replace('/', '-')}--"
        folder.mkdir(parents=True, exist_ok=True)
        session_id = str(uuid.UUID(int=number))
        path = folder / f"2026-01-01T00-00-00-000Z_{session_id}.jsonl"
        link = {"agentId": f"agent-{number}", "parentSession": None, "linkedAt": "2026-01-01T00:00:00.000Z"}
        begin: tuple[dict[str, object], ...] = (
            {"type": "session", "version": 3, "id": session_id, "timestamp": "2026-01-01", "cwd": str(slot)},
            {"type": "custom", "customType": "side-agent-link", "data": link, "id": "00000001", "parentId": None},
            _message("user", f"Task number {number}: make the tests of the parser quick."),
        )
        with path.open("wb") as file:
            file.write(b"".join(_line(entry) for entry in begin) + talk)
            file.truncate(LENGTH - len(talk))
            file.seek(0, os.SEEK_END)
            file.write(b"\n" + talk[1:])
        files.append(path)
    return files


def _talk(length: int) -> bytes:
    answer = _message("assistant", 'I looked at `parser.py` and changed the "tokens" function:\n' + "code = 1\n" * 120)
    result = _message("toolResult", "ok " * 700)
    pair = _line(answer) + _line(result)
    return pair * (length // len(pair))


def _message(role: str, text: str) -> dict[str, object]:
    message = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1767225600000}
    return {"type": "message", "id": "0000000a", "parentId": None, "timestamp": "2026-01-01", "message": message}


def _line(entry: dict[str, object]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
