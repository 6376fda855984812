"""What an agent's runtime folder still tells of it: the constants in its launcher, its first prompt, its journal."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from side_agents.core import journal
from side_agents.infra import fs
from side_agents.paths import RuntimePaths

_LIMIT = 4 * 1024 * 1024
_PROMPT_LIMIT = 16 * 1024 * 1024
_NESTED = "\n\n## You are a nested side agent\n"
_BEGIN, _END = "\nreadonly sa_agent=", "\nreadonly sa_stop="


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What the launcher was made with; empty texts where it cannot be read. ``coordination`` is what it exports."""

    agent_id: str = ""
    worktree: str = ""
    branch: str = ""
    coordination: Mapping[str, str] = field(default_factory=dict)


def read_launcher(runtime: RuntimePaths) -> LaunchFacts:
    """The constants of ``launch.sh``, read as the shell would, without running anything."""
    text = os.fsdecode(fs.read_slice(runtime.launcher, 0, _LIMIT))
    # An agent's arguments lie between the two and may hold anything, hence the first of one and the last of the other.
    begin, end = text.find(_BEGIN), text.rfind(_END)
    if begin < 0 or end < begin:
        return LaunchFacts()
    try:
        words = shlex.split(text[begin:end])
    except ValueError:
        return LaunchFacts()
    scalars = dict(word.partition("=")[::2] for word in words if re.match(r"sa_(agent|worktree|branch)=", word))
    opening = [number for number, word in enumerate(words) if word.startswith("sa_coordination=(")]
    exported = words[opening[-1] :] if opening else []
    pairs = (word.removeprefix("sa_coordination=(").partition("=")[::2] for word in exported)
    known = {key: value for key, value in pairs if key.startswith(("PI_SIDE_", "SIDE_AGENTS_"))}
    if known:
        last = list(known)[-1]
        known[last] = known[last].removesuffix(")")
    return LaunchFacts(scalars.get("sa_agent", ""), scalars.get("sa_worktree", ""), scalars.get("sa_branch", ""), known)


def read_task(runtime: RuntimePaths, session: str) -> str:
    """The task in the first prompt, without what was added to it."""
    text = fs.read_slice(runtime.kickoff, 0, _PROMPT_LIMIT).decode("utf-8", "surrogateescape")
    task = text.rpartition(_NESTED)[0] or text
    for words in ("Parent Pi session", "Parent session"):
        task = task.removesuffix(f"\n\n{words}: {session}") if session else task
    return task


def read_events(runtime: RuntimePaths) -> tuple[list[journal.Event], int]:
    """The whole journal, and the offset behind it."""
    events: list[journal.Event] = []
    offset = 0
    while True:
        tail = journal.read(runtime.journal, offset)
        events += tail.events
        if tail.offset <= offset:
            return events, offset
        offset = tail.offset
