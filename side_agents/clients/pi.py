"""Adapter of Pi (npm ``@earendil-works/pi-coding-agent``, before 0.74 ``@mariozechner/pi-coding-agent``).

What Pi does is told by our extension, ``templates/pi/side-agents.js``: it journals, and it delivers the first prompt
from the runtime folder byte for byte; an argument would be cut, expanded or refused by its size or first character.
The extension also answers Pi's question whether to trust the slot's project settings (Pi 0.79 and newer): as the user
answered for the slot or the main repository, by ``defaultProjectTrust``, else no. No start waits for that question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_agents import resources
from side_agents.clients import pi_screen
from side_agents.clients.interface import LaunchPlan, LaunchRequest
from side_agents.errors import NotFoundError, ToolMissingError
from side_agents.infra import fs, proc

EXTENSION = "pi/side-agents.js"

_PACKAGES = ("@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent")
_CHOOSES_SESSION_ID = (0, 76)
# The package.json of a bin script lies at most this many folders above it.
_PACKAGE_DEPTH = 4
_HEADER_LIMIT = 16 * 1024
_CONTROL_KEY = re.compile(r"\x1b\[(6[5-9]|[78]\d|90|9[7-9]|1[01]\d|12[0-2]);5u")
_CONTROLS = {code: None for code in range(0x20) if code != 0x0A}
# What JavaScript's trim() removes, which is not what str.strip() does.
_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))


@dataclass(frozen=True, slots=True)
class PiClient:
    """The ``pi`` client. Escape interrupts; Ctrl+C does not, and twice within half a second it quits."""

    name: str = "pi"
    interrupt_keys: tuple[str, ...] = ("Escape",)
    quit_text: str | None = "/quit"
    reports_events: bool = True
    quiet_seconds: float = 0.0

    def locate(self, environment: Mapping[str, str]) -> Path:
        """Return the first ``pi`` on the caller's PATH."""
        found = proc.find_program("pi", path=environment.get("PATH"))
        if found is None:
            raise ToolMissingError(
                "Pi is not installed or not on PATH. Nothing was started.",
                hint=f"npm install -g {_PACKAGES[0]}  (needs Node 22.19 or newer)",
            )
        return found

    def launch_plan(self, request: LaunchRequest) -> LaunchPlan:
        """Plan a start, or with ``resume_session`` (a file, or an id that Pi looks up) its continuation or fork.

        Before Pi 0.76 the id of a new session is not known beforehand; the journal's ``session`` event tells it.
        Raises NotFoundError when the session file does not exist.
        """
        program = self.locate(request.environment)
        options, session_id, session_file = _session(request, version(program))
        argv = [str(program), "-e", str(resources.template_path(EXTENSION)), *options]
        if request.model:
            argv += ["--model", request.model]
        if request.skills_dir is not None:
            argv += ["--skill", str(request.skills_dir)]
        # An agent that starts agents uses this installation, also where its program is not on PATH.
        own = resources.program_path(request.environment)
        env = {"SIDE_AGENTS_PROGRAM": str(own)} if own is not None else {}
        return LaunchPlan(argv=tuple(argv), env=env, session_id=session_id, session_file=session_file)

    def normalise(self, message: str) -> str:
        """Return the message as Pi's editor hands it over: tabs widened, controls dropped, blanks at the ends cut.

        A shell line (``!ls``) loses the blanks behind its mark. Pasting the result gives the same result again; it
        holds no escape sequence that could end a bracketed paste.
        """
        text = message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        text = _CONTROL_KEY.sub(lambda match: chr(int(match[1]) & 0x1F), text)
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
        text = text.translate(_CONTROLS).strip(_BLANKS)
        mark = "!!" if text.startswith("!!") else "!" if text.startswith("!") else ""
        return mark + text[len(mark) :].strip(_BLANKS)

    def draft(self, screen: Sequence[str]) -> str | None:
        """Return the visible text of the input box; None when a dialog or no box is there."""
        return pi_screen.draft(screen)

    def is_busy(self, screen: Sequence[str]) -> bool | None:
        """Tell by the spinner above the input box; None when no box is there."""
        return pi_screen.is_busy(screen)


def version(program: Path) -> str | None:
    """Return Pi's version from the package.json of the real program, None for a build without one."""
    for folder in program.resolve().parents[:_PACKAGE_DEPTH]:
        try:
            about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(about, dict) and about.get("name") in _PACKAGES:
            return str(about.get("version"))
    return None


def _session(request: LaunchRequest, pi_version: str | None) -> tuple[list[str], str | None, str | None]:
    """Return the options that name the session, its id and its file, as far as they are known beforehand."""
    chosen = at_least(pi_version, _CHOOSES_SESSION_ID)
    source = request.resume_session
    if source and "/" in source and not Path(source).is_file():
        # Pi would quietly begin an empty conversation in that file.
        raise NotFoundError(f"The session file {source} does not exist. Nothing was started.")
    if source and not request.fork:
        is_file = "/" in source
        return ["--session", source], _session_id(Path(source)) if is_file else source, source if is_file else None
    options = ["--fork", source] if source else []
    if not chosen:
        return options, None, None
    return [*options, "--session-id", request.session_id], request.session_id, None


def _session_id(file: Path) -> str | None:
    header = fs.read_slice(file, 0, _HEADER_LIMIT).partition(b"\n")[0]
    try:
        value = json.loads(header)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def at_least(pi_version: str | None, wanted: tuple[int, int]) -> bool:
    """Tell whether a version is so new; one that is not known is not."""
    match = re.match(r"(\d+)\.(\d+)", pi_version or "")
    return match is not None and (int(match[1]), int(match[2])) >= wanted
