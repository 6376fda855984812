"""The eight settings of a participant, and which servers may be trusted (reference/forum 5.10).

One file of the user's gives the defaults of new workers; each worker keeps the snapshot it was made with. Nothing in a
project changes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from side_agents.errors import StateError, UsageError
from side_agents.forum import limits

# The project's own forum, spoken to in our own process: no server is needed (DESIGN 7).
LOCAL = "local"
# Where ``forum serve`` listens by default.
DEFAULT_SERVER = "http://127.0.0.1:8080"
_PREFIX = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.PREFIX_CHARACTERS}}}\Z")
_SUBFORUM = re.compile(limits.SUBFORUM_KEY_PATTERN.removesuffix("$") + r"\Z")
_FILE_LIMIT = 64 * limits.KIB


class PostingMode(StrEnum):
    """What a model may publish: nothing, what a person approved, or freely in the subforums that are listed."""

    READ_ONLY = "read-only"
    APPROVAL = "approval"
    AUTONOMOUS = "autonomous"


class SettingsDocument(TypedDict):
    """The settings as they are stored."""

    serverUrl: str
    namePrefix: str
    postingMode: str
    autonomousSubforums: list[str]
    pollIntervalSeconds: int
    copySubforumsOnSpawn: bool
    copyThreadWatchesOnSpawn: bool
    includeModelProvenance: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings with the seed's defaults, but for ``server_url``: ``local`` needs no server (DESIGN 7)."""

    server_url: str = LOCAL
    name_prefix: str = "pi"
    posting_mode: PostingMode = PostingMode.APPROVAL
    autonomous_subforums: tuple[str, ...] = ()
    poll_interval_seconds: int = 60
    copy_subforums_on_spawn: bool = True
    copy_thread_watches_on_spawn: bool = False
    include_model_provenance: bool = True

    def document(self) -> SettingsDocument:
        """The form that is stored."""
        return {
            "serverUrl": self.server_url,
            "namePrefix": self.name_prefix,
            "postingMode": str(self.posting_mode),
            "autonomousSubforums": list(self.autonomous_subforums),
            "pollIntervalSeconds": self.poll_interval_seconds,
            "copySubforumsOnSpawn": self.copy_subforums_on_spawn,
            "copyThreadWatchesOnSpawn": self.copy_thread_watches_on_spawn,
            "includeModelProvenance": self.include_model_provenance,
        }


def defaults_path(pi_folder: Path) -> Path:
    """The user's file of defaults, below Pi's own folder (seed 000, section 11)."""
    return pi_folder / "agentforum" / "settings.json"


def load_defaults(path: Path) -> Settings:
    """The user's defaults for new workers; the built-in ones without a file. Raises UsageError or StateError."""
    from side_agents.infra import fs

    raw = fs.read_slice(path, 0, _FILE_LIMIT + 1)
    if len(raw) > _FILE_LIMIT:
        raise StateError(f"{path} is larger than {_FILE_LIMIT} bytes; it was left as it is.")
    if not raw:
        return Settings()
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is not valid JSON ({error}); it was left as it is.") from error
    return settings_from(data, what=str(path))


def settings_from(data: object, *, what: str = "The forum settings", complete: bool = False) -> Settings:
    """Check settings from outside; ``complete`` wants all eight. Raises UsageError, which names the field."""
    if not isinstance(data, dict):
        raise UsageError(f"{what}: settings must be one JSON object. Nothing was changed.")
    unknown = sorted(set(data) - set(_RULES))
    if unknown:
        raise UsageError(f"{what}: there is no setting {unknown[0]}. Nothing was changed.", hint=_known_settings())
    missing = sorted(set(_RULES) - set(data)) if complete else []
    if missing:
        raise UsageError(f"{what}: the setting {missing[0]} is missing. Nothing was changed.")
    for name, (rule, words) in _RULES.items():
        if name in data and not rule(data[name]):
            raise UsageError(f"{what}: {name} must be {words}. Nothing was changed.")
    return _built(data)


def check_origin(url: str) -> str:
    """The origin of a server that may be given credentials, in one spelling. Raises UsageError for any other.

    https, or http on a loopback address; no user, path, query or fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(url, str(error)) from error
    host = (parts.hostname or "").lower()
    if not url.isascii() or any(character <= " " for character in url):
        raise _refused(url, "it has characters that no address has")
    if parts.scheme not in ("http", "https") or not host:
        raise _refused(url, "it must begin with https:// or http:// and name a host")
    if "@" in parts.netloc or parts.path not in ("", "/") or "?" in url or "#" in url:
        raise _refused(url, "it must name a host and nothing else: no user, path, query or fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise _refused(url, "http without encryption is for loopback addresses only")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")


def is_loopback(host: str) -> bool:
    """Whether a host name can only mean this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _refused(url: str, reason: str) -> UsageError:
    return UsageError(f"{url!r} cannot be a forum server: {reason}. Nothing was sent.")


def _known_settings() -> str:
    return f"There are: {', '.join(_RULES)}."


def _is_server(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return value == LOCAL or bool(check_origin(value))
    except UsageError:
        return False


def _is_subforums(value: object) -> bool:
    if not isinstance(value, list) or len(value) > limits.SUBFORUMS:
        return False
    return all(isinstance(key, str) and _SUBFORUM.match(key) for key in value) and len(set(value)) == len(value)


def _is_interval(value: object) -> bool:
    return type(value) is int and limits.CLIENT_POLL_SECONDS_LEAST <= value <= limits.CLIENT_POLL_SECONDS_MOST


def _is_prefix(value: object) -> bool:
    return isinstance(value, str) and _PREFIX.match(value) is not None


def _is_mode(value: object) -> bool:
    return isinstance(value, str) and value in frozenset(PostingMode)


def _is_bool(value: object) -> bool:
    return type(value) is bool


_RULES = {
    "serverUrl": (_is_server, f"{LOCAL}, an https:// address or an http:// address on this machine, without a path"),
    "namePrefix": (_is_prefix, f"1 to {limits.PREFIX_CHARACTERS} letters, digits, underscores or hyphens"),
    "postingMode": (_is_mode, "read-only, approval or autonomous"),
    "autonomousSubforums": (_is_subforums, "a list of different subforum keys"),
    "pollIntervalSeconds": (
        _is_interval,
        f"a whole number from {limits.CLIENT_POLL_SECONDS_LEAST} to {limits.CLIENT_POLL_SECONDS_MOST}",
    ),
    "copySubforumsOnSpawn": (_is_bool, "true or false"),
    "copyThreadWatchesOnSpawn": (_is_bool, "true or false"),
    "includeModelProvenance": (_is_bool, "true or false"),
}


def _built(data: Mapping[str, Any]) -> Settings:
    stored: dict[str, Any] = {**Settings().document(), **data}
    server = stored["serverUrl"]
    return Settings(
        server_url=server if server == LOCAL else check_origin(server),
        name_prefix=stored["namePrefix"],
        posting_mode=PostingMode(stored["postingMode"]),
        autonomous_subforums=tuple(stored["autonomousSubforums"]),
        poll_interval_seconds=stored["pollIntervalSeconds"],
        copy_subforums_on_spawn=stored["copySubforumsOnSpawn"],
        copy_thread_watches_on_spawn=stored["copyThreadWatchesOnSpawn"],
        include_model_provenance=stored["includeModelProvenance"],
    )
