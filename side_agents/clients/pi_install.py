"""Our extension in the user's own Pi: one file of ours in Pi's folder of extensions, nothing else is touched.

Both Pi 0.73 and 1.6 load ``AGENT_DIR/extensions/*.js`` without being told. The file only points to this installation and
brings its skills along, so there is no copy that grows old and no setting to edit. Where it points to nothing any more, it
says so in Pi, and ``inspect`` says it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from side_agents import __version__, paths, resources
from side_agents.clients import pi
from side_agents.errors import RefusedError, StateError
from side_agents.infra import clock, fs, proc

FILE = "extensions/side-agents.js"
SKILLS = ("agent-setup", "forum", "side-agents")
OLDEST = (0, 73)

_TEMPLATE = "pi/installed.js"
_BEGIN = "// side-agents for Pi, written by `side-agents install pi`"
_PLACE = "const INSTALLATION = {};"
_VALUES = re.compile(r"^const INSTALLATION = (\{.*\});$", re.MULTILINE)
_SIZE_LIMIT = 256 * 1024


class State(StrEnum):
    """How the file stands to the one that this installation would write."""

    ABSENT = "absent"
    CURRENT = "current"
    OUTDATED = "outdated"
    ELSEWHERE = "elsewhere"
    BROKEN = "broken"
    EDITED = "edited"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to know, and what to do about it. A fault keeps the extension from working as it should."""

    what: str
    mend: str
    is_fault: bool = True


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is there. ``loads`` is the extension that the file points to, ``pi`` the program that would load it."""

    path: Path
    state: State
    loads: Path | None
    pi: Path | None
    pi_version: str | None
    remarks: tuple[Remark, ...]

    @property
    def is_sound(self) -> bool:
        """Installed, up to date, and nothing is in its way."""
        return self.state is State.CURRENT and not any(remark.is_fault for remark in self.remarks)


@dataclass(frozen=True, slots=True)
class Change:
    """What was done: ``installed``, ``updated``, ``unchanged``, ``removed`` or ``absent``; ``backup`` is the user's version."""

    action: str
    backup: Path | None
    after: Inspection


def inspect(environment: Mapping[str, str]) -> Inspection:
    """Look at the file, at what it points to and at Pi's settings; changes nothing."""
    path = paths.pi_folder(environment) / FILE
    text = _text(path)
    values = _values(text)
    state = _state(text, values, environment)
    loads = values.get("extension")
    program = proc.find_program("pi", path=environment.get("PATH"))
    version = pi.version(program) if program is not None else None
    remarks = (*_of_state(path, state, values), *_of_pi(program, version), *_of_settings(path.parents[1]))
    return Inspection(path, state, Path(loads) if isinstance(loads, str) else None, program, version, remarks)


def survey(environment: Mapping[str, str]) -> tuple[Path, State, tuple[Remark, ...]]:
    """The file, how it stands, and what is wrong with it; nothing is wrong where none is installed. Starts no program."""
    path = paths.pi_folder(environment) / FILE
    text = _text(path)
    values = _values(text)
    state = _state(text, values, environment)
    if state is State.ABSENT:
        return path, state, ()
    return path, state, (*_of_state(path, state, values), *_of_settings(path.parents[1]))


def install(environment: Mapping[str, str]) -> Change:
    """Write the file, or bring it up to date; one that the user has edited is kept beside it.

    Raises RefusedError when another file has its name, StateError when it cannot be written; nothing was changed then.
    """
    before = inspect(environment)
    _refuse_foreign(before)
    if before.state is State.CURRENT:
        return Change("unchanged", None, before)
    wanted = _wanted(environment)
    if wanted is None:
        raise RefusedError(
            "The program side-agents was not found beside this Python and not on PATH. Nothing was changed.",
            hint="Install it: pipx install side-agents",
        )
    backup = _keep(before)
    fs.make_private_dir(before.path.parent)
    fs.replace(before.path, wanted, mode=0o644)
    action = "installed" if before.state is State.ABSENT else "updated"
    return Change(action, backup, inspect(environment))


def uninstall(environment: Mapping[str, str]) -> Change:
    """Remove the file; one that the user has edited is kept beside it. Raises RefusedError for another file of its name."""
    before = inspect(environment)
    _refuse_foreign(before)
    if before.state is State.ABSENT:
        return Change("absent", None, before)
    backup = _keep(before)
    fs.remove_file(before.path)
    return Change("removed", backup, inspect(environment))


def _refuse_foreign(found: Inspection) -> None:
    if found.state is State.FOREIGN:
        raise RefusedError(
            f"{found.path} is not a file of `side-agents install`. Nothing was changed.",
            hint="Look at it and move it out of that folder; then try again.",
        )


def _keep(found: Inspection) -> Path | None:
    if found.state is not State.EDITED:
        return None
    backup = found.path.with_name(f"{found.path.name}.{clock.stamp()}.backup")
    fs.replace(backup, found.path.read_bytes())
    return backup


