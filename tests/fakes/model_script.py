"""What the scripted model does: directives in the last real user text decide its next step.

    SAY: text            the final answer (several are joined by newlines)
    RUN: shell           a call of the client's own shell tool
    TOOL: name {json}    a call of the tool whose name is, or ends with, ``name``
    ALSO: name {json}    one more call in the same message as the TOOL before it (chat completions only)
    SLEEP: seconds       wait before the next step
    WAIT: file           wait until the file exists
    STREAM: n seconds    answer with ``n`` pieces spread over ``seconds`` before the SAY text
    FAIL: status [times] answer with this HTTP status, always or that many times

Directives are worked off in order: each call of a tool ends one request, and the next request goes on behind it. At the
end the answer is the SAY text, else ``DONE``; a text without directives is answered with ``ECHO: first line``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

SHELL_TOOLS = ("bash", "exec_command", "shell", "shell_command", "run_shell_command", "local_shell")
_DIRECTIVE = re.compile(r"^\s*(SAY|RUN|TOOL|ALSO|SLEEP|WAIT|STREAM|FAIL):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)
_BLOCKS = re.compile(
    r"<(system-reminder|environment_context|user_instructions|INSTRUCTIONS|permissions[ \w-]*|collaboration_mode|"
    r"skills_instructions|apps_instructions|plugins_instructions)>.*?</\1>",
    re.DOTALL,
)
_PASTE_TAGS = re.compile(r"</?pasted_content[^>]*>\n?")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the client declared it; ``namespace`` is the group that some clients put tools in."""

    name: str
    properties: dict[str, object]
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What matters of one request: the user's texts in order, and how many tool results follow the last one."""

    user_texts: tuple[str, ...]
    results: int
    tools: tuple[Tool, ...]

    @property
    def last_text(self) -> str:
        return self.user_texts[-1] if self.user_texts else ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the script. ``call`` is set when the step ends the request with a tool call, else ``text`` does."""

    action: str
    text: str = ""
    call: Tool | None = None
    arguments: str = "{}"
    pauses: tuple[tuple[str, str], ...] = ()
    failures: tuple[tuple[str, int, int | None], ...] = ()
    pieces: int = 0
    seconds: float = 0.0
    more_calls: tuple[tuple[Tool, str], ...] = ()


def real_text(text: str) -> str:
    """Return a user text without the blocks that clients add on their own; "" when nothing else is in it."""
    cleaned = _BLOCKS.sub("", text)
    if cleaned == text:
        return text if text.strip() else ""
    return "" if cleaned.lstrip().startswith("# AGENTS.md instructions") else cleaned.strip()


def next_step(conversation: Conversation) -> Step:
    """Decide what to answer. A request that declares no tools (titles, summaries) gets a short fixed answer."""
    if not conversation.tools:
        return Step("short", "Short answer")
    text = conversation.last_text
    directives = _DIRECTIVE.findall(text)
    if not directives:
        plain = _PASTE_TAGS.sub("", text).strip()
        return Step("echo", "ECHO: " + (plain.splitlines() or [""])[0][:200])
    return _step_behind(directives, conversation, text)


def _step_behind(directives: Sequence[tuple[str, str]], conversation: Conversation, text: str) -> Step:
    pauses: list[tuple[str, str]] = []
    failures: list[tuple[str, int, int | None]] = []
    pieces, seconds, calls = 0, 0.0, 0
    for position, (word, value) in enumerate(directives):
        if word in {"RUN", "TOOL"}:
            beside = list(takewhile(lambda each: each[0] == "ALSO", directives[position + 1 :]))
            calls += 1 + len(beside)
            if calls > conversation.results:
                step = _call(word, value, conversation.tools, tuple(pauses), tuple(failures))
                return replace(step, more_calls=_calls(beside, conversation.tools))
            pauses, failures = [], []
        elif word in {"SLEEP", "WAIT"}:
            pauses.append((word, value))
        elif word == "FAIL":
            status, _, times = value.partition(" ")
            failures.append((f"{position}:{text}", int(status), int(times) if times.strip() else None))
        elif word == "STREAM":
            count, _, length = value.partition(" ")
            pieces, seconds = int(count), float(length or 1)
    answer = "\n".join(value for word, value in directives if word == "SAY") or "DONE"
    return Step("say", answer, None, "{}", tuple(pauses), tuple(failures), pieces, seconds)


def _call(
    word: str,
    value: str,
    tools: Sequence[Tool],
    pauses: tuple[tuple[str, str], ...],
    failures: tuple[tuple[str, int, int | None], ...],
) -> Step:
    if word == "RUN":
        tool = _shell_tool(tools)
        arguments = json.dumps(_shell_arguments(tool, value)) if tool else "{}"
        name = "shell"
    else:
        name, tool, arguments = _named_tool(value, tools)
    if tool is None:
        return Step("no-tool", f"NO SUCH TOOL: {name}", None, "{}", pauses, failures)
    return Step(word.lower(), value, tool, arguments, pauses, failures)


def _named_tool(value: str, tools: Sequence[Tool]) -> tuple[str, Tool | None, str]:
    name, _, arguments = value.partition(" ")
    tool = next((t for t in sorted(tools, key=lambda t: t.name != name) if t.name.endswith(name)), None)
    return name, tool, arguments.strip() or "{}"


def _calls(beside: Sequence[tuple[str, str]], tools: Sequence[Tool]) -> tuple[tuple[Tool, str], ...]:
    found = [_named_tool(value, tools) for _, value in beside]
    return tuple((tool, arguments) for _, tool, arguments in found if tool is not None)


def _shell_tool(tools: Sequence[Tool]) -> Tool | None:
    by_name = {tool.name.lower(): tool for tool in reversed(tools)}
    return next((by_name[name] for name in SHELL_TOOLS if name in by_name), None)


def _shell_arguments(tool: Tool, command: str) -> dict[str, object]:
    if "cmd" in tool.properties:
        return {"cmd": command}
    kind = tool.properties.get("command")
    if isinstance(kind, dict) and kind.get("type") == "array":
        return {"command": ["bash", "-lc", command]}
    extra = {"description": "scripted"} if "description" in tool.properties else {}
    return {"command": command, **extra}
