"""A coding agent that the user describes in the configuration, see ``CustomClientSpec``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from side_agents.client_spec import CustomClientSpec, PromptDelivery, StatusSource
from side_agents.clients.interface import LaunchPlan, LaunchRequest
from side_agents.errors import ToolMissingError, UsageError

# Linux refuses a single argument of 131,072 bytes.
LONGEST_ARGUMENT = 120_000

_PLACEHOLDER = re.compile(r"\{(prompt|prompt_file|model|session_id)\}")
# The box stands at the bottom of the screen, above at most a few lines of footer.
_BOX_DEPTH = 6
_LINE_ENDS = re.compile(r"\r\n?")


class CustomClient:
    """A client made of a command line and a few patterns. Raises UsageError when they cannot work together."""

    def __init__(self, spec: CustomClientSpec) -> None:
        _check_places(spec)
        self.spec = spec
        self.name: str = spec.name
        self.interrupt_keys: tuple[str, ...] = spec.interrupt_keys
        self.quit_text: str | None = spec.quit_text
        self.reports_events: bool = spec.status is StatusSource.JOURNAL
        self.quiet_seconds: float = spec.quiet_seconds
        self._busy = _compile(spec, "busy_pattern")
        self._ready = _compile(spec, "ready_pattern")
        self._draft = _compile(spec, "draft_pattern")
        if self._draft and self._draft.groups != 1:
            raise UsageError(f"Client {spec.name}: draft_pattern must have exactly one group, the text in the box.")

    def locate(self, environment: Mapping[str, str]) -> Path:
        """Return the program; a name without a slash is looked up on the caller's PATH."""
        from side_agents.infra import proc

        program = self.spec.argv[0]
        found = proc.find_program(program, path=environment.get("PATH"))
        if found is None:
            raise ToolMissingError(
                f"Client {self.name}: the program {program} is not installed or not on PATH. Nothing was started.",
                hint=f"Install it, or give its full path as the first item of argv in [clients.{self.name}].",
            )
        return found

    def launch_plan(self, request: LaunchRequest) -> LaunchPlan:
        """Fill the templates in; raises UsageError for what the configuration gives no way to pass on."""
        if request.resume_session:
            raise UsageError(
                f"Client {self.name} cannot reopen a conversation. Nothing was started.",
                hint="Start a new agent on the branch, or resume with the client that holds the conversation.",
            )
        if request.model and not self.spec.model_args:
            raise UsageError(
                f"Client {self.name} takes no model, but {request.model} was asked for. Nothing was started.",
                hint=f'Set model_args = ["--model", "{{model}}"] in [clients.{self.name}].',
            )
        delivery = self.spec.prompt if request.has_prompt else None
        templates = [*self.spec.argv, *(self.spec.model_args if request.model else ())]
        if delivery in (PromptDelivery.ARGV, PromptDelivery.FILE):
            templates += self.spec.prompt_args
        values = {
            "prompt": self._prompt(request) if delivery is PromptDelivery.ARGV else "",
            "prompt_file": str(request.prompt_file),
            "model": request.model or "",
            "session_id": request.session_id,
        }
        used = any("{session_id}" in text for text in (*templates, *self.spec.env.values()))
        return LaunchPlan(
            argv=tuple(_fill(template, values) for template in templates),
            env={key: _fill(value, values) for key, value in self.spec.env.items()},
            paste_prompt=delivery is PromptDelivery.PASTE,
            session_id=request.session_id if used else None,
            stdin_file=request.prompt_file if delivery is PromptDelivery.STDIN else None,
        )

    def normalise(self, message: str) -> str:
        """Return the message with newlines as line ends and none at its end."""
        return _LINE_ENDS.sub("\n", message).rstrip("\n")

    def draft(self, screen: Sequence[str]) -> str | None:
        """Return the group of ``draft_pattern`` in the lowest line that has it; None without pattern or such a line.

        Only the lowest lines count, because what the conversation shows of a message looks like the box.
        """
        if self._draft is None:
            return None
        for line in reversed([line for line in screen if line.strip()][-_BOX_DEPTH:]):
            match = _search(self._draft, line)
            if match:
                return (match.group(1) or "").strip()
        return None

    def is_busy(self, screen: Sequence[str]) -> bool | None:
        """Look for ``busy_pattern``, then ``ready_pattern``; with only one of them its absence is an answer too."""
        if self._busy and any(map(self._busy.search, screen)):
            return True
        if self._ready and any(_search(self._ready, line) for line in screen):
            return False
        if self._busy and self._ready:
            return None
        return bool(self._ready) if self._busy or self._ready else None

    def _prompt(self, request: LaunchRequest) -> str:
        data = request.prompt_file.read_bytes()
        way_out = f'Set prompt = "file" or prompt = "paste" in [clients.{self.name}].'
        if len(data) > LONGEST_ARGUMENT:
            raise UsageError(
                f"The prompt has {len(data):,} bytes, more than client {self.name} can get as an argument "
                f"({LONGEST_ARGUMENT:,}). Nothing was started.",
                hint=way_out,
            )
        if b"\0" in data:
            raise UsageError("The prompt holds a NUL byte, which no argument can. Nothing was started.", hint=way_out)
        return data.decode("utf-8", "surrogateescape")


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in one pass, so that nothing in a prompt is taken for one."""
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def _check_places(spec: CustomClientSpec) -> None:
    where = f"Client {spec.name}: "
    if not spec.argv or not spec.argv[0]:
        raise UsageError(f"{where}argv must name a program.")
    if _names(spec.argv[:1]):
        raise UsageError(f"{where}the program in argv cannot be a placeholder.")
    if "model" in _names((*spec.argv, *spec.prompt_args, *spec.env.values())):
        raise UsageError(f"{where}{{model}} belongs in model_args, which are left out when no model is asked for.")
    if "prompt" in _names((*spec.argv, *spec.model_args, *spec.env.values())):
        raise UsageError(f"{where}{{prompt}} belongs in prompt_args, which are left out when there is no prompt.")
    if spec.prompt is PromptDelivery.ARGV and "prompt" not in _names(spec.prompt_args):
        raise UsageError(f'{where}prompt = "argv" needs {{prompt}} in prompt_args, best as ["--", "{{prompt}}"].')
    if spec.prompt is not PromptDelivery.ARGV and "prompt" in _names(spec.prompt_args):
        raise UsageError(f'{where}{{prompt}} needs prompt = "argv".')
    places = (*spec.argv, *spec.prompt_args, *spec.env.values())
    if spec.prompt is PromptDelivery.FILE and "prompt_file" not in _names(places):
        raise UsageError(f'{where}prompt = "file" needs {{prompt_file}} in prompt_args.')


def _names(templates: Sequence[str]) -> set[str]:
    return {name for template in templates for name in _PLACEHOLDER.findall(template)}


def _search(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Search the line as tmux gives it, and with the blank behind a prompt, which tmux cuts off."""
    return pattern.search(line) or (pattern.search(line + " ") if line.strip() else None)


def _compile(spec: CustomClientSpec, key: str) -> re.Pattern[str] | None:
    text: str | None = getattr(spec, key)
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"Client {spec.name}: {key} is not a regular expression: {error}.") from error
