"""Requests under the rules of trust: no secret leaves before the other side is known to be the forum we mean.

One connection belongs to one worker in one process. It asks for the capabilities once, without a credential, and compares
them with what the worker is bound to; afterwards every request names that installation, so that a server exchanged
meanwhile refuses it before it looks at the credential (reference/forum 5.2, 6.2 rule 45).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from side_agents.errors import ForumError
from side_agents.forum import limits
from side_agents.forum.client.transport import (
    BAD_ANSWER,
    Request,
    Response,
    Signal,
    Transport,
    bad_answer,
    nothing,
)
from side_agents.forum.client.worker_document import Server
from side_agents.infra import text

INSTALLATION_MISMATCH = "installation_mismatch"
PROTOCOL_MISMATCH = "protocol_mismatch"

_SECONDS = 30.0
_INSTALLATION = re.compile(r"in_[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")
_CREDENTIAL = re.compile(r"af_[A-Za-z0-9_-]{20,}")
_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Reply:
    """A good answer: the object in it, without the version of its form."""

    status: int
    data: dict[str, Any]
    replayed: bool = False


class Connection:
    """Sends for one worker. ``bound`` is what it is bound to, None before its first registration.

    May be used from several threads. Every method raises ForumError.
    """

    def __init__(self, transport: Transport, bound: Server | None) -> None:
        self._transport = transport
        self._bound = bound
        self._verifying = threading.Lock()
        self._verified: Server | None = None

    @property
    def origin(self) -> str:
        """Where requests go."""
        return self._transport.origin

    def verify(self) -> Server:
        """What the other side is, asked once. Raises ``installation_mismatch`` or ``protocol_mismatch``."""
        with self._verifying:
            if self._verified is None:
                self._verified = self._ask_who()
            return self._verified

    def request(
        self,
        method: str,
        path: str,
        *,
        credential: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        wait: float = 0,
        cancellation: Signal | None = None,
    ) -> Reply:
        """An ordinary request of an author; ``wait`` is how long the forum may take its time on purpose."""
        target = path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        raw = None if body is None else _encode({"schemaVersion": limits.SCHEMA_VERSION, **body})
        return self._exchange(
            Request(
                method=method,
                target=target,
                headers=self._headers(credential, raw),
                body=raw,
                timeout=(wait + limits.CLIENT_HTTP_GRACE_SECONDS) if wait else _SECONDS,
                cancellation=cancellation or Signal(),
            )
        )

    def send_prepared(
        self, path: str, *, key: str, payload: str, credential: str | None, sent: Callable[[], None] = nothing
    ) -> Reply:
        """A saved command, byte for byte; only registration has no ``credential``."""
        raw = payload.encode()
        headers = {**self._headers(credential, raw), "idempotency-key": key}
        return self._exchange(
            Request(method="POST", target=path, headers=headers, body=raw, timeout=_SECONDS, sent=sent)
        )

    def download(self, path: str, *, credential: str) -> bytes:
        """The bytes of a file, whatever the forum says that they are."""
        request = Request(method="GET", target=path, headers=self._headers(credential, None), timeout=_SECONDS)
        response = self._transport.send(request)
        if response.status == 200:
            return response.body
        self._judged(response)
        raise bad_answer(self.origin, f"status {response.status} instead of a file", status=response.status)

    def _ask_who(self) -> Server:
        reply = self._exchange(Request(method="GET", target="/v1/capabilities", timeout=_SECONDS))
        version, installation = reply.data.get("protocolVersion"), reply.data.get("installationId")
        if version != limits.PROTOCOL_VERSION or type(version) is not int:
            raise _local(
                PROTOCOL_MISMATCH,
                f"The forum at {self.origin} speaks version {str(version)[:20]} of the protocol, we speak "
                f"{limits.PROTOCOL_VERSION}. No credential was sent.",
                hint="Use the same version of side-agents on both sides.",
            )
        if not isinstance(installation, str) or not _INSTALLATION.match(installation):
            raise bad_answer(self.origin, "it names no installation")
        if self._bound is not None and (self._bound["installationId"], self._bound["origin"]) != (
            installation,
            self.origin,
        ):
            raise _local(
                INSTALLATION_MISMATCH,
                f"What answers at {self.origin} is another forum than the one this worker belongs to. No credential was "
                "sent.",
                hint="If the forum was replaced on purpose, make a new worker: side-agents forum worker new",
            )
        return {"origin": self.origin, "installationId": installation, "protocolVersion": limits.PROTOCOL_VERSION}

    def _headers(self, credential: str | None, raw: bytes | None) -> dict[str, str]:
        headers = {"forum-installation": self.verify()["installationId"], "accept": "application/json"}
        if credential is not None:
            headers["authorization"] = f"Bearer {credential}"
        if raw is not None:
            headers["content-type"] = "application/json"
        return headers

    def _exchange(self, request: Request) -> Reply:
        return self._judged(self._transport.send(request))

    def _judged(self, response: Response) -> Reply:
        data = self._decoded(response)
        if 200 <= response.status < 300:
            if data.pop("schemaVersion", None) != limits.SCHEMA_VERSION:
                raise bad_answer(self.origin, "its form has another version", status=response.status)
            return Reply(response.status, data, response.headers.get("idempotency-replayed") == "true")
        if 300 <= response.status < 400:
            # Following it would hand the credential to whoever is named there.
            raise bad_answer(self.origin, "it points somewhere else, which is never followed", status=response.status)
        raise _refusal(response.status, data)

    def _decoded(self, response: Response) -> dict[str, Any]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise bad_answer(self.origin, f"status {response.status} without JSON", status=response.status)
        try:
            data = json.loads(response.body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise bad_answer(self.origin, "its JSON is broken", status=response.status) from error
        if not isinstance(data, dict):
            raise bad_answer(self.origin, "it is no JSON object", status=response.status)
        return data


def is_local_fault(error: ForumError) -> bool:
    """Whether an error comes from our own checks or the way, and not from the forum."""
    return error.status == 0 or error.forum_code == BAD_ANSWER


def _refusal(status: int, data: Mapping[str, Any]) -> ForumError:
    code, words, field = data.get("code"), data.get("message"), data.get("field")
    message = _CREDENTIAL.sub("af_…", text.one_line(str(words), _MESSAGE_CHARACTERS))
    return ForumError(
        message,
        forum_code=text.one_line(code, 64) if isinstance(code, str) else f"status_{status}",
        status=status,
        retryable=data.get("retryable") is True,
        field=text.one_line(field, 200) if isinstance(field, str) else None,
        hint="Nobody was registered anew and nothing was deleted. Look: side-agents forum worker show"
        if status == 401
        else None,
    )


def _local(code: str, message: str, *, hint: str) -> ForumError:
    return ForumError(message, forum_code=code, status=0, hint=hint)


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")
