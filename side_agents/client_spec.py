"""The user's own client as values: what ``[clients.NAME]`` in the configuration says. Pure; parsed by ``config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PromptDelivery(StrEnum):
    """How a custom client gets its first prompt.

    ``argv``: the text is an argument (at most 120,000 bytes, a limit of the system); ``file``: an argument names the
    file; ``stdin``: the file is the client's standard input until its end; ``paste``: pasted once the client is ready.
    """

    ARGV = "argv"
    FILE = "file"
    STDIN = "stdin"
    PASTE = "paste"


class StatusSource(StrEnum):
    """How a custom client is seen to be busy or waiting: its own ``journal``, or a screen that stops changing."""

    JOURNAL = "journal"
    QUIET_SCREEN = "quiet-screen"


@dataclass(frozen=True, slots=True)
class CustomClientSpec:
    """One custom client.

    ``argv``, ``model_args`` and ``prompt_args`` may hold the placeholders ``{prompt}``, ``{prompt_file}``, ``{model}``
    and ``{session_id}``, as a whole argument or inside one. ``model_args`` is appended only when a model is asked for,
    ``prompt_args`` last and only when there is a prompt and it is delivered by ``argv`` or ``file``.
    Patterns are regular expressions searched in the visible pane, line by line; ``draft_pattern`` has one group: the
    text in the input box. ``quiet_seconds`` counts only with ``StatusSource.QUIET_SCREEN``.
    """

    name: str
    argv: tuple[str, ...]
    model_args: tuple[str, ...] = ()
    prompt_args: tuple[str, ...] = ()
    prompt: PromptDelivery = PromptDelivery.PASTE
    interrupt_keys: tuple[str, ...] = ("Escape",)
    quit_text: str | None = None
    status: StatusSource = StatusSource.QUIET_SCREEN
    quiet_seconds: float = 3.0
    env: Mapping[str, str] = field(default_factory=dict)
    busy_pattern: str | None = None
    ready_pattern: str | None = None
    draft_pattern: str | None = None
