# pathlib would cost the program a quarter of its start.
# ruff: noqa: PTH100, PTH103, PTH109, PTH110, PTH111, PTH118, PTH120, PTH123
"""Conversations of the script agent on disk: JSONL files like those of real clients, safe against a kill at any point.

``HOME/sessions/--<cwd, "/" as "-">--/<session id>.jsonl``, HOME being ``SIDE_AGENTS_SCRIPT_HOME`` or
``~/.side-agents-script``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

from side_agents.clients.script_journal import iso_now

Entry = dict[str, object]

# Entries of our own in a conversation: whose it is, and what an agent was told when it was resumed.
LINK = "side-agent-link"
NOTICE = "side-agent-resume-notice"
_TAIL = 1 << 20
_HOME_NAME = ".side-agents-script"


class SessionError(Exception):
    """The session cannot be opened; the text says why."""


def sessions_folder(environment: Mapping[str, str], cwd: str) -> str:
    """Return the folder that holds the sessions of the (real) directory ``cwd``."""
    encoded = cwd.strip("/").replace("/", "-")
    return _join(script_home(environment), "sessions", f"--{encoded}--")


def script_home(environment: Mapping[str, str]) -> str:
    """Return the script agent's own folder."""
    chosen = environment.get("SIDE_AGENTS_SCRIPT_HOME", "")
    home = environment.get("HOME") or "~"
    return os.path.abspath(chosen) if chosen else _join(os.path.expanduser(home), _HOME_NAME)


def session_path(environment: Mapping[str, str], cwd: str, session_id: str) -> str:
    """Return where the session ``session_id`` of ``cwd`` is or will be."""
    return _join(sessions_folder(environment, cwd), f"{session_id}.jsonl")


def new_session_id() -> str:
    """Return a fresh random id in UUID form."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def read_entries(path: str, containing: str = "") -> Iterator[Entry]:
    """Yield the readable entries of a session file in order; a line cut by a kill is passed over.

    Lines without the text ``containing`` are not even parsed.
    """
    needle = containing.encode()
    with open(path, "rb") as file:
        for line in file:
            entry = _parse(line) if needle in line else None
            if entry is not None:
                yield entry


class Session:
    """One conversation. A new one reaches the disk with its first message, so that empty ones leave nothing behind."""

    def __init__(self, path: str, session_id: str, *, parent: str | None = None) -> None:
        self.path = path
        self.session_id = session_id
        self.parent_session = parent
        self.last_id: str | None = None
        self._link: Entry | None = None
        self._started = False

    @classmethod
    def resumed(cls, path: str) -> Session:
        """Open an existing file to continue in it, or a new one at exactly this path; raises SessionError."""
        stem = path.rpartition("/")[2].removesuffix(".jsonl")
        if not os.path.exists(path):
            return cls(path, stem)
        header, last_id = _ends_of(path)
        session = cls(path, str(header.get("id", stem)))
        session.last_id = last_id
        session._started = True
        return session

    @classmethod
    def forked(cls, source: str, path: str, session_id: str, cwd: str) -> Session:
        """Copy the conversation of ``source`` to a new file with a header of its own; raises SessionError."""
        last_id = _ends_of(source)[1]
        session = cls(path, session_id, parent=source)
        session._append(session._header(cwd))
        for entry in read_entries(source):
            if entry.get("type") != "session":
                session._append(entry)
        session.last_id = last_id
        session._started = True
        return session

    def add(self, role: str, content: object, **extra: object) -> None:
        """Append one message; the file and its header come into being with the first one."""
        if not self._started:
            self._append(self._header(os.getcwd()))
            self._started = True
            if self._link:
                self._append_custom(LINK, self._link)
        entry_id = os.urandom(4).hex()
        message = {"role": role, "content": content, **extra}
        self._append(
            {"type": "message", "id": entry_id, "parentId": self.last_id, "timestamp": iso_now(), "message": message}
        )
        self.last_id = entry_id

    def link(self, agent_id: str, parent_session: str) -> None:
        """Say in the conversation whose it is, unless its last link says so already; the last one wins (B55)."""
        self._link = {"agentId": agent_id, "parentSession": parent_session or None, "linkedAt": iso_now()}
        if self._started and self._last_data(LINK).get("agentId") != agent_id:
            self._append_custom(LINK, self._link)

    def take_notice(self, notice: Entry, cwd: str) -> str | None:
        """Return the text of a resume notice and keep it; None when it is not for here or was taken before.

        It is for one directory, and for one session or a direct fork of it (reference/side-agents 8.4).
        """
        content = notice.get("content")
        mine = notice.get("sourceSessionPath") in (self.path, self.parent_session) and notice.get("targetCwd") == cwd
        if not mine or not self._started or not isinstance(content, str):
            return None
        if self._last_data(NOTICE).get("noticeId") == notice.get("noticeId"):
            return None
        self._append_custom(NOTICE, {"noticeId": notice.get("noticeId"), "content": content})
        return content

    def _last_data(self, kind: str) -> Entry:
        data: object = None
        for entry in read_entries(self.path, kind) if self._started else ():
            if entry.get("customType") == kind:
                data = entry.get("data")
        return data if isinstance(data, dict) else {}

    def _append_custom(self, kind: str, data: Entry) -> None:
        head: Entry = {"type": "custom", "customType": kind, "id": os.urandom(4).hex(), "parentId": self.last_id}
        self._append({**head, "timestamp": iso_now(), "data": data})

    def _header(self, cwd: str) -> Entry:
        header: Entry = {"type": "session", "id": self.session_id, "timestamp": iso_now(), "cwd": cwd}
        return {**header, "parentSession": self.parent_session} if self.parent_session else header

    def _append(self, entry: Entry) -> None:
        data = json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise SessionError(f"session {self.path} cannot be written: {error.strerror}") from error
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # a kill cut the last line; the new entry must not join it
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError as error:
            raise SessionError(f"session {self.path} cannot be written: {error.strerror}") from error
        finally:
            os.close(descriptor)


def _ends_of(path: str) -> tuple[Entry, str | None]:
    """Return the header and the id of the last readable message; only the end of a long file is read."""
    try:
        with open(path, "rb") as file:
            header = _parse(file.readline())
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read().split(b"\n")
    except OSError as error:
        raise SessionError(f"session {path} cannot be read: {error.strerror}") from error
    if header is None or header.get("type") != "session":
        raise SessionError(f"{path} is not a session file of the script agent")
    for line in reversed(tail):
        entry = _parse(line)
        if entry is not None and entry.get("type") == "message":
            return header, str(entry.get("id"))
    return header, None


def _parse(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _join(*parts: str) -> str:
    return os.path.join(*parts)