def _wanted(environment: Mapping[str, str]) -> str | None:
    """The file for this installation; None when that has no program that Pi could start."""
    program = resources.program_path(environment)
    if program is None:
        return None
    values = {
        "version": __version__,
        "extension": str(resources.template_path(pi.EXTENSION)),
        "skills": [str(resources.skill_path(name)) for name in SKILLS],
        "program": str(program),
    }
    template = resources.template_text(_TEMPLATE)
    return _signed(template.replace(_PLACE, f"const INSTALLATION = {json.dumps(values)};"))


def _signed(text: str) -> str:
    return f"{text}// {sha256(text.encode()).hexdigest()}\n"


def _text(path: Path) -> str | None:
    """The file; None when there is none. What cannot be read as text cannot be ours: that is an empty one."""
    if not path.is_symlink() and not path.exists():
        return None
    try:
        return fs.read_slice(path, 0, _SIZE_LIMIT).decode()
    except (StateError, UnicodeDecodeError):
        return ""


def _values(text: str | None) -> dict[str, Any]:
    found = _VALUES.search(text or "")
    try:
        values = json.loads(found[1]) if found else {}
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _state(text: str | None, values: Mapping[str, Any], environment: Mapping[str, str]) -> State:
    if text is None:
        return State.ABSENT
    if not text.startswith(_BEGIN):
        return State.FOREIGN
    wanted = _wanted(environment)
    if text == wanted:
        return State.CURRENT
    body = text[: text.rstrip("\n").rfind("\n") + 1]
    if text != _signed(body):
        return State.EDITED
    if _missing(values):
        return State.BROKEN
    return State.OUTDATED if values.get("extension") == _values(wanted).get("extension") else State.ELSEWHERE


def _missing(values: Mapping[str, Any]) -> list[str]:
    skills = values.get("skills")
    named = [values.get("extension"), values.get("program"), *(skills if isinstance(skills, list) else [])]
    return [str(name) for name in named if not isinstance(name, str) or not Path(name).exists()]


def _of_state(path: Path, state: State, values: Mapping[str, Any]) -> Iterator[Remark]:
    again = "`side-agents install pi` brings it up to date."
    match state:
        case State.ABSENT:
            yield Remark("The extension is not installed: Pi has no /agent.", "`side-agents install pi` installs it.")
        case State.FOREIGN:
            yield Remark(
                f"{path} is not a file of `side-agents install`.", "Look at it and move it out of that folder."
            )
        case State.EDITED:
            yield Remark("The file was edited.", f"{again} Your version is kept beside it.")
        case State.BROKEN:
            yield Remark(f"It points to {_missing(values)[0]}, which is gone.", again)
        case State.ELSEWHERE:
            yield Remark(f"It loads another installation of side-agents: {values.get('extension')}.", again)
        case State.OUTDATED:
            yield Remark(f"It was written by another version, {values.get('version')}.", again)


def _of_pi(program: Path | None, version: str | None) -> Iterator[Remark]:
    if program is None:
        what = "Pi is not on PATH; the extension is loaded as soon as it is."
        yield Remark(what, "npm install -g @earendil-works/pi-coding-agent", is_fault=False)
    elif version is not None and not pi.at_least(version, OLDEST):
        oldest = ".".join(map(str, OLDEST))
        yield Remark(f"Pi {version} is too old; the extension needs {oldest} or newer.", "Install a newer Pi.")


def _of_settings(folder: Path) -> Iterator[Remark]:
    """What in Pi's settings or beside our file keeps it from being loaded, or gives Pi the same commands twice."""
    settings = _settings(folder)
    listed = [each for each in _list(settings.get("extensions")) if isinstance(each, str)]
    for each in listed:
        if each[:1] in ("-", "!") and Path(each[1:]).name == Path(FILE).name:
            place = folder / "settings.json"
            yield Remark(
                f"Pi is told not to load it: {each!r} in {place}.", "Take that out, or enable it in `pi config`."
            )
    sources = [each.get("source") if isinstance(each, dict) else each for each in _list(settings.get("packages"))]
    for source in (*sources, *listed):
        if isinstance(source, str) and source[:1] not in ("-", "!") and "side-agents" in source:
            mend = f"Remove it: `pi remove {source}`, or take it out of {folder / 'settings.json'}."
            yield Remark(f"Pi also loads {source}, which has the same commands.", mend)
    for name in ("side-agents.ts", "side-agents/index.ts", "side-agents/index.js", "side-agents/package.json"):
        other = folder / "extensions" / name
        if other.exists():
            yield Remark(f"Pi also loads {other}, which has the same commands.", "Move it out of that folder.")


def _settings(folder: Path) -> Mapping[str, Any]:
    try:
        settings = fs.read_json(folder / "settings.json")
    except StateError:
        # Pi says so itself, each time it starts.
        return {}
    return settings if isinstance(settings, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
