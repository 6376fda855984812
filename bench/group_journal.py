"""One event appended to a journal by a hook of a client, as documented for clients of one's own."""

from __future__ import annotations

from bench.harness import Row, interleave, timed, world

ROUNDS = 51
_APPEND = 'printf \'{"type":"turn_end","at":"2026-01-01T00:00:00Z"}\\n\' >> "$PI_SIDE_RUNTIME_DIR/events.jsonl"'


def measure(rounds: int | None) -> list[Row]:
    """A shell that appends a line against a shell that does nothing."""
    count = rounds or ROUNDS
    with world() as made:
        folder = str(made.base)
        times = interleave(
            count,
            {
                "raw": lambda: timed(lambda: made.run("sh", "-c", ":")),
                "ours": lambda: timed(lambda: made.run("sh", "-c", _APPEND, PI_SIDE_RUNTIME_DIR=folder)),
            },
        )
    return [Row("journal append by a shell hook", count, times["raw"], times["ours"], goal="5 ms")]
