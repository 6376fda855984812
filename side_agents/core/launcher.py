"""The script that an agent's window runs, its runtime folder and its backlog (DESIGN 5 "Launch").

The script itself is ``templates/launch.sh``; this module only puts the constants of one agent into it, each quoted for
the shell, so that no value of any kind is ever read as code (reference/side-agents 1.5).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from side_agents.errors import UsageError
from side_agents.infra import clock, fs
from side_agents.models import WindowClose
from side_agents.paths import RuntimePaths
from side_agents.resources import template_path, template_text

BACKLOG_CAP = 1024 * 1024
START_SCRIPT = ".pi/side-agent-start.sh"

# Linux refuses a longer single argument, the final NUL included.
_ARGUMENT_LIMIT = 131_072
_CONSTANTS_MARK = "#@constants@\n"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All that one launcher needs to know; unknown text values are empty, never missing."""

    agent_id: str
    root: Path
    worktree: Path
    runtime_dir: Path
    branch: str
    client: str
    argv: tuple[str, ...]
    launch_token: str
    parent_session: str = ""
    parent_repo: str = ""
    parent_branch: str = ""
    parent_agent_id: str = ""
    depth: int = 1
    client_env: Mapping[str, str] = field(default_factory=dict)
    stdin_file: Path | None = None
    window_close: WindowClose = WindowClose.KEY


def render(spec: LaunchSpec) -> str:
    """The text of ``launch.sh`` for one agent; write it as UTF-8 with ``surrogateescape``.

    Raises UsageError for what no process can be given: NUL bytes, one argument of 128 KiB, an impossible variable name.
    """
    _check(spec)
    head, mark, tail = template_text("launch.sh").partition(_CONSTANTS_MARK)
    if not mark:
        raise UsageError("The launcher template has lost its place for constants; nothing was started.")
    return head + "\n".join(_constants(spec)) + "\n" + tail


def write(spec: LaunchSpec) -> Path:
    """Write ``launch.sh`` (0700) into the runtime folder and return its path. Raises UsageError, StateError."""
    path = RuntimePaths(spec.runtime_dir).launcher
    fs.replace(path, render(spec).encode("utf-8", "surrogateescape"), mode=0o700)
    return path


def window_argv(script: Path) -> tuple[str, ...]:
    """The command of the agent's window: given to tmux as argv, nothing is ever typed."""
    return ("bash", str(script))


def coordination(spec: LaunchSpec) -> dict[str, str]:
    """The variables that tell a client which agent it is; the project's start script cannot change them."""
    return {
        "PI_SIDE_AGENT_ID": spec.agent_id,
        "PI_SIDE_PARENT_SESSION": spec.parent_session,
        "PI_SIDE_PARENT_REPO": spec.parent_repo,
        "PI_SIDE_PARENT_BRANCH": spec.parent_branch,
        "PI_SIDE_PARENT_AGENT_ID": spec.parent_agent_id,
        "PI_SIDE_AGENT_DEPTH": str(spec.depth),
        "PI_SIDE_AGENTS_ROOT": str(spec.root),
        "PI_SIDE_RUNTIME_DIR": str(spec.runtime_dir),
        "SIDE_AGENTS_LAUNCH_TOKEN": spec.launch_token,
        "SIDE_AGENTS_CLIENT": spec.client,
    }


def backlog_argv(runtime_dir: Path, *, cap_bytes: int = BACKLOG_CAP) -> tuple[str, ...]:
    """The program that a pane's output is piped to: appends to ``backlog.log`` and keeps it near ``cap_bytes``.

    The file may exceed the cap by 256 KiB before it is cut in place to its last half.
    """
    return ("sh", str(template_path("log-cap.sh")), str(RuntimePaths(runtime_dir).backlog), str(cap_bytes))


def prepare_runtime(runtime_dir: Path, archive_dir: Path) -> str | None:
    """Give an agent a fresh 0700 runtime folder with an empty backlog; return a warning when an old one was archived.

    What an earlier agent of the same name left moves to ``<archive_dir>/<stamp>``: its exit marker must never be taken
    for the new agent's (reference/side-agents B26). Raises StateError; the old folder is where it was then.
    """
    warning = None
    if runtime_dir.exists() or runtime_dir.is_symlink():
        fs.make_private_dir(archive_dir)
        target = archive_dir / clock.stamp()
        fs.move(runtime_dir, target)
        warning = f"An earlier agent had the same name; its runtime files are kept in {target}."
    fs.make_private_dir(runtime_dir)
    fs.create_exclusive(RuntimePaths(runtime_dir).backlog, b"")
    return warning


def _check(spec: LaunchSpec) -> None:
    if not spec.argv or not spec.argv[0]:
        raise UsageError("The client has no command to run; nothing was started.")
    for name in spec.client_env:
        if not _ENV_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for an environment variable; nothing was started.")
    variables = {**spec.client_env, **coordination(spec)}
    pairs = [f"{name}={value}" for name, value in variables.items()]
    for text in (*spec.argv, *pairs, str(spec.worktree), spec.branch):
        size = len(_encoded(text))
        if size >= _ARGUMENT_LIMIT:
            raise UsageError(
                f"One argument or variable for {spec.client} is {size} bytes long; the limit is {_ARGUMENT_LIMIT - 1}. "
                "Nothing was started.",
                hint="Long prompts belong into the prompt file.",
            )


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise UsageError("A NUL byte cannot be passed to a program; nothing was started.")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"{text[:40]!r} cannot be written as UTF-8; nothing was started.") from error


def _constants(spec: LaunchSpec) -> list[str]:
    on_end = {WindowClose.KEY: ("key", "key"), WindowClose.KEEP: ("keep", "keep"), WindowClose.CLOSE: ("close", "key")}
    on_success, on_failure = on_end[spec.window_close]
    values = {
        "sa_agent": spec.agent_id,
        "sa_runtime": str(spec.runtime_dir),
        "sa_worktree": str(spec.worktree),
        "sa_branch": spec.branch,
        "sa_parent_repo": spec.parent_repo,
        "sa_start_script": str(spec.worktree / START_SCRIPT),
        "sa_stdin": str(spec.stdin_file or ""),
        "sa_on_success": on_success,
        "sa_on_failure": on_failure,
        "sa_suspended_rc": template_text("suspended-shell.sh"),
        **{f"sa_json_{kind}": json.dumps(text) for kind, text in _problems(spec).items()},
    }
    arrays = {
        "sa_argv": spec.argv,
        "sa_client_env": tuple(f"{name}={value}" for name, value in spec.client_env.items()),
        "sa_coordination": tuple(f"{name}={value}" for name, value in coordination(spec).items()),
    }
    lines = [f"readonly {name}={shlex.quote(value)}" for name, value in values.items()]
    lines += [f"{name}=({' '.join(map(shlex.quote, items))})\nreadonly {name}" for name, items in arrays.items()]
    return lines


def _problems(spec: LaunchSpec) -> dict[str, str]:
    return {
        "missing": f"The worktree {spec.worktree} is not there; the agent was not started.",
        "unknown": f"git does not know {spec.worktree} as a worktree; the agent was not started.",
        "toplevel": f"{spec.worktree} is not the top of a worktree; the agent was not started.",
        "branch": f"{spec.worktree} is not on the branch {spec.branch}; the agent was not started.",
    }
